// The reference's norms, rotations, gates, embeddings and losses.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <vector>

#include "engine/device/reference_kernels.h"
#include "engine/device/reference_values.h"

namespace megatrain {
namespace {

using reference::Get;
using reference::Set;

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// The factor of a norm's column i.
double NormWeight(DType dtype, const void* weight, bool one_plus_weight, int64_t i) {
  if (weight == nullptr) return 1.0;
  return Get(dtype, weight, i) + (one_plus_weight ? 1.0 : 0.0);
}

// A gated unit's output and its derivatives by gate and up.
struct GatedUnit {
  double out, by_gate, by_up;
};

GatedUnit UnitOf(GluActivation activation, double limit, double slope, double gate, double up) {
  switch (activation) {
    case GluActivation::kSilu: {
      const double s = Sigmoid(gate);
      return {gate * s * up, up * s * (1.0 + gate * (1.0 - s)), gate * s};
    }
    case GluActivation::kGeluTanh: {
      const double root = std::sqrt(2.0 / M_PI);
      const double t = std::tanh(root * (gate + 0.044715 * gate * gate * gate));
      const double inner = root * (1.0 + 3.0 * 0.044715 * gate * gate);
      const double gelu = 0.5 * gate * (1.0 + t);
      return {gelu * up, up * (0.5 * (1.0 + t) + 0.5 * gate * (1.0 - t * t) * inner), gelu};
    }
    case GluActivation::kClampedSilu: {
      const double g = std::min(gate, limit), u = std::clamp(up, -limit, limit) + 1.0;
      const double s = Sigmoid(slope * g);
      const double by_gate = u * s * (1.0 + slope * g * (1.0 - s));
      return {g * s * u, gate <= limit ? by_gate : 0.0, std::abs(up) <= limit ? g * s : 0.0};
    }
  }
  return {};
}

// Where a token's gate and up of one element of the output lie in gate_up.
struct GateUpPlaces {
  int64_t gate, up;
};

template <typename Args>
GateUpPlaces PlacesOf(const Args& args, int64_t t, int64_t i) {
  const int64_t first = 2 * t * args.width;
  if (args.interleaved) return {first + 2 * i, first + 2 * i + 1};
  return {first + i, first + args.width + i};
}

// The elements of a pair of RopeArgs: pair i of a head that begins at 0.
struct RotatedPair {
  int64_t first, second;
};

RotatedPair PairOf(const RopeArgs& args, int64_t i) {
  return args.interleaved ? RotatedPair{2 * i, 2 * i + 1} : RotatedPair{i, i + args.rotary_dim / 2};
}

}  // namespace

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
        const double addend = args.addend ? Get(args.dtype, args.addend, y + i) : 0.0;
        Set(args.dtype, args.y, y + i,
            addend + Get(args.dtype, args.x, x + i) * rstd *
                         NormWeight(args.dtype, args.weight, args.one_plus_weight, i));
      }
      if (args.rstd) args.rstd[row * args.groups + group] = static_cast<float>(rstd);
    }
  }
  return absl::OkStatus();
}

// With n = x * rstd and g = dy * weight: dx = rstd * (g - n * mean(g * n)), dweight = sum(dy * n).
absl::Status ReferenceKernels::RmsNormBackward(Stream&, const RmsNormBackwardArgs& args) {
  std::vector<double> dweight(static_cast<size_t>(args.width), 0.0);
  const auto weight = [&](int64_t i) {
    return NormWeight(args.dtype, args.weight, args.one_plus_weight, i);
  };
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
        mean += out * weight(i) * n;
        dweight[static_cast<size_t>(i)] += out * n;
      }
      mean /= static_cast<double>(args.width);
      for (int64_t i = 0; i < args.width; ++i) {
        const double n = Get(args.dtype, args.x, x + i) * rstd;
        const double g = Get(args.dtype, args.dy, dy + i) * weight(i);
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
  const int64_t half = args.rotary_dim / 2;
  for (int64_t t = 0; t < args.tokens; ++t) {
    for (int64_t h = 0; h < args.heads; ++h) {
      const int64_t head = t * args.stride + h * args.head_dim;
      for (int64_t i = 0; i < half; ++i) {
        const RotatedPair pair = PairOf(args, i);
        const double c = args.cosine[args.positions[t] * half + i];
        const double s = args.sine[args.positions[t] * half + i] * (args.inverse ? -1.0 : 1.0);
        const double a = Get(args.dtype, args.x, head + pair.first);
        const double b = Get(args.dtype, args.x, head + pair.second);
        Set(args.dtype, args.x, head + pair.first, a * c - b * s);
        Set(args.dtype, args.x, head + pair.second, b * c + a * s);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::CopyHeads(Stream&, const CopyHeadsArgs& args) {
  for (int64_t t = 0; t < args.tokens; ++t) {
    for (int64_t h = 0; h < args.heads; ++h) {
      for (int64_t i = 0; i < args.width; ++i) {
        Set(args.dtype, args.to, t * args.to_stride + h * args.to_head_stride + i,
            Get(args.dtype, args.from, t * args.from_stride + h * args.from_head_stride + i));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::SumHeads(Stream&, const SumHeadsArgs& args) {
  for (int64_t t = 0; t < args.tokens; ++t) {
    for (int64_t i = 0; i < args.width; ++i) {
      double sum = 0;
      for (int64_t h = 0; h < args.heads; ++h) {
        sum += Get(args.dtype, args.x, t * args.x_stride + h * args.x_head_stride + i);
      }
      Set(args.dtype, args.out, t * args.out_stride + i, sum);
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::Glu(Stream&, const GluArgs& args) {
  for (int64_t t = 0; t < args.tokens; ++t) {
    for (int64_t i = 0; i < args.width; ++i) {
      const GateUpPlaces at = PlacesOf(args, t, i);
      const double gate = Get(args.dtype, args.gate_up, at.gate);
      const double up = Get(args.dtype, args.gate_up, at.up);
      Set(args.dtype, args.out, t * args.width + i,
          UnitOf(args.activation, args.limit, args.slope, gate, up).out);
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::GluBackward(Stream&, const GluBackwardArgs& args) {
  for (int64_t t = 0; t < args.tokens; ++t) {
    for (int64_t i = 0; i < args.width; ++i) {
      const GateUpPlaces at = PlacesOf(args, t, i);
      const double gate = Get(args.dtype, args.gate_up, at.gate);
      const double up = Get(args.dtype, args.gate_up, at.up);
      const double dout = Get(args.dtype, args.dout, t * args.width + i);
      const GatedUnit unit = UnitOf(args.activation, args.limit, args.slope, gate, up);
      Set(args.dtype, args.dgate_up, at.gate, dout * unit.by_gate);
      Set(args.dtype, args.dgate_up, at.up, dout * unit.by_up);
      Set(args.dtype, args.dout, t * args.width + i, unit.out);
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::SigmoidGate(Stream&, const SigmoidGateArgs& args) {
  for (int64_t row = 0; row < args.tokens * args.heads; ++row) {
    const int64_t t = row / args.heads, h = row % args.heads;
    for (int64_t i = 0; i < args.head_dim; ++i) {
      const int64_t gate = t * args.gate_stride + h * args.gate_head_stride + i;
      Set(args.dtype, args.out, row * args.head_dim + i,
          Get(args.dtype, args.x, row * args.head_dim + i) *
              Sigmoid(Get(args.dtype, args.gate, gate)));
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::SigmoidGateBackward(Stream&, const SigmoidGateBackwardArgs& args) {
  const SigmoidGateArgs& f = args.forward;
  for (int64_t row = 0; row < f.tokens * f.heads; ++row) {
    const int64_t t = row / f.heads, h = row % f.heads;
    for (int64_t i = 0; i < f.head_dim; ++i) {
      const int64_t at = row * f.head_dim + i;
      const int64_t gate = t * f.gate_stride + h * f.gate_head_stride + i;
      const int64_t dgate = t * args.dgate_stride + h * args.dgate_head_stride + i;
      const double x = Get(f.dtype, f.x, at), dout = Get(f.dtype, args.dout, at);
      const double s = Sigmoid(Get(f.dtype, f.gate, gate));
      Set(f.dtype, args.dgate, dgate, dout * x * s * (1.0 - s));
      Set(f.dtype, args.dx, at, dout * s);
      Set(f.dtype, args.dout, at, x * s);
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::Embedding(Stream&, const EmbeddingArgs& args) {
  for (int64_t t = 0; t < args.tokens; ++t) {
    assert(args.ids[t] >= 0 && args.ids[t] < args.vocabulary);
    for (int64_t i = 0; i < args.hidden; ++i) {
      Set(args.dtype, args.out, t * args.hidden + i,
          args.scale * Get(args.dtype, args.table, args.ids[t] * args.hidden + i));
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::EmbeddingBackward(Stream&, const EmbeddingBackwardArgs& args) {
  for (int64_t i = 0; i < args.hidden; ++i) {
    std::vector<double> column(static_cast<size_t>(args.vocabulary), 0.0);
    for (int64_t t = 0; t < args.tokens; ++t) {
      assert(args.ids[t] >= 0 && args.ids[t] < args.vocabulary);
      if (args.ids[t] == args.padding_id) continue;
      column[static_cast<size_t>(args.ids[t])] +=
          args.scale * Get(args.dtype, args.dout, t * args.hidden + i);
    }
    for (int64_t id = 0; id < args.vocabulary; ++id) {
      float& sum = args.dtable[id * args.hidden + i];
      sum = static_cast<float>((args.add ? sum : 0.0) + column[static_cast<size_t>(id)]);
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::CrossEntropy(Stream&, const CrossEntropyArgs& args) {
  const double cap = args.softcap;
  for (int64_t t = 0; t < args.tokens; ++t) {
    float* row = args.logits + t * args.logits_stride;
    std::vector<double> logits(row, row + args.vocabulary);
    if (cap > 0) {
      for (double& logit : logits) logit = cap * std::tanh(logit / cap);
    }
    const double largest = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (double logit : logits) sum += std::exp(logit - largest);
    const double lse = largest + std::log(sum);
    const int32_t label = args.labels[t];
    assert(label < args.vocabulary);
    args.losses[t] =
        label < 0 ? 0.0f : static_cast<float>(lse - logits[static_cast<size_t>(label)]);
    if (args.loss_only) continue;
    for (int64_t i = 0; i < args.vocabulary; ++i) {
      const double logit = logits[static_cast<size_t>(i)];
      const double p = std::exp(logit - lse) - (i == label ? 1.0 : 0.0);
      const double scale = args.scale * (args.weights != nullptr ? double{args.weights[t]} : 1.0);
      const double by_raw = cap > 0 ? 1.0 - logit / cap * (logit / cap) : 1.0;
      Set(args.dtype, row, i, label < 0 ? 0.0 : p * scale * by_raw);
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::Add(Stream&, const AddArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t i = 0; i < args.width; ++i) {
      double sum = Get(args.a.dtype, args.a.data, row * args.a.stride + i);
      if (args.b.data != nullptr) sum += Get(args.b.dtype, args.b.data, row * args.b.stride + i);
      Set(args.y_dtype, args.y, row * args.y_stride + i, sum);
    }
  }
  return absl::OkStatus();
}

}  // namespace megatrain
