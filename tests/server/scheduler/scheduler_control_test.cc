// What users ask of jobs, at every moment.
#include "engine/memory/pool_busy.h"
#include "tests/server/scheduler/scheduler_fixture.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using S = JobState;

// ---- Pause and resume ----

TEST_F(SchedulerTest, PauseInPlaceAndResume) {
  const std::string id = Train(10);
  EXPECT_EQ((*manager_->Pause(kAnna, id, false))->state, S::kPausing);
  Round();
  EXPECT_THAT(runner_->Asked(), ElementsAre("pause " + id));
  EXPECT_EQ(State(id), S::kPausing) << "until it has taken effect";
  Round();
  EXPECT_THAT(runner_->Asked(), IsEmpty()) << "once is enough";
  runner_->Paused(id);
  Round();
  EXPECT_EQ(State(id), S::kPaused);
  EXPECT_EQ(Get(id)->reason, JobReason::kUserRequest);
  EXPECT_TRUE(Get(id)->host_retained);
  EXPECT_EQ(Get(id)->step, 10);
  const absl::Time started = Get(id)->started;
  now_ += absl::Minutes(1);
  ASSERT_TRUE(manager_->Resume(kAnna, id).ok());
  Round();
  EXPECT_EQ(State(id), S::kPreparing);
  EXPECT_THAT(runner_->Asked(), ElementsAre("resume " + id));
  runner_->Running(id, 11, 100);
  Round();
  EXPECT_EQ(State(id), S::kRunning);
  EXPECT_FALSE(Get(id)->host_retained);
  EXPECT_EQ(Get(id)->started, started) << "the first time counts";
  EXPECT_EQ(Get(id)->attempts, 1) << "it was not started again";
  EXPECT_EQ(Get(id)->checkpoint_step, 0) << "nothing was saved";
  EXPECT_EQ(History(id), "QUEUED PREPARING RUNNING PAUSING PAUSED QUEUED PREPARING RUNNING");
}

TEST_F(SchedulerTest, AnotherJobRunsBesideAPausedOne) {
  const std::string paused = Train(10);
  const std::string other = Submit();
  ASSERT_TRUE(manager_->Pause(kAnna, paused, false).ok());
  Round();
  EXPECT_EQ(State(other), S::kQueued) << "the device is not free yet";
  runner_->Paused(paused);
  Round();
  EXPECT_EQ(State(other), S::kPreparing);
  // Resumed, it waits for its turn like others.
  ASSERT_TRUE(manager_->Resume(kAnna, paused).ok());
  Round();
  EXPECT_EQ(State(paused), S::kQueued);
  EXPECT_EQ(Get(paused)->queue.waiting, WaitingReason::kDeviceBusy);
  EXPECT_TRUE(Get(paused)->host_retained);
  runner_->Running(other, 1, 100);
  runner_->End(other, RunEnd::Kind::kFinished);
  Round();
  EXPECT_EQ(State(paused), S::kPreparing);
}

TEST_F(SchedulerTest, AJobThatKeepsItsMemoryGoesOnWithIt) {
  job_pool_bytes_ = 6000;  // of 10000
  const std::string id = Train(10);
  ASSERT_TRUE(manager_->Pause(kAnna, id, false).ok());
  Round();
  runner_->Paused(id);
  Round();
  ASSERT_TRUE(manager_->Resume(kAnna, id).ok());
  Round();
  EXPECT_EQ(State(id), S::kPreparing);
}

TEST_F(SchedulerTest, AJobThatWaitsToGoOnIsSavedWhenTheDaemonStops) {
  const std::string id = Train(10);
  ASSERT_TRUE(manager_->Pause(kAnna, id, false).ok());
  Round();
  runner_->Paused(id);
  Round();
  const std::string other = Submit(kBert);
  Round();
  ASSERT_TRUE(manager_->Resume(kAnna, id).ok());
  Round();
  ASSERT_EQ(State(id), S::kQueued);
  runner_->Asked();
  scheduler_->BeginShutdown();
  Round();
  EXPECT_THAT(runner_->Asked(), ::testing::UnorderedElementsAre("stop " + id, "stop " + other));
  runner_->Checkpointed(id, 10);
  runner_->End(id, RunEnd::Kind::kStopped);
  Round();
  EXPECT_EQ(State(id), S::kQueued);
  EXPECT_FALSE(Get(id)->host_retained);
  EXPECT_EQ(Get(id)->checkpoint_step, 10);
}

TEST_F(SchedulerTest, WhatDoesNotFitBesideAPausedJobWaitsForItsMemory) {
  job_pool_bytes_ = 6000;
  const std::string paused = Train(10);
  const std::string large = Submit();
  job_pool_bytes_ = 3000;
  const std::string small = Submit();
  ASSERT_TRUE(manager_->Pause(kAnna, paused, false).ok());
  Round();
  runner_->Paused(paused);
  Round();
  EXPECT_EQ(State(small), S::kPreparing) << "it fits";
  EXPECT_EQ(Get(large)->queue.waiting, WaitingReason::kHostMemory);
  runner_->End(small, RunEnd::Kind::kFinished);
  Round();
  EXPECT_EQ(State(large), S::kQueued);
  ASSERT_TRUE(manager_->Pause(kAnna, paused, true).ok());
  Round();
  EXPECT_EQ(State(large), S::kQueued) << "it is being saved";
  runner_->End(paused, RunEnd::Kind::kReleased);
  Round();
  EXPECT_EQ(State(paused), S::kPaused);
  EXPECT_FALSE(Get(paused)->host_retained);
  EXPECT_EQ(State(large), S::kPreparing);
}

TEST_F(SchedulerTest, PauseWithReleaseSavesAndGoesThroughTheQueue) {
  const std::string id = Train(10);
  ASSERT_TRUE(manager_->Pause(kAnna, id, true).ok());
  Round();
  EXPECT_THAT(runner_->Asked(), ElementsAre("release " + id));
  runner_->Checkpointed(id, 12);
  runner_->End(id, RunEnd::Kind::kReleased);
  Round();
  EXPECT_EQ(State(id), S::kPaused);
  EXPECT_FALSE(Get(id)->host_retained);
  EXPECT_EQ(Get(id)->checkpoint_step, 12);
  EXPECT_EQ(Get(id)->step, 12);
  EXPECT_EQ(Get(id)->reason_text, "its host memory was given back; goes on from step 13");
  const std::string other = Submit();
  Round();
  EXPECT_EQ(State(other), S::kPreparing);
  ASSERT_TRUE(manager_->Resume(kAnna, id).ok());
  Round();
  EXPECT_EQ(State(id), S::kQueued);
  runner_->End(other, RunEnd::Kind::kFailed);
  runner_->Asked();
  Round();
  EXPECT_THAT(runner_->Asked(), ElementsAre("start " + id));
  EXPECT_EQ(Get(id)->attempts, 2);
  runner_->Running(id, 13, 100);
  Round();
  EXPECT_EQ(Get(id)->checkpoint_step, 12);
}

TEST_F(SchedulerTest, AReleaseThatCannotSaveKeepsTheMemoryAndSaysWhy) {
  const std::string id = Train(10);
  ASSERT_TRUE(manager_->Pause(kAnna, id, true).ok());
  Round();
  const TrainingPause pause = {DiskFullError("disk full writing /x"), "", 0};
  runner_->Paused(id, pause);
  Round();
  EXPECT_EQ(State(id), S::kPaused);
  EXPECT_EQ(Get(id)->reason, JobReason::kUserRequest) << "a user's pause only the user ends";
  EXPECT_TRUE(Get(id)->host_retained);
  EXPECT_THAT(Get(id)->reason_text, HasSubstr("disk full writing /x"));
  runner_->Asked();
  now_ += absl::Hours(1);
  Round();
  EXPECT_THAT(runner_->Asked(), IsEmpty());
  // The user asks again, and again it fails, and again, and it does not.
  ASSERT_TRUE(manager_->Pause(kAnna, id, true).ok());
  Round();
  EXPECT_THAT(runner_->Asked(), ElementsAre("release " + id));
  runner_->Paused(id, pause);
  Round();
  EXPECT_FALSE(Get(id)->release_host);
  EXPECT_TRUE(Get(id)->host_retained);
  ASSERT_TRUE(manager_->Pause(kAnna, id, true).ok());
  Round();
  EXPECT_THAT(runner_->Asked(), ElementsAre("release " + id));
  runner_->End(id, RunEnd::Kind::kReleased);
  Round();
  EXPECT_EQ(State(id), S::kPaused);
  EXPECT_FALSE(Get(id)->host_retained);
}

TEST_F(SchedulerTest, APauseOfAJobThatHasJustFinished) {
  const std::string id = Train(99);
  ASSERT_TRUE(manager_->Pause(kAnna, id, false).ok());
  runner_->End(id, RunEnd::Kind::kFinished);  // before it hears of it
  Round();
  EXPECT_EQ(State(id), S::kSucceeded);
  EXPECT_THAT(runner_->Asked(), IsEmpty());
  EXPECT_EQ(manager_->Resume(kAnna, id).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(SchedulerTest, APauseThatReachesARunAtItsEnd) {
  const std::string id = Train(99);
  ASSERT_TRUE(manager_->Pause(kAnna, id, false).ok());
  Round();
  EXPECT_THAT(runner_->Asked(), ElementsAre("pause " + id));
  runner_->End(id, RunEnd::Kind::kFinished);  // the last step was done
  Round();
  EXPECT_EQ(State(id), S::kSucceeded);
}

TEST_F(SchedulerTest, AWithdrawnPause) {
  const std::string id = Train(10);
  // Before the runner hears of it.
  ASSERT_TRUE(manager_->Pause(kAnna, id, false).ok());
  ASSERT_TRUE(manager_->Resume(kAnna, id).ok());
  Round();
  EXPECT_EQ(State(id), S::kRunning);
  EXPECT_THAT(runner_->Asked(), IsEmpty());
  // After it has heard, before it has paused.
  ASSERT_TRUE(manager_->Pause(kAnna, id, false).ok());
  Round();
  ASSERT_TRUE(manager_->Resume(kAnna, id).ok());
  Round();
  EXPECT_THAT(runner_->Asked(), ElementsAre("pause " + id, "resume " + id));
  // It had paused when it heard.
  runner_->Paused(id);
  Round();
  EXPECT_EQ(State(id), S::kRunning);
  runner_->Running(id, 12, 100);
  Round();
  EXPECT_THAT(runner_->Asked(), IsEmpty());
  EXPECT_EQ(Get(id)->step, 11);
  // And a pause after all that works.
  ASSERT_TRUE(manager_->Pause(kAnna, id, false).ok());
  Round();
  runner_->Paused(id);
  Round();
  EXPECT_EQ(State(id), S::kPaused);
}

TEST_F(SchedulerTest, AResumeWhileItIsBeingReleasedWaitsForTheEnd) {
  const std::string id = Train(10);
  ASSERT_TRUE(manager_->Pause(kAnna, id, false).ok());
  Round();
  runner_->Paused(id);
  Round();
  ASSERT_TRUE(manager_->Pause(kAnna, id, true).ok());  // PAUSED, gives its memory back
  Round();
  ASSERT_TRUE(manager_->Resume(kAnna, id).ok());
  runner_->Asked();
  Round();
  EXPECT_EQ(State(id), S::kQueued);
  EXPECT_THAT(runner_->Asked(), IsEmpty());
  runner_->Checkpointed(id, 10);
  runner_->End(id, RunEnd::Kind::kReleased);
  Round();
  EXPECT_EQ(State(id), S::kPreparing);
  EXPECT_THAT(runner_->Asked(), ElementsAre("start " + id)) << "anew, from the checkpoint";
  EXPECT_FALSE(Get(id)->host_retained);
}

TEST_F(SchedulerTest, HostMemoryLostWhilePaused) {
  const std::string id = Train(10);
  ASSERT_TRUE(manager_->Pause(kAnna, id, false).ok());
  Round();
  runner_->Paused(id);
  Round();
  runner_->End(id, RunEnd::Kind::kFailed, absl::InternalError("device lost"));
  Round();
  EXPECT_EQ(State(id), S::kPaused);
  EXPECT_FALSE(Get(id)->host_retained);
  const int64_t last = ledger_->table().LastEvent(id);
  EXPECT_THAT(ledger_->table().Events(id, last, 1)[0].text, HasSubstr("device lost"));
}

// ---- Cancel ----

TEST_F(SchedulerTest, CancelWhilePreparing) {
  const std::string id = Submit();
  Round();
  ASSERT_TRUE(manager_->Cancel(kAnna, id).ok());
  EXPECT_EQ(State(id), S::kCancelling);
  runner_->Asked();
  Round();
  EXPECT_THAT(runner_->Asked(), ElementsAre("cancel " + id));
  runner_->Running(id, 1, 100);  // it was on its way
  Round();
  EXPECT_EQ(State(id), S::kCancelling);
  runner_->End(id, RunEnd::Kind::kCancelled);
  Round();
  EXPECT_EQ(State(id), S::kCancelled);
  EXPECT_EQ(Get(id)->reason, JobReason::kUserRequest);
  EXPECT_EQ(History(id), "QUEUED PREPARING CANCELLING CANCELLED");
}

TEST_F(SchedulerTest, CancelOfAJobThatHasJustFinishedOrFailed) {
  std::string id = Train(99);
  ASSERT_TRUE(manager_->Cancel(kAnna, id).ok());
  runner_->End(id, RunEnd::Kind::kFinished);
  Round();
  EXPECT_EQ(State(id), S::kCancelled);
  EXPECT_THAT(Get(id)->reason_text, HasSubstr("last step was done"));
  id = Train(5);
  ASSERT_TRUE(manager_->Cancel(kAnna, id).ok());
  runner_->End(id, RunEnd::Kind::kFailed, absl::AbortedError("NaN"));
  Round();
  EXPECT_EQ(State(id), S::kFailed);
  // One that waiting would mend is no failure.
  id = Train(5);
  ASSERT_TRUE(manager_->Cancel(kAnna, id).ok());
  runner_->End(id, RunEnd::Kind::kFailed, DiskFullError("no room for the output"));
  Round();
  EXPECT_EQ(State(id), S::kCancelled);
}

TEST_F(SchedulerTest, CancelWhilePausedInPlace) {
  const std::string id = Train(10);
  ASSERT_TRUE(manager_->Pause(kAnna, id, false).ok());
  Round();
  runner_->Paused(id);
  Round();
  runner_->Asked();
  ASSERT_TRUE(manager_->Cancel(kAnna, id).ok());
  Round();
  EXPECT_THAT(runner_->Asked(), ElementsAre("cancel " + id));
  EXPECT_EQ(State(id), S::kCancelling);
  runner_->End(id, RunEnd::Kind::kCancelled);
  Round();
  EXPECT_EQ(State(id), S::kCancelled);
}

TEST_F(SchedulerTest, CancelWhilePausedWithoutMemory) {
  const std::string id = Train(10);
  ASSERT_TRUE(manager_->Pause(kAnna, id, true).ok());
  Round();
  runner_->End(id, RunEnd::Kind::kReleased);
  Round();
  ASSERT_TRUE(manager_->Cancel(kAnna, id).ok());
  Round();
  EXPECT_EQ(State(id), S::kCancelled) << "nobody needs to be asked";
}

TEST_F(SchedulerTest, CancelOfAQueuedJobThatKeepsItsMemory) {
  const std::string id = Train(10);
  ASSERT_TRUE(manager_->Pause(kAnna, id, false).ok());
  Round();
  runner_->Paused(id);
  Round();
  const std::string other = Submit();
  Round();
  ASSERT_TRUE(manager_->Resume(kAnna, id).ok());
  Round();
  EXPECT_EQ((*manager_->Cancel(kAnna, id))->state, S::kCancelled);
  runner_->Asked();
  Round();
  EXPECT_THAT(runner_->Asked(), ElementsAre("cancel " + id)) << "its memory is given back";
  runner_->End(id, RunEnd::Kind::kCancelled);
  Round();
  EXPECT_EQ(State(id), S::kCancelled);
  EXPECT_EQ(State(other), S::kPreparing);
}

TEST_F(SchedulerTest, CancelWhilePausing) {
  const std::string id = Train(10);
  ASSERT_TRUE(manager_->Pause(kAnna, id, false).ok());
  Round();
  ASSERT_TRUE(manager_->Cancel(kAnna, id).ok());
  runner_->Paused(id);
  Round();
  EXPECT_EQ(State(id), S::kCancelling);
  EXPECT_THAT(runner_->Asked(), ElementsAre("pause " + id, "cancel " + id));
  runner_->End(id, RunEnd::Kind::kCancelled);
  Round();
  EXPECT_EQ(State(id), S::kCancelled);
}

TEST_F(SchedulerTest, CancelInTheQueueNeedsNoRunner) {
  const std::string running = Train();
  const std::string id = Submit();
  ASSERT_TRUE(manager_->Cancel(kAnna, id).ok());
  Round();
  EXPECT_THAT(runner_->Asked(), IsEmpty());
  EXPECT_TRUE((*records_->Open(id))->log().closed());
  EXPECT_EQ(State(running), S::kRunning);
}

// It was cancelled in the queue, which is at once, while the runner still kept its memory.
TEST_F(SchedulerTest, AJobDeletedWhileTheRunnerHasItIsLetGo) {
  const std::string id = Train(3);
  ASSERT_TRUE(manager_->Pause(kAnna, id, /*release_host=*/false).ok());
  Round();
  runner_->Paused(id);
  Round();
  const std::string other = Submit(kBert);
  Round();
  runner_->Running(other, 1, 100);
  Round();
  runner_->Asked();
  ASSERT_TRUE(manager_->Resume(kAnna, id).ok());
  ASSERT_TRUE(manager_->Cancel(kAnna, id).ok());
  ASSERT_TRUE(manager_->Delete(kAnna, id).ok());
  Round();
  Round();
  EXPECT_THAT(runner_->Asked(), ElementsAre("cancel " + id));
  EXPECT_EQ(Get(id), nullptr);
  runner_->End(id, RunEnd::Kind::kCancelled);
  Round();
  EXPECT_EQ(State(other), JobState::kRunning);
  EXPECT_THAT(runner_->Asked(), IsEmpty());
  EXPECT_THAT(log_, IsEmpty());
}

TEST_F(SchedulerTest, WhatADeletedJobHoldsIsFreeWhenTheRunnerHasLetItGo) {
  const std::string id = Train(3);
  ASSERT_TRUE(manager_->Pause(kAnna, id, /*release_host=*/false).ok());
  Round();
  runner_->Paused(id);
  Round();
  const std::string waits = Submit(kBert);
  Round();
  runner_->End(waits, RunEnd::Kind::kFailed, PoolBusyError("the pool is in pieces"));
  Round();
  ASSERT_EQ(State(waits), S::kQueued);
  ASSERT_TRUE(manager_->Resume(kAnna, id).ok());
  ASSERT_TRUE(manager_->Cancel(kAnna, id).ok());
  ASSERT_TRUE(manager_->Delete(kAnna, id).ok());
  const std::string behind = Submit(kBert);
  Round();
  EXPECT_EQ(State(behind), S::kQueued) << "the device is not free yet";
  runner_->End(id, RunEnd::Kind::kCancelled);
  Round();
  EXPECT_EQ(State(waits), S::kPreparing);
}

}  // namespace
}  // namespace megatrain
