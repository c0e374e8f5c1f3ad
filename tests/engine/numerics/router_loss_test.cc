// A step with the auxiliary loss of the routers against transformers, and what the loss is for.
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/engine/numerics/job_run.h"
#include "tests/engine/numerics/model_reference.h"

namespace megatrain {
namespace {

constexpr int64_t kSequences = 4, kLength = 64;

class RouterLossTest : public ::testing::TestWithParam<std::string> {
 protected:
  // On the tokens of make_router_loss_references.py, as one micro-batch.
  static JobSpec Job(double coefficient) {
    const std::string directory = FreshDirectory("router_loss");
    const std::string tokens = directory + "/tokens.bin";
    std::vector<uint16_t> ids;
    for (int i = 0; i < kSequences * kLength; ++i) {
      ids.push_back(static_cast<uint16_t>(2 + (7 * i * i + 3 * i) % 117));
    }
    std::ofstream(tokens, std::ios::binary)
        .write(reinterpret_cast<const char*>(ids.data()),
               static_cast<std::streamsize>(ids.size() * sizeof(uint16_t)));
    JobSpec spec =
        CurveJob(LoadModelReference(GetParam()), Precision::kFp32, /*clipped=*/false, directory);
    spec.data.train.front().path = tokens;
    spec.data.sequence_length = kLength;
    spec.training.steps = 1;
    spec.training.global_batch = spec.training.micro_batch = kSequences;
    spec.training.router_auxiliary_loss = coefficient;
    return spec;
  }
};

TEST_P(RouterLossTest, AStepIsLikeTransformers) {
  std::ifstream file("tests/golden/router_loss/router_loss_reference.json");
  const nlohmann::json reference = nlohmann::json::parse(file);
  const nlohmann::json& expected = reference.at("families").at(GetParam());
  const JobRun run = Train(Job(reference.at("coefficient").get<double>()));
  ASSERT_TRUE(run.status.ok()) << run.status;
  ASSERT_EQ(run.records.size(), 1u);
  const StepRecord& record = run.records.front();
  EXPECT_NEAR(record.loss / expected.at("loss").get<double>(), 1, 1e-5)
      << "the cross-entropy alone";
  EXPECT_NEAR(record.gradient_norm / expected.at("gradient_norm").get<double>(), 1, 1e-5);
  ASSERT_TRUE(record.router.has_value());
  EXPECT_NEAR(record.router->auxiliary_loss.value() / expected.at("auxiliary_loss").get<double>(),
              1, 1e-5);
}

TEST_P(RouterLossTest, ItSpreadsTokensEvenly) {
  const auto last = [&](double coefficient) {
    JobSpec spec = Job(coefficient);
    spec.training.steps = 30;
    spec.schedule.warmup_steps = 0;
    spec.optimizer.learning_rate = 0.02;
    const JobRun run = Train(spec);
    EXPECT_TRUE(run.status.ok()) << run.status;
    return run.records.back().router.value();
  };
  // So small a coefficient only has the loss reported.
  EXPECT_LT(last(10.0).auxiliary_loss.value(), last(1e-9).auxiliary_loss.value());
  EXPECT_FALSE(last(0.0).auxiliary_loss.has_value());
}

INSTANTIATE_TEST_SUITE_P(Families, RouterLossTest, ::testing::Values("mixtral", "qwen3_moe"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace megatrain
