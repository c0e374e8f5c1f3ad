// Runs that are paused, resumed and released, on one host after each other and beside each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine.h"
#include "engine/memory/pool_busy.h"
#include "tests/engine/numerics/job_run.h"
#include "tests/engine/run/hooked_run.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Case {
  std::string name;
  Precision precision;
  bool clipped;
};

class SameBitsTest : public ::testing::TestWithParam<Case> {
 protected:
  JobSpec CaseJob(const std::string& directory) const {
    JobSpec spec = HookedJob(directory, GetParam().precision, GetParam().clipped);
    spec.data.eval_fraction = 0.3;
    spec.training.eval_every = 2;
    return spec;
  }
};

// Paused before the first step, after each step, after all of them; in the midst of an evaluation.
TEST_P(SameBitsTest, PausedInPlace) {
  const auto host = HostWithPool();
  const JobSpec plain = CaseJob("plain");
  HookedRun undisturbed;
  ASSERT_TRUE(undisturbed.Train(*host, plain).ok()) << undisturbed.run.status;
  for (int64_t pause_at = -1; pause_at <= kHookedSteps; ++pause_at) {
    SCOPED_TRACE(absl::StrCat("paused after step ", pause_at, " (-1: every one)"));
    const JobSpec spec = CaseJob("paused");
    HookedRun hooked;
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
    EXPECT_GE(pauses, pause_at == kHookedSteps ? 0 : 1)
        << "after the last step there is nothing to pause";
    ExpectSameRecords(hooked.run, undisturbed.run);
    ExpectSameFiles(spec, plain);
    ExpectPoolWhole(*host);
  }
}

TEST_P(SameBitsTest, PausedInTheMidstOfAnEvaluation) {
  const auto host = HostWithPool();
  const JobSpec plain = CaseJob("plain_evaluation"), spec = CaseJob("evaluation");
  HookedRun undisturbed, hooked;
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
  HookedRun undisturbed, hooked;
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
  HookedRun undisturbed;
  ASSERT_TRUE(undisturbed.Train(*host, plain).ok()) << undisturbed.run.status;
  for (int64_t release_at = 1; release_at < kHookedSteps; ++release_at) {
    SCOPED_TRACE(absl::StrCat("released after step ", release_at));
    const JobSpec spec = CaseJob("released");
    HookedRun first, second;
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
  JobSpec spec = HookedJob("within");
  spec.training.steps = 20;
  HookedRun hooked;
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
  const JobSpec plain = HookedJob("plain_requests"), spec = HookedJob("requests");
  HookedRun undisturbed, hooked;
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

TEST(TrainingPauseTest, ACheckpointThatIsThereAnswersTheNextRequest) {
  const auto host = HostWithPool();
  const JobSpec spec = HookedJob("answered");
  HookedRun hooked;
  std::vector<int64_t> saved;
  hooked.step = [&](int64_t step) {
    if (step == 1) hooked.control.Checkpoint();
  };
  hooked.saved = [&](int64_t step) {
    saved.push_back(step);
    if (saved.size() == 1) hooked.control.Checkpoint();
  };
  ASSERT_TRUE(hooked.Train(*host, spec).ok()) << hooked.run.status;
  ASSERT_EQ(saved.size(), 3u);
  EXPECT_LT(saved[0], kHookedSteps);
  EXPECT_EQ(saved[1], saved[0]) << "no step was made in between";
  EXPECT_EQ(saved[2], kHookedSteps);
}

// The answer is the checkpoint that the run has resumed from.
TEST(TrainingPauseTest, ARunThatHasResumedHasACheckpointBeforeItsFirstStep) {
  const auto host = HostWithPool();
  JobSpec spec = HookedJob("resumed");
  spec.training.steps = 2;
  HookedRun first, resumed;
  ASSERT_TRUE(first.Train(*host, spec).ok()) << first.run.status;
  spec.training.steps = 4;
  resumed.started = [&](int64_t) { resumed.control.Checkpoint(); };
  ASSERT_TRUE(resumed.Train(*host, spec).ok()) << resumed.run.status;
  EXPECT_THAT(resumed.events,
              ElementsAre("started 3", "checkpoint 2", "step 3", "step 4", "checkpoint 4"));
}

TEST(TrainingPauseTest, AStopBeforeTheFirstStepSavesNothing) {
  const auto host = HostWithPool();
  const JobSpec spec = HookedJob("stopped_before");
  HookedRun hooked;
  hooked.started = [&](int64_t) { hooked.control.Stop(); };
  const auto outcome = hooked.Train(*host, spec);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(*outcome, TrainingOutcome::kInterrupted);
  EXPECT_THAT(hooked.events, ElementsAre("started 1"));
  EXPECT_FALSE(HasCheckpoint(spec));
}

// A run that is stopped again and again gets on. Over a slow link the stop comes in the step's
// forward pass, in which any later step would be given up.
TEST(TrainingPauseTest, AStopLetsTheRunsFirstStepFinish) {
  const auto host = HostWithPool();
  JobSpec spec = HookedJob("first_step");
  spec.engine.link_gigabytes_per_second = 0.01;
  HookedRun hooked;
  bool running = false;
  hooked.activity = [&](const TrainingActivity& now) {
    running = now.phase == TrainingPhase::kRunning;
  };
  const std::thread::id training_thread = std::this_thread::get_id();
  hooked.alive = [&] {
    if (std::this_thread::get_id() == training_thread && running) hooked.control.Stop();
  };
  const auto outcome = hooked.Train(*host, spec);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(*outcome, TrainingOutcome::kInterrupted);
  ASSERT_FALSE(hooked.run.records.empty());
  EXPECT_TRUE(HasCheckpoint(spec));
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
  const JobSpec plain = HookedJob("plain_ends");
  HookedRun undisturbed;
  ASSERT_TRUE(undisturbed.Train(*host, plain).ok()) << undisturbed.run.status;
  for (const End& end : ends) {
    const JobSpec spec = HookedJob("ends");
    HookedRun first, second;
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
  const JobSpec plain = HookedJob("plain_beside"), spec = HookedJob("beside"),
                other = HookedJob("other");
  HookedRun undisturbed, hooked, beside;
  ASSERT_TRUE(undisturbed.Train(*host, plain).ok()) << undisturbed.run.status;
  hooked.step = [&](int64_t step) {
    if (step == 2) hooked.control.Pause();
  };
  hooked.paused = [&](const TrainingPause&) {
    const int64_t free = host->pool_usage().free_bytes;
    EXPECT_LT(free, kHookedPoolBytes);
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
  const JobSpec spec = HookedJob("holds"), other = HookedJob("waits");
  const auto plan = PlanTraining(spec);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto host = Host();
  ASSERT_TRUE(host->ReservePool(plan->pool_bytes * 3 / 2, nullptr, nullptr).ok());
  HookedRun hooked, refused;
  hooked.step = [&](int64_t step) {
    if (step == 1) hooked.control.Pause();
  };
  hooked.paused = [&](const TrainingPause&) {
    const absl::Status status = refused.Train(*host, other).status();
    EXPECT_TRUE(IsPoolBusy(status)) << status;
    hooked.control.Resume();
  };
  ASSERT_TRUE(hooked.Train(*host, spec).ok()) << hooked.run.status;

  const auto small = Host();
  ASSERT_TRUE(small->ReservePool(plan->pool_bytes / 2, nullptr, nullptr).ok());
  HookedRun never;
  const absl::Status status = never.Train(*small, other).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_FALSE(IsPoolBusy(status));
  EXPECT_FALSE(IsDiskFull(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("host pool: needs"));
  // Admission says the same, and that it fits the other.
  EXPECT_FALSE(PlanTraining(other, small->budget(), PosixFileSystem())->fits);
  EXPECT_TRUE(PlanTraining(other, host->budget(), PosixFileSystem())->fits);
}

}  // namespace
}  // namespace megatrain
