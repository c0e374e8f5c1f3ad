#include "engine/device/cpu/cross_entropy.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/device/cpu/cross_entropy.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again for each target.
#include "engine/device/cpu/loops/simd-inl.h"

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

constexpr size_t kRun = 4096;

// Replaces x by exp(x - largest) and returns the sum, FP32 in runs of 4,096 and FP64 over them, so
// that a vocabulary's size does not cost accuracy.
double ExpOfRow(float* x, size_t n, float largest) {
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

// Replaces x by l = softcap * tanh(x / softcap).
void CapRow(float* x, size_t n, float softcap) {
  const size_t lanes = hn::Lanes(DF());
  const VF cap = hn::Set(DF(), softcap), inverse = hn::Set(DF(), 1.0f / softcap);
  const auto capped = [&](VF v) HWY_ATTR { return hn::Mul(cap, Tanh(hn::Mul(v, inverse))); };
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) Store(capped(Load(x + i)), x + i);
  if (i < n) StoreFirst(capped(LoadFirst(x + i, n - i)), x + i, n - i);
}

// Returns what ExpOfRow returns, and leaves x as it is.
double SumOfExp(const float* x, size_t n, float largest) {
  HWY_ALIGN float run[kRun];
  double sum = 0;
  for (size_t start = 0; start < n; start += kRun) {
    const size_t count = std::min(n - start, kRun);
    std::copy_n(x + start, count, run);
    sum += ExpOfRow(run, count, largest);
  }
  return sum;
}

// The gradient from l, with a softcap: exp(l - largest) * scale * (1 - (l / softcap)^2).
template <typename T>
void CappedGradientRow(const float* x, size_t n, float largest, float softcap, float scale,
                       T* out) {
  const size_t lanes = hn::Lanes(DF());
  const VF shift = hn::Set(DF(), largest), inverse = hn::Set(DF(), 1.0f / softcap);
  const VF factor = hn::Set(DF(), scale), one = hn::Set(DF(), 1.0f);
  const auto gradient = [&](VF l) HWY_ATTR {
    const VF t = hn::Mul(l, inverse);
    const VF p = hn::Mul(ExpNegative(hn::Sub(l, shift)), factor);
    return hn::Mul(p, hn::NegMulAdd(t, t, one));
  };
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) Store(gradient(Load(x + i)), out + i);
  if (i < n) StoreFirst(gradient(LoadFirst(x + i, n - i)), out + i, n - i);
}

template <typename T>
void GradientRow(const CrossEntropyArgs& args, float* row, float largest, float scale, T* out) {
  const size_t n = static_cast<size_t>(args.vocabulary);
  if (args.softcap > 0) {
    CappedGradientRow(row, n, largest, args.softcap, scale, out);
  } else {
    ScaleRow(row, n, scale, out);
  }
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
    const bool capped = args.softcap > 0;
    if (capped) CapRow(row, n, args.softcap);
    const float largest = MaxOfRow(row, n);
    const float label_logit = row[label];
    // The gradient with a softcap needs both l and exp(l).
    const double sum = capped ? SumOfExp(row, n, largest) : ExpOfRow(row, n, largest);
    args.losses[t] = static_cast<float>(std::log(sum) + largest - label_logit);
    if (args.loss_only) continue;
    const float factor = args.weights != nullptr ? args.scale * args.weights[t] : args.scale;
    double label_gradient = 0;
    if (capped) {
      const double t = label_logit / double{args.softcap};
      const double p = std::exp(double{label_logit} - largest) / sum;
      label_gradient = (p - 1.0) * factor * (1.0 - t * t);
    } else {
      label_gradient = (row[label] / sum - 1.0) * factor;
    }
    const float scale = static_cast<float>(factor / sum);
    if (args.dtype == DType::kF32) {
      GradientRow(args, row, largest, scale, row);
      row[label] = static_cast<float>(label_gradient);
    } else {
      bf16_t* out = reinterpret_cast<bf16_t*>(row);
      GradientRow(args, row, largest, scale, out);
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
