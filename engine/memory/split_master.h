// An FP32 master weight kept as two halves that lose nothing: the BF16 weight that is streamed to
// the device, and a signed 16-bit remainder that stays on the host.
//
//   encode   hi = bits >> 16;  lo = int16(bits);  if (lo < 0) ++hi;
//   decode   bits = (hi - (lo < 0)) << 16 | uint16(lo)
//
// Modulo 2^32 the two are inverse to each other over every pattern. Read as a number the master is
// hi * 2^16 + lo with lo in [-2^15, 2^15), so hi is the BF16 value nearest to it. A tie has
// lo = -2^15 and rounds up in magnitude: away from zero, where the usual rounding goes to the even
// neighbour. (Nearest-even cannot be inverted: a tie would need lo = +2^15 half of the time.)
//
// Two kinds of pattern must not be encoded, because the BF16 half says something else:
//   - finite magnitudes of 0x7f7f8000 (3.3961776e38) and more: the half is an infinity;
//   - NaNs 0x7f800001..0x7f807fff (half: infinity) and 0x7fff8000..0x7fffffff (half: zero of the
//     other sign), both signs: 2 * (32,767 + 32,768) = 131,070 patterns.
// IsEncodable is false for them and for every other infinity and NaN.
#ifndef MEGATRAIN_ENGINE_MEMORY_SPLIT_MASTER_H_
#define MEGATRAIN_ENGINE_MEMORY_SPLIT_MASTER_H_

#include <bit>
#include <cstdint>

#include "engine/base/dtype.h"

namespace megatrain {

struct SplitMaster {
  bf16_t weight = 0;      // streamed
  int16_t remainder = 0;  // stays on the host

  friend constexpr bool operator==(const SplitMaster&, const SplitMaster&) = default;
};

// Magnitudes (sign bit cleared) from here on have no finite BF16 half:
// 0x7f7f0000 is the largest finite BF16, 0x8000 half a unit in its last place.
inline constexpr uint32_t kUnencodableMagnitude = 0x7f7f8000u;

// Whether the master is finite and its BF16 half is too.
constexpr bool IsEncodable(uint32_t master_bits) {
  return (master_bits & 0x7fffffffu) < kUnencodableMagnitude;
}
constexpr bool IsEncodable(float master) { return IsEncodable(std::bit_cast<uint32_t>(master)); }

constexpr SplitMaster EncodeMasterBits(uint32_t bits) {
  const uint32_t low_is_negative = (bits >> 15) & 1u;
  return {static_cast<bf16_t>((bits >> 16) + low_is_negative), static_cast<int16_t>(bits)};
}

constexpr uint32_t DecodeMasterBits(SplitMaster split) {
  const uint32_t low = static_cast<uint16_t>(split.remainder);
  return ((split.weight - (low >> 15)) << 16) | low;
}

// The BF16 half is meaningful only if IsEncodable(master); the round trip is exact regardless.
constexpr SplitMaster EncodeMaster(float master) {
  return EncodeMasterBits(std::bit_cast<uint32_t>(master));
}
constexpr float DecodeMaster(SplitMaster split) {
  return std::bit_cast<float>(DecodeMasterBits(split));
}
constexpr float DecodeMaster(bf16_t weight, int16_t remainder) {
  return DecodeMaster(SplitMaster{weight, remainder});
}

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MEMORY_SPLIT_MASTER_H_
