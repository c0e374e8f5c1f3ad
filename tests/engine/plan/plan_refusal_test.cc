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

}  // namespace
}  // namespace megatrain
