// Attention of the reference: one query at a time, over all the keys that it sees.
#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/device/reference_kernels.h"
#include "engine/device/reference_values.h"

namespace megatrain {
namespace {

using reference::Get;
using reference::Set;

// Returns the first key that token t sees, if `start` begins its document.
int64_t FirstKey(const AttentionShaping& shaping, int64_t start, int64_t t) {
  return shaping.window > 0 ? std::max(start, t - shaping.window + 1) : start;
}

// Returns [tokens], the first key that each token sees.
std::vector<int64_t> FirstKeys(const AttentionArgs& args) {
  std::vector<int64_t> first(static_cast<size_t>(args.tokens));
  for (int64_t d = 0; d < args.documents; ++d) {
    for (int64_t t = args.document_starts[d]; t < args.document_starts[d + 1]; ++t) {
      first[static_cast<size_t>(t)] = FirstKey(args.shaping, args.document_starts[d], t);
    }
  }
  return first;
}

// Returns a score of q.k and its derivative by scale * q.k.
struct Score {
  double value, slope;
};
Score ShapedScore(const AttentionShaping& shaping, double scaled) {
  if (shaping.softcap <= 0) return {scaled, 1};
  const double t = std::tanh(scaled / shaping.softcap);
  return {shaping.softcap * t, 1 - t * t};
}

// The softmax of a query's scores, its head's sink included.
struct Softmax {
  std::vector<double> p;  // of the keys
  double lse = 0;
  double p_sink = 0;
};
Softmax SoftmaxOf(const AttentionShaping& shaping, DType dtype, int64_t head,
                  const std::vector<Score>& scores) {
  const double sink =
      shaping.sinks != nullptr ? Get(dtype, shaping.sinks, head) : -static_cast<double>(INFINITY);
  double largest = sink;
  for (const Score& score : scores) largest = std::max(largest, score.value);
  double sum = std::exp(sink - largest);
  for (const Score& score : scores) sum += std::exp(score.value - largest);
  Softmax softmax;
  softmax.lse = largest + std::log(sum);
  for (const Score& score : scores) softmax.p.push_back(std::exp(score.value - softmax.lse));
  softmax.p_sink = std::exp(sink - softmax.lse);
  return softmax;
}

// Returns the scores of token t over the tokens [first, t].
std::vector<Score> Scores(const AttentionArgs& args, int64_t t, int64_t head, int64_t first) {
  const int64_t kv_head = head / (args.heads / args.kv_heads);
  std::vector<Score> scores;
  for (int64_t s = first; s <= t; ++s) {
    double dot = 0;
    for (int64_t i = 0; i < args.head_dim; ++i) {
      dot += Get(args.dtype, args.q, t * args.q_stride + head * args.head_dim + i) *
             Get(args.dtype, args.k, s * args.k_stride + kv_head * args.head_dim + i);
    }
    scores.push_back(ShapedScore(args.shaping, dot * args.scale));
  }
  return scores;
}

}  // namespace

absl::Status ReferenceKernels::Attention(Stream&, const AttentionArgs& args) {
  const std::vector<int64_t> first_keys = FirstKeys(args);
  const int64_t group = args.heads / args.kv_heads;
  for (int64_t h = 0; h < args.heads; ++h) {
    for (int64_t t = 0; t < args.tokens; ++t) {
      const int64_t first = first_keys[static_cast<size_t>(t)];
      const Softmax softmax = SoftmaxOf(args.shaping, args.dtype, h, Scores(args, t, h, first));
      args.lse[h * args.tokens + t] = static_cast<float>(softmax.lse);
      for (int64_t i = 0; i < args.value_dim; ++i) {
        double sum = 0;
        for (int64_t s = first; s <= t; ++s) {
          sum += softmax.p[static_cast<size_t>(s - first)] *
                 Get(args.dtype, args.v, s * args.v_stride + h / group * args.value_dim + i);
        }
        Set(args.dtype, args.out, (t * args.heads + h) * args.value_dim + i, sum);
      }
    }
  }
  return absl::OkStatus();
}

// dV = P^T dO, dP = dO V^T, delta = rowsum(dO * O), dS = P * (dP - delta) * slope, dQ = scale dS K,
// dK = scale dS^T Q; the sink's score has a dP of 0: dsink = -sum of p_sink * delta.
absl::Status ReferenceKernels::AttentionBackward(Stream&, const AttentionBackwardArgs& args) {
  const AttentionArgs& forward = args.forward;
  const DType dtype = forward.dtype;
  const int64_t dim = forward.head_dim, value_dim = forward.value_dim;
  const int64_t group = forward.heads / forward.kv_heads;
  const std::vector<int64_t> first_keys = FirstKeys(forward);
  const int64_t kv_rows = forward.tokens * forward.kv_heads;
  std::vector<double> dk(static_cast<size_t>(kv_rows * dim), 0.0);
  std::vector<double> dv(static_cast<size_t>(kv_rows * value_dim), 0.0);
  for (int64_t h = 0; h < forward.heads; ++h) {
    const int64_t kv = h / group;
    double dsink = 0;
    for (int64_t t = 0; t < forward.tokens; ++t) {
      const int64_t first = first_keys[static_cast<size_t>(t)];
      const int64_t out = (t * forward.heads + h) * value_dim;
      const int64_t q = t * forward.q_stride + h * dim;
      const std::vector<Score> scores = Scores(forward, t, h, first);
      const Softmax softmax = SoftmaxOf(forward.shaping, dtype, h, scores);
      double delta = 0;
      for (int64_t i = 0; i < value_dim; ++i) {
        delta += Get(dtype, args.dout, out + i) * Get(dtype, forward.out, out + i);
      }
      dsink -= softmax.p_sink * delta;
      std::vector<double> dq(static_cast<size_t>(dim), 0.0);
      for (int64_t s = first; s <= t; ++s) {
        const double probability = softmax.p[static_cast<size_t>(s - first)];
        const int64_t row = s * forward.kv_heads + kv;
        double dp = 0;
        for (int64_t i = 0; i < value_dim; ++i) {
          const double dout = Get(dtype, args.dout, out + i);
          dp += dout * Get(dtype, forward.v, s * forward.v_stride + kv * value_dim + i);
          dv[static_cast<size_t>(row * value_dim + i)] += probability * dout;
        }
        const double ds = probability * (dp - delta) *
                          scores[static_cast<size_t>(s - first)].slope * forward.scale;
        for (int64_t i = 0; i < dim; ++i) {
          dq[static_cast<size_t>(i)] +=
              ds * Get(dtype, forward.k, s * forward.k_stride + kv * dim + i);
          dk[static_cast<size_t>(row * dim + i)] += ds * Get(dtype, forward.q, q + i);
        }
      }
      for (int64_t i = 0; i < dim; ++i) {
        Set(dtype, args.dq, t * args.dq_stride + h * dim + i, dq[static_cast<size_t>(i)]);
      }
    }
    if (args.dsinks != nullptr) {
      args.dsinks[h] = static_cast<float>((args.add_dsinks ? args.dsinks[h] : 0.0) + dsink);
    }
  }
  for (int64_t s = 0; s < forward.tokens; ++s) {
    for (int64_t width = forward.kv_heads * dim, i = 0; i < width; ++i) {
      Set(dtype, args.dk, s * args.dk_stride + i, dk[static_cast<size_t>(s * width + i)]);
    }
    for (int64_t width = forward.kv_heads * value_dim, i = 0; i < width; ++i) {
      Set(dtype, args.dv, s * args.dv_stride + i, dv[static_cast<size_t>(s * width + i)]);
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::StoreInCache(Stream&, const CachedAttentionArgs& args) {
  const int64_t keys = args.kv_heads * args.head_dim;
  for (int64_t t = 0; t < args.tokens; ++t) {
    if (args.first_rows[t] < 0) continue;
    const int64_t row = (args.first_rows[t] + args.positions[t]) * args.cache_row();
    for (int64_t i = 0; i < args.cache_row(); ++i) {
      Set(args.dtype, args.cache, row + i,
          i < keys ? Get(args.dtype, args.k, t * args.k_stride + i)
                   : Get(args.dtype, args.v, t * args.v_stride + i - keys));
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::CachedAttention(Stream&, const CachedAttentionArgs& args) {
  const int64_t dim = args.head_dim, value_dim = args.value_dim;
  const auto cached = [&](int64_t row, int64_t at) {
    return Get(args.dtype, args.cache, row * args.cache_row() + at);
  };
  for (int64_t t = 0; t < args.tokens; ++t) {
    const bool there = args.first_rows[t] >= 0;
    const int64_t first =
        args.first_rows[t] + FirstKey(args.shaping, /*start=*/0, args.positions[t]);
    const int64_t last = args.first_rows[t] + args.positions[t];
    for (int64_t h = 0; h < args.heads; ++h) {
      const int64_t kv_head = h / (args.heads / args.kv_heads);
      const int64_t value_at = args.kv_heads * dim + kv_head * value_dim;
      std::vector<Score> scores;
      for (int64_t row = first; there && row <= last; ++row) {
        double dot = 0;
        for (int64_t i = 0; i < dim; ++i) {
          dot += Get(args.dtype, args.q, t * args.q_stride + h * dim + i) *
                 cached(row, kv_head * dim + i);
        }
        scores.push_back(ShapedScore(args.shaping, dot * args.scale));
      }
      const Softmax softmax = SoftmaxOf(args.shaping, args.dtype, h, scores);
      for (int64_t i = 0; i < value_dim; ++i) {
        double value = 0;
        for (size_t s = 0; s < scores.size(); ++s) {
          value += softmax.p[s] * cached(first + static_cast<int64_t>(s), value_at + i);
        }
        Set(args.dtype, args.out, (t * args.heads + h) * value_dim + i, value);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace megatrain
