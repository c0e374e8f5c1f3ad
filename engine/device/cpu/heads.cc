#include "engine/device/cpu/heads.h"

#include <algorithm>
#include <cstring>

namespace megatrain {
namespace {

float Widened(float x) { return x; }
float Widened(bf16_t x) { return Bf16ToFloat(x); }
void Narrow(float x, float* to) { *to = x; }
void Narrow(float x, bf16_t* to) { *to = FloatToBf16(x); }

template <typename T>
void Sum(const SumHeadsArgs& args, int64_t begin, int64_t end) {
  constexpr int64_t kColumns = 64;  // summed at a time
  for (int64_t t = begin; t < end; ++t) {
    const T* const x = static_cast<const T*>(args.x) + t * args.x_stride;
    T* const out = static_cast<T*>(args.out) + t * args.out_stride;
    for (int64_t first = 0; first < args.width; first += kColumns) {
      const int64_t columns = std::min(kColumns, args.width - first);
      float sums[kColumns] = {};
      for (int64_t h = 0; h < args.heads; ++h) {
        const T* const head = x + h * args.x_head_stride + first;
        for (int64_t i = 0; i < columns; ++i) sums[i] += Widened(head[i]);
      }
      for (int64_t i = 0; i < columns; ++i) Narrow(sums[i], out + first + i);
    }
  }
}

}  // namespace

void CopyHeadsOfTokens(const CopyHeadsArgs& args, int64_t begin, int64_t end) {
  const int64_t size = DTypeBytes(args.dtype);
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t h = 0; h < args.heads; ++h) {
      std::memcpy(
          static_cast<char*>(args.to) + (t * args.to_stride + h * args.to_head_stride) * size,
          static_cast<const char*>(args.from) +
              (t * args.from_stride + h * args.from_head_stride) * size,
          static_cast<size_t>(args.width * size));
    }
  }
}

void SumHeadsOfTokens(const SumHeadsArgs& args, int64_t begin, int64_t end) {
  args.dtype == DType::kF32 ? Sum<float>(args, begin, end) : Sum<bf16_t>(args, begin, end);
}

}  // namespace megatrain
