// The reference's gated delta net: the recurrence as it is written, one token after another.
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "engine/device/reference_kernels.h"
#include "engine/device/reference_values.h"

namespace megatrain {
namespace {

using reference::Get;
using reference::Set;
using Doubles = std::vector<double>;

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
// log(1 + exp(x)), which does not overflow.
double Softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }
double Silu(double x) { return x * Sigmoid(x); }
double SiluSlope(double x) { return Sigmoid(x) * (1.0 + x * (1.0 - Sigmoid(x))); }

double Dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Returns the row of a document's state, negative: none.
int64_t StateRow(const DeltaDocuments& documents, int64_t first) {
  return documents.state_rows != nullptr ? documents.state_rows[first] : -1;
}

void ForEachDocument(const DeltaDocuments& documents,
                     const std::function<void(int64_t begin, int64_t end)>& call) {
  for (int64_t d = 0; d < documents.documents; ++d) {
    call(documents.starts[d], documents.starts[d + 1]);
  }
}

// A channel's inputs of a document, after the kernel - 1 ones before it.
Doubles ConvInputs(const CausalConvArgs& args, int64_t begin, int64_t end, int64_t channel) {
  const int64_t before = args.kernel - 1, row = StateRow(args.documents, begin);
  Doubles inputs(static_cast<size_t>(before), 0.0);
  for (int64_t j = 0; args.initial_states != nullptr && row >= 0 && j < before; ++j) {
    inputs[static_cast<size_t>(j)] =
        Get(args.dtype, args.initial_states, (row * before + j) * args.channels + channel);
  }
  for (int64_t t = begin; t < end; ++t) {
    inputs.push_back(Get(args.dtype, args.x, t * args.x_stride + channel));
  }
  return inputs;
}

// Returns what SiLU is applied to at token begin + i.
double Convolved(const CausalConvArgs& args, const Doubles& inputs, int64_t i, int64_t channel) {
  double sum = 0;
  for (int64_t j = 0; j < args.kernel; ++j) {
    sum += Get(args.dtype, args.weight, channel * args.kernel + j) *
           inputs[static_cast<size_t>(i + j)];
  }
  return sum;
}

// A vector of a head after its normalisation: x * scale / sqrt(sum x^2 + 1e-6).
struct Unit {
  Unit(DType dtype, const void* from, int64_t at, int64_t n, double scale) : scale(scale) {
    for (int64_t i = 0; i < n; ++i) x.push_back(Get(dtype, from, at + i));
    inverse = 1.0 / std::sqrt(Dot(x, x) + 1e-6);
    for (double& value : x) value *= inverse * scale;
  }
  // Returns the gradient by the input from that by the result.
  Doubles Gradient(const Doubles& dx) const {
    const double along = Dot(x, dx) / scale;  // of the vector of length 1
    Doubles gradient;
    for (size_t i = 0; i < x.size(); ++i) {
      gradient.push_back(inverse * scale * (dx[i] - x[i] / scale * along));
    }
    return gradient;
  }

  Doubles x;
  double inverse = 0, scale = 1;
};

// A value head's recurrence over a document.
class Recurrence {
 public:
  Recurrence(const GatedDeltaArgs& args, int64_t head)
      : args_(args),
        head_(head),
        key_head_(head / (args.value_heads / args.key_heads)),
        state_(static_cast<size_t>(args.key_dim * args.value_dim), 0.0) {}

  struct Token {
    Unit q, k;
    Doubles v, error;  // error = v - S^T k, so that u = beta * error
    double log_decay, softplus_input, beta;
    Doubles decayed, state;  // S after its decay, and after the token
  };

  Doubles& state() { return state_; }
  double& At(Doubles& state, int64_t i, int64_t j) const {
    return state[static_cast<size_t>(i * args_.value_dim + j)];
  }
  double At(const Doubles& state, int64_t i, int64_t j) const {
    return state[static_cast<size_t>(i * args_.value_dim + j)];
  }

  Token Step(int64_t t) {
    const int64_t key = key_head_ * args_.key_dim, value = head_ * args_.value_dim;
    Token token{Unit(args_.dtype, args_.q, t * args_.q_stride + key, args_.key_dim,
                     1.0 / std::sqrt(static_cast<double>(args_.key_dim))),
                Unit(args_.dtype, args_.k, t * args_.k_stride + key, args_.key_dim, 1.0),
                {},
                {},
                0,
                0,
                0,
                {},
                {}};
    token.softplus_input = Get(args_.dtype, args_.a, t * args_.a_stride + head_) +
                           Get(args_.dtype, args_.dt_bias, head_);
    token.log_decay =
        -std::exp(Get(args_.dtype, args_.a_log, head_)) * Softplus(token.softplus_input);
    token.beta = Sigmoid(Get(args_.dtype, args_.b, t * args_.b_stride + head_));
    for (double& s : state_) s *= std::exp(token.log_decay);
    token.decayed = state_;
    for (int64_t j = 0; j < args_.value_dim; ++j) {
      double known = 0;
      for (int64_t i = 0; i < args_.key_dim; ++i) {
        known += At(state_, i, j) * token.k.x[static_cast<size_t>(i)];
      }
      token.v.push_back(Get(args_.dtype, args_.v, t * args_.v_stride + value + j));
      token.error.push_back(token.v.back() - known);
      for (int64_t i = 0; i < args_.key_dim; ++i) {
        At(state_, i, j) += token.k.x[static_cast<size_t>(i)] * token.beta * token.error.back();
      }
    }
    token.state = state_;
    return token;
  }

  // Returns state^T x or, if `by_value`, state x.
  Doubles Times(const Doubles& state, const Doubles& x, bool by_value) const {
    Doubles sums(static_cast<size_t>(by_value ? args_.key_dim : args_.value_dim), 0.0);
    for (int64_t i = 0; i < args_.key_dim; ++i) {
      for (int64_t j = 0; j < args_.value_dim; ++j) {
        sums[static_cast<size_t>(by_value ? i : j)] +=
            At(state, i, j) * x[static_cast<size_t>(by_value ? j : i)];
      }
    }
    return sums;
  }
  // state += factor * x y^T
  void AddOuter(double factor, const Doubles& x, const Doubles& y, Doubles& state) const {
    for (int64_t i = 0; i < args_.key_dim; ++i) {
      for (int64_t j = 0; j < args_.value_dim; ++j) {
        At(state, i, j) += factor * x[static_cast<size_t>(i)] * y[static_cast<size_t>(j)];
      }
    }
  }

 private:
  const GatedDeltaArgs& args_;
  const int64_t head_, key_head_;
  Doubles state_;
};

void SetAll(DType dtype, const Doubles& from, void* to, int64_t at) {
  for (size_t i = 0; i < from.size(); ++i) {
    Set(dtype, to, at + static_cast<int64_t>(i), from[i]);
  }
}

// The gradients by a key head's q and k of one token, sums over its value heads.
struct KeyGradients {
  void Add(bool first, const Doubles& q, const Doubles& k) {
    if (first) {
      dq.assign(q.size(), 0.0);
      dk.assign(k.size(), 0.0);
    }
    for (size_t i = 0; i < q.size(); ++i) dq[i] += q[i];
    for (size_t i = 0; i < k.size(); ++i) dk[i] += k[i];
  }

  Doubles dq, dk;
};

// One head of one token of a gated norm.
struct GatedNormRow {
  GatedNormRow(const GatedNormArgs& args, int64_t t, int64_t head)
      : at((t * args.heads + head) * args.head_dim),
        gate_at(t * args.gate_stride + head * args.head_dim) {
    for (int64_t i = 0; i < args.head_dim; ++i) {
      x.push_back(Get(args.dtype, args.x, at + i));
      weight.push_back(Get(args.dtype, args.weight, i));
      gate.push_back(Get(args.dtype, args.gate, gate_at + i));
    }
    rstd = 1.0 / std::sqrt(Dot(x, x) / static_cast<double>(args.head_dim) + args.epsilon);
  }
  double Out(size_t i) const { return x[i] * rstd * weight[i] * Silu(gate[i]); }

  const int64_t at, gate_at;
  Doubles x, weight, gate;
  double rstd = 0;
};

}  // namespace

absl::Status ReferenceKernels::CausalConv(Stream&, const CausalConvArgs& args) {
  const int64_t before = args.kernel - 1;
  ForEachDocument(args.documents, [&](int64_t begin, int64_t end) {
    const int64_t row = StateRow(args.documents, begin);
    for (int64_t c = 0; c < args.channels; ++c) {
      const Doubles inputs = ConvInputs(args, begin, end, c);
      for (int64_t t = begin; t < end; ++t) {
        Set(args.dtype, args.y, t * args.y_stride + c, Silu(Convolved(args, inputs, t - begin, c)));
      }
      for (int64_t j = 0; args.final_states != nullptr && row >= 0 && j < before; ++j) {
        Set(args.dtype, args.final_states, (row * before + j) * args.channels + c,
            inputs[static_cast<size_t>(end - begin + j)]);
      }
    }
  });
  return absl::OkStatus();
}

// With p = the convolution and dp = dy * silu'(p): dx[t] = sum_j weight[j] * dp[t + kernel - 1 -
// j], dweight[j] = sum_t dp[t] * x[t - (kernel - 1) + j].
absl::Status ReferenceKernels::CausalConvBackward(Stream&, const CausalConvBackwardArgs& args) {
  CausalConvArgs forward = args.forward;
  forward.initial_states = nullptr;
  const DType dtype = forward.dtype;
  const int64_t kernel = forward.kernel;
  Doubles dweight(static_cast<size_t>(forward.channels * kernel), 0.0);
  ForEachDocument(forward.documents, [&](int64_t begin, int64_t end) {
    for (int64_t c = 0; c < forward.channels; ++c) {
      const Doubles inputs = ConvInputs(forward, begin, end, c);
      Doubles dinputs(inputs.size(), 0.0);
      for (int64_t i = 0; i < end - begin; ++i) {
        const double dp = Get(dtype, args.dy, (begin + i) * args.dy_stride + c) *
                          SiluSlope(Convolved(forward, inputs, i, c));
        for (int64_t j = 0; j < kernel; ++j) {
          dinputs[static_cast<size_t>(i + j)] += dp * Get(dtype, forward.weight, c * kernel + j);
          dweight[static_cast<size_t>(c * kernel + j)] += dp * inputs[static_cast<size_t>(i + j)];
        }
      }
      for (int64_t t = begin; t < end; ++t) {
        Set(dtype, args.dx, t * args.dx_stride + c,
            dinputs[static_cast<size_t>(t - begin + kernel - 1)]);
      }
    }
  });
  for (size_t i = 0; args.dweight != nullptr && i < dweight.size(); ++i) {
    args.dweight[i] = static_cast<float>((args.add_dweight ? args.dweight[i] : 0.0) + dweight[i]);
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::GatedDelta(Stream&, const GatedDeltaArgs& args) {
  const int64_t elements = args.key_dim * args.value_dim;
  ForEachDocument(args.documents, [&](int64_t begin, int64_t end) {
    const int64_t row = StateRow(args.documents, begin);
    for (int64_t h = 0; h < args.value_heads; ++h) {
      const int64_t at = (row * args.value_heads + h) * elements;
      Recurrence recurrence(args, h);
      for (int64_t i = 0; args.initial_states != nullptr && row >= 0 && i < elements; ++i) {
        recurrence.state()[static_cast<size_t>(i)] = args.initial_states[at + i];
      }
      for (int64_t t = begin; t < end; ++t) {
        const Recurrence::Token token = recurrence.Step(t);
        const Doubles out = recurrence.Times(token.state, token.q.x, /*by_value=*/false);
        SetAll(args.dtype, out, args.out, (t * args.value_heads + h) * args.value_dim);
      }
      for (int64_t i = 0; args.final_states != nullptr && row >= 0 && i < elements; ++i) {
        args.final_states[at + i] = static_cast<float>(recurrence.state()[static_cast<size_t>(i)]);
      }
    }
  });
  return absl::OkStatus();
}

// The recurrence backwards. With S the state after a token, S~ the decayed one before it and dS the
// gradient by S: dS += q dout^T, dq = S dout, du = dS^T k, dk = dS u - beta S~ du, dv = beta du,
// dbeta = du . (v - S~^T k), dS~ = dS - beta k du^T, dlog_decay = dS~ . S~, dS before = decay dS~.
absl::Status ReferenceKernels::GatedDeltaBackward(Stream&, const GatedDeltaBackwardArgs& args) {
  GatedDeltaArgs forward = args.forward;
  forward.initial_states = nullptr;
  const DType dtype = forward.dtype;
  const int64_t group = forward.value_heads / forward.key_heads;
  const int64_t key_dim = forward.key_dim, value_dim = forward.value_dim;
  const size_t heads = static_cast<size_t>(forward.value_heads);
  Doubles da_log(heads, 0.0), ddt_bias(heads, 0.0);
  std::vector<KeyGradients> key_gradients(static_cast<size_t>(forward.documents.tokens));
  ForEachDocument(forward.documents, [&](int64_t begin, int64_t end) {
    for (int64_t h = 0; h < forward.value_heads; ++h) {
      Recurrence recurrence(forward, h);
      std::vector<Recurrence::Token> tokens;
      for (int64_t t = begin; t < end; ++t) tokens.push_back(recurrence.Step(t));
      Doubles dstate(static_cast<size_t>(key_dim * value_dim), 0.0);
      for (int64_t t = end - 1; t >= begin; --t) {
        const Recurrence::Token& token = tokens[static_cast<size_t>(t - begin)];
        const double beta = token.beta;
        Doubles dout, dv;
        for (int64_t j = 0; j < value_dim; ++j) {
          dout.push_back(Get(dtype, args.dout, (t * forward.value_heads + h) * value_dim + j));
        }
        const Doubles dq = recurrence.Times(token.state, dout, /*by_value=*/true);
        recurrence.AddOuter(1, token.q.x, dout, dstate);
        const Doubles du = recurrence.Times(dstate, token.k.x, /*by_value=*/false);
        Doubles dk = recurrence.Times(dstate, token.error, /*by_value=*/true);
        const Doubles read = recurrence.Times(token.decayed, du, /*by_value=*/true);
        for (size_t i = 0; i < dk.size(); ++i) dk[i] = beta * (dk[i] - read[i]);
        for (const double x : du) dv.push_back(beta * x);
        recurrence.AddOuter(-beta, token.k.x, du, dstate);

        const double by_decay = Dot(dstate, token.decayed);
        for (double& x : dstate) x *= std::exp(token.log_decay);
        const double by_a =
            by_decay * -std::exp(Get(dtype, forward.a_log, h)) * Sigmoid(token.softplus_input);
        const double by_b = Dot(du, token.error) * beta * (1 - beta);
        da_log[static_cast<size_t>(h)] += by_decay * token.log_decay;
        ddt_bias[static_cast<size_t>(h)] += by_a;
        Set(dtype, args.da, t * args.da_stride + h, by_a);
        Set(dtype, args.db, t * args.db_stride + h, by_b);
        SetAll(dtype, dv, args.dv, t * args.dv_stride + h * value_dim);
        KeyGradients& sums = key_gradients[static_cast<size_t>(t)];
        sums.Add(h % group == 0, token.q.Gradient(dq), token.k.Gradient(dk));
        if (h % group == group - 1) {
          SetAll(dtype, sums.dq, args.dq, t * args.dq_stride + h / group * key_dim);
          SetAll(dtype, sums.dk, args.dk, t * args.dk_stride + h / group * key_dim);
        }
      }
    }
  });
  for (size_t h = 0; h < heads; ++h) {
    const bool add = args.add_parameters;
    if (args.da_log != nullptr) {
      args.da_log[h] = static_cast<float>((add ? args.da_log[h] : 0.0) + da_log[h]);
    }
    if (args.ddt_bias != nullptr) {
      args.ddt_bias[h] = static_cast<float>((add ? args.ddt_bias[h] : 0.0) + ddt_bias[h]);
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::GatedNorm(Stream&, const GatedNormArgs& args) {
  for (int64_t t = 0; t < args.tokens; ++t) {
    for (int64_t h = 0; h < args.heads; ++h) {
      const GatedNormRow row(args, t, h);
      for (size_t i = 0; i < row.x.size(); ++i) {
        Set(args.dtype, args.out, row.at + static_cast<int64_t>(i), row.Out(i));
      }
    }
  }
  return absl::OkStatus();
}

// With n = x * rstd, s = silu(gate) and g = dout * weight * s: dx = rstd * (g - n * mean(g * n)),
// dgate = dout * n * weight * silu'(gate), dweight = sum(dout * n * s).
absl::Status ReferenceKernels::GatedNormBackward(Stream&, const GatedNormBackwardArgs& args) {
  const GatedNormArgs& forward = args.forward;
  const DType dtype = forward.dtype;
  Doubles dweight(static_cast<size_t>(forward.head_dim), 0.0);
  for (int64_t t = 0; t < forward.tokens; ++t) {
    for (int64_t h = 0; h < forward.heads; ++h) {
      const GatedNormRow row(forward, t, h);
      Doubles dout, by_norm;
      double mean = 0;
      for (size_t i = 0; i < row.x.size(); ++i) {
        dout.push_back(Get(dtype, args.dout, row.at + static_cast<int64_t>(i)));
        by_norm.push_back(dout[i] * row.weight[i] * Silu(row.gate[i]));
        mean += by_norm[i] * row.x[i] * row.rstd / static_cast<double>(forward.head_dim);
        dweight[i] += dout[i] * row.x[i] * row.rstd * Silu(row.gate[i]);
      }
      for (size_t i = 0; i < row.x.size(); ++i) {
        const double n = row.x[i] * row.rstd;
        const int64_t at = static_cast<int64_t>(i);
        Set(dtype, args.dout, row.at + at, row.Out(i));
        Set(dtype, args.dx, row.at + at, row.rstd * (by_norm[i] - n * mean));
        Set(dtype, args.dgate, t * args.dgate_stride + h * forward.head_dim + at,
            dout[i] * n * row.weight[i] * SiluSlope(row.gate[i]));
      }
    }
  }
  for (size_t i = 0; args.dweight != nullptr && i < dweight.size(); ++i) {
    args.dweight[i] = static_cast<float>((args.add_dweight ? args.dweight[i] : 0.0) + dweight[i]);
  }
  return absl::OkStatus();
}

}  // namespace megatrain
