// Adds FP32 values of N ranks in a fixed order: a tree that splits at the largest power of two
// below N. Five ranks are added as ((0 + 1) + (2 + 3)) + 4. Every communicator adds in this order,
// so that the order of a sum depends on the number of ranks alone.
#ifndef MEGATRAIN_ENGINE_COMM_SUM_RANKS_H_
#define MEGATRAIN_ENGINE_COMM_SUM_RANKS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace megatrain {

// Sets out[i] to the sum of parts[rank][i], for i < n. `out` may be one of the parts; otherwise
// they must not overlap. REQUIRES: there is a part.
void SumRanks(absl::Span<const float* const> parts, int64_t n, float* out);

// Adds the values of rank `from` to those of rank `to`.
struct RankAddition {
  int to = 0;
  int from = 0;
};

// Returns the additions that SumRanks consists of, in an order in which they can be done. The last
// one makes the sum, at rank 0. Returns none for one rank.
std::vector<RankAddition> RankAdditions(int ranks);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_COMM_SUM_RANKS_H_
