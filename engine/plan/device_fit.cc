#include "engine/plan/device_fit.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "engine/memory/device_arena.h"

namespace megatrain {
namespace {

void SetSlabs(const JobSpec& spec, PipelineDimensions& d) {
  const bool partials = d.micro_batches > d.shape.sweep_micro_batches;
  d.shape.slab_per_tile = d.shape.clipping || partials;
  if (d.shape.slab_per_tile) {
    d.shape.gradient_slabs = d.shape.tiles();
  } else {
    d.shape.gradient_slabs =
        spec.engine.gradient_slabs > 0 ? static_cast<int>(spec.engine.gradient_slabs) : 4;
  }
}

// The number of pairs (layer, micro-batch) that keep activations, and of those that keep all.
struct KeptPairs {
  int64_t kept = 0, everything = 0;
};

// Chooses the pairs that fit into `left` bytes if a pair takes `cheap` bytes when its cheap pieces
// are recomputed, and `everything` when none are. First as many pairs as fit recompute the cheap
// pieces; then as many of these as fit recompute nothing.
KeptPairs CheapFirst(int64_t pairs, int64_t left, int64_t cheap, int64_t everything) {
  KeptPairs keep;
  keep.kept = std::min(pairs, left / cheap);
  left -= keep.kept * cheap;
  if (everything > cheap) keep.everything = std::min(keep.kept, left / (everything - cheap));
  return keep;
}

// Chooses in the other order: first as many pairs as fit recompute nothing, then as many of the
// rest recompute the cheap pieces.
KeptPairs EverythingFirst(int64_t pairs, int64_t left, int64_t cheap, int64_t everything) {
  KeptPairs keep;
  keep.everything = std::min(pairs, left / everything);
  left -= keep.everything * everything;
  keep.kept = keep.everything + std::min(pairs - keep.everything, left / cheap);
  return keep;
}

// Returns the seconds of recomputation that `keep` saves.
double SavedSeconds(const KeptPairs& keep, const PipelineShape& shape,
                    const LaneRates& lane_rates) {
  double sum = 0;
  const int64_t sweep = shape.sweep_micro_batches;
  for (int stage = shape.stage_count() - 1; stage >= shape.lowest_stage(); --stage) {
    if (shape.stages[static_cast<size_t>(stage)].has_experts()) continue;
    const StageStepWork& work = shape.work.stage(stage);
    const auto saved = [&](KeepLevel level) {
      return WorkSeconds(work.recompute[static_cast<size_t>(KeepLevel::kNothing)], lane_rates) -
             WorkSeconds(work.recompute[static_cast<size_t>(level)], lane_rates);
    };
    const int64_t before = shape.keeping_stages(stage + 1) * sweep;  // pairs of later stages
    const int64_t everything = std::clamp<int64_t>(keep.everything - before, 0, sweep);
    const int64_t kept = std::clamp<int64_t>(keep.kept - before, 0, sweep);
    sum += static_cast<double>(everything) * saved(KeepLevel::kEverything) +
           static_cast<double>(kept - everything) * saved(KeepLevel::kCheapRecomputed);
  }
  return sum;
}

void Keep(const JobSpec& spec, const KernelSizes& sizes, int64_t limit, const LaneRates* lane_rates,
          PipelineDimensions& d) {
  PipelineShape& shape = d.shape;
  const int pairs = shape.keeping_stages(shape.lowest_stage()) * shape.sweep_micro_batches;
  shape.kept = shape.kept_everything = 0;
  if (spec.engine.recompute == RecomputeMode::kAll) return;
  if (spec.engine.recompute == RecomputeMode::kNone) {
    shape.kept = shape.kept_everything = pairs;
    return;
  }
  const ModelDescription& model = d.layout->model;
  auto aligned = [](int64_t bytes) {
    return (bytes + DeviceArena::kAlignment - 1) / DeviceArena::kAlignment *
           DeviceArena::kAlignment;
  };
  const int64_t cheap =
      aligned(KeptBytes(model, d.dtype, d.micro_batch_tokens, KeepLevel::kCheapRecomputed));
  const int64_t everything =
      aligned(KeptBytes(model, d.dtype, d.micro_batch_tokens, KeepLevel::kEverything));
  const int64_t left = limit - DeviceBytes(d, sizes);
  if (left <= 0) return;
  // Two levels and one budget: the best is one of the two orders, by which saves more seconds a
  // byte. As a rule a kept product saves more than a kept norm.
  KeptPairs keep = CheapFirst(pairs, left, cheap, everything);
  if (lane_rates != nullptr) {
    const KeptPairs other = EverythingFirst(pairs, left, cheap, everything);
    if (SavedSeconds(other, shape, *lane_rates) > SavedSeconds(keep, shape, *lane_rates)) {
      keep = other;
    }
  }
  shape.kept = static_cast<int>(keep.kept);
  shape.kept_everything = static_cast<int>(keep.everything);
}

}  // namespace

int64_t DeviceBytes(const PipelineDimensions& d, const KernelSizes& sizes) {
  DeviceArena arena(nullptr, std::numeric_limits<int64_t>::max());
  return ReserveDeviceBuffers(d, sizes, arena).ok()
             ? arena.used() + sizes.StreamWorkspaceBytes() + d.exchange_bytes
             : std::numeric_limits<int64_t>::max();
}

bool FitDevice(const JobSpec& spec, const KernelSizes& sizes, int64_t limit, int sweep,
               bool on_host, PipelineDimensions& d, const LaneRates* lane_rates) {
  d.shape.sweep_micro_batches = sweep;
  d.shape.stash_on_host = on_host;
  SetSlabs(spec, d);
  Keep(spec, sizes, limit, lane_rates, d);
  return DeviceBytes(d, sizes) <= limit;
}

bool FitDeviceByRule(const JobSpec& spec, const KernelSizes& sizes, int64_t limit,
                     PipelineDimensions& d) {
  const bool device = spec.engine.stash != StashPlace::kHost;
  const bool host = spec.engine.stash != StashPlace::kDevice;
  int low = 1, high = d.micro_batches;
  if (spec.engine.micro_batches_per_sweep > 0) {
    low = high =
        static_cast<int>(std::min<int64_t>(d.micro_batches, spec.engine.micro_batches_per_sweep));
  }
  const int sweeps_max = std::min(d.shape.sweeps_max(), d.micro_batches);
  low = std::max(low, (d.micro_batches + sweeps_max - 1) / sweeps_max);
  const auto fits = [&](int sweep) {
    return (device && FitDevice(spec, sizes, limit, sweep, false, d)) ||
           (host && FitDevice(spec, sizes, limit, sweep, true, d));
  };
  if (fits(high)) return true;
  if (high == low || !fits(low)) return false;
  // A sweep takes the more, the larger it is: `low` fits, `high` does not.
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return fits(low);
}

}  // namespace megatrain
