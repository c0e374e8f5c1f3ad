// The turn between two steps of a 7B model with clipping: from the last gradient, by the norm, the
// first updates and their loads, to the next forward pass. On the virtual clock, at the rates of
// two GPUs and of hosts with slow and fast memory, it must cost next to nothing beyond what bounds
// a step.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/plan/simulated_executor.h"
#include "tests/engine/plan/seven_billion.h"

namespace megatrain {
namespace {

struct Turn {
  double step_seconds = 0;
  double idle_seconds = 0;  // of the compute lane
  double share() const { return idle_seconds / step_seconds; }
};

// Before the third step: from the end of the second one's last gradient to the first layer, less
// what the embedding takes by itself.
Turn Simulate(const PipelineDimensions& d, const LaneRates& lane_rates) {
  SimulatedExecutor executor(lane_rates);
  PipelineState state;
  const std::vector<int64_t> tokens(static_cast<size_t>(d.micro_batches), d.micro_batch_tokens);
  Turn turn;
  double before = 0, gradients_end = 0;
  for (int step = 0; step < 3; ++step) {
    const Schedule schedule = BuildTrainingStep(d.shape, tokens, state);
    const SimulatedExecutor::Run run = executor.Submit(schedule);
    turn.step_seconds = run.end_seconds - before;
    before = run.end_seconds;
    double embedding = 0;
    for (size_t i = 0; i < run.spans.size(); ++i) {
      const Op& op = schedule.ops[i];
      if (op.is<EmbedForwardOp>()) embedding += OpSeconds(op, lane_rates);
      if (!op.is<LayerForwardOp>()) continue;
      turn.idle_seconds = run.spans[i].start_seconds - gradients_end - embedding;
      break;
    }
    for (size_t i = 0; i < run.spans.size(); ++i) {
      if (schedule.ops[i].is<FinishGradientOp>()) gradients_end = run.spans[i].end_seconds;
    }
  }
  return turn;
}

// Profile and its memory rate, DRAM rate, micro-batch.
using Case = std::tuple<std::pair<const char*, const char*>, const char*, int>;
class SerialTurn : public testing::TestWithParam<Case> {};

TEST_P(SerialTurn, IsAtMostOneHundredthOfAStep) {
  const auto& [device, dram, micro_batch] = GetParam();
  const ModelLayout layout = BuildModelLayout(SevenBillion());
  const Machine machine = Profile(device.first, {device.second, dram});
  const MemoryPlan plan = Plan(SevenBillionJob(micro_batch), layout, machine.budget, machine.speed);
  ASSERT_TRUE(plan.fits) << plan.misfit;
  const LaneRates lane_rates = LaneRatesOf(plan.dimensions, machine.speed);

  const Turn turn = Simulate(plan.dimensions, lane_rates);
  PipelineDimensions whole = plan.dimensions;
  whole.shape.embedding_from_host = false;
  const Turn of_all = Simulate(whole, lane_rates);
  RecordProperty("step_milliseconds", static_cast<int>(1e3 * turn.step_seconds));
  RecordProperty("turn_microseconds", static_cast<int>(1e6 * turn.idle_seconds));
  EXPECT_GE(turn.idle_seconds, 0);
  EXPECT_LE(turn.share(), 0.01) << turn.idle_seconds << " of " << turn.step_seconds << " s";
  // As if the embedding were updated and loaded whole.
  EXPECT_LE(turn.idle_seconds, 0.5 * of_all.idle_seconds);
  EXPECT_LE(turn.step_seconds, of_all.step_seconds);
}

INSTANTIATE_TEST_SUITE_P(Machines, SerialTurn,
                         testing::Combine(testing::Values(std::pair("h200", "memory=4.0"),
                                                          std::pair("h100", "memory=2.75")),
                                          testing::Values("dram=80", "dram=150"),
                                          testing::Values(1, 2)));

}  // namespace
}  // namespace megatrain
