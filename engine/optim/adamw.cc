#include "engine/optim/adamw.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "engine/optim/adamw_kernel.h"

namespace megatrain {
namespace {

struct Block {
  int64_t begin = 0, end = 0;  // elements of the tile's sections
  bool decays = false;
};

// Tensors that lie side by side and agree on decay are one run, which is cut into blocks where it
// lies in [first, last). Padding belongs to no block: it is neither read nor written.
std::vector<Block> CutIntoBlocks(const TileLayout& layout, int64_t first, int64_t last,
                                 int64_t block_elements) {
  std::vector<Block> blocks;
  const auto add_run = [&](int64_t begin, int64_t end, bool decays) {
    begin = std::max(begin, first);
    end = std::min(end, last);
    for (; begin < end; begin += block_elements) {
      blocks.push_back({begin, std::min(begin + block_elements, end), decays});
    }
  };
  int64_t begin = 0, end = 0;
  bool decays = false;
  for (const TensorSpec& tensor : layout.tensors) {
    if (tensor.offset != end || tensor.decays != decays) {
      add_run(begin, end, decays);
      begin = tensor.offset;
      decays = tensor.decays;
    }
    end = tensor.offset + tensor.elements;
  }
  add_run(begin, end, decays);
  return blocks;
}

}  // namespace

bool AdamWUpdate(ThreadPool& pool, const AdamWStep& step, const void* gradient,
                 DType gradient_dtype, const Tile& tile, const MemoryNodes& nodes,
                 const AdamWTuning& tuning) {
  return AdamWUpdateRange(pool, step, gradient, gradient_dtype, tile, 0, tile.layout->elements,
                          nodes, tuning);
}

bool AdamWUpdateRange(ThreadPool& pool, const AdamWStep& step, const void* gradient,
                      DType gradient_dtype, const Tile& tile, int64_t begin, int64_t end,
                      const MemoryNodes& nodes, const AdamWTuning& tuning) {
  const AdamWConstants constants = AdamWConstants::Make(step);
  const std::vector<Block> blocks = CutIntoBlocks(*tile.layout, begin, end, tuning.block_elements);
  const int64_t weight_bytes = DTypeBytes(tile.weight_dtype);
  const int64_t gradient_bytes = DTypeBytes(gradient_dtype);
  std::atomic<bool> trusted{true};
  const auto update = [&](int64_t index) {
    const Block& block = blocks[index];
    AdamWSpan span;
    span.gradient = static_cast<const char*>(gradient) + block.begin * gradient_bytes;
    span.weights = static_cast<char*>(tile.weights) + block.begin * weight_bytes;
    span.remainder = tile.remainder == nullptr ? nullptr : tile.remainder + block.begin;
    span.exp_avg = tile.exp_avg + block.begin;
    span.exp_avg_sq = tile.exp_avg_sq + block.begin;
    span.elements = block.end - block.begin;
    if (!AdamWUpdateSpan(constants, block.decays ? constants.decay : 1.0f, gradient_dtype, span,
                         tuning.prefetch_elements)) {
      trusted.store(false, std::memory_order_relaxed);
    }
  };
  const auto count = static_cast<int64_t>(blocks.size());
  if (nodes.several()) {
    // The moments are two thirds of the tile and lie together.
    pool.ParallelForNear(
        count, [&](int64_t index) { return nodes.NodeOf(tile.exp_avg + blocks[index].begin); },
        update, tuning.threads);
  } else {
    pool.ParallelFor(count, update, tuning.threads);
  }
  return trusted.load();
}

}  // namespace megatrain
