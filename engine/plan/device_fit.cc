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

void Keep(const JobSpec& spec, const KernelSizes& sizes, int64_t limit, PipelineDimensions& d) {
  PipelineShape& shape = d.shape;
  const int pairs = shape.layers * shape.sweep_micro_batches;
  shape.kept = shape.kept_everything = 0;
  if (spec.engine.recompute == RecomputeMode::kAll) return;
  if (spec.engine.recompute == RecomputeMode::kNone) {
    shape.kept = shape.kept_everything = pairs;
    return;
  }
  const ModelConfig& c = d.layout->config;
  auto aligned = [](int64_t bytes) {
    return (bytes + DeviceArena::kAlignment - 1) / DeviceArena::kAlignment *
           DeviceArena::kAlignment;
  };
  const int64_t cheap =
      aligned(KeptBytes(c, d.dtype, d.micro_batch_tokens, KeepLevel::kCheapRecomputed));
  const int64_t everything =
      aligned(KeptBytes(c, d.dtype, d.micro_batch_tokens, KeepLevel::kEverything));
  int64_t left = limit - DeviceBytes(d, sizes);
  if (left <= 0) return;
  // A kept product saves more time a byte than a kept norm: first the products of as many pairs as
  // fit, then the rest.
  shape.kept = static_cast<int>(std::min<int64_t>(pairs, left / cheap));
  left -= shape.kept * cheap;
  if (everything > cheap) {
    shape.kept_everything =
        static_cast<int>(std::min<int64_t>(shape.kept, left / (everything - cheap)));
  }
}

}  // namespace

// Device bytes of these dimensions, through the code that reserves them.
int64_t DeviceBytes(const PipelineDimensions& d, const KernelSizes& sizes) {
  DeviceArena arena(nullptr, std::numeric_limits<int64_t>::max());
  return ReserveDeviceBuffers(d, sizes, arena).ok() ? arena.used() + sizes.StreamWorkspaceBytes()
                                                    : std::numeric_limits<int64_t>::max();
}

bool FitDevice(const JobSpec& spec, const KernelSizes& sizes, int64_t limit, int sweep,
               bool on_host, PipelineDimensions& d) {
  d.shape.sweep_micro_batches = sweep;
  d.shape.stash_on_host = on_host;
  SetSlabs(spec, d);
  Keep(spec, sizes, limit, d);
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
