// Computes the training order: a permutation of the sequences for each epoch, without a table.
#ifndef MEGATRAIN_ENGINE_DATA_ORDER_PERMUTATION_H_
#define MEGATRAIN_ENGINE_DATA_ORDER_PERMUTATION_H_

#include <cstdint>

namespace megatrain {

// Returns the element at `position` of a pseudo-random permutation of [0, n). The permutation
// depends on `seed`, `epoch` and `n` alone. The time does not grow with the position or the epoch,
// so a resumed run needs no state. Thread-safe. REQUIRES: 0 <= position < n.
int64_t PermutedIndex(uint64_t seed, uint64_t epoch, int64_t n, int64_t position);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_ORDER_PERMUTATION_H_
