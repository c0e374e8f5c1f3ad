// The reference's gradient of attention against differences of its forward pass: windows, softcaps
// and sinks have no other gradient to be compared with.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "engine/device/reference_kernels.h"

namespace megatrain {
namespace {

constexpr int64_t kHeads = 4, kKvHeads = 2, kDim = 3, kTokens = 9;
constexpr int32_t kStarts[] = {0, 6, 9};

struct Shaping {
  int64_t window;
  float softcap;
  bool sinks;
  int64_t value_dim = kDim;
};

class NoStream : public Stream {};

// The operands of a call, whose loss is the sum of dout * out.
class Attention {
 public:
  explicit Attention(const Shaping& shaping)
      : v(static_cast<size_t>(kTokens * kKvHeads * shaping.value_dim)),
        dv(v),
        shaping_(shaping),
        dout_(static_cast<size_t>(kTokens * kHeads * shaping.value_dim)),
        out_(dout_) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (std::vector<float>* operand : {&q, &k, &v, &sinks, &dout_}) {
      for (float& x : *operand) x = normal(random);
    }
  }

  AttentionArgs Forward() {
    const AttentionArgs args{.tokens = kTokens,
                             .heads = kHeads,
                             .kv_heads = kKvHeads,
                             .head_dim = kDim,
                             .value_dim = shaping_.value_dim,
                             .scale = 0.6f,
                             .shaping = {.window = shaping_.window,
                                         .softcap = shaping_.softcap,
                                         .sinks = shaping_.sinks ? sinks.data() : nullptr},
                             .document_starts = kStarts,
                             .documents = 2,
                             .q = q.data(),
                             .q_stride = kHeads * kDim,
                             .k = k.data(),
                             .k_stride = kKvHeads * kDim,
                             .v = v.data(),
                             .v_stride = kKvHeads * shaping_.value_dim,
                             .out = out_.data(),
                             .lse = lse_.data()};
    EXPECT_TRUE(reference_.Attention(stream_, args).ok());
    return args;
  }
  double Loss() {
    Forward();
    double loss = 0;
    for (size_t i = 0; i < out_.size(); ++i) loss += double{dout_[i]} * out_[i];
    return loss;
  }
  void Backward() {
    const AttentionArgs forward = Forward();
    ASSERT_TRUE(reference_
                    .AttentionBackward(stream_, {.forward = forward,
                                                 .dout = dout_.data(),
                                                 .dq = dq.data(),
                                                 .dq_stride = kHeads * kDim,
                                                 .dk = dk.data(),
                                                 .dk_stride = kKvHeads * kDim,
                                                 .dv = dv.data(),
                                                 .dv_stride = kKvHeads * shaping_.value_dim,
                                                 .dsinks = dsinks.data(),
                                                 .add_dsinks = false})
                    .ok());
  }

  std::vector<float> q = std::vector<float>(kTokens * kHeads * kDim), dq = q;
  std::vector<float> k = std::vector<float>(kTokens * kKvHeads * kDim), dk = k;
  std::vector<float> v, dv;
  std::vector<float> sinks = std::vector<float>(kHeads), dsinks = sinks;

 private:
  const Shaping shaping_;
  ReferenceKernels reference_;
  NoStream stream_;
  std::vector<float> dout_, out_, lse_ = std::vector<float>(kHeads * kTokens);
};

class ReferenceAttentionTest : public testing::TestWithParam<Shaping> {};

TEST_P(ReferenceAttentionTest, GradientIsTheSlopeOfTheLoss) {
  Attention attention(GetParam());
  attention.Backward();
  const struct {
    const char* name;
    std::vector<float>& x;
    const std::vector<float>& gradient;
  } operands[] = {{"q", attention.q, attention.dq},
                  {"k", attention.k, attention.dk},
                  {"v", attention.v, attention.dv},
                  {"sinks", attention.sinks, attention.dsinks}};
  for (const auto& [name, x, gradient] : operands) {
    double error = 0, norm = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const float at = x[i];
      // Central differences over one step and over two, whose errors of second order cancel.
      double slopes[2];
      for (int steps : {1, 2}) {
        const float after = at + 0.02f * static_cast<float>(steps);
        const float before = at - 0.02f * static_cast<float>(steps);
        x[i] = after;
        const double more = attention.Loss();
        x[i] = before;
        slopes[steps - 1] = (more - attention.Loss()) / (double{after} - before);
      }
      x[i] = at;
      const double slope = (4 * slopes[0] - slopes[1]) / 3;
      error += (slope - gradient[i]) * (slope - gradient[i]);
      norm += slope * slope;
    }
    EXPECT_LE(std::sqrt(error), 2e-5 + 1e-4 * std::sqrt(norm)) << name;
    // With a window of one token and no sink, a probability of 1 does not move.
    const bool fixed = name[0] != 'v' && GetParam().window == 1 && !GetParam().sinks;
    if (fixed || (name[0] == 's' && !GetParam().sinks)) continue;
    EXPECT_GT(norm, 1e-3) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapings, ReferenceAttentionTest,
    testing::Values(Shaping{0, 0, false}, Shaping{1, 0, false}, Shaping{2, 0, false},
                    Shaping{5, 0, false}, Shaping{100, 0, false}, Shaping{0, 1.2f, false},
                    Shaping{3, 1.2f, false}, Shaping{0, 0, true}, Shaping{1, 0, true},
                    Shaping{3, 1.2f, true}, Shaping{0, 0, false, 2}, Shaping{3, 1.2f, true, 5}),
    [](const auto& info) {
      const Shaping& s = info.param;
      return "Window" + std::to_string(s.window) + (s.softcap > 0 ? "Softcap" : "") +
             (s.sinks ? "Sinks" : "") +
             (s.value_dim != kDim ? "Values" + std::to_string(s.value_dim) : "");
    });

}  // namespace
}  // namespace megatrain
