#include "engine/optim/adamw_updater.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace megatrain {
namespace {

// Elements of one try: at least 112 MiB of traffic, some milliseconds, and more than the caches of
// most processors hold; where many threads work, four of the largest blocks for each. Smaller
// ranges are updated untried, with what is known.
constexpr int64_t kTryElementsMin = int64_t{1} << 22;
constexpr int64_t kTryElementsOfThread = int64_t{1} << 21;

}  // namespace

AdamWUpdater::AdamWUpdater(ThreadPool* pool)
    : pool_(pool), tuners_{AdamWTuner(pool->threads()), AdamWTuner(pool->threads())} {}

AdamWTuner& AdamWUpdater::TunerOf(DType weight_dtype) const {
  return tuners_[weight_dtype == DType::kBF16 ? 1 : 0];
}

bool AdamWUpdater::tuned(DType weight_dtype) const {
  MutexLock lock(&mutex_);
  return TunerOf(weight_dtype).done();
}

AdamWTuning AdamWUpdater::tuning(DType weight_dtype) const {
  MutexLock lock(&mutex_);
  return TunerOf(weight_dtype).Next();
}

bool AdamWUpdater::Update(const AdamWStep& step, const void* gradient, DType gradient_dtype,
                          const Tile& tile, absl::Span<const ElementRange> ranges,
                          const MemoryNodes& nodes) {
  using Clock = std::chrono::steady_clock;
  MutexLock lock(&mutex_);
  AdamWTuner& tuner = TunerOf(tile.weight_dtype);
  bool trusted = true;
  const auto update = [&](absl::Span<const ElementRange> part) {
    trusted &= AdamWUpdate(*pool_, step, gradient, gradient_dtype, tile, part, nodes, tuner.Next());
  };
  std::vector<ElementRange> left;
  for (ElementRange range : ranges) {
    while (!tuner.done() && range.end - range.begin >= kTryElementsMin) {
      const int64_t elements =
          std::min(range.end - range.begin,
                   std::max(kTryElementsMin, kTryElementsOfThread * pool_->threads()));
      const Clock::time_point start = Clock::now();
      update({ElementRange{range.begin, range.begin + elements}});
      tuner.Report(std::chrono::duration<double>(Clock::now() - start).count() /
                   static_cast<double>(elements));
      range.begin += elements;
    }
    if (range.begin < range.end) left.push_back(range);
  }
  update(left);
  return trusted;
}

}  // namespace megatrain
