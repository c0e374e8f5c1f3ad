// Jobs whose settings do not go with their model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "engine/plan/memory_plan.h"
#include "tests/engine/plan/memory_plan_fixture.h"

namespace megatrain {
namespace {

using testing::HasSubstr;

class PlanRefusalTest : public MemoryPlanTest {
 protected:
  absl::Status Refusal(const JobSpec& spec, const ModelLayout& layout) {
    return PlanMemory(spec, layout, kernels_, Budget()).status();
  }
};

TEST_F(PlanRefusalTest, ALossOfRoutersIsForModelsWithExperts) {
  ModelDescription model = Config(2);
  const ModelLayout dense = BuildModelLayout(model);
  model.layers[1].feed_forward.intermediate = 0;
  ExpertsDescription& experts = model.layers[1].experts;
  experts.count = 4;
  experts.chosen = 2;
  experts.intermediate = 32;
  experts.experts_per_tile = 4;
  const ModelLayout sparse = BuildModelLayout(model);
  JobSpec spec = Spec();
  spec.training.router_auxiliary_loss = 0.01;
  const absl::Status refused = Refusal(spec, dense);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("training.router_auxiliary_loss: 0.01"));
  EXPECT_EQ(Refusal(spec, sparse), absl::OkStatus());
  spec.training.router_auxiliary_loss = 0;
  EXPECT_EQ(Refusal(spec, dense), absl::OkStatus()) << "there is no such loss";
}

TEST_F(PlanRefusalTest, DevicesAndShardsAreNoMoreThanMicroBatches) {
  const ModelLayout layout = BuildModelLayout(Config(2));
  JobSpec spec = Spec();  // a step of four micro-batches
  spec.engine.devices = 4;
  EXPECT_EQ(Refusal(spec, layout), absl::OkStatus());
  spec.engine.devices = 5;
  EXPECT_THAT(std::string(Refusal(spec, layout).message()),
              HasSubstr("engine.devices: 5 devices cannot share a step of 4 micro-batches"));
  spec.engine.devices = 1;
  spec.training.gradient_shards = 4;
  EXPECT_EQ(Refusal(spec, layout), absl::OkStatus());
  spec.engine.devices = 2;
  EXPECT_EQ(Refusal(spec, layout), absl::OkStatus());
  spec.engine.devices = 3;
  EXPECT_THAT(std::string(Refusal(spec, layout).message()),
              HasSubstr("3 devices cannot share the 4 parts of training.gradient_shards evenly"));
  spec.engine.devices = 1;
  spec.training.gradient_shards = 8;
  spec.training.global_batch = 10;  // five
  const absl::Status refused = Refusal(spec, layout);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("has no 8 parts; use at most 4"));
}

// Several devices make a step in one sweep. Several shards on one device take two at most, and one
// where the embedding is the head too.
TEST_F(PlanRefusalTest, DevicesAndShardsLimitTheSweepsOfAStep) {
  const ModelLayout layout = BuildModelLayout(Config(2));
  const ModelLayout tied = BuildModelLayout(Config(2, /*tied=*/true));
  JobSpec spec = Spec();
  spec.engine.micro_batches_per_sweep = 1;
  EXPECT_EQ(Refusal(spec, layout), absl::OkStatus());
  spec.engine.devices = 2;
  EXPECT_THAT(std::string(Refusal(spec, layout).message()),
              HasSubstr("engine.micro_batches_per_sweep: 1 makes 2"));
  spec.engine.micro_batches_per_sweep = 2;
  EXPECT_EQ(Refusal(spec, layout), absl::OkStatus()) << "each device has two";
  spec.engine.devices = 1;
  spec.training.gradient_shards = 2;
  EXPECT_EQ(Refusal(spec, layout), absl::OkStatus());
  EXPECT_THAT(std::string(Refusal(spec, tied).message()),
              HasSubstr("engine.micro_batches_per_sweep: 2 makes 2"));
  spec.engine.micro_batches_per_sweep = 1;
  EXPECT_THAT(std::string(Refusal(spec, layout).message()),
              HasSubstr("engine.micro_batches_per_sweep: 1 makes 4"));
}

}  // namespace
}  // namespace megatrain
