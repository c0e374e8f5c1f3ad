// The 7B model, its job and the machines that plans and schedules are tried on.
#ifndef MEGATRAIN_TESTS_ENGINE_PLAN_SEVEN_BILLION_H_
#define MEGATRAIN_TESTS_ENGINE_PLAN_SEVEN_BILLION_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/device/cuda/cuda_kernel_sizes.h"
#include "engine/device/cuda/device_reserve.h"
#include "engine/host/hardware_rates.h"
#include "engine/host/machine_profile.h"
#include "engine/model/model_layout.h"
#include "engine/plan/memory_plan.h"
#include "engine/plan/step_prediction.h"

namespace megatrain {

// Qwen2.5 7B.
inline ModelDescription SevenBillion() {
  ModelDescription model = UniformModel({.vocabulary = 152'064,
                                         .hidden = 3584,
                                         .layers = 28,
                                         .heads = 28,
                                         .kv_heads = 4,
                                         .head_dim = 128,
                                         .intermediate = 18'944,
                                         .max_positions = 131'072});
  for (LayerDescription& layer : model.layers) layer.attention.qkv_bias = true;
  return model;
}

// 64k tokens a step, clipped, in BF16.
inline JobSpec SevenBillionJob(int64_t micro_batch = 2) {
  JobSpec spec;
  spec.data.sequence_length = 4096;
  spec.training.global_batch = 16;
  spec.training.micro_batch = micro_batch;
  spec.training.precision = spec.training.gradient_dtype = Precision::kBf16;
  return spec;
}

inline MemoryBudget Gpu(int64_t device_bytes, int64_t host_bytes = kUnlimitedBytes) {
  MemoryBudget budget;
  budget.host_bytes = host_bytes;
  budget.SetDevice(device_bytes);
  return budget;
}

struct Machine {
  MachineSpeed speed;
  MemoryBudget budget;
};

// The profile `name` at rates as they are expected of it, and those given, with the memory that a
// plan for it has.
inline Machine Profile(const std::string& name, const std::vector<std::string>& rates) {
  const MachineProfile profile = *FindMachineProfile(name);
  Machine machine;
  machine.speed = {profile.rates, {.threads = profile.rates.threads}};
  EXPECT_TRUE(
      SetRates({"products=700", "attention_forward=500", "attention_backward=350", "link=50"},
               &machine.speed.rates)
          .ok());
  EXPECT_TRUE(SetRates(rates, &machine.speed.rates).ok());
  machine.budget.host_bytes = kUnlimitedBytes;
  machine.budget.SetDevice(profile.device_bytes, kUnknownReserveBytes);
  return machine;
}

inline MemoryPlan Plan(const JobSpec& spec, const ModelLayout& layout, const MemoryBudget& budget,
                       const MachineSpeed& machine = {}) {
  static const CudaKernelSizes sizes;
  auto plan = PlanMemory(spec, layout, sizes, budget, machine);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_PLAN_SEVEN_BILLION_H_
