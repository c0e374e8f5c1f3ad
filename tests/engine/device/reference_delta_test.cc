// The reference's kernels of the gated delta net against values made by hand, and their gradients
// against differences.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "engine/device/reference_kernels.h"
#include "tests/engine/device/kernels_under_test.h"

namespace megatrain {
namespace {

using Floats = std::vector<float>;

constexpr int32_t kStarts[] = {0, 3, 5};
constexpr int32_t kBounds[] = {0, 3, 0, 3, 0, 3, 3, 5, 3, 5};
constexpr int64_t kTokens = 5;

float Silu(float x) { return x / (1 + std::exp(-x)); }

void ExpectNear(const Floats& got, const Floats& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6) << i;
}

// Expects that `gradient` is that of `objective` by `x`, whose elements it changes and restores.
void ExpectGradient(const Floats& gradient, Floats* x, const std::function<double()>& objective) {
  ASSERT_EQ(gradient.size(), x->size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < x->size(); ++i) {
    constexpr float kStep = 1.0f / 128;
    const float before = (*x)[i];
    (*x)[i] = before + kStep;
    const double above = objective();
    (*x)[i] = before - kStep;
    const double slope = (above - objective()) / (2 * double{kStep});
    (*x)[i] = before;
    difference += (gradient[i] - slope) * (gradient[i] - slope);
    norm += slope * slope;
  }
  EXPECT_GT(norm, 0);
  EXPECT_LT(std::sqrt(difference / norm), 1e-3);
}

double Dot(const Floats& a, const Floats& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * b[i];
  return sum;
}

Floats Random(int seed, int64_t n) {
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  return Normal(random, n, 1.0);
}

// A decay of a half at each token, beta a half.
TEST(ReferenceDeltaTest, GatedDeltaByHand) {
  const int32_t starts[] = {0, 3}, rows[] = {0, 0, 0};
  // The second key is at right angles to the first, the third is the first again.
  const Floats keys = {3, 4, -4, 3, 0.3f, 0.4f}, queries = {3, 4, 3, 4, 3, 4};
  const Floats values = {1, 7, 2}, zeros(3, 0.0f);
  Floats out(3), state(2);
  ReferenceKernels reference;
  NoStream stream;
  GatedDeltaArgs args{.documents = {3, 1, starts, kBounds, rows},
                      .key_heads = 1,
                      .value_heads = 1,
                      .key_dim = 2,
                      .value_dim = 1,
                      .q = queries.data(),
                      .q_stride = 2,
                      .k = keys.data(),
                      .k_stride = 2,
                      .v = values.data(),
                      .v_stride = 1,
                      .a = zeros.data(),
                      .a_stride = 1,
                      .b = zeros.data(),
                      .b_stride = 1,
                      .a_log = zeros.data(),
                      .dt_bias = zeros.data(),
                      .out = out.data(),
                      .final_states = state.data()};
  ASSERT_TRUE(reference.GatedDelta(stream, args).ok());
  // Along the first key: 0.5, 0.25, then 0.125 + 0.5 (2 - 0.125).
  const float root = std::sqrt(2.0f);
  const Floats along = {0.5f, 0.25f, 0.125f + 0.5f * (2 - 0.125f)};
  for (size_t t = 0; t < 3; ++t) EXPECT_NEAR(out[t], along[t] / root, 1e-5) << t;
  // Along the second key 3.5, halved once.
  EXPECT_NEAR(state[0], along[2] * 0.6f - 1.75f * 0.8f, 1e-5);
  EXPECT_NEAR(state[1], along[2] * 0.8f + 1.75f * 0.6f, 1e-5);
  // Another call goes on from there.
  const float before = 0.6f * state[0] + 0.8f * state[1];
  args.documents = {1, 1, starts, kBounds, rows};
  const int32_t one[] = {0, 1};
  args.documents.starts = one;
  args.initial_states = state.data();
  ASSERT_TRUE(reference.GatedDelta(stream, args).ok());
  EXPECT_NEAR(out[0] * root, 0.5f * before + 0.5f * (1 - 0.5f * before), 1e-5);
}

TEST(ReferenceDeltaTest, GatedDeltaGradients) {
  constexpr int64_t kKeyDim = 3, kValueDim = 2, kHeads = 2;
  constexpr int64_t kValues = kHeads * kValueDim;
  Floats q = Random(1, kTokens * kKeyDim), k = Random(2, kTokens * kKeyDim);
  Floats v = Random(3, kTokens * kValues), a = Random(4, kTokens * kHeads);
  Floats b = Random(5, kTokens * kHeads), a_log = Random(6, kHeads), dt_bias = Random(7, kHeads);
  const Floats dout = Random(8, kTokens * kValues);
  Floats out(dout.size());
  ReferenceKernels reference;
  NoStream stream;
  const GatedDeltaArgs args{.documents = {kTokens, 2, kStarts, kBounds},
                            .key_heads = 1,
                            .value_heads = kHeads,
                            .key_dim = kKeyDim,
                            .value_dim = kValueDim,
                            .q = q.data(),
                            .q_stride = kKeyDim,
                            .k = k.data(),
                            .k_stride = kKeyDim,
                            .v = v.data(),
                            .v_stride = kValues,
                            .a = a.data(),
                            .a_stride = kHeads,
                            .b = b.data(),
                            .b_stride = kHeads,
                            .a_log = a_log.data(),
                            .dt_bias = dt_bias.data(),
                            .out = out.data()};
  Floats dq(q.size()), dk(k.size()), dv(v.size()), da(a.size()), db(b.size());
  Floats da_log(kHeads, 1.0f), ddt_bias(kHeads, 1.0f);
  ASSERT_TRUE(reference
                  .GatedDeltaBackward(stream, {.forward = args,
                                               .dout = dout.data(),
                                               .dq = dq.data(),
                                               .dq_stride = kKeyDim,
                                               .dk = dk.data(),
                                               .dk_stride = kKeyDim,
                                               .dv = dv.data(),
                                               .dv_stride = kValues,
                                               .da = da.data(),
                                               .da_stride = kHeads,
                                               .db = db.data(),
                                               .db_stride = kHeads,
                                               .da_log = da_log.data(),
                                               .ddt_bias = ddt_bias.data()})
                  .ok());
  const auto objective = [&] {
    EXPECT_TRUE(reference.GatedDelta(stream, args).ok());
    return Dot(out, dout);
  };
  for (float& x : da_log) x -= 1;  // they were added to
  for (float& x : ddt_bias) x -= 1;
  ExpectGradient(dq, &q, objective);
  ExpectGradient(dk, &k, objective);
  ExpectGradient(dv, &v, objective);
  ExpectGradient(da, &a, objective);
  ExpectGradient(db, &b, objective);
  ExpectGradient(da_log, &a_log, objective);
  ExpectGradient(ddt_bias, &dt_bias, objective);
}

TEST(ReferenceDeltaTest, CausalConvByHand) {
  const Floats x = {1, 2, 3, 4, 5}, weight = {1, 2};
  const int32_t rows[] = {1, 1, 1, -1, -1};
  Floats y(5), states = {9, 5};
  ReferenceKernels reference;
  NoStream stream;
  CausalConvArgs args{.documents = {kTokens, 2, kStarts, kBounds, rows},
                      .channels = 1,
                      .kernel = 2,
                      .x = x.data(),
                      .x_stride = 1,
                      .weight = weight.data(),
                      .y = y.data(),
                      .y_stride = 1};
  ASSERT_TRUE(reference.CausalConv(stream, args).ok());
  ExpectNear(y, {Silu(2), Silu(5), Silu(8), Silu(8), Silu(14)});
  args.initial_states = states.data();
  args.final_states = states.data();
  ASSERT_TRUE(reference.CausalConv(stream, args).ok());
  ExpectNear(y, {Silu(5 + 2), Silu(5), Silu(8), Silu(8), Silu(14)});
  ExpectNear(states, {9, 3});
}

TEST(ReferenceDeltaTest, CausalConvGradients) {
  constexpr int64_t kChannels = 2, kKernel = 4;
  Floats x = Random(1, kTokens * kChannels), weight = Random(2, kChannels * kKernel);
  const Floats dy = Random(3, kTokens * kChannels);
  Floats y(dy.size()), dx(x.size()), dweight(weight.size());
  ReferenceKernels reference;
  NoStream stream;
  const CausalConvArgs args{.documents = {kTokens, 2, kStarts, kBounds},
                            .channels = kChannels,
                            .kernel = kKernel,
                            .x = x.data(),
                            .x_stride = kChannels,
                            .weight = weight.data(),
                            .y = y.data(),
                            .y_stride = kChannels};
  ASSERT_TRUE(reference
                  .CausalConvBackward(stream, {.forward = args,
                                               .dy = dy.data(),
                                               .dy_stride = kChannels,
                                               .dx = dx.data(),
                                               .dx_stride = kChannels,
                                               .dweight = dweight.data(),
                                               .add_dweight = false})
                  .ok());
  const auto objective = [&] {
    EXPECT_TRUE(reference.CausalConv(stream, args).ok());
    return Dot(y, dy);
  };
  ExpectGradient(dx, &x, objective);
  ExpectGradient(dweight, &weight, objective);
}

TEST(ReferenceDeltaTest, GatedNormAndGradients) {
  constexpr int64_t kHeads = 2, kDim = 3, kWidth = kHeads * kDim;
  Floats x = Random(1, kTokens * kWidth), weight = Random(2, kDim);
  Floats gate = Random(3, kTokens * kWidth);
  const Floats before = Random(4, kTokens * kWidth);
  Floats out(x.size()), dout = before, dx(x.size()), dgate(x.size()), dweight(weight.size());
  ReferenceKernels reference;
  NoStream stream;
  const GatedNormArgs args{.tokens = kTokens,
                           .heads = kHeads,
                           .head_dim = kDim,
                           .epsilon = 0.1f,
                           .x = x.data(),
                           .weight = weight.data(),
                           .gate = gate.data(),
                           .gate_stride = kWidth,
                           .out = out.data()};
  ASSERT_TRUE(reference
                  .GatedNormBackward(stream, {.forward = args,
                                              .dout = dout.data(),
                                              .dx = dx.data(),
                                              .dgate = dgate.data(),
                                              .dgate_stride = kWidth,
                                              .dweight = dweight.data(),
                                              .add_dweight = false})
                  .ok());
  const auto objective = [&] {
    EXPECT_TRUE(reference.GatedNorm(stream, args).ok());
    return Dot(out, before);
  };
  objective();
  EXPECT_EQ(dout, out);
  const float rstd = 1 / std::sqrt((x[0] * x[0] + x[1] * x[1] + x[2] * x[2]) / 3 + 0.1f);
  EXPECT_NEAR(out[1], x[1] * rstd * weight[1] * Silu(gate[1]), 1e-6);
  ExpectGradient(dx, &x, objective);
  ExpectGradient(dgate, &gate, objective);
  ExpectGradient(dweight, &weight, objective);
}

}  // namespace
}  // namespace megatrain
