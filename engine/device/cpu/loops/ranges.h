// Cuts work for the pool's threads. The cuts depend on shapes alone, so that no bit of a result
// depends on the number of threads.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_LOOPS_RANGES_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_LOOPS_RANGES_H_

#include <algorithm>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "engine/base/thread_pool.h"

namespace megatrain {

// Element-wise work is cut into blocks of about this many elements: some ten microseconds, far more
// than claiming a block costs.
inline constexpr int64_t kBlockElements = int64_t{1} << 15;
// Sums have at most this many parts, each the sum over a range of rows.
inline constexpr int64_t kPartsMax = 64;

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Returns the rows of a block.
inline int64_t RowsInBlock(int64_t row_elements) {
  return std::max<int64_t>(1, kBlockElements / std::max<int64_t>(1, row_elements));
}

// Returns the rows of a part of a sum: those of a block, or more.
inline int64_t RowsInPart(int64_t rows, int64_t row_elements) {
  return std::max(RowsInBlock(row_elements), CeilDiv(rows, kPartsMax));
}

// Calls fn(begin, end) on the pool for ranges of [0, n) and waits for all. Each has `size`
// elements, but for the last. The ranges do not depend on the pool.
inline void ForRanges(ThreadPool* pool, int64_t n, int64_t size,
                      absl::FunctionRef<void(int64_t begin, int64_t end)> fn) {
  pool->ParallelFor(CeilDiv(n, size),
                    [&](int64_t block) { fn(block * size, std::min(n, (block + 1) * size)); });
}

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_LOOPS_RANGES_H_
