// The decisions of evaluations: which checkpoint is kept as the best, and when a run ends early.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <latch>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/engine.h"
#include "tests/engine/run/full_disk_file_system.h"
#include "tests/engine/run/hooked_run.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<int64_t> Steps(const JobSpec& spec) { return *ListSteps(spec.checkpoint.directory); }

class BestTest : public ::testing::Test {
 protected:
  static JobSpec Job(const std::string& directory, int64_t steps) {
    JobSpec spec = HookedJob(directory);
    spec.training.steps = steps;
    spec.training.eval_every = 1;
    spec.data.eval_fraction = 0.1;
    spec.checkpoint.keep = 1;
    return spec;
  }
  // The model does not change: the first evaluation stays the best.
  static JobSpec StandingStill(const std::string& directory, int64_t steps) {
    JobSpec spec = Job(directory, steps);
    spec.optimizer.learning_rate = 0;
    return spec;
  }

  std::unique_ptr<EngineHost> host_ = HostWithPool();
};

TEST_F(BestTest, TheBestStaysBesideTheNewestOnesAndOverAResume) {
  JobSpec spec = StandingStill("best", 3);
  spec.training.keep_best = true;
  spec.checkpoint.every_steps = 2;
  HookedRun run;
  ASSERT_TRUE(run.Train(*host_, spec).ok()) << run.run.status;
  for (const char* saved : {"checkpoint 1", "checkpoint 2", "checkpoint 3"}) {
    EXPECT_THAT(run.events, Contains(saved));
  }
  EXPECT_THAT(Steps(spec), ElementsAre(3, 1));
  EXPECT_THAT(run.run.messages, Contains(HasSubstr("step 1 is saved for it")));
  EXPECT_THAT(run.run.messages,
              Contains(AllOf(HasSubstr("was that of step 1"), HasSubstr("megatraind export "))));

  spec.training.steps = 5;
  HookedRun resumed;
  ASSERT_TRUE(resumed.Train(*host_, spec).ok()) << resumed.run.status;
  EXPECT_THAT(Steps(spec), ElementsAre(5, 1));
  const auto state = ReadCheckpointState(JoinPath(spec.checkpoint.directory, StepDirectoryName(5)));
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->evaluations.best_step, 1);
  EXPECT_EQ(state->evaluations.best_loss, run.run.records[0].eval_loss);
  EXPECT_EQ(state->evaluations.since_best, 4);
}

TEST_F(BestTest, ANewBestTakesThePlaceOfTheOneBefore) {
  JobSpec spec = Job("falling", 8);
  spec.training.keep_best = true;
  spec.checkpoint.every_steps = 0;
  HookedRun run;
  ASSERT_TRUE(run.Train(*host_, spec).ok()) << run.run.status;
  const auto& records = run.run.records;
  const auto best =
      std::min_element(records.begin(), records.end(),
                       [](const auto& a, const auto& b) { return *a.eval_loss < *b.eval_loss; });
  const std::set<int64_t> expected = {8, best->step};
  const std::vector<int64_t> steps = Steps(spec);
  EXPECT_EQ(std::set<int64_t>(steps.begin(), steps.end()), expected);
}

TEST_F(BestTest, WithoutKeepBestNothingIsSavedForIt) {
  const JobSpec spec = StandingStill("plain", 3);
  HookedRun run;
  ASSERT_TRUE(run.Train(*host_, spec).ok()) << run.run.status;
  EXPECT_THAT(Steps(spec), ElementsAre(3));
  EXPECT_THAT(run.run.messages, Not(Contains(HasSubstr("lowest"))));
}

// The first step ruins the model, which the second one finds.
TEST_F(BestTest, ALossThatIsNotFiniteIsNeverTheBest) {
  JobSpec spec = Job("not_finite", 2);
  spec.training.keep_best = true;
  spec.checkpoint.every_steps = 0;
  spec.optimizer.learning_rate = 1e30;
  HookedRun run;
  EXPECT_EQ(run.Train(*host_, spec).status().code(), absl::StatusCode::kAborted);
  ASSERT_EQ(run.run.records.size(), 1u);
  EXPECT_FALSE(std::isfinite(run.run.records[0].eval_loss.value()));
  EXPECT_THAT(run.run.messages, Not(Contains(HasSubstr("is saved for it"))));
}

TEST_F(BestTest, ABestWhoseCheckpointIsGoneIsForgotten) {
  JobSpec spec = StandingStill("gone", 3);
  HookedRun run;
  ASSERT_TRUE(run.Train(*host_, spec).ok()) << run.run.status;
  spec.training.keep_best = true;
  spec.training.steps = 6;
  HookedRun resumed;
  ASSERT_TRUE(resumed.Train(*host_, spec).ok()) << resumed.run.status;
  EXPECT_THAT(resumed.run.messages, Contains(HasSubstr("is gone")));
  EXPECT_THAT(Steps(spec), ElementsAre(6, 4));
}

TEST_F(BestTest, WhereTheBestIsGoneTheCountBeginsAnew) {
  JobSpec spec = StandingStill("anew", 3);
  HookedRun run;
  ASSERT_TRUE(run.Train(*host_, spec).ok()) << run.run.status;
  spec.training.keep_best = true;
  spec.training.steps = 6;
  HookedRun resumed;
  ASSERT_TRUE(resumed.Train(*host_, spec).ok()) << resumed.run.status;
  const auto state = ReadCheckpointState(JoinPath(spec.checkpoint.directory, StepDirectoryName(6)));
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->evaluations.best_step, 4);
  EXPECT_EQ(state->evaluations.since_best, 2);
}

TEST_F(BestTest, AnotherRunsCheckpointOfTheSameStepIsNotTheBest) {
  JobSpec spec = StandingStill("mine", 3);
  spec.training.keep_best = true;
  spec.checkpoint.every_steps = 0;
  HookedRun run;
  ASSERT_TRUE(run.Train(*host_, spec).ok()) << run.run.status;
  ASSERT_THAT(Steps(spec), ElementsAre(3, 1));
  const JobSpec other = StandingStill("other", 1);
  HookedRun other_run;
  ASSERT_TRUE(other_run.Train(*host_, other).ok()) << other_run.run.status;
  ASSERT_THAT(Steps(other), ElementsAre(1));
  const std::string best = JoinPath(spec.checkpoint.directory, StepDirectoryName(1));
  std::filesystem::remove_all(best);
  std::filesystem::copy(JoinPath(other.checkpoint.directory, StepDirectoryName(1)), best,
                        std::filesystem::copy_options::recursive);
  spec.training.steps = 5;
  HookedRun resumed;
  ASSERT_TRUE(resumed.Train(*host_, spec).ok()) << resumed.run.status;
  EXPECT_THAT(resumed.run.messages, Contains(HasSubstr("is gone")));
  const auto state = ReadCheckpointState(JoinPath(spec.checkpoint.directory, StepDirectoryName(5)));
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->evaluations.best_step, 4);
}

TEST_F(BestTest, ABestThatCouldNotBeSavedDoesNotTakeThePlaceOfTheOneBefore) {
  FullDiskFileSystem disk(PosixFileSystem());
  const auto host = HostWithPool(&disk);
  JobSpec spec = Job("unsaved", 12);
  spec.training.keep_best = true;
  spec.training.eval_every = 4;
  spec.checkpoint.every_steps = 0;
  HookedRun run;
  run.step = [&](int64_t step) {
    if (step == 7) {
      while (Steps(spec).empty()) std::this_thread::yield();  // that of step 4 is whole
      disk.FillAfter(0);
    }
    if (step != 9) return;
    disk.MakeRoom();
    run.control.Stop();
  };
  ASSERT_TRUE(run.Train(*host, spec).ok()) << run.run.status;
  EXPECT_LT(*run.run.records[7].eval_loss, *run.run.records[3].eval_loss);
  EXPECT_THAT(run.events, Contains("checkpoint_failed 8"));
  // Step 10 is the newest if it was under way already.
  EXPECT_THAT(Steps(spec), ElementsAre(AnyOf(9, 10), 4));

  // No later evaluation is better.
  spec.optimizer.learning_rate = 1;
  HookedRun resumed;
  resumed.options.allow_change = {"optimizer"};
  ASSERT_TRUE(resumed.Train(*host, spec).ok()) << resumed.run.status;
  EXPECT_THAT(Steps(spec), ElementsAre(12, 4));
  EXPECT_THAT(resumed.run.messages,
              Contains(HasSubstr(absl::StrFormat("the lowest eval_loss of a checkpoint, %.6g, was "
                                                 "that of step 4",
                                                 *run.run.records[3].eval_loss))));
}

// Holds back the name of the checkpoint of step 3.
class SlowDisk : public FullDiskFileSystem {
 public:
  SlowDisk() : FullDiskFileSystem(PosixFileSystem()) {}

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (absl::EndsWith(to, StepDirectoryName(3))) held.wait();
    return FullDiskFileSystem::Rename(from, to);
  }

  std::latch held{1};
};

TEST_F(BestTest, ABestWhoseSaveEndsLateStaysWhenTheNextOneCannotBeSaved) {
  SlowDisk disk;
  const auto host = HostWithPool(&disk);
  JobSpec spec = Job("late", 12);
  spec.training.keep_best = true;
  spec.training.eval_every = 3;
  spec.checkpoint.every_steps = 0;
  HookedRun run;
  bool freed = false;
  run.activity = [&](const TrainingActivity& now) {
    // The better evaluation of step 6 waits for the save.
    if (now.phase == TrainingPhase::kSaving && !std::exchange(freed, true)) disk.held.count_down();
  };
  run.saved = [&](int64_t step) {
    if (step == 3) disk.FillAfter(0);
  };
  run.step = [&](int64_t step) {
    if (step != 7) return;
    disk.MakeRoom();
    run.control.Stop();
  };
  ASSERT_TRUE(run.Train(*host, spec).ok()) << run.run.status;
  EXPECT_THAT(run.events, Contains("checkpoint_failed 6"));
  EXPECT_THAT(Steps(spec), ElementsAre(AnyOf(7, 8), 3));
}

TEST_F(BestTest, ARunEndsEarlyWhenTheLossFallsNoMore) {
  JobSpec spec = StandingStill("early", 12);
  spec.training.stop_after_worse = 3;
  spec.output.directory = spec.checkpoint.directory + "_output";
  HookedRun run;
  auto outcome = run.Train(*host_, spec);
  ASSERT_TRUE(outcome.ok()) << run.run.status;
  EXPECT_EQ(*outcome, TrainingOutcome::kStoppedEarly);
  EXPECT_EQ(run.run.records.size(), 4u);
  EXPECT_THAT(Steps(spec), ElementsAre(4));
  EXPECT_TRUE(PosixFileSystem()->FileExists(spec.output.directory + "/config.json"));
  EXPECT_THAT(run.run.messages,
              Contains(AllOf(HasSubstr("stopped at step 4 of 12 by training.stop_after_worse"),
                             HasSubstr("of step 1"))));
  HookedRun again;
  outcome = again.Train(*host_, spec);
  ASSERT_TRUE(outcome.ok()) << again.run.status;
  EXPECT_EQ(*outcome, TrainingOutcome::kStoppedEarly);
  EXPECT_TRUE(again.run.records.empty());

  spec.training.stop_after_worse = 5;
  HookedRun further;
  ASSERT_TRUE(further.Train(*host_, spec).ok()) << further.run.status;
  EXPECT_EQ(further.run.records.size(), 2u);
}

TEST_F(BestTest, NamedSetsHaveALossOfTheirOwn) {
  JobSpec spec = Job("sets", 1);
  spec.data.eval_fraction = 0;
  DataFile file = spec.data.train[0];
  for (const char* name : {"twice", "", "twice", "once"}) {
    file.name = name;
    spec.data.eval.push_back(file);
  }
  HookedRun run;
  ASSERT_TRUE(run.Train(*host_, spec).ok()) << run.run.status;
  const StepRecord& record = run.run.records.at(0);
  ASSERT_EQ(record.eval_losses.size(), 2u);
  // The same data in each.
  EXPECT_DOUBLE_EQ(record.eval_losses.at("twice"), record.eval_losses.at("once"));
  EXPECT_NEAR(*record.eval_loss, record.eval_losses.at("once"), 1e-9);
}

TEST(EvaluationsTest, EqualLossesAndNumbersThatAreNotFiniteAreNoBetter) {
  Evaluations evaluations;
  evaluations.Add(1, std::nan(""));
  EXPECT_EQ(evaluations.best_step, 0);
  evaluations.Add(2, 3.0);
  evaluations.Add(3, 3.0);
  evaluations.Add(4, std::nan(""));
  EXPECT_EQ(evaluations.best_step, 2);
  EXPECT_EQ(evaluations.since_best, 2);
  evaluations.Add(5, 2.5);
  EXPECT_EQ(evaluations.best_step, 5);
  EXPECT_EQ(evaluations.since_best, 0);
}

}  // namespace
}  // namespace megatrain
