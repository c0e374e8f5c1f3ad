#include "engine/optim/adamw.h"

#include <algorithm>
#include <atomic>
#include <vector>

namespace megatrain {
namespace {

// The smallest blocks, and what all are multiples of: they begin where cache lines do.
constexpr int64_t kBlockUnit = int64_t{1} << 14;
// A thread's share of what is left is cut into this many blocks at least.
constexpr int64_t kBlocksOfThread = 4;

}  // namespace

std::vector<AdamWRange> AdamWRanges(const TileLayout& layout, ElementRange range) {
  std::vector<AdamWRange> runs;
  for (const TensorSpec& tensor : layout.tensors) {
    const ElementRange part{std::max(range.begin, tensor.offset),
                            std::min(range.end, tensor.offset + tensor.elements)};
    if (tensor.frozen || part.begin >= part.end) continue;
    if (!runs.empty() && runs.back().elements.end == part.begin &&
        runs.back().decays == tensor.decays && runs.back().rate_group == tensor.rate_group) {
      runs.back().elements.end = part.end;
    } else {
      runs.push_back({part, tensor.decays, tensor.rate_group});
    }
  }
  return runs;
}

std::vector<AdamWRange> AdamWBlocks(absl::Span<const AdamWRange> runs, int64_t block_elements,
                                    int threads) {
  int64_t left = 0;
  for (const AdamWRange& run : runs) left += run.elements.end - run.elements.begin;
  std::vector<AdamWRange> blocks;
  for (const auto& [elements, decays, rate_group] : runs) {
    for (int64_t begin = elements.begin; begin < elements.end;) {
      const int64_t share = left / (kBlocksOfThread * threads) / kBlockUnit * kBlockUnit;
      const int64_t taken =
          std::min({block_elements, std::max(share, kBlockUnit), elements.end - begin});
      blocks.push_back({{begin, begin + taken}, decays, rate_group});
      begin += taken;
      left -= taken;
    }
  }
  return blocks;
}

AdamWSpan AdamWSpanAt(const Tile& tile, const void* gradient, DType gradient_dtype, int64_t begin,
                      int64_t elements) {
  AdamWSpan span;
  span.gradient = static_cast<const char*>(gradient) + begin * DTypeBytes(gradient_dtype);
  span.weights = tile.WeightsAt(begin);
  span.remainder = tile.RemainderAt(begin);
  span.exp_avg = tile.ExpAvgAt(begin);
  span.exp_avg_sq = tile.ExpAvgSqAt(begin);
  span.elements = elements;
  return span;
}

bool AdamWUpdate(ThreadPool& pool, const AdamWStep& step, const void* gradient,
                 DType gradient_dtype, const Tile& tile, absl::Span<const ElementRange> ranges,
                 const MemoryNodes& nodes, const AdamWTuning& tuning) {
  std::vector<AdamWConstants> constants;  // by AdamWRange::rate_group
  for (size_t group = 0; group <= step.groups.size(); ++group) {
    constants.push_back(AdamWConstants::Make(step, static_cast<int>(group)));
  }
  std::vector<AdamWRange> runs;
  for (const ElementRange& range : ranges) {
    const std::vector<AdamWRange> of_range = AdamWRanges(*tile.layout, range);
    runs.insert(runs.end(), of_range.begin(), of_range.end());
  }
  const int threads =
      tuning.threads > 0 ? std::min(tuning.threads, pool.threads()) : pool.threads();
  const std::vector<AdamWRange> blocks = AdamWBlocks(runs, tuning.block_elements, threads);
  std::atomic<bool> trusted{true};
  const auto update = [&](int64_t index) {
    const auto& [elements, decays, rate_group] = blocks[index];
    const AdamWSpan span =
        AdamWSpanAt(tile, gradient, gradient_dtype, elements.begin, elements.elements());
    if (!AdamWUpdateSpan(constants[rate_group], decays ? constants[rate_group].decay : 1.0f,
                         gradient_dtype, span, tuning.prefetch_elements)) {
      trusted.store(false, std::memory_order_relaxed);
    }
  };
  const auto count = static_cast<int64_t>(blocks.size());
  if (nodes.several()) {
    // The moments are two thirds of the tile and lie together.
    pool.ParallelForNear(
        count,
        [&](int64_t index) { return nodes.NodeOf(tile.ExpAvgAt(blocks[index].elements.begin)); },
        update, tuning.threads);
  } else {
    pool.ParallelFor(count, update, tuning.threads);
  }
  return trusted.load();
}

bool AdamWUpdate(ThreadPool& pool, const AdamWStep& step, const void* gradient,
                 DType gradient_dtype, const Tile& tile, const MemoryNodes& nodes,
                 const AdamWTuning& tuning) {
  return AdamWUpdate(pool, step, gradient, gradient_dtype, tile, {tile.held.state}, nodes, tuning);
}

bool AdamWUpdateReference(const AdamWStep& step, const void* gradient, DType gradient_dtype,
                          const Tile& tile) {
  bool trusted = true;
  for (const TensorSpec& tensor : tile.layout->tensors) {
    const ElementRange held = HeldOf(*tile.layout, tile.weight_dtype, tile.held, tensor);
    if (tensor.frozen || held.elements() == 0) continue;
    const AdamWConstants constants = AdamWConstants::Make(step, tensor.rate_group);
    const bool of_tensor = AdamWUpdateSpanReference(
        constants, tensor.decays ? constants.decay : 1.0f, gradient_dtype,
        AdamWSpanAt(tile, gradient, gradient_dtype, tensor.offset + held.begin, held.elements()));
    trusted = trusted && of_tensor;
  }
  return trusted;
}

}  // namespace megatrain
