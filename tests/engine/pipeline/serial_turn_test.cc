// The turn between two steps of a 7B model with clipping: from the last gradient, by the norm, the
// first updates and their loads, to the next forward pass. On the virtual clock, at the rates of an
// H200 and hosts with slow and fast memory, it must cost next to nothing beyond what bounds a step.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/device/cuda/cuda_kernel_sizes.h"
#include "engine/hardware_rates.h"
#include "engine/machine_profile.h"
#include "engine/model/model_layout.h"
#include "engine/pipeline/memory_plan.h"
#include "engine/pipeline/simulated_executor.h"
#include "engine/pipeline/step_prediction.h"

namespace megatrain {
namespace {

// Qwen2.5 7B.
ModelConfig SevenBillion() {
  ModelConfig c;
  c.vocabulary = 152'064;
  c.hidden = 3584;
  c.layers = 28;
  c.heads = 28;
  c.kv_heads = 4;
  c.head_dim = 128;
  c.intermediate = 18'944;
  c.max_positions = 131'072;
  c.qkv_bias = true;
  return c;
}

struct Turn {
  double step_seconds = 0, bound_seconds = 0;
  double share() const { return step_seconds / bound_seconds - 1; }
};

// Of the third step: what it takes, and what bounds it (ARCHITECTURE.md).
Turn Simulate(const PipelineDimensions& d, const HardwareProfile& profile) {
  SimulatedExecutor executor(profile);
  PipelineState state;
  const std::vector<int64_t> tokens(static_cast<size_t>(d.micro_batches), d.micro_batch_tokens);
  Turn turn;
  double before = 0;
  for (int step = 0; step < 3; ++step) {
    const Schedule schedule = BuildTrainingStep(d.shape, tokens, state);
    const SimulatedExecutor::Run run = executor.Submit(schedule);
    turn.step_seconds = run.end_seconds - before;
    before = run.end_seconds;
    double forward = 0;  // until the first head
    for (const Op& op : schedule.ops) {
      if (op.kind == OpKind::kHead) break;
      if (op.lane == Lane::kCompute) forward += OpSeconds(op, profile);
    }
    double device_update = 0;
    for (int lane = 0; lane < kDeviceUpdateLanes; ++lane) {
      device_update += run.busy_seconds[static_cast<int>(DeviceUpdateLane(lane))];
    }
    const double update = std::max(run.busy_seconds[static_cast<int>(Lane::kUpdate)],
                                   device_update / kDeviceUpdateLanes);
    const double compute = run.busy_seconds[static_cast<int>(Lane::kCompute)];
    turn.bound_seconds = std::max({compute, update, run.h2d_seconds, run.d2h_seconds,
                                   compute - forward + std::max(forward, update)});
  }
  return turn;
}

class SerialTurn : public testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(SerialTurn, IsAtMostOneHundredthOfAStep) {
  const auto [dram, sequences] = GetParam();
  const ModelLayout layout = BuildModelLayout(SevenBillion());
  MachineProfile h200 = *FindMachineProfile("h200");
  ASSERT_TRUE(SetRates({"products=700", "attention_forward=500", "attention_backward=350",
                        "memory=4.0", "link=50", dram},
                       &h200.rates)
                  .ok());
  JobSpec spec;
  spec.data.sequence_length = 4096;
  spec.training.global_batch = sequences;
  spec.training.micro_batch = 1;
  spec.training.precision = spec.training.gradient_dtype = Precision::kBf16;
  MemoryBudget budget;
  budget.host_bytes = kUnlimitedBytes;
  budget.SetDevice(h200.device_bytes);
  const CudaKernelSizes sizes;
  const MachineSpeed machine = {h200.rates, {.threads = h200.rates.threads}};
  const auto plan = PlanMemory(spec, layout, sizes, budget, machine);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_TRUE(plan->fits) << plan->misfit;
  const HardwareProfile profile = ProfileOf(DType::kBF16, machine);

  const Turn turn = Simulate(plan->dimensions, profile);
  const PipelineShape& shape = plan->dimensions.shape;
  PipelineDimensions whole = plan->dimensions;
  whole.shape.embedding_from_host = false;
  const Turn before = Simulate(whole, profile);
  std::printf(
      "%s GB/s, %d sequences: sweeps of %d, stash on the %s, %d buffers, %d/%d parts on the "
      "device: "
      "%.3f s, %.2f%% beyond its bound; with the embedding updated and loaded whole %.3f s, "
      "%.2f%%\n",
      dram, sequences, shape.sweep_micro_batches, shape.stash_on_host ? "host" : "device",
      shape.weight_buffers, shape.device_update_parts, kUpdateParts, turn.step_seconds,
      100 * turn.share(), before.step_seconds, 100 * before.share());
  EXPECT_GE(turn.share(), -1e-9);
  EXPECT_LE(turn.share(), 0.01);
  EXPECT_LE(turn.step_seconds, before.step_seconds);
}

INSTANTIATE_TEST_SUITE_P(HostMemory, SerialTurn,
                         testing::Combine(testing::Values("dram=80", "dram=150"),
                                          testing::Values(16)));

}  // namespace
}  // namespace megatrain
