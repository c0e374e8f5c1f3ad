// Whole jobs with training.objective: dpo: curves against PyTorch, the same bits whatever the
// engine's options, and what becomes of the reference when a run is resumed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "tests/engine/numerics/job_run.h"
#include "tests/engine/numerics/preference_reference.h"

namespace megatrain {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

void ExpectSame(const JobRun& run, const JobRun& expected) {
  ASSERT_EQ(run.records.size(), expected.records.size());
  for (size_t k = 0; k < run.records.size(); ++k) {
    const StepRecord &a = run.records[k], &b = expected.records[k];
    EXPECT_EQ(a.loss, b.loss) << "step " << k + 1;
    EXPECT_EQ(a.gradient_norm, b.gradient_norm) << "step " << k + 1;
    EXPECT_EQ(a.rewards->chosen, b.rewards->chosen) << "step " << k + 1;
    EXPECT_EQ(a.rewards->accuracies, b.rewards->accuracies) << "step " << k + 1;
  }
}

std::vector<std::string> CacheFiles(const JobSpec& spec) {
  std::vector<std::string> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(spec.checkpoint.directory + "/data")) {
    if (entry.path().filename().string().starts_with("reference-")) files.push_back(entry.path());
  }
  return files;
}

class PreferenceCurveTest : public ::testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  const PreferenceReference reference_ = LoadPreferenceReference(std::get<0>(GetParam()));
  const bool clipped_ = std::get<1>(GetParam());
};

TEST_P(PreferenceCurveTest, Fp32) {
  const JobRun run = Train(PreferenceJob(reference_, Precision::kFp32, clipped_, "fp32"));
  ASSERT_TRUE(run.status.ok()) << run.status;
  const PreferenceReference::Curve &expected = reference_.fp32[clipped_],
                                   &exact = reference_.fp64[clipped_];
  const auto limit = [&](auto member) {
    return std::max(1e-4, 3 * CurveDistance(expected.losses.*member, exact.losses.*member));
  };
  const LossCurve curve = run.curve();
  EXPECT_LE(CurveDistance(curve.losses, expected.losses.losses), limit(&LossCurve::losses));
  EXPECT_LE(CurveDistance(curve.gradient_norms, expected.losses.gradient_norms),
            limit(&LossCurve::gradient_norms));
  for (size_t k = 0; k < run.records.size(); ++k) {
    ASSERT_TRUE(run.records[k].rewards.has_value());
    const Rewards &got = *run.records[k].rewards, &want = expected.rewards[k];
    EXPECT_NEAR(got.chosen, want.chosen, 1e-4 * (1 + std::abs(want.chosen)));
    EXPECT_NEAR(got.rejected, want.rejected, 1e-4 * (1 + std::abs(want.rejected)));
    EXPECT_NEAR(got.margins, want.margins, 1e-4 * (1 + std::abs(want.margins)));
    // At the first step both are the reference's, up to rounding.
    if (k > 0) {
      EXPECT_DOUBLE_EQ(got.accuracies, want.accuracies);
    }
  }
}

TEST_P(PreferenceCurveTest, Bf16) {
  const JobRun run = Train(PreferenceJob(reference_, Precision::kBf16, clipped_, "bf16"));
  ASSERT_TRUE(run.status.ok()) << run.status;
  const LossCurve &fp32 = reference_.fp32[clipped_].losses,
                  &bf16 = reference_.bf16[clipped_].losses;
  EXPECT_LE(CurveDeviation(run.curve().losses, fp32.losses),
            1.5 * CurveDeviation(bf16.losses, fp32.losses));
}

// The reference's pass is shared too.
TEST_P(PreferenceCurveTest, DevicesThatShareAStepGiveTheBitsOfOne) {
  JobSpec one = PreferenceJob(reference_, Precision::kFp32, clipped_, "one");
  one.training.micro_batch = 1;
  one.training.gradient_shards = 2;
  const JobRun expected = Train(one);
  ASSERT_TRUE(expected.status.ok()) << expected.status;
  JobSpec two = PreferenceJob(reference_, Precision::kFp32, clipped_, "two");
  two.training = one.training;
  two.engine.devices = 2;
  const JobRun run = Train(two);
  ASSERT_TRUE(run.status.ok()) << run.status;
  ExpectSame(run, expected);
  EXPECT_TRUE(CheckpointTensorFiles(two) == CheckpointTensorFiles(one));
}

INSTANTIATE_TEST_SUITE_P(Families, PreferenceCurveTest,
                         ::testing::Combine(::testing::ValuesIn(PreferenceFamilies()),
                                            ::testing::Bool()),
                         [](const auto& info) {
                           return std::get<0>(info.param) +
                                  (std::get<1>(info.param) ? "_clipped" : "_unclipped");
                         });

class PreferenceJobTest : public ::testing::Test {
 protected:
  static constexpr int64_t kSteps = 4;

  // Packed, shuffled, with frozen tensors and rates of groups, and evaluated.
  JobSpec Job(const std::string& directory) const {
    JobSpec spec = PreferenceJob(reference_, Precision::kBf16, true, directory);
    spec.data.packing = spec.data.shuffle = true;
    spec.data.eval_fraction = 0.1;
    spec.training.freeze = {"model.layers.0.mlp.*"};
    spec.optimizer.groups = {{"*.o_proj.*", 1e-4, std::nullopt}};
    spec.training.steps = kSteps;
    spec.training.eval_every = 2;
    spec.training.micro_batch = 1;
    return spec;
  }
  const PreferenceReference reference_ = LoadPreferenceReference("llama_tied");
};

TEST_F(PreferenceJobTest, TheSameBitsWhateverTheEngineOptions) {
  const JobSpec plain = Job("plain");
  const JobRun expected = Train(plain);
  ASSERT_TRUE(expected.status.ok()) << expected.status;
  ASSERT_TRUE(expected.records[1].eval_loss.has_value());
  ASSERT_TRUE(expected.records[1].eval_rewards.has_value());
  EXPECT_NE(expected.records[1].eval_rewards->margins, 0);
  EXPECT_NEAR(expected.records[0].loss, std::log(2.0), 1e-2);
  using Engine = JobSpec::Engine;
  const std::vector<std::pair<std::string, std::function<void(Engine&)>>> variants = {
      {"sweeps of 1", [](Engine& e) { e.micro_batches_per_sweep = 1; }},
      {"stash host, recompute all, sweeps of 3",
       [](Engine& e) {
         e.stash = StashPlace::kHost;
         e.recompute = RecomputeMode::kAll;
         e.micro_batches_per_sweep = 3;
       }},
      {"update_device device", [](Engine& e) { e.update_device = UpdateDevice::kDevice; }},
      {"threads 1", [](Engine& e) { e.threads = 1; }},
      {"weight_buffers 4", [](Engine& e) { e.weight_buffers = 4; }},
  };
  for (const auto& [name, change] : variants) {
    SCOPED_TRACE(name);
    JobSpec spec = Job("variant");
    change(spec.engine);
    const JobRun run = Train(spec);
    ASSERT_TRUE(run.status.ok()) << run.status;
    ExpectSame(run, expected);
    EXPECT_EQ(*run.records[1].eval_loss, *expected.records[1].eval_loss);
    EXPECT_TRUE(CheckpointTensorFiles(spec) == CheckpointTensorFiles(plain));
  }
}

TEST_F(PreferenceJobTest, StoppedAndResumedItEndsWithTheSameBits) {
  const JobSpec plain = Job("plain");
  const JobRun expected = Train(plain);
  ASSERT_TRUE(expected.status.ok()) << expected.status;
  // Changes of the cache and the model between the two runs.
  const std::vector<std::pair<std::string, std::function<void(JobSpec&)>>> cases = {
      {"all is there", [](JobSpec&) {}}, {"the cache is gone", [](JobSpec& spec) {
                                            for (const std::string& file : CacheFiles(spec))
                                              std::filesystem::remove(file);
                                          }}};
  for (const auto& [name, between] : cases) {
    SCOPED_TRACE(name);
    JobSpec spec = Job("stopped");
    JobRun run = Train(spec, /*stop_after=*/1);
    ASSERT_TRUE(run.status.ok()) << run.status;
    ASSERT_EQ(run.outcome, TrainingOutcome::kInterrupted);
    ASSERT_FALSE(CacheFiles(spec).empty());
    between(spec);
    const JobRun rest = Train(spec);
    ASSERT_TRUE(rest.status.ok()) << rest.status;
    run.records.insert(run.records.end(), rest.records.begin(), rest.records.end());
    ExpectSame(run, expected);
    EXPECT_TRUE(CheckpointTensorFiles(spec) == CheckpointTensorFiles(plain));
    EXPECT_EQ(std::count_if(rest.messages.begin(), rest.messages.end(),
                            [](const std::string& line) {
                              return line.find("were computed") != std::string::npos;
                            }),
              name == "all is there" ? 0 : 1);
  }
}

TEST_F(PreferenceJobTest, AResumedRunNeedsTheModelOnlyIfTheCacheIsGone) {
  // A copy of the model, which is then replaced by another one.
  JobSpec spec = Job("other_model");
  spec.training.steps = 8;
  const std::string model = FreshDirectory("model_copy");
  for (const char* file : {"config.json", "model.safetensors"}) {
    std::filesystem::copy_file(spec.model.path + "/" + file, model + "/" + file);
  }
  spec.model.path = model;
  const JobRun first = Train(spec, /*stop_after=*/1);
  ASSERT_TRUE(first.status.ok()) << first.status;
  std::string weights = ReadBytes(model + "/model.safetensors");
  weights[weights.size() - 8] ^= 1;
  std::ofstream(model + "/model.safetensors", std::ios::binary) << weights;
  const JobRun second = Train(spec, first.records.back().step + 1);
  ASSERT_TRUE(second.status.ok()) << second.status;
  for (const std::string& file : CacheFiles(spec)) std::filesystem::remove(file);
  const JobRun third = Train(spec);
  EXPECT_EQ(third.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(third.status.message()),
              HasSubstr("does not hold the weights with which the run began"));
}

TEST_F(PreferenceJobTest, AnotherModelHasAReferenceOfItsOwnInTheSameCache) {
  JobSpec spec = Job("own");
  spec.data.cache_directory = FreshDirectory("shared_cache");
  const JobRun first = Train(spec);
  ASSERT_TRUE(first.status.ok()) << first.status;
  JobSpec again = Job("again");
  again.data.cache_directory = spec.data.cache_directory;
  const JobRun second = Train(again);
  EXPECT_THAT(second.messages, Contains(HasSubstr("were in the cache")));
  ExpectSame(second, first);
  JobSpec other = Job("random");
  other.data.cache_directory = spec.data.cache_directory;
  other.model.random_initialization = true;
  const JobRun third = Train(other);
  ASSERT_TRUE(third.status.ok()) << third.status;
  EXPECT_THAT(third.messages, Contains(HasSubstr("were computed")));
  // A damaged one is made again.
  for (const auto& entry : std::filesystem::directory_iterator(spec.data.cache_directory)) {
    if (!entry.path().filename().string().starts_with("reference-")) continue;
    std::string bytes = ReadBytes(entry.path());
    bytes.resize(bytes.size() - 1);
    std::ofstream(entry.path(), std::ios::binary) << bytes;
  }
  JobSpec mended = Job("mended");
  mended.data.cache_directory = spec.data.cache_directory;
  const JobRun fourth = Train(mended);
  EXPECT_THAT(fourth.messages, Contains(HasSubstr("were computed")));
  ExpectSame(fourth, first);
}

TEST_F(PreferenceJobTest, WithoutAReferenceLogProbabilitiesCountAsTheyAre) {
  JobSpec spec = Job("free");
  spec.training.dpo_reference_free = true;
  const JobRun run = Train(spec);
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_LT(run.records[0].rewards->chosen, -1);
  EXPECT_THAT(run.messages, Not(Contains(HasSubstr("reference:"))));
}

// Killed in the pass of the reference, between checkpoints and while they are written.
TEST_F(PreferenceJobTest, KilledAgainAndAgainItEndsWithTheSameBits) {
  const JobSpec plain = Job("plain");
  const JobRun expected = Train(plain);
  ASSERT_TRUE(expected.status.ok()) << expected.status;
  JobSpec spec = Job("killed");
  spec.checkpoint.every_steps = 1;
  for (int attempt = 0; attempt < 8; ++attempt) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const JobRun run = Train(spec);
      _exit(run.status.ok() ? 0 : 1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(40 * (attempt + 1)));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
  }
  const JobRun last = Train(spec);
  ASSERT_TRUE(last.status.ok()) << last.status;
  EXPECT_TRUE(CheckpointTensorFiles(spec) == CheckpointTensorFiles(plain));
}

// A run that ends in the second part of the pass goes on with it.
TEST_F(PreferenceJobTest, ThePassOfTheReferenceGoesOnBehindThePartsThatAreDone) {
  constexpr int kPairs = 1100;  // a part has 1,024 sequences
  JobSpec spec = Job("parts");
  spec.data.train[0].path = FreshDirectory("many") + "/pairs.jsonl";
  std::ofstream file(spec.data.train[0].path);
  for (int i = 0; i < kPairs; ++i) {
    file << R"({"prompt": "q)" << i << R"(", "chosen": "y", "rejected": "no"})"
         << "\n";
  }
  file.close();
  spec.data.packing = false;
  spec.data.sequence_length = 16;
  spec.data.eval_fraction = 0;
  spec.training.steps = 1;
  EngineHostOptions options;
  options.device = spec.engine.device;
  absl::StatusOr<std::unique_ptr<EngineHost>> host = EngineHost::Create(options);
  ASSERT_TRUE(host.ok()) << host.status();
  for (const bool cancelled : {true, false}) {
    TrainingControl control;
    std::vector<double> fractions;  // of the pass
    const absl::StatusOr<TrainingOutcome> outcome =
        RunTraining(**host, spec, {}, &control, [&](const RunEvent& event) {
          const auto* const activity = std::get_if<TrainingActivity>(&event);
          if (activity == nullptr || activity->what.find("the reference") == std::string::npos) {
            return;
          }
          fractions.push_back(activity->fraction);
          if (cancelled && activity->fraction > 0.95) control.Cancel();
        });
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(*outcome, cancelled ? TrainingOutcome::kCancelled : TrainingOutcome::kFinished);
    ASSERT_FALSE(fractions.empty());
    if (cancelled) {
      EXPECT_EQ(fractions.front(), 0);
    } else {
      EXPECT_DOUBLE_EQ(fractions.front(), 1024.0 / kPairs);
    }
  }
}

TEST_F(PreferenceJobTest, AnEvaluationOfTheReferenceItselfGivesNoRewards) {
  JobSpec spec = Job("still");
  spec.optimizer.learning_rate = 1e-30;  // weights stay
  spec.optimizer.groups.clear();
  spec.training.steps = spec.training.eval_every = 1;
  JobRun run = Train(spec);
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_NEAR(*run.records[0].eval_loss, std::log(2.0), 1e-2);
  EXPECT_NEAR(run.records[0].eval_rewards->chosen, 0, 1e-2);
  EXPECT_NEAR(run.records[0].eval_rewards->rejected, 0, 1e-2);
  spec.checkpoint.directory = FreshDirectory("still_free");
  spec.training.dpo_reference_free = true;  // rewards are log-probabilities then
  run = Train(spec);
  ASSERT_TRUE(run.status.ok()) << run.status;
  const Rewards& free = *run.records[0].eval_rewards;
  EXPECT_LT(free.rejected, -1);
  EXPECT_NEAR(free.margins, free.chosen - free.rejected, 1e-4 * std::abs(free.rejected));
}

TEST_F(PreferenceJobTest, RewardsOfAnEvaluationAreOfAllItsBatches) {
  JobSpec spec = Job("batches");
  spec.optimizer.learning_rate = 1e-30;  // weights stay
  spec.optimizer.groups.clear();
  spec.training.dpo_reference_free = true;
  spec.training.steps = spec.training.eval_every = 1;
  spec.data.packing = false;
  spec.data.eval_fraction = 0;
  DataFile pairs = spec.data.train[0];
  spec.data.eval = {pairs};
  spec.training.global_batch = 64;  // more than there are
  const JobRun one = Train(spec);
  ASSERT_TRUE(one.status.ok()) << one.status;
  spec.checkpoint.directory = FreshDirectory("batches_of_one");
  spec.training.global_batch = 1;
  const JobRun many = Train(spec);
  ASSERT_TRUE(many.status.ok()) << many.status;
  const Rewards &expected = *one.records[0].eval_rewards, &rewards = *many.records[0].eval_rewards;
  EXPECT_NEAR(rewards.chosen, expected.chosen, 1e-6 * std::abs(expected.chosen));
  EXPECT_NEAR(rewards.rejected, expected.rejected, 1e-6 * std::abs(expected.rejected));
  EXPECT_NEAR(rewards.accuracies, expected.accuracies, 1e-9);
}

}  // namespace
}  // namespace megatrain
