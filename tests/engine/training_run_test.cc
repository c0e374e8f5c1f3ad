// Runs that are paused, resumed, released, cancelled, and that meet a full disk, on one host after
// each other and beside each other. Requests are made from the run's own callbacks, so that each
// comes at a known place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/engine.h"
#include "tests/engine/full_disk_file_system.h"
#include "tests/engine/numerics/job_run.h"
#include "tests/engine/numerics/model_reference.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kSteps = 4;
constexpr int64_t kPoolBytes = 64 * kMiB;

// A run with hooks in its callbacks.
struct Hooked {
  std::function<void(const TrainingActivity&)> activity;
  std::function<void(int64_t first_step)> started;
  std::function<void(int64_t step)> step;
  std::function<void(int64_t step)> before_checkpoint;
  std::function<void(const TrainingPause&)> paused;
  std::function<void()> alive;
  TrainingOptions options;

  TrainingControl control;
  JobRun run;
  std::vector<std::string> events;  // "started 1", "step 1", "paused", "checkpoint 2", ...

  absl::StatusOr<TrainingOutcome> Train(EngineHost& host, const JobSpec& spec) {
    TrainingObserver observer;
    observer.message = [&](const std::string& line) { run.messages.push_back(line); };
    observer.activity = [&](const TrainingActivity& now) {
      if (activity) activity(now);
    };
    observer.started = [&](int64_t first_step, int64_t total_steps) {
      EXPECT_EQ(total_steps, spec.training.steps);
      events.push_back(absl::StrCat("started ", first_step));
      if (started) started(first_step);
    };
    observer.step = [&](const StepRecord& record) {
      events.push_back(absl::StrCat("step ", record.step));
      run.records.push_back(record);
      if (step) step(record.step);
    };
    observer.before_checkpoint = [&](int64_t at) {
      if (before_checkpoint) before_checkpoint(at);
    };
    observer.checkpoint = [&](int64_t at, const std::string& directory, double seconds) {
      EXPECT_GE(seconds, 0);
      EXPECT_TRUE(std::filesystem::exists(directory + "/manifest.json")) << directory;
      events.push_back(absl::StrCat("checkpoint ", at));
    };
    observer.checkpoint_failed = [&](int64_t at, const absl::Status& status) {
      EXPECT_FALSE(status.ok());
      events.push_back(absl::StrCat("checkpoint_failed ", at));
    };
    observer.paused = [&](const TrainingPause& pause) {
      events.push_back(pause.status.ok() ? "paused" : "paused itself");
      if (paused) paused(pause);
    };
    observer.alive = [&] {
      if (alive) alive();
    };
    auto outcome = RunTraining(host, spec, options, &control, observer);
    run.status = outcome.status();
    return outcome;
  }
};

std::unique_ptr<EngineHost> Host(FileSystem* files = PosixFileSystem()) {
  EngineHostOptions options;
  options.threads = 2;
  options.files = files;
  auto host = EngineHost::Create(options);
  EXPECT_TRUE(host.ok()) << host.status();
  return *std::move(host);
}

std::unique_ptr<EngineHost> HostWithPool(FileSystem* files = PosixFileSystem()) {
  auto host = Host(files);
  EXPECT_TRUE(host->ReservePool(kPoolBytes, nullptr, nullptr).ok());
  return host;
}

JobSpec Job(const std::string& directory, Precision precision = Precision::kBf16,
            bool clipped = true) {
  JobSpec spec =
      CurveJob(LoadModelReference("qwen2"), precision, clipped, FreshDirectory(directory));
  spec.training.steps = kSteps;
  spec.training.micro_batch = 1;
  return spec;
}

void ExpectSameRecords(const JobRun& run, const JobRun& expected) {
  ASSERT_EQ(run.records.size(), expected.records.size());
  for (size_t k = 0; k < run.records.size(); ++k) {
    EXPECT_EQ(run.records[k].step, expected.records[k].step);
    EXPECT_EQ(run.records[k].loss, expected.records[k].loss) << "step " << k + 1;
    EXPECT_EQ(run.records[k].gradient_norm, expected.records[k].gradient_norm) << "step " << k + 1;
    EXPECT_EQ(run.records[k].total_tokens, expected.records[k].total_tokens);
    EXPECT_EQ(run.records[k].eval_loss, expected.records[k].eval_loss);
  }
}

void ExpectSameFiles(const JobSpec& spec, const JobSpec& expected) {
  const auto files = CheckpointTensorFiles(spec), wanted = CheckpointTensorFiles(expected);
  ASSERT_FALSE(wanted.empty());
  EXPECT_TRUE(files == wanted);
}

void ExpectPoolWhole(const EngineHost& host) {
  const PoolUsage usage = host.pool_usage();
  EXPECT_EQ(usage.capacity, kPoolBytes);
  EXPECT_EQ(usage.free_bytes, kPoolBytes);
  for (const int64_t bytes : usage.bytes) EXPECT_EQ(bytes, 0);
}

bool HasCheckpoint(const JobSpec& spec) {
  if (!std::filesystem::exists(spec.checkpoint.directory)) return false;
  for (const auto& entry : std::filesystem::directory_iterator(spec.checkpoint.directory)) {
    if (absl::StartsWith(entry.path().filename().string(), "step-")) return true;
  }
  return false;
}

struct Case {
  std::string name;
  Precision precision;
  bool clipped;
};

class SameBitsTest : public ::testing::TestWithParam<Case> {
 protected:
  JobSpec CaseJob(const std::string& directory) const {
    JobSpec spec = Job(directory, GetParam().precision, GetParam().clipped);
    spec.data.eval_fraction = 0.3;
    spec.training.eval_every = 2;
    return spec;
  }
};

// Paused before the first step, after each step, after all of them; in the midst of an evaluation.
TEST_P(SameBitsTest, PausedInPlace) {
  const auto host = HostWithPool();
  const JobSpec plain = CaseJob("plain");
  Hooked undisturbed;
  ASSERT_TRUE(undisturbed.Train(*host, plain).ok()) << undisturbed.run.status;
  for (int64_t pause_at = -1; pause_at <= kSteps; ++pause_at) {
    SCOPED_TRACE(absl::StrCat("paused after step ", pause_at, " (-1: every one)"));
    const JobSpec spec = CaseJob("paused");
    Hooked hooked;
    int pauses = 0;
    hooked.started = [&](int64_t first_step) {
      if (pause_at == 0 && first_step == 1 && pauses == 0) hooked.control.Pause();
    };
    hooked.step = [&](int64_t step) {
      if (step == pause_at || pause_at == -1) hooked.control.Pause();
    };
    hooked.paused = [&](const TrainingPause& pause) {
      EXPECT_TRUE(pause.status.ok());
      EXPECT_GT(host->pool_usage().bytes[static_cast<int>(HostKind::kTiles)], 0);
      ++pauses;
      hooked.control.Resume();
    };
    const auto outcome = hooked.Train(*host, spec);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(*outcome, TrainingOutcome::kFinished);
    EXPECT_GE(pauses, pause_at == kSteps ? 0 : 1)
        << "after the last step there is nothing to pause";
    ExpectSameRecords(hooked.run, undisturbed.run);
    ExpectSameFiles(spec, plain);
    ExpectPoolWhole(*host);
  }
}

TEST_P(SameBitsTest, PausedInTheMidstOfAnEvaluation) {
  const auto host = HostWithPool();
  const JobSpec plain = CaseJob("plain_evaluation"), spec = CaseJob("evaluation");
  Hooked undisturbed, hooked;
  ASSERT_TRUE(undisturbed.Train(*host, plain).ok()) << undisturbed.run.status;
  // Evaluations ask whether to go on before each batch, on the training thread, after the steps
  // that no record has told yet.
  bool running = false;
  int pauses = 0;
  hooked.activity = [&](const TrainingActivity& now) {
    running = now.phase == TrainingPhase::kRunning;
  };
  const std::thread::id training_thread = std::this_thread::get_id();
  hooked.alive = [&] {
    if (std::this_thread::get_id() != training_thread) return;  // a save's
    if (running && pauses == 0 && hooked.run.records.size() == 1) hooked.control.Pause();
  };
  hooked.paused = [&](const TrainingPause&) {
    ++pauses;
    EXPECT_EQ(hooked.run.records.size(), 1u);
    hooked.control.Checkpoint();  // waits for the step's record
    hooked.control.Resume();
  };
  ASSERT_TRUE(hooked.Train(*host, spec).ok()) << hooked.run.status;
  EXPECT_EQ(pauses, 1);
  EXPECT_THAT(hooked.events, ElementsAre("started 1", "step 1", "paused", "started 3", "step 2",
                                         "checkpoint 2", "step 3", "step 4", "checkpoint 4"));
  ExpectSameRecords(hooked.run, undisturbed.run);
  ExpectSameFiles(spec, plain);
}

// From another thread, again and again, at whatever places of a step the threads happen to be:
// steps that are given up are made again.
TEST_P(SameBitsTest, PausedAmidSteps) {
  const auto host = HostWithPool();
  const JobSpec plain = CaseJob("plain_amid"), spec = CaseJob("amid");
  Hooked undisturbed, hooked;
  ASSERT_TRUE(undisturbed.Train(*host, plain).ok()) << undisturbed.run.status;
  std::atomic<bool> going{false}, over{false};
  std::atomic<int> pauses{0};
  hooked.started = [&](int64_t) { going = true; };
  hooked.paused = [&](const TrainingPause&) { ++pauses; };
  std::thread pauser([&] {
    for (int moment = 0; !over; ++moment) {
      while (!going && !over) std::this_thread::yield();
      going = false;
      for (int i = 0; i < moment % 64 * 50; ++i) std::this_thread::yield();
      const int before = pauses;
      hooked.control.Pause();
      // Half of them are withdrawn before they take effect, if they come to it in time.
      while (moment % 2 == 0 && pauses == before && !over) std::this_thread::yield();
      hooked.control.Resume();
    }
  });
  const auto outcome = hooked.Train(*host, spec);
  over = true;
  pauser.join();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ExpectSameRecords(hooked.run, undisturbed.run);
  ExpectSameFiles(spec, plain);
  ExpectPoolWhole(*host);
}

TEST_P(SameBitsTest, ReleasedAndStartedAgain) {
  const auto host = HostWithPool();
  const JobSpec plain = CaseJob("plain_release");
  Hooked undisturbed;
  ASSERT_TRUE(undisturbed.Train(*host, plain).ok()) << undisturbed.run.status;
  for (int64_t release_at = 1; release_at < kSteps; ++release_at) {
    SCOPED_TRACE(absl::StrCat("released after step ", release_at));
    const JobSpec spec = CaseJob("released");
    Hooked first, second;
    first.step = [&](int64_t step) {
      if (step == release_at) first.control.Release();
    };
    const auto outcome = first.Train(*host, spec);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    // Behind the last step but one the last may be under way.
    if (*outcome == TrainingOutcome::kFinished) continue;
    EXPECT_EQ(*outcome, TrainingOutcome::kReleased);
    ExpectPoolWhole(*host);
    ASSERT_TRUE(second.Train(*host, spec).ok()) << second.run.status;
    JobRun all = first.run;
    all.records.insert(all.records.end(), second.run.records.begin(), second.run.records.end());
    ExpectSameRecords(all, undisturbed.run);
    ExpectSameFiles(spec, plain);
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, SameBitsTest,
                         ::testing::Values(Case{"fp32_clipped", Precision::kFp32, true},
                                           Case{"fp32_unclipped", Precision::kFp32, false},
                                           Case{"bf16_clipped", Precision::kBf16, true},
                                           Case{"bf16_unclipped", Precision::kBf16, false}),
                         [](const auto& info) { return info.param.name; });

// At most the steps that were under way when it was asked for are still made.
TEST(TrainingPauseTest, TakesEffectWithinTheStepsUnderWay) {
  const auto host = HostWithPool();
  JobSpec spec = Job("within");
  spec.training.steps = 20;
  Hooked hooked;
  hooked.step = [&](int64_t step) {
    if (step == 5) hooked.control.Pause();
  };
  hooked.paused = [&](const TrainingPause&) {
    EXPECT_LE(hooked.run.records.size(), 6u);
    hooked.control.Cancel();
  };
  const auto outcome = hooked.Train(*host, spec);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(*outcome, TrainingOutcome::kCancelled);
}

TEST(TrainingPauseTest, AnswersEveryRequestWhilePaused) {
  const auto host = HostWithPool();
  const JobSpec plain = Job("plain_requests"), spec = Job("requests");
  Hooked undisturbed, hooked;
  ASSERT_TRUE(undisturbed.Train(*host, plain).ok()) << undisturbed.run.status;
  int pauses = 0;
  hooked.started = [&](int64_t first_step) {
    if (first_step == 1 && pauses == 0) {
      hooked.control.Pause();
      hooked.control.Checkpoint();  // of no step
    }
  };
  hooked.paused = [&](const TrainingPause&) {
    ++pauses;
    hooked.control.Resume();
  };
  hooked.step = [&](int64_t step) {
    if (step != 1) return;
    hooked.control.Pause();
    hooked.control.Resume();  // withdrawn before it takes effect
    hooked.control.Checkpoint();
  };
  ASSERT_TRUE(hooked.Train(*host, spec).ok()) << hooked.run.status;
  EXPECT_EQ(hooked.events[0], "started 1");
  EXPECT_EQ(hooked.events[1], "checkpoint_failed 0");
  EXPECT_EQ(hooked.events[2], "paused");
  EXPECT_EQ(hooked.events[3], "started 1");
  // Whether step 2 was under way or not: saved, and started again.
  EXPECT_THAT(hooked.events, ::testing::Contains(HasSubstr("checkpoint")).Times(3));
  EXPECT_THAT(hooked.events, ::testing::Contains(HasSubstr("started")).Times(3));
  ExpectSameRecords(hooked.run, undisturbed.run);
  ExpectSameFiles(spec, plain);
}

// Steps of a minute, over a slow link: the first is not waited for.
TEST(TrainingCancelTest, AmidAStep) {
  const auto host = HostWithPool();
  JobSpec spec = Job("cancel_amid");
  Hooked undisturbed, hooked;
  ASSERT_TRUE(undisturbed.Train(*host, spec).ok()) << undisturbed.run.status;
  spec = Job("cancel_amid");
  spec.engine.link_gigabytes_per_second =
      1e-9 * static_cast<double>(undisturbed.run.records[0].h2d_bytes) / 60;
  std::thread canceller;
  hooked.started = [&](int64_t) {
    canceller = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // to be amid it, not before
      hooked.control.Cancel();
    });
  };
  const auto outcome = hooked.Train(*host, spec);
  canceller.join();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(*outcome, TrainingOutcome::kCancelled);
  EXPECT_THAT(hooked.events, ElementsAre("started 1"));
  EXPECT_FALSE(HasCheckpoint(spec));
  ExpectPoolWhole(*host);
}

TEST(TrainingPauseTest, APausedRunIsSavedStoppedReleasedOrCancelled) {
  struct End {
    std::function<void(TrainingControl&)> ask;
    TrainingOutcome outcome;
  };
  const std::vector<End> ends = {
      {[](TrainingControl& c) { c.Stop(); }, TrainingOutcome::kInterrupted},
      {[](TrainingControl& c) { c.Release(); }, TrainingOutcome::kReleased},
      {[](TrainingControl& c) { c.Cancel(); }, TrainingOutcome::kCancelled}};
  const auto host = HostWithPool();
  const JobSpec plain = Job("plain_ends");
  Hooked undisturbed;
  ASSERT_TRUE(undisturbed.Train(*host, plain).ok()) << undisturbed.run.status;
  for (const End& end : ends) {
    const JobSpec spec = Job("ends");
    Hooked first, second;
    first.step = [&](int64_t step) {
      if (step == 1) first.control.Pause();
    };
    first.paused = [&](const TrainingPause&) { end.ask(first.control); };
    const auto outcome = first.Train(*host, spec);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(*outcome, end.outcome);
    ExpectPoolWhole(*host);
    EXPECT_EQ(HasCheckpoint(spec), end.outcome != TrainingOutcome::kCancelled);
    ASSERT_TRUE(second.Train(*host, spec).ok()) << second.run.status;
    if (end.outcome != TrainingOutcome::kCancelled) {
      EXPECT_EQ(second.run.records.front().step, first.run.records.back().step + 1);
    }
    ExpectSameFiles(spec, plain);
  }
}

// While a run stands still, another has the device, and as much of the pool as the first left it.
TEST(TrainingPauseTest, AnotherRunsBesideAPausedOne) {
  const auto host = HostWithPool();
  const JobSpec plain = Job("plain_beside"), spec = Job("beside"), other = Job("other");
  Hooked undisturbed, hooked, beside;
  ASSERT_TRUE(undisturbed.Train(*host, plain).ok()) << undisturbed.run.status;
  hooked.step = [&](int64_t step) {
    if (step == 2) hooked.control.Pause();
  };
  hooked.paused = [&](const TrainingPause&) {
    const int64_t free = host->pool_usage().free_bytes;
    EXPECT_LT(free, kPoolBytes);
    ASSERT_TRUE(beside.Train(*host, other).ok()) << beside.run.status;
    EXPECT_EQ(host->pool_usage().free_bytes, free);
    hooked.control.Resume();
  };
  ASSERT_TRUE(hooked.Train(*host, spec).ok()) << hooked.run.status;
  ExpectSameRecords(hooked.run, undisturbed.run);
  ExpectSameFiles(spec, plain);
  ExpectSameFiles(other, plain);
  ExpectPoolWhole(*host);
}

TEST(TrainingPauseTest, WhatAPausedRunHoldsIsToldFromWhatNeverFits) {
  const JobSpec spec = Job("holds"), other = Job("waits");
  const auto plan = PlanTraining(spec);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto host = Host();
  ASSERT_TRUE(host->ReservePool(plan->pool_bytes * 3 / 2, nullptr, nullptr).ok());
  Hooked hooked, refused;
  hooked.step = [&](int64_t step) {
    if (step == 1) hooked.control.Pause();
  };
  hooked.paused = [&](const TrainingPause&) {
    const absl::Status status = refused.Train(*host, other).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    hooked.control.Resume();
  };
  ASSERT_TRUE(hooked.Train(*host, spec).ok()) << hooked.run.status;

  const auto small = Host();
  ASSERT_TRUE(small->ReservePool(plan->pool_bytes / 2, nullptr, nullptr).ok());
  Hooked never;
  const absl::Status status = never.Train(*small, other).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_FALSE(IsDiskFull(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("host pool: needs"));
  // Admission says the same, and that it fits the other.
  EXPECT_FALSE(PlanTraining(other, small->budget(), PosixFileSystem())->fits);
  EXPECT_TRUE(PlanTraining(other, host->budget(), PosixFileSystem())->fits);
}

TEST(WarmPoolTest, ASecondJobTouchesNothingAnew) {
  const auto host = Host();
  std::vector<int64_t> touched;
  ASSERT_TRUE(
      host->ReservePool(
              kPoolBytes, [&](int64_t bytes, int64_t) { touched.push_back(bytes); }, nullptr)
          .ok());
  EXPECT_THAT(touched, ElementsAre(kPoolBytes));
  EXPECT_EQ(host->ReservePool(kPoolBytes, nullptr, nullptr).code(),
            absl::StatusCode::kFailedPrecondition);
  const JobSpec first = Job("first"), second = Job("second");
  Hooked one, two;
  ASSERT_TRUE(one.Train(*host, first).ok()) << one.run.status;
  ExpectPoolWhole(*host);
  ASSERT_TRUE(two.Train(*host, second).ok()) << two.run.status;
  ExpectPoolWhole(*host);
  EXPECT_THAT(touched, ElementsAre(kPoolBytes)) << "the first job's pool serves the second";
  // What the first left in the pool does not matter.
  ExpectSameRecords(two.run, one.run);
  ExpectSameFiles(second, first);
}

TEST(WarmPoolTest, AHostWithoutAPoolReservesWhatItsFirstJobPlans) {
  const auto host = Host();
  const JobSpec spec = Job("unreserved");
  EXPECT_EQ(host->pool_usage().capacity, 0);
  Hooked hooked;
  ASSERT_TRUE(hooked.Train(*host, spec).ok()) << hooked.run.status;
  EXPECT_EQ(host->pool_usage().capacity, PlanTraining(spec)->pool_bytes);
  EXPECT_EQ(host->pool_usage().free_bytes, host->pool_usage().capacity);
}

// Every place where preparing tells what it does, and every place where it asks whether to go on.
TEST(TrainingCancelTest, IsAbandonedWhilePreparing) {
  const auto host = HostWithPool();
  JobSpec saved = Job("cancel_resumed");
  Hooked before;
  before.step = [&](int64_t step) {
    if (step == 1) before.control.Stop();
  };
  ASSERT_TRUE(before.Train(*host, saved).ok()) << before.run.status;
  JobSpec fresh = Job("cancel_fresh");
  JobSpec random = Job("cancel_random");
  random.model.random_initialization = true;
  for (const JobSpec* spec : {&saved, &fresh, &random}) {
    for (const auto& [ask, outcome] :
         std::vector<std::pair<void (*)(TrainingControl&), TrainingOutcome>>{
             {[](TrainingControl& c) { c.Cancel(); }, TrainingOutcome::kCancelled},
             {[](TrainingControl& c) { c.Stop(); }, TrainingOutcome::kInterrupted},
             {[](TrainingControl& c) { c.Release(); }, TrainingOutcome::kReleased}}) {
      std::set<std::string> activities;
      bool reached = true;
      for (int at = 1; reached; ++at) {
        Hooked hooked;
        int questions = 0;
        bool prepared = false;
        const auto count = [&, ask = ask] {
          if (!prepared && ++questions == at) ask(hooked.control);
        };
        hooked.alive = count;
        hooked.activity = [&](const TrainingActivity& now) {
          if (now.phase == TrainingPhase::kPreparing) activities.insert(now.what);
          count();
        };
        hooked.started = [&](int64_t) {
          prepared = true;
          hooked.control.Cancel();
        };
        const auto end = hooked.Train(*host, *spec);
        ASSERT_TRUE(end.ok()) << end.status();
        reached = questions >= at;
        EXPECT_EQ(*end, reached ? outcome : TrainingOutcome::kCancelled);
        EXPECT_TRUE(hooked.run.records.empty());
        for (const std::string& line : hooked.run.messages)
          EXPECT_THAT(line, ::testing::Not(HasSubstr("damaged")));
        ExpectPoolWhole(*host);
      }
      EXPECT_GE(activities.size(), 4u);
    }
  }
  EXPECT_FALSE(HasCheckpoint(fresh));
  EXPECT_TRUE(HasCheckpoint(saved));
}

// Wherever a save asks whether to go on: nothing half-written gets a name.
TEST(TrainingCancelTest, ASaveIsAbandoned) {
  const auto host = HostWithPool();
  const JobSpec plain = Job("plain_save");
  Hooked undisturbed;
  ASSERT_TRUE(undisturbed.Train(*host, plain).ok()) << undisturbed.run.status;
  bool cancelled = true;
  for (int at = 1; cancelled; at += 7) {
    const JobSpec spec = Job("cancelled_save");
    Hooked hooked;
    std::atomic<int> questions{0};
    std::atomic<bool> saving{false};
    hooked.before_checkpoint = [&](int64_t) { saving = true; };
    hooked.alive = [&] {
      if (saving && ++questions == at) hooked.control.Cancel();
    };
    const auto outcome = hooked.Train(*host, spec);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    cancelled = *outcome == TrainingOutcome::kCancelled;
    EXPECT_EQ(HasCheckpoint(spec), !cancelled) << at;
    ExpectPoolWhole(*host);
    if (!cancelled) ExpectSameFiles(spec, plain);
  }
}

class FullDiskTest : public ::testing::Test {
 protected:
  FullDiskFileSystem disk_{PosixFileSystem()};
  std::unique_ptr<EngineHost> host_ = HostWithPool(&disk_);
};

TEST_F(FullDiskTest, PausesAndGoesOnWhenThereIsRoom) {
  const JobSpec plain = Job("plain_full");
  Hooked undisturbed;
  ASSERT_TRUE(undisturbed.Train(*host_, plain).ok()) << undisturbed.run.status;
  // The operation at which the disk fills up: in a save beside steps, in the last save.
  for (int64_t after : {0, 1, 3, 9}) {
    for (int64_t every : {0, 2}) {
      SCOPED_TRACE(absl::StrCat("full after ", after, " operations, saved every ", every));
      JobSpec spec = Job("full");
      spec.checkpoint.every_steps = every;
      Hooked hooked;
      hooked.options.pause_on_full_disk = true;
      int pauses = 0;
      hooked.paused = [&](const TrainingPause& pause) {
        EXPECT_TRUE(IsDiskFull(pause.status)) << pause.status;
        EXPECT_EQ(pause.directory, spec.checkpoint.directory);
        EXPECT_GT(pause.disk_bytes, 0);
        if (++pauses == 2) disk_.MakeRoom();  // once tried in vain
        hooked.control.Resume();
      };
      disk_.FillAfter(after);
      const auto outcome = hooked.Train(*host_, spec);
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_EQ(*outcome, TrainingOutcome::kFinished);
      EXPECT_EQ(pauses, 2);
      ExpectSameRecords(hooked.run, undisturbed.run);
      ExpectSameFiles(spec, plain);
    }
  }
}

TEST_F(FullDiskTest, TheOutputWaitsForRoomToo) {
  JobSpec spec = Job("full_output");
  spec.output.directory = FreshDirectory("full_output_model") + "/model";
  Hooked hooked;
  hooked.options.pause_on_full_disk = true;
  hooked.activity = [&](const TrainingActivity& now) {
    if (absl::StrContains(now.what, "output") && hooked.events.back() != "started 5") {
      disk_.FillAfter(2);
    }
  };
  hooked.paused = [&](const TrainingPause& pause) {
    EXPECT_TRUE(IsDiskFull(pause.status)) << pause.status;
    EXPECT_EQ(pause.directory, spec.output.directory);
    disk_.MakeRoom();
    hooked.control.Resume();
  };
  const auto outcome = hooked.Train(*host_, spec);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(hooked.events.back(), "started 5");
  EXPECT_TRUE(std::filesystem::exists(spec.output.directory + "/config.json"));
}

TEST_F(FullDiskTest, WithoutThatOptionItIsToldAndTheLastSaveFails) {
  JobSpec spec = Job("full_told");
  spec.checkpoint.every_steps = 2;
  Hooked hooked;
  disk_.FillAfter(0);
  const absl::Status status = hooked.Train(*host_, spec).status();
  disk_.MakeRoom();
  EXPECT_TRUE(IsDiskFull(status)) << status;
  EXPECT_THAT(hooked.events, ElementsAre("started 1", "checkpoint_failed 2", "step 1", "step 2",
                                         "step 3", "step 4"));
}

TEST_F(FullDiskTest, ARunThatCannotBeSavedIsNotReleased) {
  const JobSpec plain = Job("plain_unreleased"), spec = Job("unreleased");
  Hooked undisturbed, hooked;
  ASSERT_TRUE(undisturbed.Train(*host_, plain).ok()) << undisturbed.run.status;
  hooked.options.pause_on_full_disk = true;
  hooked.step = [&](int64_t step) {
    if (step != 1) return;
    disk_.FillAfter(0);
    hooked.control.Release();
  };
  hooked.paused = [&](const TrainingPause& pause) {
    EXPECT_TRUE(IsDiskFull(pause.status)) << pause.status;
    EXPECT_LT(host_->pool_usage().free_bytes, kPoolBytes);
    disk_.MakeRoom();
    hooked.control.Resume();
  };
  const auto outcome = hooked.Train(*host_, spec);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(*outcome, TrainingOutcome::kFinished);
  ExpectSameRecords(hooked.run, undisturbed.run);
  ExpectSameFiles(spec, plain);
}

TEST_F(FullDiskTest, CancelEndsThePause) {
  const JobSpec spec = Job("full_cancelled");
  Hooked hooked;
  hooked.options.pause_on_full_disk = true;
  hooked.paused = [&](const TrainingPause&) { hooked.control.Cancel(); };
  disk_.FillAfter(0);
  const auto outcome = hooked.Train(*host_, spec);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(*outcome, TrainingOutcome::kCancelled);
  ExpectPoolWhole(*host_);
}

TEST(FinishedRunTest, TellsSoAndEnds) {
  const auto host = HostWithPool();
  const JobSpec spec = Job("finished");
  Hooked first, second;
  ASSERT_TRUE(first.Train(*host, spec).ok()) << first.run.status;
  const auto outcome = second.Train(*host, spec);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(*outcome, TrainingOutcome::kFinished);
  EXPECT_THAT(second.events, ElementsAre("started 5"));
}

}  // namespace
}  // namespace megatrain
