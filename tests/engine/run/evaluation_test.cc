// What evaluations tell: rewards of pairs and answers to prompts in a run, and the loss of texts by
// itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine.h"
#include "tests/engine/numerics/job_run.h"
#include "tests/engine/numerics/preference_reference.h"
#include "tests/engine/run/hooked_run.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// A job over pairs whose model does not change.
JobSpec StandingStill(const std::string& directory) {
  JobSpec spec = PreferenceJob(LoadPreferenceReference("llama"), Precision::kFp32,
                               /*clipped=*/true, directory);
  spec.optimizer.learning_rate = 0;
  spec.training.eval_every = 0;
  return spec;
}

// One pair a step: an epoch's means are those of an evaluation over the same pairs.
TEST(PreferenceEvaluationTest, RewardsAreThoseOfStepsOverTheSamePairs) {
  JobSpec spec = StandingStill("same_pairs");
  spec.training.dpo_reference_free = true;
  spec.data.eval = spec.data.train;
  spec.training.steps = 0;
  spec.training.epochs = 1;
  spec.training.global_batch = spec.training.micro_batch = 1;
  const JobRun run = Train(spec);
  ASSERT_TRUE(run.status.ok()) << run.status;
  ASSERT_GT(run.records.size(), 8u);
  double loss = 0;
  Rewards sum;
  for (const StepRecord& record : run.records) {
    ASSERT_TRUE(record.rewards.has_value());
    loss += record.loss;
    sum.chosen += record.rewards->chosen;
    sum.rejected += record.rewards->rejected;
    sum.accuracies += record.rewards->accuracies;
  }
  ASSERT_TRUE(run.records.back().eval_rewards.has_value());
  const Rewards& got = *run.records.back().eval_rewards;
  const double steps = static_cast<double>(run.records.size());
  const auto expect_near = [](double value, double expected) {
    EXPECT_NEAR(value, expected, 1e-4 * (1 + std::abs(expected)));
  };
  expect_near(*run.records.back().eval_loss, loss / steps);
  expect_near(got.chosen, sum.chosen / steps);
  expect_near(got.rejected, sum.rejected / steps);
  expect_near(got.margins, (sum.chosen - sum.rejected) / steps);
  expect_near(got.accuracies, sum.accuracies / steps);
  EXPECT_GT(std::abs(got.margins), 1e-3) << "the sides are told apart";
}

// What a run tells of its sample prompts, with requests that come with the first answer.
struct SampledRun {
  std::function<void(TrainingControl&)> on_first_answer;
  absl::StatusOr<TrainingOutcome> outcome = TrainingOutcome::kFinished;
  std::vector<std::string> events;  // "step 1", "step 2: answer 0 TEXT", "paused"

  void Train(EngineHost& host, const JobSpec& spec) {
    TrainingControl control;
    bool answered = false;
    const Overloaded note = {
        [&](const SampledAnswer& answer) {
          events.push_back(
              absl::StrCat("step ", answer.step, ": answer ", answer.prompt, " ", answer.text));
          if (!std::exchange(answered, true) && on_first_answer) on_first_answer(control);
        },
        [&](const StepRecord& record) {
          events.push_back(absl::StrCat("step ", record.step,
                                        record.eval_loss.has_value() ? ", evaluated" : ""));
        },
        [&](const TrainingPause&) {
          events.push_back("paused");
          control.Resume();
        },
        [](const auto&) {}};
    outcome = RunTraining(host, spec, {}, &control,
                          [&](const RunEvent& event) { std::visit(note, event); });
  }
};

// Each prompt and its answer fill a wave.
JobSpec SampledJob(const std::string& directory) {
  JobSpec spec = HookedJob(directory);
  spec.data.tokenizer = "bytes";
  spec.data.eval = spec.data.train;
  spec.training.eval_every = 2;
  spec.training.sample_prompts = {
      {std::string(20, 'a'), ""}, {std::string(21, 'b'), ""}, {std::string(22, 'c'), ""}};
  spec.training.sample_tokens = 10;
  return spec;
}

TEST(SamplePromptsTest, AreAnsweredBeforeTheRecordOfTheirStep) {
  const auto host = HostWithPool();
  SampledRun plain, paused;
  plain.Train(*host, SampledJob("sampled"));
  ASSERT_TRUE(plain.outcome.ok()) << plain.outcome.status();
  EXPECT_THAT(
      plain.events,
      ElementsAre("step 1", StartsWith("step 2: answer 0 "), StartsWith("step 2: answer 1 "),
                  StartsWith("step 2: answer 2 "), "step 2, evaluated", "step 3",
                  StartsWith("step 4: answer 0 "), StartsWith("step 4: answer 1 "),
                  StartsWith("step 4: answer 2 "), "step 4, evaluated"));
  // A pause takes effect between two of them, and changes none.
  paused.on_first_answer = [](TrainingControl& control) { control.Pause(); };
  paused.Train(*host, SampledJob("sampled_paused"));
  ASSERT_TRUE(paused.outcome.ok()) << paused.outcome.status();
  std::vector<std::string> expected = plain.events;
  expected.insert(expected.begin() + 2, "paused");
  EXPECT_EQ(paused.events, expected);
  ExpectPoolWhole(*host);
}

TEST(SamplePromptsTest, ARunThatIsStoppedAnswersNoMore) {
  const auto host = HostWithPool();
  SampledRun run;
  run.on_first_answer = [](TrainingControl& control) { control.Stop(); };
  const JobSpec spec = SampledJob("sampled_stopped");
  run.Train(*host, spec);
  ASSERT_TRUE(run.outcome.ok()) << run.outcome.status();
  EXPECT_EQ(*run.outcome, TrainingOutcome::kInterrupted);
  EXPECT_THAT(run.events,
              ElementsAre("step 1", StartsWith("step 2: answer 0 "), "step 2, evaluated"));
  EXPECT_TRUE(HasCheckpoint(spec));
}

class EvaluateTest : public ::testing::Test {
 protected:
  EvaluateTest() {
    spec_.model.path = std::filesystem::absolute("tests/golden/models/llama");
    spec_.data.tokenizer = "bytes";
    spec_.data.sequence_length = 64;
    spec_.training.global_batch = 4;
    spec_.training.micro_batch = 2;
    spec_.engine.device = "cpu";
  }
  // Adds a file to data.eval.
  void Add(const std::string& file, const std::string& content, const std::string& set) {
    DataFile& added = spec_.data.eval.emplace_back();
    added.path = directory_.Write(file, content);
    added.name = set;
  }
  absl::StatusOr<EvaluationReport> Run() {
    said_.clear();
    return Evaluate(*host_, spec_, directory_ / "cache",
                    [this](const std::string& line) { said_.push_back(line); });
  }
  static std::string Text(int words) {
    std::string text;
    for (int i = 0; i < words; ++i) absl::StrAppend(&text, "word ", i, " of it. ");
    return text;
  }

  const TestDirectory directory_;
  const std::unique_ptr<EngineHost> host_ = HostWithPool();
  JobSpec spec_;
  std::vector<std::string> said_;
};

TEST_F(EvaluateTest, TellsOfAllFilesAndOfEachNamedSet) {
  Add("a.txt", Text(60), "first");
  Add("b.txt", Text(25), "second");
  Add("c.txt", "a third text without a name", "");
  const auto all = Run();
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->sets.size(), 2u);
  EXPECT_EQ(all->documents, 3);
  EXPECT_GT(all->tokens, std::ssize(Text(60)));
  EXPECT_TRUE(std::filesystem::exists(directory_ / "cache"));
  EXPECT_THAT(said_, IsEmpty());
  // A set has the number that it has alone.
  EvaluatedSet sum;
  int64_t sequences = 0, tokens = 0;
  const std::vector<DataFile> files = spec_.data.eval;
  for (const DataFile& file : files) {
    spec_.data.eval = {file};
    const auto one = Run();
    ASSERT_TRUE(one.ok()) << one.status();
    sum.loss_sum += one->all.loss_sum;
    sum.predictions += one->all.predictions;
    sequences += one->sequences;
    tokens += one->tokens;
    for (const EvaluatedSet& set : all->sets) {
      if (set.name != file.name) continue;
      EXPECT_EQ(set.predictions, one->all.predictions) << set.name;
      EXPECT_DOUBLE_EQ(set.loss(), one->all.loss()) << set.name;
    }
  }
  EXPECT_EQ(all->all.predictions, sum.predictions);
  EXPECT_EQ(all->sequences, sequences);
  EXPECT_EQ(all->tokens, tokens);
  EXPECT_NEAR(all->all.loss(), sum.loss(), 1e-9);
}

TEST_F(EvaluateTest, OneDeviceEvaluatesWhateverTheJobSays) {
  Add("a.txt", Text(30), "");
  const auto one = Run();
  ASSERT_TRUE(one.ok()) << one.status();
  spec_.engine.devices = 2;
  const auto two = Run();
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(two->all.loss_sum, one->all.loss_sum);
}

TEST_F(EvaluateTest, RecordsThatAreLeftOutAreNamed) {
  Add("a.jsonl", "{\"text\": \"" + Text(20) + "\"}\n{\"text\": 1}\n", "");
  EXPECT_EQ(Run().status().code(), absl::StatusCode::kInvalidArgument);
  spec_.data.on_bad_record = OnBadRecord::kSkip;
  const auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->documents, 1);
  EXPECT_THAT(said_, ElementsAre(AllOf(HasSubstr("passed over: "), HasSubstr("a.jsonl"))));
}

TEST_F(EvaluateTest, WhatDoesNotFitOrIsNoLossOfTextIsRefused) {
  Add("a.txt", Text(20), "");
  spec_.training.objective = Objective::kDpo;
  const absl::Status pairs = Run().status();
  EXPECT_EQ(pairs.code(), absl::StatusCode::kInvalidArgument) << pairs;
  EXPECT_THAT(std::string(pairs.message()), HasSubstr("training.objective"));
  spec_.training.objective = Objective::kCausal;
  spec_.engine.device_memory = 10000;
  const absl::Status small = Run().status();
  EXPECT_EQ(small.code(), absl::StatusCode::kResourceExhausted) << small;
  EXPECT_THAT(std::string(small.message()),
              AllOf(HasSubstr("the evaluation does not fit"), HasSubstr("10,000 bytes")));
}

}  // namespace
}  // namespace megatrain
