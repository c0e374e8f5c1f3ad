#include "engine/device/reference_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/device/reference_values.h"
#include "engine/optim/kernel/adamw_kernel.h"

namespace megatrain {

using reference::Get;
using reference::Set;

absl::Status ReferenceKernels::MatMul(Stream&, const MatMulArgs& args) {
  for (int64_t i = 0; i < args.m; ++i) {
    for (int64_t j = 0; j < args.n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < args.k; ++l) {
        const int64_t a = args.transpose_a ? l * args.a_stride + i : i * args.a_stride + l;
        const int64_t b = args.transpose_b ? j * args.b_stride + l : l * args.b_stride + j;
        sum += Get(args.dtype, args.a, a) * Get(args.dtype, args.b, b);
      }
      sum *= args.alpha;
      if (args.bias) sum += Get(args.dtype, args.bias, j);
      if (args.addend) sum += Get(args.out_dtype, args.addend, i * args.out_stride + j);
      Set(args.out_dtype, args.out, i * args.out_stride + j, sum);
    }
  }
  return absl::OkStatus();
}

// Written from the papers' formulas with logarithms of probabilities, not with preference_term.h.
absl::Status ReferenceKernels::PreferenceLoss(Stream&, const PreferenceLossArgs& args) {
  const double beta = args.objective.beta, s = args.objective.label_smoothing;
  for (int64_t pair = 0; pair < args.pairs; ++pair) {
    const int32_t* const bounds = args.bounds + 4 * pair;
    double logp[2] = {0, 0}, tokens[2] = {0, 0}, ratio[2] = {0, 0};
    for (int side = 0; side < 2; ++side) {
      for (int32_t t = bounds[2 * side]; t < bounds[2 * side + 1]; ++t) {
        if (args.labels[t] < 0) continue;
        logp[side] -= args.losses[t];
        tokens[side] += 1;
      }
      ratio[side] = logp[side] - args.reference[2 * pair + side];
    }
    const double z = beta * (ratio[0] - ratio[1]);
    const double preferred = 1 / (1 + std::exp(-z)), other = 1 / (1 + std::exp(z));
    double loss = 0, by_z = 0;
    switch (args.objective.loss) {
      case PreferenceLossKind::kSigmoid:
        loss = -(1 - s) * std::log(preferred) - s * std::log(other);
        by_z = beta * (s - other);
        break;
      case PreferenceLossKind::kRobust:
        loss = (-(1 - s) * std::log(preferred) + s * std::log(other)) / (1 - 2 * s);
        by_z = beta * (-(1 - s) * other - s * preferred) / (1 - 2 * s);
        break;
      case PreferenceLossKind::kHinge:
        loss = std::max(0.0, 1 - z);
        by_z = z < 1 ? -beta : 0;
        break;
      case PreferenceLossKind::kIpo:
        by_z = 2 * (ratio[0] / tokens[0] - ratio[1] / tokens[1] - 1 / (2 * beta));
        loss = by_z * by_z / 4;
        break;
    }
    args.results[pair] = {logp[0], logp[1], loss};
    for (int side = 0; args.weights != nullptr && side < 2; ++side) {
      double weight = side == 0 ? -by_z : by_z;  // of a loss, which is minus a log-probability
      if (args.objective.loss == PreferenceLossKind::kIpo) weight /= tokens[side];
      for (int32_t t = bounds[2 * side]; t < bounds[2 * side + 1]; ++t) {
        args.weights[t] = static_cast<float>(weight * args.scale);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::BiasBackward(Stream&, DType dtype, int64_t rows, int64_t n,
                                            const void* dy, int64_t stride, float* dbias,
                                            bool add) {
  for (int64_t i = 0; i < n; ++i) {
    double sum = add ? dbias[i] : 0.0;
    for (int64_t row = 0; row < rows; ++row) sum += Get(dtype, dy, row * stride + i);
    dbias[i] = static_cast<float>(sum);
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::SumOfSquares(Stream&, const float* x, int64_t n, double* sum) {
  *sum = 0;
  for (int64_t i = 0; i < n; ++i) *sum += static_cast<double>(x[i]) * x[i];
  return absl::OkStatus();
}

absl::Status ReferenceKernels::Sum(Stream&, const float* x, int64_t n, double* sum) {
  *sum = 0;
  for (int64_t i = 0; i < n; ++i) *sum += x[i];
  return absl::OkStatus();
}

absl::Status ReferenceKernels::CastToBf16InPlace(Stream&, void* x, int64_t n) {
  char* bytes = static_cast<char*>(x);
  for (int64_t i = 0; i < n; ++i) {
    float value = 0;
    std::memcpy(&value, bytes + 4 * i, 4);
    const bf16_t rounded = FloatToBf16(value);
    std::memcpy(bytes + 2 * i, &rounded, 2);
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::Zero(Stream&, void* x, int64_t bytes) {
  std::memset(x, 0, static_cast<size_t>(bytes));
  return absl::OkStatus();
}

absl::Status ReferenceKernels::Scale(Stream&, DType dtype, void* x, int64_t n, const void* factor) {
  for (int64_t i = 0; i < n; ++i) Set(dtype, x, i, Get(dtype, x, i) * Get(dtype, factor, 0));
  return absl::OkStatus();
}

absl::Status ReferenceKernels::AdamW(Stream&, const AdamWArgs& args) {
  const float decay = args.decays ? args.constants.decay : 1.0f;
  if (!AdamWUpdateSpanReference(args.constants, decay, args.gradient_dtype, args.span)) {
    *args.untrusted = 1;
  }
  return absl::OkStatus();
}

}  // namespace megatrain
