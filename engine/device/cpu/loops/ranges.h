// Cuts loops into ranges for the threads of a pool. The ranges depend on shapes alone, so that no
// bit of a result depends on the number of threads.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_LOOPS_RANGES_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_LOOPS_RANGES_H_

#include <algorithm>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "engine/base/thread_pool.h"

namespace megatrain {

// Element-wise work is cut into blocks of about this many elements. A block takes some ten
// microseconds, far longer than a thread takes to claim it.
inline constexpr int64_t kBlockElements = int64_t{1} << 15;
// A sum over rows is cut into at most this many parts, each the sum over a range of rows.
inline constexpr int64_t kPartsMax = 64;

// Returns a / b, rounded up. REQUIRES: a >= 0, b > 0.
inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Returns the number of rows of a block, at least 1, for rows of row_elements elements.
inline int64_t RowsInBlock(int64_t row_elements) {
  return std::max<int64_t>(1, kBlockElements / std::max<int64_t>(1, row_elements));
}

// Returns the number of rows of a part of a sum over `rows` rows. It is RowsInBlock(row_elements),
// or more if there would be more than kPartsMax parts.
inline int64_t RowsInPart(int64_t rows, int64_t row_elements) {
  return std::max(RowsInBlock(row_elements), CeilDiv(rows, kPartsMax));
}

// Calls fn(begin, end) on the pool's threads for ranges that cover [0, n), and returns when all
// calls are done. Each range has `size` elements, except that the last may have fewer. REQUIRES: n
// >= 0, size > 0.
inline void ForRanges(ThreadPool* pool, int64_t n, int64_t size,
                      absl::FunctionRef<void(int64_t begin, int64_t end)> fn) {
  pool->ParallelFor(CeilDiv(n, size),
                    [&](int64_t block) { fn(block * size, std::min(n, (block + 1) * size)); });
}

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_LOOPS_RANGES_H_
