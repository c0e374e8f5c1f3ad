#include "engine/optim/adamw_updater.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace megatrain {
namespace {

// Elements of one try: 112 MiB of traffic, some milliseconds, and more than the caches of most
// processors hold. Smaller tiles are updated untried, with what is known.
constexpr int64_t kTryElements = int64_t{1} << 22;

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
                          const Tile& tile, const MemoryNodes& nodes) {
  using Clock = std::chrono::steady_clock;
  MutexLock lock(&mutex_);
  AdamWTuner& tuner = TunerOf(tile.weight_dtype);
  const int64_t elements = tile.layout->elements;
  bool trusted = true;
  int64_t begin = 0;
  for (; !tuner.done() && begin + kTryElements <= elements; begin += kTryElements) {
    const Clock::time_point start = Clock::now();
    trusted &= AdamWUpdateRange(*pool_, step, gradient, gradient_dtype, tile, begin,
                                begin + kTryElements, nodes, tuner.Next());
    tuner.Report(std::chrono::duration<double>(Clock::now() - start).count() / kTryElements);
  }
  return AdamWUpdateRange(*pool_, step, gradient, gradient_dtype, tile, begin, elements, nodes,
                          tuner.Next()) &&
         trusted;
}

}  // namespace megatrain
