#include "engine/optim/adamw.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "engine/optim/adamw_kernel.h"

namespace megatrain {
namespace {

// Elements of a block, the unit that a thread takes: 3.5 MiB of traffic (28 bytes an element), so
// that claiming one costs nothing and two threads end a layer's tile together.
constexpr int64_t kBlockElements = int64_t{1} << 17;

struct Block {
  int64_t begin = 0, end = 0;  // elements of the tile's sections
  bool decays = false;
};

// Tensors that lie side by side and agree on decay are one run, which is cut into blocks. Padding
// belongs to no block: it is neither read nor written. Depends on the layout alone.
std::vector<Block> CutIntoBlocks(const TileLayout& layout) {
  std::vector<Block> blocks;
  const auto add_run = [&blocks](int64_t begin, int64_t end, bool decays) {
    for (; begin < end; begin += kBlockElements) {
      blocks.push_back({begin, std::min(begin + kBlockElements, end), decays});
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
                 DType gradient_dtype, const Tile& tile, const MemoryNodes& nodes) {
  const AdamWConstants constants = AdamWConstants::Make(step);
  const std::vector<Block> blocks = CutIntoBlocks(*tile.layout);
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
    if (!AdamWUpdateSpan(constants, block.decays ? constants.decay : 1.0f, gradient_dtype, span)) {
      trusted.store(false, std::memory_order_relaxed);
    }
  };
  const auto count = static_cast<int64_t>(blocks.size());
  if (nodes.several()) {
    // The moments are two thirds of the tile and lie together.
    pool.ParallelForNear(
        count, [&](int64_t index) { return nodes.NodeOf(tile.exp_avg + blocks[index].begin); },
        update);
  } else {
    pool.ParallelFor(count, update);
  }
  return trusted.load();
}

}  // namespace megatrain
