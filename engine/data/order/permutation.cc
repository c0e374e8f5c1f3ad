// A Feistel network is a bijection of [0, 4^h) whatever its round function. Indices that fall at or
// above n are sent through again ("cycle walking") until one falls below: that is a bijection of
// [0, n), for it follows the cycles of the larger permutation and leaves out the rest.
#include "engine/data/order/permutation.h"

#include <bit>

namespace megatrain {
namespace {

// Luby and Rackoff: 4 rounds of a random function cannot be told from a random permutation; 8 leave
// a margin for a round function that is only a good mixer.
constexpr int kRounds = 8;
// A domain of at least 4^4 = 256: networks over very few bits reach only some of the permutations.
// For n < 256 that costs 256 / n passes on average; above it, 4 at most.
constexpr int kHalfBitsMin = 4;

// The finaliser of SplitMix64.
uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;  // 2^64 / golden ratio

}  // namespace

int64_t PermutedIndex(uint64_t seed, uint64_t epoch, int64_t n, int64_t position) {
  const uint64_t size = static_cast<uint64_t>(n);
  const int domain_bits = std::bit_width(size - 1);  // n <= 2^domain_bits
  const int half_bits = domain_bits <= 2 * kHalfBitsMin ? kHalfBitsMin : (domain_bits + 1) / 2;
  const uint64_t half_mask = (uint64_t{1} << half_bits) - 1;
  const uint64_t key = Mix(Mix(seed + kGolden) + (epoch + 1) * kGolden);
  uint64_t value = static_cast<uint64_t>(position);
  do {
    uint64_t left = value >> half_bits;
    uint64_t right = value & half_mask;
    for (uint64_t round = 1; round <= kRounds; ++round) {
      const uint64_t mixed = Mix(key + round * kGolden + Mix(right + kGolden)) & half_mask;
      const uint64_t next = left ^ mixed;
      left = right;
      right = next;
    }
    value = (left << half_bits) | right;
  } while (value >= size);
  return static_cast<int64_t>(value);
}

}  // namespace megatrain
