// AdamW over a tile's state on the host (Loshchilov & Hutter 2019, computed as in
// torch.optim.AdamW):
//   p *= 1 - lr * weight_decay            (tensors that decay)
//   m += (1 - beta1) (g - m)              with g = gradient_scale * gradient
//   v  = beta2 v + (1 - beta2) g^2
//   p -= (lr / (1 - beta1^step)) m / (sqrt(v) / sqrt(1 - beta2^step) + epsilon)
// where lr and weight_decay are those of the tensor (TensorSpec::rate_group). A step that is
// skipped (training.skip_steps) counts in the exponents of the bias correction. An update is one
// pass over memory, element by element, so results depend neither on the threads nor on the tuning.
#ifndef MEGATRAIN_ENGINE_OPTIM_ADAMW_H_
#define MEGATRAIN_ENGINE_OPTIM_ADAMW_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/base/dtype.h"
#include "engine/base/thread_pool.h"
#include "engine/memory/memory_nodes.h"
#include "engine/model/tile.h"
#include "engine/optim/kernel/adamw_kernel.h"
#include "engine/optim/kernel/adamw_span.h"

namespace megatrain {

// The settings with which an update is carried out. The bits do not depend on them. AdamWTuner
// chooses them by measuring.
struct AdamWTuning {
  // The most elements that a thread takes at a time: 3.5 MiB of traffic (28 bytes an element), so
  // that claiming a block costs nothing.
  int64_t block_elements = int64_t{1} << 17;
  // A cache line of each stream is prefetched so many elements before its use. 0 leaves this to the
  // hardware.
  int prefetch_elements = kAdamWPrefetchElements;
  int threads = 0;  // the most threads of the pool to use; 0: all
};

// A range of elements that all have the same rates, and weight decay or none.
struct AdamWRange {
  ElementRange elements;
  bool decays = false;
  int rate_group = 0;  // which rates they have (TensorSpec::rate_group)
};
// Returns the parts of `range`, elements of the whole tile, that are neither padding nor frozen, in
// order. Neighbours of the same traits are one part.
std::vector<AdamWRange> AdamWRanges(const TileLayout& layout, ElementRange range);

// Cuts runs into blocks that threads take one after another. Blocks have block_elements at most and
// become smaller towards the end, so that all threads end together (Polychronopoulos and Kuck,
// Guided self-scheduling, 1987). REQUIRES: block_elements > 0, threads > 0.
std::vector<AdamWRange> AdamWBlocks(absl::Span<const AdamWRange> runs, int64_t block_elements,
                                    int threads);

// Returns the operands for elements [begin, begin + elements) of the tile. They point into the
// tile's sections and into the gradient. `gradient` is the address of the gradient of element 0, as
// in AdamWUpdate, in gradient_dtype. REQUIRES: the tile holds these elements.
AdamWSpan AdamWSpanAt(const Tile& tile, const void* gradient, DType gradient_dtype, int64_t begin,
                      int64_t elements);

// Updates `ranges` of the tile in place, except frozen tensors. They must ascend and not overlap.
// `gradient` is the address of the gradient of the tile's element 0, in the tile's element order,
// as FP32 or BF16. Only the gradients of elements in `ranges` are read; the others need not exist.
// Padding is neither read nor written. An element's bits do not depend on the ranges. Returns when
// the update is done.
//
// Returns false if an updated master is not finite or, in a BF16 tile (split_master.h), would round
// to infinity in BF16, or if a second moment is not finite. All ranges are updated in that case
// too, but the tile must not be used any more.
//
// `nodes` gives the NUMA nodes of the tile's memory, so that threads can take near blocks first. It
// affects the time only, and so does `tuning`. Denormals count as zero, as in every loop of a
// ThreadPool. REQUIRES: the tile holds `ranges`; step.step >= 1, betas in [0, 1), epsilon >= 0;
// step.groups has at least as many entries as the largest TensorSpec::rate_group of the tile (none
// if all are 0); the tile's sections and the gradient do not overlap.
bool AdamWUpdate(ThreadPool& pool, const AdamWStep& step, const void* gradient,
                 DType gradient_dtype, const Tile& tile, absl::Span<const ElementRange> ranges,
                 const MemoryNodes& nodes = {}, const AdamWTuning& tuning = {});
// Updates all elements with state that the tile holds, as AdamWUpdate with one range does.
bool AdamWUpdate(ThreadPool& pool, const AdamWStep& step, const void* gradient,
                 DType gradient_dtype, const Tile& tile, const MemoryNodes& nodes = {},
                 const AdamWTuning& tuning = {});

// Does as AdamWUpdate with all that the tile holds, and returns the same, by plain loops on the
// calling thread; for tests. REQUIRES: as AdamWUpdate. Gives the same bits if that thread flushes
// denormals and the processor has fused multiply-add.
bool AdamWUpdateReference(const AdamWStep& step, const void* gradient, DType gradient_dtype,
                          const Tile& tile);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_OPTIM_ADAMW_H_
