#include "engine/device/cpu/cross_entropy.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/device/cpu/cross_entropy.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again for each target.
#include "engine/device/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain {
namespace HWY_NAMESPACE {

float MaxOfRow(const float* x, size_t n) {
  const size_t lanes = hn::Lanes(DF());
  VF m0 = hn::Set(DF(), x[0]), m1 = m0;
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    m0 = hn::Max(m0, Load(x + i));
    m1 = hn::Max(m1, Load(x + i + lanes));
  }
  float largest = MaxLanes(hn::Max(m0, m1));
  for (; i < n; ++i) largest = std::max(largest, x[i]);
  return largest;
}

// Replaces x by exp(x - largest) and returns the sum, FP32 in runs of 4,096 and FP64 over them, so
// that a vocabulary's size does not cost accuracy.
double ExpOfRow(float* x, size_t n, float largest) {
  constexpr size_t kRun = 4096;
  const size_t lanes = hn::Lanes(DF());
  const VF shift = hn::Set(DF(), largest);
  double sum = 0;
  for (size_t start = 0; start < n; start += kRun) {
    const size_t end = std::min(n, start + kRun);
    VF part = hn::Zero(DF());
    size_t i = start;
    for (; i + lanes <= end; i += lanes) {
      const VF e = ExpNegative(hn::Sub(Load(x + i), shift));
      Store(e, x + i);
      part = hn::Add(part, e);
    }
    sum += SumLanes(part);
    if (i < end) {
      HWY_ALIGN float rest[hn::MaxLanes(DF())];
      Store(ExpNegative(hn::Sub(LoadFirst(x + i, end - i), shift)), rest);
      for (size_t j = 0; i < end; ++i, ++j) {
        x[i] = rest[j];
        sum += rest[j];
      }
    }
  }
  return sum;
}

// Gradients of type T are written from the left over the FP32 values: never ahead of what is read.
template <typename T>
void ScaleRow(const float* x, size_t n, float scale, T* out) {
  const size_t lanes = hn::Lanes(DF());
  const VF factor = hn::Set(DF(), scale);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) Store(hn::Mul(Load(x + i), factor), out + i);
  if (i < n) StoreFirst(hn::Mul(LoadFirst(x + i, n - i), factor), out + i, n - i);
}

void Loss(const CrossEntropyArgs& args, int64_t begin, int64_t end) {
  const size_t n = static_cast<size_t>(args.vocabulary);
  for (int64_t t = begin; t < end; ++t) {
    float* row = args.logits + t * args.logits_stride;
    const int32_t label = args.labels[t];
    if (label < 0) {
      args.losses[t] = 0;
      if (!args.loss_only) std::memset(row, 0, n * static_cast<size_t>(DTypeBytes(args.dtype)));
      continue;
    }
    assert(label < args.vocabulary);
    const float largest = MaxOfRow(row, n);
    const float label_logit = row[label];
    const double sum = ExpOfRow(row, n, largest);
    args.losses[t] = static_cast<float>(std::log(sum) + largest - label_logit);
    if (args.loss_only) continue;
    const float factor = args.weights != nullptr ? args.scale * args.weights[t] : args.scale;
    const double label_gradient = (row[label] / sum - 1.0) * factor;
    const float scale = static_cast<float>(factor / sum);
    if (args.dtype == DType::kF32) {
      ScaleRow(row, n, scale, row);
      row[label] = static_cast<float>(label_gradient);
    } else {
      bf16_t* out = reinterpret_cast<bf16_t*>(row);
      ScaleRow(row, n, scale, out);
      out[label] = FloatToBf16(static_cast<float>(label_gradient));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace megatrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain {

HWY_EXPORT(Loss);

void CrossEntropyTokens(const CrossEntropyArgs& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(Loss)(args, begin, end);
}

}  // namespace megatrain
#endif  // HWY_ONCE
