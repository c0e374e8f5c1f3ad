// A step that is not finite: what is saved then, and how the run goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/engine.h"
#include "tests/engine/run/hooked_run.h"

namespace megatrain {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> Steps(const JobSpec& spec) { return *ListSteps(spec.checkpoint.directory); }

class FailureTest : public ::testing::TestWithParam<bool> {
 protected:
  // Each step multiplies matrices by about a million, until a product overflows.
  static JobSpec Exploding(const std::string& directory, int64_t steps) {
    JobSpec spec = HookedJob(directory, Precision::kFp32, /*clipped=*/GetParam());
    spec.training.steps = steps;
    spec.schedule.type = ScheduleType::kConstant;
    spec.schedule.warmup_steps = 0;
    spec.optimizer.learning_rate = 1000;
    spec.optimizer.weight_decay = 1000;
    return spec;
  }
  // The step that `status` names.
  static int64_t FailedStep(const absl::Status& status) {
    const std::string text(status.message());
    int64_t step = 0;
    EXPECT_TRUE(absl::SimpleAtoi(text.substr(5, text.find(':') - 5), &step)) << text;
    return step;
  }

  std::unique_ptr<EngineHost> host_ = HostWithPool();
};

TEST_P(FailureTest, TheStateBeforeTheStepIsSaved) {
  const JobSpec spec = Exploding("exploding", 12);
  HookedRun run;
  const absl::Status status = run.Train(*host_, spec).status();
  ASSERT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  const int64_t failed = FailedStep(status);
  ASSERT_GT(failed, 1);
  EXPECT_EQ(run.run.records.size(), static_cast<size_t>(failed - 1));
  EXPECT_THAT(Steps(spec), ElementsAre(failed - 1));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("training.skip_steps: [", failed, "]")));
  EXPECT_THAT(std::string(status.message()), HasSubstr("can go on from"));

  const JobSpec before = Exploding("before", failed - 1);
  HookedRun expected;
  ASSERT_TRUE(expected.Train(*host_, before).ok()) << expected.run.status;
  ExpectSameFiles(spec, before);
}

// That of the step before is not whole when the step fails.
TEST_P(FailureTest, ASaveUnderWayIsFinished) {
  JobSpec spec = Exploding("saving", 12);
  spec.checkpoint.every_steps = 1;
  spec.checkpoint.keep = 20;
  HookedRun run;
  const absl::Status status = run.Train(*host_, spec).status();
  ASSERT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  const int64_t failed = FailedStep(status);
  ASSERT_FALSE(Steps(spec).empty());
  EXPECT_EQ(Steps(spec).front(), failed - 1);
  for (const int64_t step : Steps(spec)) {
    const absl::Status whole =
        VerifyCheckpoint(JoinPath(spec.checkpoint.directory, StepDirectoryName(step)));
    EXPECT_TRUE(whole.ok()) << whole;
  }
}

// The checkpoint that it resumed from has the state before the step already.
TEST_P(FailureTest, AResumedRunThatFailsAtOnceNamesItsStart) {
  const JobSpec spec = Exploding("at_once", 12);
  HookedRun run, again;
  const absl::Status first = run.Train(*host_, spec).status();
  ASSERT_EQ(first.code(), absl::StatusCode::kAborted) << first;
  const int64_t failed = FailedStep(first);
  ASSERT_THAT(Steps(spec), ElementsAre(failed - 1));
  const absl::Status status = again.Train(*host_, spec).status();
  ASSERT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_EQ(FailedStep(status), failed);
  EXPECT_THAT(again.events, ElementsAre(absl::StrCat("started ", failed)));
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr(absl::StrCat("the run can go on from ",
                             JoinPath(spec.checkpoint.directory, StepDirectoryName(failed - 1)))));
  EXPECT_THAT(Steps(spec), ElementsAre(failed - 1));
}

TEST_P(FailureTest, ASkippedStepMakesNoUpdate) {
  JobSpec spec = HookedJob("skipping", Precision::kBf16, GetParam());
  spec.training.skip_steps = {2, 4};
  spec.checkpoint.every_steps = 2;
  HookedRun run;
  ASSERT_TRUE(run.Train(*host_, spec).ok()) << run.run.status;
  ASSERT_EQ(run.run.records.size(), 2u);
  EXPECT_EQ(run.run.records[0].step, 1);
  EXPECT_EQ(run.run.records[1].step, 3);
  EXPECT_THAT(run.run.messages, Contains(HasSubstr("step 2: no update")));
  EXPECT_THAT(Steps(spec), ElementsAre(4, 2));
  // Sequences that are left out are passed by, and their tokens do not count.
  const int64_t tokens = run.run.records[0].input_tokens + run.run.records[1].input_tokens;
  EXPECT_EQ(run.run.records[1].total_tokens, tokens);
  const auto state = ReadCheckpointState(JoinPath(spec.checkpoint.directory, StepDirectoryName(4)));
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->input_tokens, tokens);
  EXPECT_EQ(state->data_position, 4 * spec.training.global_batch);

  // The third step's batch, on what the first one has made of the model.
  HookedRun plain;
  JobSpec one = HookedJob("plain", Precision::kBf16, GetParam());
  ASSERT_TRUE(plain.Train(*host_, one).ok()) << plain.run.status;
  EXPECT_EQ(plain.run.records[0].loss, run.run.records[0].loss);
  EXPECT_NE(plain.run.records[2].loss, run.run.records[1].loss);
}

TEST_P(FailureTest, WhatIsEvaluatedAtTheEndIsTheLastStepThatIsNotSkipped) {
  JobSpec spec = HookedJob("skipping_the_last", Precision::kBf16, GetParam());
  spec.data.eval_fraction = 0.1;
  spec.training.eval_every = 0;
  spec.training.skip_steps = {3, 4};
  HookedRun run;
  ASSERT_TRUE(run.Train(*host_, spec).ok()) << run.run.status;
  ASSERT_EQ(run.run.records.size(), 2u);
  EXPECT_FALSE(run.run.records[0].eval_loss.has_value());
  EXPECT_TRUE(run.run.records[1].eval_loss.has_value());
}

TEST_P(FailureTest, AllowedSectionsMayChangeAndTheManifestNotesIt) {
  JobSpec spec = HookedJob("allowed", Precision::kBf16, GetParam());
  spec.training.steps = 2;
  HookedRun run;
  ASSERT_TRUE(run.Train(*host_, spec).ok()) << run.run.status;
  spec.training.steps = 3;
  spec.optimizer.learning_rate = 1e-5;
  HookedRun refused;
  EXPECT_THAT(std::string(refused.Train(*host_, spec).status().message()),
              HasSubstr("optimizer.learning_rate differs"));
  HookedRun wrong;
  wrong.options.allow_change = {"schedule"};
  EXPECT_FALSE(wrong.Train(*host_, spec).ok());
  HookedRun allowed;
  allowed.options.allow_change = {"optimizer"};
  ASSERT_TRUE(allowed.Train(*host_, spec).ok()) << allowed.run.status;
  EXPECT_DOUBLE_EQ(allowed.run.records.at(0).learning_rate, 3e-6);  // three tenths of the warmup
  const auto state = ReadCheckpointState(JoinPath(spec.checkpoint.directory, StepDirectoryName(3)));
  ASSERT_TRUE(state.ok()) << state.status();
  ASSERT_EQ(state->allowed_changes.size(), 1u);
  const AllowedChange& change = state->allowed_changes[0];
  EXPECT_EQ(change.step, 2);
  EXPECT_EQ(change.key, "optimizer.learning_rate");
  EXPECT_EQ(change.now, "1e-05");
}

INSTANTIATE_TEST_SUITE_P(Clipping, FailureTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "clipped" : "unclipped"; });

}  // namespace
}  // namespace megatrain
