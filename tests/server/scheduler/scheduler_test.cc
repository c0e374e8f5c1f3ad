// The life of jobs, and what a death of the process makes of it.
#include <algorithm>

#include "tests/server/scheduler/scheduler_fixture.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using S = JobState;

// ---- A job's ordinary life ----

TEST_F(SchedulerTest, FromTheQueueToTheEnd) {
  const std::string id = Submit();
  EXPECT_EQ(State(id), S::kQueued);
  Round();
  EXPECT_EQ(State(id), S::kPreparing);
  EXPECT_THAT(runner_->Asked(), ElementsAre("start " + id));
  EXPECT_EQ(runner_->request(id).spec.checkpoint.directory,
            directory_.path() + "/state/jobs/" + id + "/checkpoints");
  EXPECT_NE(runner_->request(id).records, nullptr);
  runner_->Running(id, 1, 100);
  Round();
  EXPECT_EQ(State(id), S::kRunning);
  EXPECT_EQ(Get(id)->total_steps, 100);
  EXPECT_EQ(Get(id)->started, now_);
  for (int64_t step = 1; step <= 50; ++step) runner_->Step(id, step);
  runner_->Checkpointed(id, 50);
  Round();
  EXPECT_EQ(Get(id)->step, 50);
  EXPECT_EQ(Get(id)->last_step->step, 50);
  EXPECT_NEAR(Get(id)->step_seconds, 2, 1e-9);
  EXPECT_EQ(Get(id)->checkpoint_step, 50);
  runner_->End(id, RunEnd::Kind::kFinished);
  Round();
  EXPECT_EQ(State(id), S::kSucceeded);
  EXPECT_EQ(Get(id)->step, 100);
  EXPECT_EQ(Get(id)->attempts, 1);
  EXPECT_EQ(History(id), "QUEUED PREPARING RUNNING SUCCEEDED");
  EXPECT_TRUE((*records_->Open(id))->metrics().closed()) << "readers that follow end";
}

TEST_F(SchedulerTest, NewsThatComeTogetherAreToldInOrder) {
  const std::string id = Submit();
  Round();
  runner_->Running(id, 1, 3);
  for (int64_t step = 1; step <= 3; ++step) runner_->Step(id, step);
  runner_->Checkpointed(id, 3);
  runner_->End(id, RunEnd::Kind::kFinished);
  Round();
  EXPECT_EQ(History(id), "QUEUED PREPARING RUNNING SUCCEEDED");
  EXPECT_EQ(Get(id)->step, 3);
  EXPECT_EQ(Get(id)->checkpoint_step, 3);
}

TEST_F(SchedulerTest, AJobThatWasFinishedBefore) {
  const std::string id = Submit();
  Round();
  runner_->End(id, RunEnd::Kind::kFinished);
  Round();
  EXPECT_EQ(History(id), "QUEUED PREPARING RUNNING SUCCEEDED");
}

TEST_F(SchedulerTest, FailuresHaveTheirReason) {
  const std::vector<std::pair<absl::StatusCode, JobReason>> table = {
      {absl::StatusCode::kInvalidArgument, JobReason::kInvalidInput},
      {absl::StatusCode::kNotFound, JobReason::kInvalidInput},
      {absl::StatusCode::kFailedPrecondition, JobReason::kInvalidInput},
      {absl::StatusCode::kOutOfRange, JobReason::kInvalidInput},
      {absl::StatusCode::kUnimplemented, JobReason::kInvalidInput},
      {absl::StatusCode::kPermissionDenied, JobReason::kInvalidInput},
      {absl::StatusCode::kResourceExhausted, JobReason::kDoesNotFit},
      {absl::StatusCode::kAborted, JobReason::kNonFinite},
      {absl::StatusCode::kDataLoss, JobReason::kCheckpointDamaged},
      {absl::StatusCode::kInternal, JobReason::kTrainingError}};
  for (const auto& [code, reason] : table) {
    for (const bool running : {false, true}) {
      const std::string id = running ? Train(7) : Submit();
      Round();
      runner_->End(id, RunEnd::Kind::kFailed, absl::Status(code, "loss is NaN"));
      Round();
      EXPECT_EQ(State(id), S::kFailed);
      EXPECT_EQ(Get(id)->reason, reason);
      EXPECT_EQ(Get(id)->reason_text, "loss is NaN");
      EXPECT_EQ(Get(id)->step, running ? 7 : 0);
    }
  }
}

TEST_F(SchedulerTest, StartsArePredictedBeforeAnythingRan) {
  predicted_step_seconds_ = 3;
  const std::string first = Submit(), second = Submit(), third = Submit();
  Round();
  EXPECT_EQ(State(first), S::kPreparing);
  // 100 steps each, as the job file says.
  EXPECT_EQ(Get(second)->queue.predicted_start, now_ + absl::Seconds(300));
  EXPECT_EQ(Get(third)->queue.predicted_start, now_ + absl::Seconds(600));
  // What a job's own steps take is known better.
  runner_->Running(first, 1, 100);
  runner_->Step(first, 40);
  Round();
  EXPECT_EQ(Get(second)->queue.predicted_start, now_ + absl::Seconds(120));
  EXPECT_EQ(Get(third)->queue.predicted_start, now_ + absl::Seconds(420));
  EXPECT_EQ(predictions_, 3) << "once for each job";
}

TEST_F(SchedulerTest, AJobWhoseFilesCannotBeReadIsPlannedAgainInAMoment) {
  predicted_step_seconds_ = 3;
  const std::string first = Submit();
  Round();
  files_are_readable_ = false;
  const std::string second = Submit();
  Round();
  files_are_readable_ = true;
  Round();
  EXPECT_EQ(predictions_, 2) << "not in every round";
  now_ += absl::Seconds(30);
  const std::string third = Submit();
  Round();
  EXPECT_EQ(Get(third)->queue.predicted_start, now_ + absl::Seconds(600));
}

TEST_F(SchedulerTest, OneAfterTheOther) {
  const std::string first = Submit(), second = Submit();
  Round();
  EXPECT_EQ(State(first), S::kPreparing);
  EXPECT_EQ(State(second), S::kQueued);
  EXPECT_EQ(Get(second)->queue.position, 1);
  EXPECT_EQ(Get(second)->queue.waiting, WaitingReason::kDeviceBusy);
  runner_->Running(first, 1, 100);
  runner_->Step(first, 40);
  Round();
  EXPECT_EQ(Get(second)->queue.predicted_start, now_ + absl::Seconds(120));
  runner_->End(first, RunEnd::Kind::kFailed);
  Round();
  EXPECT_EQ(State(second), S::kPreparing);
  EXPECT_EQ(Get(second)->queue, QueuePlace{});
}

TEST_F(SchedulerTest, UsersTakeTurns) {
  const std::string running = Train();
  const std::string anna = Submit(kAnna), bert = Submit(kBert);
  Round();
  EXPECT_EQ(Get(bert)->queue.position, 1);
  EXPECT_EQ(Get(anna)->queue.position, 2);
  now_ += absl::Hours(1);
  runner_->End(running, RunEnd::Kind::kFinished);
  Round();
  EXPECT_EQ(State(bert), S::kPreparing);
  // What was used is remembered by the events, also after a restart.
  const std::string urgent = Submit(kAnna);
  Restart();
  Round();
  EXPECT_EQ(State(bert), S::kPreparing) << "anna has had an hour";
  EXPECT_EQ(Get(anna)->queue.position, 1);
  EXPECT_EQ(Get(urgent)->queue.position, 2);
}

TEST_F(SchedulerTest, AHigherPriorityGoesFirst) {
  const std::string running = Train();
  const std::string low = Submit(kAnna, -1), usual = Submit(kAnna, 0), lowest = Submit(kBert, -2);
  Round();
  EXPECT_EQ(Get(usual)->queue.position, 1);
  EXPECT_EQ(Get(low)->queue.position, 2);
  EXPECT_EQ(Get(lowest)->queue.position, 3) << "whoever has had less";
  runner_->End(running, RunEnd::Kind::kFinished);
  Round();
  EXPECT_EQ(State(usual), S::kPreparing);
  EXPECT_EQ(State(low), S::kQueued);
}

// A job that is paused in place has no device, however long it rests.
TEST_F(SchedulerTest, APausedJobUsesNoDevice) {
  const std::string paused = Train();
  ASSERT_TRUE(manager_->Pause(kAnna, paused, false).ok());
  Round();
  runner_->Paused(paused);
  Round();
  now_ += absl::Hours(5);
  const std::string running = Submit(kBert);
  Round();
  const std::string berts = Submit(kBert), annas = Submit(kAnna);
  now_ += absl::Hours(1);
  runner_->End(running, RunEnd::Kind::kFinished);
  Round();
  EXPECT_EQ(State(annas), S::kPreparing) << "bert has had the device for an hour";
  EXPECT_EQ(State(berts), S::kQueued);
}

TEST_F(SchedulerTest, AJobWhoseRecordsCannotBeOpenedLetsOthersPass) {
  const std::string id = Submit(), other = Submit(kBert);
  const std::string directory = directory_ / ("state/jobs/" + id);
  fs::create_directories(directory);
  std::ofstream(directory + "/metrics") << "a file where the directory should be";
  Round();
  EXPECT_EQ(State(id), S::kQueued);
  EXPECT_EQ(Get(id)->queue.waiting, WaitingReason::kDiskFull);
  EXPECT_THAT(Get(id)->queue.text, HasSubstr("its records cannot be written"));
  EXPECT_EQ(State(other), S::kPreparing);
  fs::remove(directory + "/metrics");
  runner_->End(other, RunEnd::Kind::kFinished);
  now_ += absl::Seconds(10);
  Round();
  EXPECT_EQ(State(id), S::kPreparing);
}

TEST_F(SchedulerTest, TheTimeOfAStepIsTheMeanOfTheLastOnesOfOneRun) {
  const std::string id = Train();
  const auto step = [&](int64_t number, double seconds) {
    StepRecord record;
    record.step = number;
    record.step_seconds = seconds;
    mailbox_->Tell(runner_->request(id), record);
  };
  step(1, 10);
  step(2, 20);
  Round();
  EXPECT_NEAR(Get(id)->step_seconds, 11, 1e-9) << "a step counts for a tenth";
  ASSERT_TRUE(manager_->Pause(kAnna, id, true).ok());
  Round();
  runner_->End(id, RunEnd::Kind::kReleased);
  Round();
  ASSERT_TRUE(manager_->Resume(kAnna, id).ok());
  Round();
  runner_->Running(id, 3, 100);
  step(3, 40);
  Round();
  EXPECT_NEAR(Get(id)->step_seconds, 40, 1e-9) << "another run may have other devices";
}

TEST_F(SchedulerTest, AStartThatIsRefusedIsTriedAgain) {
  const std::string id = Submit();
  runner_->start_status = absl::FailedPreconditionError("not now");
  Round();
  EXPECT_EQ(State(id), S::kQueued);
  EXPECT_EQ(Get(id)->queue.waiting, WaitingReason::kNotStarted);
  EXPECT_THAT(Get(id)->queue.text, HasSubstr("not now"));
  runner_->start_status = absl::OkStatus();
  Round();
  EXPECT_EQ(State(id), S::kQueued) << "not at once";
  now_ += absl::Seconds(10);
  Round();
  EXPECT_EQ(State(id), S::kPreparing);
}

// Each try leaves two events, which would push out the older ones.
TEST_F(SchedulerTest, AJobThatCannotBeginIsTriedLessAndLess) {
  const std::string id = Submit();
  Round();
  const auto wait = [&] {
    runner_->End(id, RunEnd::Kind::kNotStarted, absl::UnavailableError("no account database"));
    Round();
    const absl::Time since = now_;
    while (State(id) == S::kQueued) {
      now_ += absl::Seconds(10);
      Round();
    }
    return absl::ToInt64Seconds(now_ - since);
  };
  std::vector<int64_t> waits(8);
  std::generate(waits.begin(), waits.end(), wait);
  EXPECT_THAT(waits, ElementsAre(10, 20, 40, 80, 160, 320, 600, 600));
  runner_->Running(id, 1, 100);
  runner_->End(id, RunEnd::Kind::kStopped);
  Round();
  EXPECT_EQ(wait(), 10) << "it has begun since";
}

TEST_F(SchedulerTest, JobsThatCannotBeginDoNotHurryEachOther) {
  const std::string first = Submit(), second = Submit(kBert);
  Round();
  for (const std::string& id : {first, second}) {
    ASSERT_EQ(State(id), S::kPreparing);
    runner_->End(id, RunEnd::Kind::kNotStarted, absl::UnavailableError("no account database"));
    Round();
  }
  EXPECT_EQ(State(first), S::kQueued);
  EXPECT_EQ(Get(first)->queue.waiting, WaitingReason::kNotStarted);
}

TEST_F(SchedulerTest, AFileThatIsNoLongerUnderstoodFailsTheJob) {
  Job job;
  job.id = ledger_->NewId();
  job.uid = 1000;
  JobFile file = TestFile();
  file.yaml += "future_key: 1\n";
  job.file = std::make_shared<const JobFile>(file);
  const std::string id = (*ledger_->Add(job, ""))->id;
  const std::string behind = Submit();
  Round();
  EXPECT_EQ(State(id), S::kFailed);
  EXPECT_EQ(Get(id)->reason, JobReason::kInvalidInput);
  EXPECT_THAT(Get(id)->reason_text, HasSubstr("future_key"));
  EXPECT_EQ(State(behind), S::kPreparing);
}

TEST_F(SchedulerTest, CheckpointsGoToTheRunner) {
  const std::string id = Train();
  ASSERT_TRUE(manager_->Checkpoint(kAnna, id).ok());
  EXPECT_THAT(runner_->Asked(), ElementsAre("checkpoint " + id));
}

// ---- The process dies ----

TEST_F(SchedulerTest, AfterADeathTheJobGoesOnFromItsCheckpoint) {
  const std::string id = Train(20);
  runner_->Checkpointed(id, 20);
  Round();
  Restart();
  EXPECT_EQ(State(id), S::kQueued);
  EXPECT_EQ(Get(id)->reason, JobReason::kProcessRestart);
  Round();
  EXPECT_EQ(State(id), S::kPreparing);
  runner_->Running(id, 21, 100);
  Round();
  EXPECT_EQ(State(id), S::kRunning);
  EXPECT_EQ(Get(id)->attempts, 2);
  EXPECT_EQ(Get(id)->step, 20);
  runner_->End(id, RunEnd::Kind::kFinished);
  Round();
  EXPECT_EQ(State(id), S::kSucceeded);
  EXPECT_TRUE((*records_->Open(id))->metrics().closed()) << "readers that follow end";
}

TEST_F(SchedulerTest, FiveDeathsWithoutProgressFail) {
  const std::string id = Submit();
  for (int death = 0; death < 5; ++death) {
    Round();
    ASSERT_EQ(State(id), S::kPreparing) << death;
    Restart();
  }
  EXPECT_EQ(State(id), S::kFailed);
  EXPECT_EQ(Get(id)->reason, JobReason::kRepeatedDeaths);
  EXPECT_EQ(Get(id)->attempts, 5);
}

TEST_F(SchedulerTest, DeathsWithProgressInTheRecordsDoNotCount) {
  const std::string id = Submit();
  for (int64_t death = 1; death <= 20; ++death) {
    Round();
    ASSERT_EQ(State(id), S::kPreparing) << death;
    runner_->Running(id, 1, 100);
    // The scheduler never hears of the step, the records have it.
    StepRecord record;
    record.step = death;
    ASSERT_TRUE(runner_->request(id).records->AddStep(record).ok());
    Restart();
  }
  EXPECT_EQ(State(id), S::kQueued);
  EXPECT_EQ(Get(id)->deaths, 0);
}

// A kill in the midst of every change of a long life: whatever the moment, the job can be brought
// to its end, and no event that was told is missing.
TEST_F(SchedulerTest, AKillAtEveryTransition) {
  const std::string state = directory_ / "state";
  std::vector<std::string> copies;
  std::vector<int64_t> told;
  const std::string id = Submit();
  std::unique_ptr<JobWatch> watch;
  const auto copy = [&] {
    copies.push_back(directory_ / ("copy" + std::to_string(copies.size())));
    fs::copy(state, copies.back(), fs::copy_options::recursive);
  };
  watch = ledger_->table().Watch(id, 1, copy);
  const auto see = [&] {
    const auto update = watch->Poll(1000);
    while (told.size() < copies.size()) told.push_back(ledger_->table().LastEvent(id));
    return update;
  };
  const auto round = [&] {
    see();
    Round();
    see();
  };
  see();
  round();
  runner_->Running(id, 1, 100);
  round();
  runner_->Checkpointed(id, 10);
  round();
  ASSERT_TRUE(manager_->Pause(kAnna, id, false).ok());
  round();
  runner_->Paused(id);
  round();
  ASSERT_TRUE(manager_->Resume(kAnna, id).ok());
  round();
  runner_->Running(id, 11, 100);
  round();
  ASSERT_TRUE(manager_->Pause(kAnna, id, true).ok());
  round();
  runner_->End(id, RunEnd::Kind::kReleased);
  round();
  ASSERT_TRUE(manager_->Resume(kAnna, id).ok());
  round();
  runner_->Running(id, 11, 100);
  round();
  runner_->End(id, RunEnd::Kind::kFinished);
  round();
  ASSERT_EQ(State(id), S::kSucceeded);
  const std::vector<JobEvent> all = ledger_->table().Events(id, 1, 1000);
  watch.reset();

  ASSERT_GT(copies.size(), 10u);
  for (const std::string& killed : copies) {
    SCOPED_TRACE(killed);
    Kill();
    Open(killed);
    const std::vector<JobEvent> events = ledger_->table().Events(id, 1, 1000);
    size_t same = 0;
    while (same < events.size() && same < all.size() && events[same] == all[same]) ++same;
    EXPECT_GE(same + 1, events.size()) << "what is not of that life is the restart's own event";
    Round();
    if (State(id) == S::kPaused) {
      ASSERT_TRUE(manager_->Resume(kAnna, id).ok());
    }
    Round();
    if (State(id) == S::kSucceeded) continue;
    ASSERT_EQ(State(id), S::kPreparing);
    runner_->Running(id, 11, 100);
    runner_->End(id, RunEnd::Kind::kFinished);
    Round();
    EXPECT_EQ(State(id), S::kSucceeded);
  }
}

}  // namespace
}  // namespace megatrain
