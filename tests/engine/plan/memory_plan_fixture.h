// A small model, a job and a machine to plan with.
#ifndef MEGATRAIN_TESTS_ENGINE_PLAN_MEMORY_PLAN_FIXTURE_H_
#define MEGATRAIN_TESTS_ENGINE_PLAN_MEMORY_PLAN_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "engine/device/reference_kernels.h"
#include "engine/plan/memory_plan.h"

namespace megatrain {

inline ModelDescription Config(int64_t layers, bool tied = false) {
  ModelDescription model = UniformModel({.vocabulary = 1000,
                                         .hidden = 64,
                                         .layers = layers,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .head_dim = 16,
                                         .intermediate = 192,
                                         .max_positions = 512});
  model.tied_embeddings = tied;
  return model;
}

inline JobSpec Spec() {
  JobSpec spec;
  spec.data.sequence_length = 128;
  spec.training.global_batch = 8;
  spec.training.micro_batch = 2;
  return spec;
}

inline MemoryBudget Budget(int64_t host = int64_t{8} << 30) {
  MemoryBudget budget;
  budget.host_bytes = host;
  return budget;
}

class MemoryPlanTest : public testing::Test {
 protected:
  MemoryPlan Plan(const JobSpec& spec, const ModelLayout& layout,
                  const MemoryBudget& budget = Budget()) {
    auto plan = PlanMemory(spec, layout, kernels_, budget);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return *std::move(plan);
  }
  ReferenceKernels kernels_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_PLAN_MEMORY_PLAN_FIXTURE_H_
