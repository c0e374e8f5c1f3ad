// AdamW over a tile's state on the host (Loshchilov & Hutter 2019, as torch.optim.AdamW computes
// it):
//   p *= 1 - lr * weight_decay            (only tensors that decay)
//   m += (1 - beta1) (g - m)              g = gradient_scale * gradient
//   v  = beta2 v + (1 - beta2) g^2
//   p -= (lr / (1 - beta1^step)) m / (sqrt(v) / sqrt(1 - beta2^step) + epsilon)
// One pass over memory, element by element: results depend neither on threads nor on the tuning.
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

// How an update is carried out. The bits do not depend on it. adamw_tuner.h chooses it by
// measuring.
struct AdamWTuning {
  // The most that a thread takes at a time: 3.5 MiB of traffic (28 bytes an element), so that
  // claiming a block costs nothing.
  int64_t block_elements = int64_t{1} << 17;
  // How far ahead of its use a line of each stream is asked for; 0: the hardware alone does it.
  int prefetch_elements = kAdamWPrefetchElements;
  int threads = 0;  // of the pool, at most; 0: all
};

// Elements [begin, end) of a tile's sections.
struct ElementRange {
  int64_t begin = 0, end = 0;

  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

// Neighbouring elements that agree on decay.
struct AdamWRun {
  ElementRange elements;
  bool decays = false;
};
// What of the tile lies in `range` and is not padding, in order. Depends on the layout alone.
std::vector<AdamWRun> AdamWRuns(const TileLayout& layout, ElementRange range);

// Cuts runs into blocks that threads take one after another. Blocks have block_elements at most and
// grow smaller towards the end, so that all threads end together (Polychronopoulos and Kuck, Guided
// self-scheduling, 1987). REQUIRES: block_elements > 0, threads > 0.
std::vector<AdamWRun> AdamWBlocks(absl::Span<const AdamWRun> runs, int64_t block_elements,
                                  int threads);

// `gradient` is the tile's whole one; its elements are of gradient_dtype.
AdamWSpan AdamWSpanAt(const Tile& tile, const void* gradient, DType gradient_dtype, int64_t begin,
                      int64_t elements);

// Updates `ranges` of the tile in place; they ascend and do not overlap. `gradient`
// [tile.layout->elements] of gradient_dtype is in the tile's element order. Padding is neither read
// nor written. An element's bits do not depend on the ranges. Returns false if any updated master
// is not finite or (split masters) would round to infinity in BF16, or if any second moment is not
// finite: the ranges are updated all the same, and are then not to be trusted. `nodes` says where
// the tile lies, so that threads take the blocks that are near to them first; nothing depends on
// that but the time, nor on `tuning`. REQUIRES: step.step >= 1, betas in [0, 1), epsilon >= 0; the
// tile's sections and the gradient do not overlap. Denormals count as zero, as in every ThreadPool.
bool AdamWUpdate(ThreadPool& pool, const AdamWStep& step, const void* gradient,
                 DType gradient_dtype, const Tile& tile, absl::Span<const ElementRange> ranges,
                 const MemoryNodes& nodes = {}, const AdamWTuning& tuning = {});
// The whole tile.
bool AdamWUpdate(ThreadPool& pool, const AdamWStep& step, const void* gradient,
                 DType gradient_dtype, const Tile& tile, const MemoryNodes& nodes = {},
                 const AdamWTuning& tuning = {});

// The plain reference, scalar and single-threaded: the same bits where denormals are flushed too.
bool AdamWUpdateReference(const AdamWStep& step, const void* gradient, DType gradient_dtype,
                          const Tile& tile);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_OPTIM_ADAMW_H_
