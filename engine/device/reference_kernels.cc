#include "engine/device/reference_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/device/reference_values.h"
#include "engine/optim/kernel/adamw_kernel.h"

namespace megatrain {
namespace {

using reference::Get;
using reference::Set;

// The document that each token belongs to starts at [tokens].
std::vector<int64_t> StartOfDocument(const AttentionArgs& args) {
  std::vector<int64_t> starts(static_cast<size_t>(args.tokens));
  for (int64_t d = 0; d < args.documents; ++d) {
    for (int64_t t = args.document_starts[d]; t < args.document_starts[d + 1]; ++t) {
      starts[static_cast<size_t>(t)] = args.document_starts[d];
    }
  }
  return starts;
}

// The probabilities of token t over the tokens [start, t], and the log-sum-exp of its scores.
std::vector<double> Probabilities(const AttentionArgs& args, int64_t t, int64_t head, int64_t start,
                                  double* lse) {
  const int64_t kv_head = head / (args.heads / args.kv_heads);
  std::vector<double> scores;
  for (int64_t s = start; s <= t; ++s) {
    double dot = 0;
    for (int64_t i = 0; i < args.head_dim; ++i) {
      dot += Get(args.dtype, args.q, t * args.q_stride + head * args.head_dim + i) *
             Get(args.dtype, args.k, s * args.k_stride + kv_head * args.head_dim + i);
    }
    scores.push_back(dot * args.scale);
  }
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double score : scores) sum += std::exp(score - largest);
  *lse = largest + std::log(sum);
  for (double& score : scores) score = std::exp(score - *lse);
  return scores;
}

}  // namespace

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

absl::Status ReferenceKernels::Attention(Stream&, const AttentionArgs& args) {
  const std::vector<int64_t> starts = StartOfDocument(args);
  const int64_t group = args.heads / args.kv_heads;
  for (int64_t h = 0; h < args.heads; ++h) {
    for (int64_t t = 0; t < args.tokens; ++t) {
      const int64_t start = starts[static_cast<size_t>(t)];
      double lse = 0;
      const std::vector<double> p = Probabilities(args, t, h, start, &lse);
      args.lse[h * args.tokens + t] = static_cast<float>(lse);
      for (int64_t i = 0; i < args.head_dim; ++i) {
        double sum = 0;
        for (int64_t s = start; s <= t; ++s) {
          sum += p[static_cast<size_t>(s - start)] *
                 Get(args.dtype, args.v, s * args.v_stride + h / group * args.head_dim + i);
        }
        Set(args.dtype, args.out, (t * args.heads + h) * args.head_dim + i, sum);
      }
    }
  }
  return absl::OkStatus();
}

// dV = P^T dO, dP = dO V^T, dS = P * (dP - rowsum(dO * O)), dQ = scale dS K, dK = scale dS^T Q.
absl::Status ReferenceKernels::AttentionBackward(Stream&, const AttentionBackwardArgs& args) {
  const AttentionArgs& forward = args.forward;
  const DType dtype = forward.dtype;
  const int64_t dim = forward.head_dim;
  const int64_t group = forward.heads / forward.kv_heads;
  const std::vector<int64_t> starts = StartOfDocument(forward);
  const size_t kv_size = static_cast<size_t>(forward.tokens * forward.kv_heads * dim);
  std::vector<double> dk(kv_size, 0.0), dv(kv_size, 0.0);
  for (int64_t h = 0; h < forward.heads; ++h) {
    const int64_t kv = h / group;
    for (int64_t t = 0; t < forward.tokens; ++t) {
      const int64_t start = starts[static_cast<size_t>(t)];
      const int64_t out = (t * forward.heads + h) * dim;
      const int64_t q = t * forward.q_stride + h * dim;
      double lse = 0;
      const std::vector<double> p = Probabilities(forward, t, h, start, &lse);
      double delta = 0;
      for (int64_t i = 0; i < dim; ++i) {
        delta += Get(dtype, args.dout, out + i) * Get(dtype, forward.out, out + i);
      }
      std::vector<double> dq(static_cast<size_t>(dim), 0.0);
      for (int64_t s = start; s <= t; ++s) {
        const double probability = p[static_cast<size_t>(s - start)];
        const int64_t sum = (s * forward.kv_heads + kv) * dim;
        double dp = 0;
        for (int64_t i = 0; i < dim; ++i) {
          const double dout = Get(dtype, args.dout, out + i);
          dp += dout * Get(dtype, forward.v, s * forward.v_stride + kv * dim + i);
          dv[static_cast<size_t>(sum + i)] += probability * dout;
        }
        const double ds = probability * (dp - delta) * forward.scale;
        for (int64_t i = 0; i < dim; ++i) {
          dq[static_cast<size_t>(i)] +=
              ds * Get(dtype, forward.k, s * forward.k_stride + kv * dim + i);
          dk[static_cast<size_t>(sum + i)] += ds * Get(dtype, forward.q, q + i);
        }
      }
      for (int64_t i = 0; i < dim; ++i) {
        Set(dtype, args.dq, t * args.dq_stride + h * dim + i, dq[static_cast<size_t>(i)]);
      }
    }
  }
  for (int64_t s = 0; s < forward.tokens; ++s) {
    for (int64_t i = 0; i < forward.kv_heads * dim; ++i) {
      const size_t sum = static_cast<size_t>(s * forward.kv_heads * dim + i);
      Set(dtype, args.dk, s * args.dk_stride + i, dk[sum]);
      Set(dtype, args.dv, s * args.dv_stride + i, dv[sum]);
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::StoreInCache(Stream&, const CachedAttentionArgs& args) {
  const int64_t width = args.kv_heads * args.head_dim;
  for (int64_t t = 0; t < args.tokens; ++t) {
    if (args.first_rows[t] < 0) continue;
    const int64_t row = args.first_rows[t] + args.positions[t];
    for (int64_t i = 0; i < width; ++i) {
      Set(args.dtype, args.cache, row * 2 * width + i,
          Get(args.dtype, args.k, t * args.k_stride + i));
      Set(args.dtype, args.cache, (row * 2 + 1) * width + i,
          Get(args.dtype, args.v, t * args.v_stride + i));
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::CachedAttention(Stream&, const CachedAttentionArgs& args) {
  const int64_t dim = args.head_dim, width = args.kv_heads * dim;
  const auto cached = [&](int64_t row, int64_t at) {
    return Get(args.dtype, args.cache, row * 2 * width + at);
  };
  for (int64_t t = 0; t < args.tokens; ++t) {
    for (int64_t h = 0; h < args.heads; ++h) {
      const int64_t kv = h / (args.heads / args.kv_heads) * dim, out = (t * args.heads + h) * dim;
      std::vector<double> scores;
      for (int64_t s = 0; args.first_rows[t] >= 0 && s <= args.positions[t]; ++s) {
        double dot = 0;
        for (int64_t i = 0; i < dim; ++i) {
          dot += Get(args.dtype, args.q, t * args.q_stride + h * dim + i) *
                 cached(args.first_rows[t] + s, kv + i);
        }
        scores.push_back(dot * args.scale);
      }
      double largest = -INFINITY, sum = 0;
      for (const double score : scores) largest = std::max(largest, score);
      for (double& score : scores) sum += score = std::exp(score - largest);
      for (int64_t i = 0; i < dim; ++i) {
        double value = 0;
        for (size_t s = 0; s < scores.size(); ++s) {
          value += scores[s] / sum *
                   cached(args.first_rows[t] + static_cast<int64_t>(s), width + kv + i);
        }
        Set(args.dtype, args.out, out + i, value);
      }
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
