// Splits an FP32 master weight without loss into two halves: the BF16 weight that is streamed to
// the device and a signed 16-bit remainder that stays on the host.
//
//   encode   hi = bits >> 16;  lo = int16(bits);  if (lo < 0) ++hi;
//   decode   bits = (hi - (lo < 0)) << 16 | uint16(lo)
//
// Modulo 2^32 these are inverse to each other for every bit pattern. As a number the master is hi *
// 2^16 + lo with lo in [-2^15, 2^15), so hi is the BF16 value nearest to it. A tie has lo = -2^15
// and rounds away from zero, where the usual rounding goes to the even neighbor. (Nearest-even
// cannot be inverted: a tie would need lo = +2^15 half of the time.)
//
// Two kinds of pattern must not be encoded, because the BF16 half alone would mean something else:
//   - finite magnitudes of 0x7f7f8000 (3.3961775e38) and more: the half is an infinity;
//   - NaNs 0x7f800001..0x7f807fff (half: infinity) and 0x7fff8000..0x7fffffff (half: zero of the
//     other sign), both signs: 2 * (32,767 + 32,768) = 131,070 patterns.
// IsEncodable is false for them, for both infinities and for every other NaN.
#ifndef MEGATRAIN_ENGINE_MEMORY_SPLIT_MASTER_H_
#define MEGATRAIN_ENGINE_MEMORY_SPLIT_MASTER_H_

#include <bit>
#include <cstdint>

#include "engine/base/dtype.h"

namespace megatrain {

struct SplitMaster {
  bf16_t weight = 0;      // streamed to the device
  int16_t remainder = 0;  // stays on the host

  friend constexpr bool operator==(const SplitMaster&, const SplitMaster&) = default;
};

// The smallest magnitude (sign bit cleared) without a finite BF16 half: 0x7f7f0000 is the largest
// finite BF16, and 0x8000 is half a unit in its last place.
inline constexpr uint32_t kUnencodableMagnitude = 0x7f7f8000u;

// Returns true if the master is finite and its BF16 half is too.
constexpr bool IsEncodable(uint32_t master_bits) {
  return (master_bits & 0x7fffffffu) < kUnencodableMagnitude;
}
constexpr bool IsEncodable(float master) { return IsEncodable(std::bit_cast<uint32_t>(master)); }

// Encode and decode the bits of a master by the formulas above. Decoding undoes encoding for every
// bit pattern.
constexpr SplitMaster EncodeMasterBits(uint32_t bits) {
  const uint32_t low_is_negative = (bits >> 15) & 1u;
  return {static_cast<bf16_t>((bits >> 16) + low_is_negative), static_cast<int16_t>(bits)};
}

constexpr uint32_t DecodeMasterBits(SplitMaster split) {
  const uint32_t low = static_cast<uint16_t>(split.remainder);
  return ((split.weight - (low >> 15)) << 16) | low;
}

// The BF16 half is meaningful only if IsEncodable(master). The round trip is always exact.
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
