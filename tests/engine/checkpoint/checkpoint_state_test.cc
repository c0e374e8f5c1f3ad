#include "engine/checkpoint/checkpoint_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/checkpoint/checkpoint_fixture.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CheckpointStateTest, EqualStatesAreResumableWhateverTheStepAndThreads) {
  const CheckpointState saved = MakeState(TinyLayout(), DType::kBF16, 10);
  CheckpointState wanted = saved;
  wanted.step = 0;
  wanted.data_position = 0;
  wanted.threads = 64;
  wanted.arithmetic = "cuda, another library";
  wanted.steps_total = 1000;
  EXPECT_TRUE(CheckResumable(saved, wanted).ok());
}

void ExpectRefused(const CheckpointState& saved, const CheckpointState& wanted,
                   const testing::Matcher<std::string>& message) {
  const absl::Status status = CheckResumable(saved, wanted);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), message);
}

TEST(CheckpointStateTest, AChangedSpecKeyIsNamedWithBothValues) {
  const CheckpointState saved = MakeState(TinyLayout(), DType::kBF16, 10);
  CheckpointState wanted = saved;
  wanted.spec["optimizer.learning_rate"] = "0.001";
  ExpectRefused(
      saved, wanted,
      AllOf(HasSubstr("optimizer.learning_rate"), HasSubstr("0.0003"), HasSubstr("0.001")));
}

TEST(CheckpointStateTest, AnAddedAndARemovedSpecKeyAreBothNamed) {
  const CheckpointState saved = MakeState(TinyLayout(), DType::kBF16, 10);
  CheckpointState wanted = saved;
  wanted.spec.erase("optimizer.learning_rate");
  wanted.spec["optimizer.new_key"] = "7";
  ExpectRefused(
      saved, wanted,
      AllOf(HasSubstr("optimizer.learning_rate differs: the checkpoint has 0.0003, the "
                      "job nothing"),
            HasSubstr("optimizer.new_key differs: the checkpoint has nothing, the job 7")));
}

TEST(CheckpointStateTest, AnotherModelPrecisionSeedAndDataAreRefused) {
  const CheckpointState saved = MakeState(TinyLayout(), DType::kBF16, 10);
  CheckpointState wanted = saved;
  wanted.model_fingerprint = "other";
  ExpectRefused(
      saved, wanted,
      AllOf(HasSubstr("another model"), HasSubstr("other"), HasSubstr(saved.model_fingerprint)));
  wanted = saved;
  wanted.weight_dtype = DType::kF32;
  ExpectRefused(saved, wanted,
                AllOf(HasSubstr("training.precision"), HasSubstr("bf16"), HasSubstr("fp32")));
  wanted = saved;
  wanted.seed = 7;
  ExpectRefused(saved, wanted, AllOf(HasSubstr("training.seed"), HasSubstr("job 7")));
  wanted = saved;
  wanted.data_fingerprint = "changed";
  ExpectRefused(saved, wanted, AllOf(HasSubstr("training data"), HasSubstr("changed")));
}

TEST(CheckpointStateTest, FingerprintSeesShapesAndMathematics) {
  const std::string base = ModelFingerprint(TinyLayout());
  EXPECT_EQ(base.size(), 32u);
  EXPECT_EQ(base, ModelFingerprint(TinyLayout()));
  ModelDescription config = TinyConfig();
  config.vocabulary += 1;
  EXPECT_NE(base, ModelFingerprint(BuildModelLayout(config)));
  config = TinyConfig();
  config.ropes[0].theta = 500000;
  EXPECT_NE(base, ModelFingerprint(BuildModelLayout(config)));
  config = TinyConfig();
  config.norm_epsilon = 1e-5;
  EXPECT_NE(base, ModelFingerprint(BuildModelLayout(config)));
}

}  // namespace
}  // namespace megatrain
