#include "engine/comm/sum_ranks.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

namespace megatrain {
namespace {

// The floats that are added at a time, so that partial sums stay in the first cache: 4 KiB for each
// level of the tree.
constexpr int64_t kBlock = 1024;

// REQUIRES: n <= kBlock, and `out` is none of the parts.
void SumBlock(absl::Span<const float* const> parts, int64_t begin, int64_t n, float* out) {
  if (parts.size() == 1) {
    std::memcpy(out, parts[0] + begin, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  if (parts.size() == 2) {
    const float* const a = parts[0] + begin;
    const float* const b = parts[1] + begin;
    for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
    return;
  }
  const size_t left = std::bit_floor(parts.size() - 1);
  float right[kBlock];
  SumBlock(parts.first(left), begin, n, out);
  SumBlock(parts.subspan(left), begin, n, right);
  for (int64_t i = 0; i < n; ++i) out[i] += right[i];
}

}  // namespace

void SumRanks(absl::Span<const float* const> parts, int64_t n, float* out) {
  if (parts.size() == 1 && parts[0] == out) return;
  float sum[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t size = std::min(kBlock, n - begin);
    SumBlock(parts, begin, size, sum);
    std::memcpy(out + begin, sum, static_cast<size_t>(size) * sizeof(float));
  }
}

std::vector<RankAddition> RankAdditions(int ranks) {
  std::vector<RankAddition> additions;
  for (int step = 1; step < ranks; step *= 2) {
    for (int to = 0; to + step < ranks; to += 2 * step) additions.push_back({to, to + step});
  }
  return additions;
}

}  // namespace megatrain
