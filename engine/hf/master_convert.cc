#include "engine/hf/master_convert.h"

#include <bit>
#include <cstring>

#include "engine/memory/split_master.h"

namespace megatrain {
namespace {

template <typename T>
T LoadUnaligned(const void* values, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(values) + index * int64_t{sizeof(T)}, sizeof(T));
  return value;
}

// Calls store(i, bits of the FP32 value) for each. Two passes, so that the common case, in which
// every value can be held, is a loop without a branch.
template <typename Load, typename Allowed, typename Store>
int64_t Convert(int64_t elements, Load load, Allowed allowed, Store store) {
  bool all_allowed = true;
  for (int64_t i = 0; i < elements; ++i) {
    const uint32_t bits = load(i);
    all_allowed &= allowed(bits);
    store(i, bits);
  }
  if (all_allowed) return -1;
  int64_t first = 0;
  while (allowed(load(first))) ++first;
  return first;
}

template <typename Load>
int64_t Store(int64_t elements, const Tile& tile, int64_t offset, Load load) {
  if (tile.weight_dtype == DType::kF32) {
    uint32_t* const weights = static_cast<uint32_t*>(tile.WeightsAt(offset));
    const auto finite = [](uint32_t bits) { return (bits & 0x7fffffffu) < 0x7f800000u; };
    return Convert(elements, load, finite, [=](int64_t i, uint32_t bits) { weights[i] = bits; });
  }
  bf16_t* const weights = static_cast<bf16_t*>(tile.WeightsAt(offset));
  const auto encodable = [](uint32_t bits) { return IsEncodable(bits); };
  if (tile.remainder == nullptr) {
    return Convert(elements, load, encodable,
                   [=](int64_t i, uint32_t bits) { weights[i] = EncodeMasterBits(bits).weight; });
  }
  int16_t* const remainder = tile.RemainderAt(offset);
  return Convert(elements, load, encodable, [=](int64_t i, uint32_t bits) {
    const SplitMaster split = EncodeMasterBits(bits);
    weights[i] = split.weight;
    remainder[i] = split.remainder;
  });
}

}  // namespace

float F16ToFloat(uint16_t value) {
  const uint32_t sign = (value & 0x8000u) << 16;
  const uint32_t magnitude = value & 0x7fffu;
  if (magnitude >= 0x7c00u) {  // infinity, NaN
    return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  }
  // The exponent's bias grows from 15 to 127. Below 2^-14 the value is magnitude * 2^-24, which
  // FP32 holds as a normal number.
  if (magnitude < 0x400u) {
    const float small = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(small));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + ((127u - 15u) << 23)));
}

int64_t StoreMaster(FileDType dtype, const void* values, int64_t elements, const Tile& tile,
                    int64_t offset) {
  switch (dtype) {
    case FileDType::kF32:
      return Store(elements, tile, offset,
                   [=](int64_t i) { return LoadUnaligned<uint32_t>(values, i); });
    case FileDType::kF16:
      return Store(elements, tile, offset, [=](int64_t i) {
        return std::bit_cast<uint32_t>(F16ToFloat(LoadUnaligned<uint16_t>(values, i)));
      });
    case FileDType::kBF16:
      return Store(elements, tile, offset, [=](int64_t i) {
        return static_cast<uint32_t>(LoadUnaligned<uint16_t>(values, i)) << 16;
      });
  }
  return 0;
}

void LoadMaster(const Tile& tile, int64_t offset, int64_t elements, DType dtype, void* values) {
  if (tile.weight_dtype == dtype) {
    std::memcpy(values, tile.WeightsAt(offset), elements * DTypeBytes(dtype));
  } else if (dtype == DType::kBF16) {
    const auto* const weights = static_cast<const uint32_t*>(tile.WeightsAt(offset));
    bf16_t* const out = static_cast<bf16_t*>(values);
    for (int64_t i = 0; i < elements; ++i) out[i] = EncodeMasterBits(weights[i]).weight;
  } else {
    const auto* const weights = static_cast<const bf16_t*>(tile.WeightsAt(offset));
    const int16_t* const remainder = tile.RemainderAt(offset);
    float* const out = static_cast<float*>(values);
    for (int64_t i = 0; i < elements; ++i) {
      out[i] = DecodeMaster(weights[i], remainder == nullptr ? int16_t{0} : remainder[i]);
    }
  }
}

void ZeroPaddingAndMoments(const Tile& tile) {
  ZeroPadding(tile);
  const int64_t n = tile.held.state.elements();
  if (tile.remainder != nullptr) std::memset(tile.remainder, 0, n * sizeof(int16_t));
  if (tile.exp_avg != nullptr) std::memset(tile.exp_avg, 0, n * sizeof(float));
  if (tile.exp_avg_sq != nullptr) std::memset(tile.exp_avg_sq, 0, n * sizeof(float));
}

}  // namespace megatrain
