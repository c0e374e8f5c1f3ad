#include "engine/device/reference_kernels.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/device/reference_values.h"
#include "engine/optim/kernel/adamw_kernel.h"

namespace megatrain {
namespace {

using reference::Get;
using reference::Set;

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

}  // namespace

absl::Status ReferenceKernels::MatMul(Stream&, const MatMulArgs& args) {
  for (int64_t i = 0; i < args.m; ++i) {
    for (int64_t j = 0; j < args.n; ++j) {
      double sum = args.bias ? Get(args.dtype, args.bias, j) : 0.0;
      if (args.addend) sum += Get(args.out_dtype, args.addend, i * args.out_stride + j);
      for (int64_t l = 0; l < args.k; ++l) {
        const int64_t a = args.transpose_a ? l * args.a_stride + i : i * args.a_stride + l;
        const int64_t b = args.transpose_b ? j * args.b_stride + l : l * args.b_stride + j;
        sum += Get(args.dtype, args.a, a) * Get(args.dtype, args.b, b);
      }
      Set(args.out_dtype, args.out, i * args.out_stride + j, sum);
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::RmsNorm(Stream&, const RmsNormArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t group = 0; group < args.groups; ++group) {
      const int64_t x = row * args.x_stride + group * args.width;
      const int64_t y = row * args.y_stride + group * args.width;
      double squares = 0;
      for (int64_t i = 0; i < args.width; ++i) {
        const double value = Get(args.dtype, args.x, x + i);
        squares += value * value;
      }
      const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(args.width) + args.epsilon);
      for (int64_t i = 0; i < args.width; ++i) {
        Set(args.dtype, args.y, y + i,
            Get(args.dtype, args.x, x + i) * rstd * Get(args.dtype, args.weight, i));
      }
      if (args.rstd) args.rstd[row * args.groups + group] = static_cast<float>(rstd);
    }
  }
  return absl::OkStatus();
}

// With n = x * rstd and g = dy * weight: dx = rstd * (g - n * mean(g * n)), dweight = sum(dy * n).
absl::Status ReferenceKernels::RmsNormBackward(Stream&, const RmsNormBackwardArgs& args) {
  std::vector<double> dweight(static_cast<size_t>(args.width), 0.0);
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t group = 0; group < args.groups; ++group) {
      const int64_t x = row * args.x_stride + group * args.width;
      const int64_t dy = row * args.dy_stride + group * args.width;
      const int64_t dx = row * args.dx_stride + group * args.width;
      const double rstd = args.rstd[row * args.groups + group];
      double mean = 0;
      for (int64_t i = 0; i < args.width; ++i) {
        const double n = Get(args.dtype, args.x, x + i) * rstd;
        const double out = Get(args.dtype, args.dy, dy + i);
        mean += out * Get(args.dtype, args.weight, i) * n;
        dweight[static_cast<size_t>(i)] += out * n;
      }
      mean /= static_cast<double>(args.width);
      for (int64_t i = 0; i < args.width; ++i) {
        const double n = Get(args.dtype, args.x, x + i) * rstd;
        const double g = Get(args.dtype, args.dy, dy + i) * Get(args.dtype, args.weight, i);
        const double before = args.accumulate ? Get(args.dtype, args.dx, dx + i) : 0.0;
        Set(args.dtype, args.dx, dx + i, before + rstd * (g - n * mean));
      }
    }
  }
  for (int64_t i = 0; args.dweight != nullptr && i < args.width; ++i) {
    const double before = args.add_dweight ? args.dweight[i] : 0.0;
    args.dweight[i] = static_cast<float>(before + dweight[static_cast<size_t>(i)]);
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::Rope(Stream&, const RopeArgs& args) {
  const int64_t half = args.head_dim / 2;
  for (int64_t t = 0; t < args.tokens; ++t) {
    for (int64_t h = 0; h < args.heads; ++h) {
      for (int64_t i = 0; i < half; ++i) {
        const int64_t first = t * args.stride + h * args.head_dim + i;
        const double c = args.cosine[args.positions[t] * half + i];
        const double s = args.sine[args.positions[t] * half + i] * (args.inverse ? -1.0 : 1.0);
        const double a = Get(args.dtype, args.x, first);
        const double b = Get(args.dtype, args.x, first + half);
        Set(args.dtype, args.x, first, a * c - b * s);
        Set(args.dtype, args.x, first + half, b * c + a * s);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::Glu(Stream&, const GluArgs& args) {
  for (int64_t t = 0; t < args.tokens; ++t) {
    for (int64_t i = 0; i < args.width; ++i) {
      const double gate = Get(args.dtype, args.gate_up, 2 * t * args.width + i);
      const double up = Get(args.dtype, args.gate_up, (2 * t + 1) * args.width + i);
      Set(args.dtype, args.out, t * args.width + i, gate * Sigmoid(gate) * up);
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::GluBackward(Stream&, const GluBackwardArgs& args) {
  for (int64_t t = 0; t < args.tokens; ++t) {
    for (int64_t i = 0; i < args.width; ++i) {
      const int64_t at = 2 * t * args.width + i;
      const double gate = Get(args.dtype, args.gate_up, at);
      const double up = Get(args.dtype, args.gate_up, at + args.width);
      const double dout = Get(args.dtype, args.dout, t * args.width + i);
      const double sigmoid = Sigmoid(gate);
      Set(args.dtype, args.dgate_up, at, dout * up * sigmoid * (1.0 + gate * (1.0 - sigmoid)));
      Set(args.dtype, args.dgate_up, at + args.width, dout * gate * sigmoid);
      Set(args.dtype, args.dout, t * args.width + i, gate * sigmoid * up);
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::Embedding(Stream&, const EmbeddingArgs& args) {
  for (int64_t t = 0; t < args.tokens; ++t) {
    assert(args.ids[t] >= 0 && args.ids[t] < args.vocabulary);
    for (int64_t i = 0; i < args.hidden; ++i) {
      Set(args.dtype, args.out, t * args.hidden + i,
          Get(args.dtype, args.table, args.ids[t] * args.hidden + i));
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::EmbeddingBackward(Stream&, const EmbeddingBackwardArgs& args) {
  for (int64_t i = 0; i < args.hidden; ++i) {
    std::vector<double> column(static_cast<size_t>(args.vocabulary), 0.0);
    for (int64_t t = 0; t < args.tokens; ++t) {
      assert(args.ids[t] >= 0 && args.ids[t] < args.vocabulary);
      column[static_cast<size_t>(args.ids[t])] += Get(args.dtype, args.dout, t * args.hidden + i);
    }
    for (int64_t id = 0; id < args.vocabulary; ++id) {
      float& sum = args.dtable[id * args.hidden + i];
      sum = static_cast<float>((args.add ? sum : 0.0) + column[static_cast<size_t>(id)]);
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::CrossEntropy(Stream&, const CrossEntropyArgs& args) {
  for (int64_t t = 0; t < args.tokens; ++t) {
    float* row = args.logits + t * args.logits_stride;
    const std::vector<float> logits(row, row + args.vocabulary);
    double largest = logits[0];
    for (float logit : logits) largest = std::max(largest, static_cast<double>(logit));
    double sum = 0;
    for (float logit : logits) sum += std::exp(logit - largest);
    const double lse = largest + std::log(sum);
    const int32_t label = args.labels[t];
    assert(label < args.vocabulary);
    args.losses[t] =
        label < 0 ? 0.0f : static_cast<float>(lse - logits[static_cast<size_t>(label)]);
    if (args.loss_only) continue;
    for (int64_t i = 0; i < args.vocabulary; ++i) {
      const double p = std::exp(logits[static_cast<size_t>(i)] - lse) - (i == label ? 1.0 : 0.0);
      const double scale = args.scale * (args.weights != nullptr ? double{args.weights[t]} : 1.0);
      Set(args.dtype, row, i, label < 0 ? 0.0 : p * scale);
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

absl::Status ReferenceKernels::AdamW(Stream&, const AdamWArgs& args) {
  const float decay = args.decays ? args.constants.decay : 1.0f;
  if (!AdamWUpdateSpanReference(args.constants, decay, args.gradient_dtype, args.span)) {
    *args.untrusted = 1;
  }
  return absl::OkStatus();
}

}  // namespace megatrain
