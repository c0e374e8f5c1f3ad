// The training order: a permutation of the sequences for each epoch, with no table.
#ifndef MEGATRAIN_ENGINE_DATA_SEQUENCES_PERMUTATION_H_
#define MEGATRAIN_ENGINE_DATA_SEQUENCES_PERMUTATION_H_

#include <cstdint>

namespace megatrain {

// The element at `position` of a pseudo-random permutation of [0, n) that depends on seed, epoch
// and n alone. O(1): any place in any epoch is found without the ones before it, so a resumed run
// needs no state. Thread-safe. REQUIRES: 0 <= position < n.
int64_t PermutedIndex(uint64_t seed, uint64_t epoch, int64_t n, int64_t position);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_PERMUTATION_H_
