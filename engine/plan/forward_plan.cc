// Plans of forward passes: evaluation and generation.
#include <algorithm>
#include <limits>

#include "absl/functional/function_ref.h"
#include "engine/base/status.h"
#include "engine/generation/generation_batch.h"
#include "engine/model/head/language_head.h"
#include "engine/plan/memory_plan.h"
#include "engine/plan/plan_bytes.h"
#include "engine/plan/plan_choice.h"
#include "engine/plan/plan_parts.h"

namespace megatrain {
namespace {

// A plan of forward passes, with the streamed weights alone, and without batches.
MemoryPlan ForwardPlan(const JobSpec::Engine& engine, const ModelLayout& layout, DType dtype,
                       const MemoryBudget& budget) {
  MemoryPlan plan;
  plan.budget = budget;
  plan.parameters = layout.parameters;
  plan.host_limit =
      engine.host_memory > 0 ? std::min(engine.host_memory, budget.host_bytes) : budget.host_bytes;
  plan.device_limit =
      budget.device_shares_host && budget.device_bytes == 0 ? kUnlimitedBytes : budget.device_bytes;
  if (engine.device_memory > 0) {
    plan.device_limit = std::min(plan.device_limit, engine.device_memory);
  }
  PipelineDimensions& d = plan.dimensions;
  d.layout = &layout;
  d.dtype = d.gradient_dtype = dtype;
  d.training = false;
  d.shape = BaseShape(layout, dtype);
  d.shape.weight_buffers = kWeightBuffersMin;
  d.shape.stash_on_host = true;  // a ring of hidden states is all that forward needs
  d.shape.clipping = d.shape.slab_per_tile = false;
  d.shape.gradient_slabs = 0;
  return plan;
}

// Returns the rows of the key-value cache that waves of `prompts` prompts need.
int64_t WaveRows(const GenerationNeed& need, int64_t prompts) {
  int64_t most = 0;
  const int64_t count = static_cast<int64_t>(need.prompt_tokens.size());
  for (int64_t begin = 0; begin < count; begin += prompts) {
    int64_t rows = 0;
    for (int64_t i = begin; i < std::min(count, begin + prompts); ++i) {
      rows += need.prompt_tokens[static_cast<size_t>(i)] + need.answer_tokens;
    }
    most = std::max(most, rows);
  }
  return most;
}

// Returns the largest number in [1, most] that is good, if those below a good one are good too; 1
// if none is.
int64_t LargestGood(int64_t most, absl::FunctionRef<bool(int64_t)> good) {
  int64_t low = 1, high = most;
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (good(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace

absl::StatusOr<MemoryPlan> PlanEvaluation(const JobSpec& spec, const ModelLayout& layout,
                                          const KernelSizes& sizes, const MemoryBudget& budget) {
  MT_RETURN_IF_ERROR(CheckHeadSizes(layout.model, sizes));
  MT_RETURN_IF_ERROR(CheckBatch(spec, layout));
  const DType dtype = spec.training.precision == Precision::kBf16 ? DType::kBF16 : DType::kF32;
  MemoryPlan plan = ForwardPlan(spec.engine, layout, dtype, budget);
  SetBatch(spec, layout, sizes, plan.dimensions);
  plan.dimensions.shape.sweep_micro_batches = plan.dimensions.micro_batches;
  FinishPlan(sizes, plan);
  return plan;
}

MemoryPlan PlanGeneration(const JobSpec::Engine& engine, const ModelLayout& layout, DType dtype,
                          const GenerationNeed& need, const KernelSizes& sizes,
                          const MemoryBudget& budget) {
  // Rows have numbers of 32 bits.
  constexpr int64_t kRowsMax = std::numeric_limits<int32_t>::max();
  const int64_t longest = *std::max_element(need.prompt_tokens.begin(), need.prompt_tokens.end());
  const auto plan_with = [&](int64_t prompts, int64_t weight_buffers) {
    MemoryPlan plan = ForwardPlan(engine, layout, dtype, budget);
    PipelineDimensions& d = plan.dimensions;
    d.sequence_length = longest + need.answer_tokens;
    d.micro_batch_tokens = PromptMicroBatchTokens(longest, kUnlimitedBytes);
    d.micro_batches = d.shape.sweep_micro_batches = static_cast<int>(prompts);
    d.cache_rows = WaveRows(need, prompts);
    d.cache_sequences = prompts;
    d.head_chunk_tokens = HeadChunkTokens(layout.model, kGenerationTokens, sizes.LmHeadChunk());
    // The cuts of a prompt must not depend on other prompts.
    d.layer_chunk_tokens = std::min(d.micro_batch_tokens, kPromptChunkTokens);
    d.shape.weight_buffers = static_cast<int>(weight_buffers);
    FinishPlan(sizes, plan);
    return plan;
  };
  const int64_t prompts_max = std::min(static_cast<int64_t>(need.prompt_tokens.size()),
                                       kStepLayerPassesMax / layout.model.layer_count());
  const int64_t prompts = LargestGood(prompts_max, [&](int64_t count) {
    return WaveRows(need, count) <= kRowsMax && plan_with(count, kWeightBuffersMin).fits;
  });
  int64_t weight_buffers = kWeightBuffersMin;
  if (!budget.device_shares_host || engine.device_memory > 0) {
    const int64_t more = std::max<int64_t>(1, layout.tile_count() - kWeightBuffersMin + 1);
    weight_buffers += LargestGood(more,
                                  [&](int64_t count) {
                                    return plan_with(prompts, kWeightBuffersMin + count - 1).fits;
                                  }) -
                      1;
  }
  return plan_with(prompts, weight_buffers);
}

}  // namespace megatrain
