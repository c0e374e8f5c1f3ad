#include "engine/plan/memory_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/comm/nccl_communicator.h"
#include "engine/model/cost/expert_work.h"
#include "engine/model/cost/layer_work.h"
#include "engine/plan/device_fit.h"
#include "engine/plan/plan_bytes.h"
#include "engine/plan/plan_choice.h"
#include "engine/plan/plan_parts.h"

namespace megatrain {
namespace {

// Device memory that NCCL takes itself, for its buffers between each two GPUs. It is left free. An
// estimate, not measured on a GPU.
constexpr int64_t kNcclOwnBytes = kGiB;

// Elements of the rows of different tokens among those of a step: an estimate, for durations alone.
// In text their number grows with a power of the tokens' (Heaps 1978).
int64_t RowElements(const PipelineDimensions& d) {
  const double tokens = static_cast<double>(d.micro_batches) * d.micro_batch_tokens;
  const double rows = std::min(
      {tokens, static_cast<double>(d.layout->model.vocabulary), 12 * std::pow(tokens, 0.6)});
  return static_cast<int64_t>(rows) * d.layout->model.hidden;
}

double MoreBytes(const LayerWork& first, const LayerWork& other) {
  return first.device_bytes - other.device_bytes;
}

StageStepWork ExpertsWorkOf(const WorkShape& s) {
  StageStepWork work;
  work.forward = RouteWork(s, /*backward=*/false);
  work.recompute[static_cast<size_t>(KeepLevel::kNothing)] = RouteWork(s, /*backward=*/true);
  work.backward = RouterBackwardWork(s, /*first=*/false);
  work.weights = RouterWeightGradientWork(s);
  work.first_bytes = MoreBytes(RouterBackwardWork(s, /*first=*/true), work.backward);
  work.experts_forward = ExpertsForwardWork(s);
  work.experts_backward = ExpertsBackwardWork(s, /*first=*/false);
  work.experts_weights = ExpertsWeightGradientWork(s);
  work.experts_first_bytes =
      MoreBytes(ExpertsBackwardWork(s, /*first=*/true), work.experts_backward);
  if (!s.model->layers[static_cast<size_t>(s.layer)].joins()) return work;
  work.join_forward = JoinForwardWork(s);
  work.join_backward = JoinBackwardWork(s, /*first=*/false);
  work.join_weights = JoinWeightGradientWork(s);
  work.join_first_bytes = MoreBytes(JoinBackwardWork(s, /*first=*/true), work.join_backward);
  return work;
}

StepWork WorkOf(const PipelineDimensions& d) {
  WorkShape s = {.model = &d.layout->model,
                 .dtype = d.dtype,
                 .tokens = d.micro_batch_tokens,
                 .sequence_length = d.sequence_length,
                 .layer_chunk_tokens = d.layer_chunk_tokens,
                 .head_chunk_tokens = d.head_chunk_tokens};
  StepWork work;
  work.micro_batch_tokens = d.micro_batch_tokens;
  work.embed_forward = EmbeddingForwardWork(s);
  work.embed_backward = EmbeddingBackwardWork(s, /*first=*/false);
  work.head = HeadForwardBackwardWork(s, /*first=*/false);
  work.head_loss = HeadLossWork(s);
  if (d.shape.pairs) work.head += work.head_loss;
  work.head_weights = HeadWeightGradientWork(s);
  work.embed_first_bytes = MoreBytes(EmbeddingBackwardWork(s, /*first=*/true), work.embed_backward);
  work.head_first_bytes = MoreBytes(HeadForwardBackwardWork(s, /*first=*/true),
                                    HeadForwardBackwardWork(s, /*first=*/false));
  for (const Stage& stage : d.layout->stages) {
    s.layer = stage.layer;
    if (stage.kind == StageKind::kExperts) {
      work.stages.push_back(ExpertsWorkOf(s));
      continue;
    }
    StageStepWork layer;
    layer.forward = DecoderLayerForwardWork(s);
    layer.backward = DecoderLayerBackwardWork(s, /*first=*/false);
    layer.weights = DecoderLayerWeightGradientWork(s);
    for (const KeepLevel level :
         {KeepLevel::kNothing, KeepLevel::kCheapRecomputed, KeepLevel::kEverything}) {
      layer.recompute[static_cast<size_t>(level)] = DecoderLayerRecomputeWork(s, level);
    }
    layer.first_bytes = MoreBytes(DecoderLayerBackwardWork(s, /*first=*/true), layer.backward);
    work.stages.push_back(layer);
  }
  return work;
}

int64_t HostBytes(const PipelineDimensions& d) {
  const auto kinds = HostBufferBytes(d);
  return std::accumulate(kinds.begin(), kinds.end(), int64_t{0});
}

// Bytes of the largest tile where a process reads whole tiles that ranks hold in parts: the weights
// for the export, the masters to hash the model that answers are compared with. All processes plan
// alike, so each counts it, though one alone exports.
int64_t WholeTileBytes(const JobSpec& spec, const PipelineDimensions& d) {
  if (d.shape.ranks == 1) return 0;
  const bool hashed =
      spec.training.objective == Objective::kDpo && !spec.training.dpo_reference_free;
  if (hashed) return d.layout->tile_elements_max * int64_t{sizeof(float)};
  return spec.output.directory.empty() ? 0 : d.layout->tile_elements_max * DTypeBytes(d.dtype);
}

// Slabs that take turns hold no sums of several sweeps.
bool SlabsSuffice(const JobSpec& spec, const PipelineShape& shape) {
  return !shape.slab_per_tile || spec.engine.gradient_slabs == 0 ||
         spec.engine.gradient_slabs == shape.tiles();
}

// Halves the sweep until a plan fits, the host too, which FitDeviceByRule does not look at: a
// smaller sweep stashes less. Returns nullopt if none does.
std::optional<MemoryPlan> HalveSweeps(
    const JobSpec& spec, const KernelSizes& sizes, int64_t limit, const PipelineDimensions& d,
    absl::FunctionRef<MemoryPlan(const PipelineDimensions&)> finish) {
  const bool fixed = spec.engine.micro_batches_per_sweep > 0;
  JobSpec halved = spec;
  int64_t& sweep = halved.engine.micro_batches_per_sweep;
  if (!fixed) sweep = d.micro_batches;
  for (; sweep > 0; sweep = fixed ? 0 : sweep / 2) {
    if ((d.micro_batches + sweep - 1) / sweep > d.shape.sweeps_max()) break;
    PipelineDimensions fitted = d;
    if (!FitDeviceByRule(halved, sizes, limit, fitted)) continue;
    MemoryPlan plan = finish(fitted);
    if (plan.fits && SlabsSuffice(spec, plan.dimensions.shape)) return plan;
  }
  return std::nullopt;
}

// Returns what the settings of a job contradict each other in, or OK. `d` is set but for the
// limits.
absl::Status CheckSettings(const JobSpec& spec, const PipelineDimensions& d) {
  if (spec.training.router_auxiliary_loss.value_or(0) > 0 && MostExperts(d.layout->model) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("training.router_auxiliary_loss: ", *spec.training.router_auxiliary_loss,
                     " is for models with experts, and this one has none; leave the key out"));
  }
  if (d.processes > 1 && spec.engine.loads == WeightLoads::kWhole) {
    return absl::InvalidArgumentError(
        absl::StrCat("engine.loads: whole needs the model's state in one process, and each of ",
                     d.processes, " holds its shards alone; use auto or shards"));
  }
  if (d.shape.clipping && spec.engine.gradient_slabs > 0 &&
      spec.engine.gradient_slabs != d.shape.tiles()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "engine.gradient_slabs: ", spec.engine.gradient_slabs,
        " cannot hold the gradients that clipping keeps until the norm is known: it takes one a "
        "tile, ",
        d.shape.tiles(), " here. Use 0, or max_gradient_norm: 0 to train without clipping"));
  }
  return absl::OkStatus();
}

// Returns the dimensions that the job fixes. What fits decides the others.
PipelineDimensions DimensionsOf(const JobSpec& spec, const ModelLayout& layout,
                                const KernelSizes& sizes, bool device_shares_host, int processes) {
  PipelineDimensions d;
  d.layout = &layout;
  d.dtype = spec.training.precision == Precision::kBf16 ? DType::kBF16 : DType::kF32;
  d.gradient_dtype = spec.training.gradient_dtype == Precision::kBf16 ? DType::kBF16 : DType::kF32;
  SetBatch(spec, layout, sizes, d, processes);
  if (d.shape.ranks > 1 && sizes.ExchangeByNccl()) {
    d.exchange_bytes = NcclScratchBytes(d.shape.ranks);
  }
  d.whole_tile_bytes = WholeTileBytes(spec, d);
  // A sample prompt and its answer are no longer than a sequence.
  if (const int64_t prompts = std::ssize(spec.training.sample_prompts); prompts > 0) {
    d.cache_rows = d.sequence_length;
    d.cache_sequences = std::min<int64_t>(prompts, d.micro_batches);
  }
  const int ranks = d.shape.ranks, folds = d.shape.folds;
  d.shape = BaseShape(layout, d.dtype);
  d.shape.ranks = ranks;
  d.shape.folds = folds;
  if (ranks > 1) d.shape.embedding_from_host = false;
  d.shape.whole_loads = ranks > 1 && spec.engine.loads == WeightLoads::kWhole;
  d.shape.gradient_element_bytes = DTypeBytes(d.gradient_dtype);
  d.shape.weight_buffers = static_cast<int>(
      spec.engine.weight_buffers > 0 ? spec.engine.weight_buffers : kWeightBuffersMin);
  d.shape.pairs = spec.training.objective == Objective::kDpo;
  d.shape.work = WorkOf(d);
  d.shape.row_elements = RowElements(d);
  d.shape.clipping = spec.optimizer.max_gradient_norm > 0;
  d.device_updates = spec.engine.update_device == UpdateDevice::kDevice ||
                     (spec.engine.update_device == UpdateDevice::kAuto && !device_shares_host);
  d.shape.device_update_parts = d.shape.first_tile_device_parts =
      spec.engine.update_device == UpdateDevice::kDevice ? kUpdateParts : 0;
  return d;
}

// Returns the cpu device's default limit: what keeping everything takes, at most half of what is
// free after the host state.
int64_t CpuDeviceLimit(const JobSpec& spec, const KernelSizes& sizes, const MemoryPlan& plan) {
  const PipelineDimensions& d = plan.dimensions;
  PipelineDimensions whole = d;
  JobSpec none = spec;
  none.engine.recompute =
      spec.engine.recompute == RecomputeMode::kAll ? RecomputeMode::kAll : RecomputeMode::kNone;
  const int64_t sweep = spec.engine.micro_batches_per_sweep;
  FitDevice(
      none, sizes, std::numeric_limits<int64_t>::max(),
      sweep > 0 ? static_cast<int>(std::min<int64_t>(d.micro_batches, sweep)) : d.micro_batches,
      spec.engine.stash == StashPlace::kHost, whole);
  int64_t free = plan.host_limit - HostBytes(whole) - ProcessBytes(d);
  if (plan.budget.pool_bytes >= 0) {
    free = std::min(free, plan.budget.host_bytes - plan.budget.pool_bytes - ProcessBytes(d));
  }
  free = std::max<int64_t>(0, free) / d.local_ranks();
  const int64_t limit = std::min(DeviceBytes(whole, sizes), free / 2);
  // Rather a recomputing job than none: a small device is still given what the smallest choice
  // takes.
  PipelineDimensions least = d;
  return FitDeviceByRule(spec, sizes, limit, least) ? limit
                                                    : std::min(free, DeviceBytes(least, sizes));
}

}  // namespace

absl::StatusOr<MemoryPlan> PlanMemory(const JobSpec& spec, const ModelLayout& layout,
                                      const KernelSizes& sizes, const MemoryBudget& given_budget,
                                      const MachineSpeed& machine, const ProcessOfJob& processes) {
  MT_RETURN_IF_ERROR(CheckHeadSizes(layout.model, sizes));
  MT_RETURN_IF_ERROR(CheckBatch(spec, layout, processes.count));
  MemoryPlan plan;
  plan.parameters = layout.parameters;
  plan.dimensions =
      DimensionsOf(spec, layout, sizes, given_budget.device_shares_host, processes.count);
  PipelineDimensions& d = plan.dimensions;
  MT_RETURN_IF_ERROR(CheckSettings(spec, d));
  plan.budget = given_budget;
  if (d.exchange_bytes > 0) plan.budget.KeepFree(kNcclOwnBytes);
  const MemoryBudget& budget = plan.budget;

  plan.host_limit = spec.engine.host_memory > 0
                        ? std::min(spec.engine.host_memory, budget.host_bytes)
                        : budget.host_bytes;
  plan.device_limit =
      spec.engine.device_memory > 0 ? spec.engine.device_memory : budget.device_bytes;
  const bool limit_is_open = budget.device_shares_host && plan.device_limit <= 0;
  if (limit_is_open) plan.device_limit = CpuDeviceLimit(spec, sizes, plan);
  if (!budget.device_shares_host) {
    plan.device_limit = std::min(plan.device_limit, budget.device_bytes);
  }
  FitDeviceByRule(spec, sizes, plan.device_limit, d);
  const auto finish = [&](const PipelineDimensions& dimensions) {
    MemoryPlan finished = plan;
    finished.dimensions = dimensions;
    FinishPlan(sizes, finished);
    return finished;
  };
  MemoryPlan chosen = machine.rates.known()
                          ? ChooseByTime(spec, sizes, machine, plan.device_limit, d, finish)
                          : finish(d);
  if (!chosen.fits) {
    std::optional<MemoryPlan> smaller = HalveSweeps(spec, sizes, plan.device_limit, d, finish);
    if (!smaller.has_value() && limit_is_open) {
      // The cpu device is given what a step takes that recomputes all.
      JobSpec least = spec;
      if (least.engine.recompute == RecomputeMode::kAuto) {
        least.engine.recompute = RecomputeMode::kAll;
      }
      plan.device_limit = plan.host_limit;
      smaller = HalveSweeps(least, sizes, plan.device_limit, d, finish);
      if (smaller.has_value()) smaller->device_limit = smaller->device_bytes;
    }
    if (smaller.has_value()) {
      chosen = *std::move(smaller);
      if (machine.rates.known()) chosen.predicted = PredictStep(chosen.dimensions, machine);
    }
  }
  const PipelineShape& shape = chosen.dimensions.shape;
  if (chosen.fits && spec.engine.micro_batches_per_sweep > 0 && !SlabsSuffice(spec, shape)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "engine.gradient_slabs: ", spec.engine.gradient_slabs,
        " cannot hold the gradients that several sweeps add up: it takes one a tile, ",
        shape.tiles(), " here. Use 0, or a step of one sweep (engine.micro_batches_per_sweep: ",
        d.micro_batches, ")"));
  }
  // Not before, so that all processes choose alike.
  chosen.dimensions.shape.rank = processes.number * d.local_ranks();
  return chosen;
}

std::string MemoryPlan::Table() const {
  const PipelineDimensions& d = dimensions;
  std::string out;
  auto line = [&](const std::string& name, int64_t bytes) {
    absl::StrAppendFormat(&out, "  %-46s %22s bytes %12s\n", name, FormatCount(bytes),
                          FormatBytesShort(bytes));
  };
  absl::StrAppendFormat(&out, "%s parameters, %s, %d tiles\n", FormatCount(parameters),
                        DTypeName(d.dtype), d.shape.tiles());
  if (d.layout->trained_parameters < parameters) {
    absl::StrAppendFormat(&out, "%s of them are trained, the others are frozen\n",
                          FormatCount(d.layout->trained_parameters));
  }
  absl::StrAppend(&out, d.processes == 1
                            ? "host\n"
                            : absl::StrCat("host, each of ", d.processes, " processes\n"));
  for (const Item& item : host) line(item.name, item.bytes);
  line("host total", host_bytes);
  if (host_limit < kUnlimitedBytes) line("host limit", host_limit);
  absl::StrAppend(&out, "device\n");
  for (const Item& item : device) line(item.name, item.bytes);
  line(d.shape.ranks == 1 ? "device total" : "each device's total", device_bytes);
  if (device_limit < kUnlimitedBytes) line("device limit", device_limit);
  if (budget.device_reserve_bytes > 0) {
    line("left free for what is loaded later", budget.device_reserve_bytes);
  }
  absl::StrAppend(&out, "disk\n");
  line("each checkpoint", checkpoint_bytes);
  if (d.training) {
    const int pairs = d.shape.keeping_stages(d.shape.lowest_stage()) * d.shape.sweep_micro_batches;
    absl::StrAppendFormat(
        &out,
        "%smicro-batches a step: %d, a sweep: %d; stash on the %s; layers kept "
        "whole: %d of %d, norms recomputed: %d, recomputed: %d (layer "
        "x micro-batch)\n",
        d.shape.ranks == 1 ? "" : absl::StrCat(d.shape.ranks, " devices, of each: "),
        d.micro_batches, d.shape.sweep_micro_batches, d.shape.stash_on_host ? "host" : "device",
        d.shape.kept_everything, pairs, d.shape.kept - d.shape.kept_everything,
        pairs - d.shape.kept);
    if (d.shape.ranks > 1) {
      absl::StrAppend(
          &out, "weights: each device loads ",
          d.shape.whole_loads ? "all of them\n" : "its shard and gathers the others'\n");
    }
  }
  if (!fits) absl::StrAppend(&out, "does not fit: ", misfit, "\n");
  return out;
}

}  // namespace megatrain
