#include "tests/engine/device/kernels_suite.h"

#include <cmath>
#include <numeric>

#include "engine/base/status.h"
#include "engine/device/device.h"
#include "engine/device/reference_kernels.h"
#include "tests/engine/device/attention_cases.h"

namespace megatrain {

namespace {

// Of a result in FP32, with room for what is added to a product's sums.
constexpr double kRounding = 2e-6;

}  // namespace

void KernelsSuite::SetUp() {
  absl::StatusOr<std::unique_ptr<KernelsUnderTest>> device = std::get<0>(GetParam())();
  if (absl::IsNotFound(device.status()) || absl::IsUnavailable(device.status())) {
    GTEST_SKIP() << device.status();
  }
  ASSERT_TRUE(device.ok()) << device.status();
  device_ = *std::move(device);
}

// Where every addition rounds to nearest, errors go both ways: about sqrt(k) u, u = 2^-24 (Higham
// and Mary, A new approach to probabilistic rounding error analysis, 2019).
//
// Tensor cores add 8 terms at once on Ampere, 16 on Hopper, and cut off instead of rounding (Fasi,
// Higham, Mikaitis and Pranesh, Numerical behavior of NVIDIA tensor cores, 2021): each addition
// loses up to one unit in the last place, 2 u of the sum so far, always towards zero. So k / 8
// errors add up; the sum of random terms grows as the root of their number, so that the sums so far
// have 2 / 3 of the last one's size on average.
double KernelsSuite::SumError(int64_t k) const {
  constexpr double kUnit = 1.0 / (1 << 24);
  if (dtype() == DType::kBF16 && device_->on_tensor_cores()) {
    constexpr double kTermsAtOnce = 8;
    return 2.0 / 3 * std::ceil(static_cast<double>(k) / kTermsAtOnce) * 2 * kUnit;
  }
  return std::sqrt(static_cast<double>(k)) * kUnit;
}

// BF16 results are rounded once, to 1.7e-3 in the norm. cuBLASLt also rounds many products of odd
// sizes, and their sums with the addend, before it adds the bias. With the reference's own these
// are four roundings, 2 * 1.7e-3, and half as much again for results of few elements: on an H200
// the largest of 54 elements was 4.2e-3.
double KernelsSuite::ProductError(DType out_dtype, int64_t k, bool with_bias) const {
  const double rounding = with_bias && device_->on_tensor_cores() ? 5e-3 : 3e-3;
  return (out_dtype == DType::kF32 ? kRounding : rounding) + SumError(k);
}

TEST_P(KernelsSuite, MatMul) {
  struct Case {
    int64_t m, n, k;
    int padding;
  };
  for (const Case& c :
       {Case{1, 1, 1, 0}, Case{7, 13, 5, 3}, Case{130, 70, 65, 1}, Case{33, 70, 1100, 0},
        Case{257, 191, 96, 8}, Case{6, 9, 17000, 0}, Case{32, 256, 1, 0}, Case{45, 270, 7, 5}}) {
    if (!SizeIsTested(c.m * c.n * c.k)) continue;
    for (int bits = 0; bits < 32; ++bits) {
      // Of the larger ones a quarter of the combinations, every transposition among them.
      if (c.m * c.n * c.k > 100000 && (bits & 3) != ((bits >> 2) & 3)) continue;
      const bool ta = bits & 1, tb = bits & 2, with_bias = bits & 4;
      const int add = bits >> 3;  // 0: no addend, 1: in place, 2: apart, 3: in place, FP32 out
      const DType out_dtype = add == 3 ? DType::kF32 : dtype();
      Operands operands(static_cast<uint64_t>(bits + 100 * c.m));
      MatMulArgs args{.m = c.m, .n = c.n, .k = c.k, .dtype = dtype(), .out_dtype = out_dtype};
      args.transpose_a = ta;
      args.transpose_b = tb;
      args.a_stride = (ta ? c.m : c.k) + c.padding;
      args.b_stride = (tb ? c.k : c.n) + c.padding;
      args.out_stride = c.n + c.padding;
      const size_t a = operands.Random(dtype(), (ta ? c.k : c.m) * args.a_stride);
      const size_t b = operands.Random(dtype(), (tb ? c.n : c.k) * args.b_stride);
      const size_t bias = operands.Random(dtype(), c.n);
      const size_t out = operands.Random(out_dtype, c.m * args.out_stride);
      const size_t addend = operands.Random(out_dtype, c.m * args.out_stride);
      SCOPED_TRACE(testing::Message() << c.m << "x" << c.n << "x" << c.k << " case " << bits);
      ExpectLikeReference(device(), operands, ProductError(out_dtype, c.k, with_bias),
                          [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
                            MatMulArgs bound = args;
                            bound.a = p[a];
                            bound.b = p[b];
                            bound.out = p[out];
                            bound.bias = with_bias ? p[bias] : nullptr;
                            bound.addend = add == 0 ? nullptr : add == 2 ? p[addend] : p[out];
                            return kernels.MatMul(stream, bound);
                          });
    }
  }
}

TEST_P(KernelsSuite, MatMulOverManyTiles) {
  Operands operands(1);
  const bool all = SizeIsTested(700 * 450);
  const int64_t m = all ? 700 : 140, n = all ? 450 : 70, k = 90;
  SCOPED_TRACE(testing::Message() << m << "x" << n << "x" << k);
  const size_t a = operands.Random(dtype(), m * k), b = operands.Random(dtype(), n * k);
  const size_t out = operands.Random(DType::kF32, m * n);
  ExpectLikeReference(device(), operands, kRounding + SumError(k),
                      [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
                        return kernels.MatMul(stream, {.m = m,
                                                       .n = n,
                                                       .k = k,
                                                       .dtype = dtype(),
                                                       .a = p[a],
                                                       .a_stride = k,
                                                       .b = p[b],
                                                       .b_stride = k,
                                                       .transpose_b = true,
                                                       .out = p[out],
                                                       .out_stride = n,
                                                       .addend = p[out]});
                      });
}

// A factor of the product alone: neither the bias nor the addend is scaled.
TEST_P(KernelsSuite, MatMulByAFactor) {
  struct Case {
    int64_t m, n, k;
  };
  for (const Case& c : {Case{7, 13, 5}, Case{130, 70, 65}, Case{33, 70, 1100}, Case{6, 9, 17000},
                        Case{50, 300, 40}}) {
    if (!SizeIsTested(c.m * c.n * c.k)) continue;
    for (int bits = 0; bits < 8; ++bits) {
      const bool with_bias = bits & 1;
      const int add = bits >> 1;  // as in MatMul
      const DType out_dtype = add == 3 ? DType::kF32 : dtype();
      Operands operands(static_cast<uint64_t>(bits + 100 * c.m));
      const size_t a = operands.Random(dtype(), c.m * c.k), b = operands.Random(dtype(), c.n * c.k);
      const size_t bias = operands.Random(dtype(), c.n);
      const size_t out = operands.Random(out_dtype, c.m * c.n);
      const size_t addend = operands.Random(out_dtype, c.m * c.n);
      SCOPED_TRACE(testing::Message() << c.m << "x" << c.n << "x" << c.k << " case " << bits);
      ExpectLikeReference(device(), operands, ProductError(out_dtype, c.k, with_bias),
                          [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
                            const void* const addends[] = {nullptr, p[out], p[addend], p[out]};
                            return kernels.MatMul(stream, {.m = c.m,
                                                           .n = c.n,
                                                           .k = c.k,
                                                           .dtype = dtype(),
                                                           .out_dtype = out_dtype,
                                                           .a = p[a],
                                                           .a_stride = c.k,
                                                           .b = p[b],
                                                           .b_stride = c.k,
                                                           .transpose_b = true,
                                                           .out = p[out],
                                                           .out_stride = c.n,
                                                           .bias = with_bias ? p[bias] : nullptr,
                                                           .addend = addends[add],
                                                           .alpha = 0.22f});
                          });
    }
  }
}

TEST_P(KernelsSuite, Attention) {
  for (const AttentionCase& shape : AttentionCases()) {
    if (!SizeIsTested(shape.elements())) continue;
    Operands operands(3);
    KernelCall call;
    MakeAttention(shape, dtype(), false, &operands, &call);
    SCOPED_TRACE(shape.Name());
    ExpectLikeReference(device(), operands, dtype() == DType::kF32 ? 4e-6 : 5e-3, call);
  }
}

TEST_P(KernelsSuite, AttentionBackward) {
  for (const AttentionCase& shape : AttentionCases()) {
    if (!SizeIsTested(shape.elements())) continue;
    Operands operands(4);
    KernelCall call;
    MakeAttention(shape, dtype(), true, &operands, &call);
    SCOPED_TRACE(shape.Name());
    // BF16: P, dS and the output that delta is taken from are rounded too.
    ExpectLikeReference(device(), operands, dtype() == DType::kF32 ? 4e-6 : 8e-3, call);
  }
}

// Where a token sees all others alike, it gets the mean of their values, be the scores ever so far
// from 0.
TEST_P(KernelsSuite, AttentionOfEqualScoresIsAMean) {
  constexpr int64_t kHeads = 2, kDim = 16, kTokens = 150, kWidth = kHeads * kDim;
  const std::vector<int32_t> starts = {0, 40, kTokens};
  for (const float sign : {-1.0f, 1.0f}) {
    SCOPED_TRACE(sign < 0 ? "scores of -3600" : "scores of 3600");
    Operands operands(6), expected(6);
    const size_t q = operands.Values(dtype(), std::vector<float>(kTokens * kWidth, 30.0f));
    const size_t k = operands.Values(dtype(), std::vector<float>(kTokens * kWidth, sign * 30.0f));
    const size_t v = operands.Random(dtype(), kTokens * kWidth);
    const size_t out = operands.Random(dtype(), kTokens * kWidth);
    const size_t lse = operands.Random(DType::kF32, kTokens * kHeads);
    std::vector<int32_t> bounds_of;
    std::vector<float> means;
    for (size_t d = 0; d + 1 < starts.size(); ++d) {
      std::vector<double> sums(kWidth, 0.0);
      for (int32_t t = starts[d]; t < starts[d + 1]; ++t) {
        bounds_of.insert(bounds_of.end(), {starts[d], starts[d + 1]});
        for (size_t i = 0; i < sums.size(); ++i) {
          sums[i] += ValueOf(operands.all()[v], static_cast<size_t>(t) * sums.size() + i);
          means.push_back(static_cast<float>(sums[i] / (t - starts[d] + 1)));
        }
      }
    }
    const size_t bounds = operands.Ints(bounds_of), mean = expected.Values(dtype(), means);
    const auto got = RunOn(
        device(), operands, [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
          return kernels.Attention(stream, {.dtype = dtype(),
                                            .tokens = kTokens,
                                            .heads = kHeads,
                                            .kv_heads = kHeads,
                                            .head_dim = kDim,
                                            .value_dim = kDim,
                                            .scale = 0.25f,
                                            .document_starts = starts.data(),
                                            .documents = 2,
                                            .document_bounds = static_cast<int32_t*>(p[bounds]),
                                            .q = p[q],
                                            .q_stride = kWidth,
                                            .k = p[k],
                                            .k_stride = kWidth,
                                            .v = p[v],
                                            .v_stride = kWidth,
                                            .out = p[out],
                                            .lse = static_cast<float*>(p[lse])});
        });
    ExpectClose(got[out], expected.all()[mean], dtype() == DType::kF32 ? 1e-5 : 5e-3,
                "out, " + NameOf(operands, out));
  }
}

// A gradient's first sum is written over memory that may hold anything.
TEST_P(KernelsSuite, WhatIsWrittenIsNotRead) {
  constexpr int64_t kRows = 24, kWidth = 40;
  Operands operands(12);
  const std::vector<float> nan(static_cast<size_t>(kWidth * kWidth), std::nanf(""));
  const size_t x = operands.Random(dtype(), kRows * kWidth);
  const size_t dy = operands.Random(dtype(), kRows * kWidth);
  const size_t weight = operands.Random(dtype(), kWidth);
  const size_t rstd = operands.Random(DType::kF32, kRows);
  const size_t ids = operands.Ints(std::vector<int32_t>(kRows, 3));
  std::vector<int32_t> order(kRows);
  std::iota(order.begin(), order.end(), 0);
  const size_t sorted = operands.Ints(order);
  const size_t product = operands.Values(DType::kF32, nan);
  const size_t dtable = operands.Values(DType::kF32, nan);
  const size_t dweight = operands.Values(DType::kF32, nan);
  const size_t dbias = operands.Values(DType::kF32, nan);
  const auto got =
      RunOn(device(), operands, [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
        MT_RETURN_IF_ERROR(kernels.MatMul(stream, {.m = kWidth,
                                                   .n = kWidth,
                                                   .k = kRows,
                                                   .dtype = dtype(),
                                                   .a = p[dy],
                                                   .a_stride = kWidth,
                                                   .transpose_a = true,
                                                   .b = p[x],
                                                   .b_stride = kWidth,
                                                   .out = p[product],
                                                   .out_stride = kWidth}));
        MT_RETURN_IF_ERROR(
            kernels.EmbeddingBackward(stream, {.dtype = dtype(),
                                               .tokens = kRows,
                                               .hidden = kWidth,
                                               .vocabulary = kWidth,
                                               .ids = static_cast<int32_t*>(p[ids]),
                                               .sorted_positions = static_cast<int32_t*>(p[sorted]),
                                               .dout = p[dy],
                                               .dtable = static_cast<float*>(p[dtable]),
                                               .add = false}));
        MT_RETURN_IF_ERROR(kernels.BiasBackward(stream, dtype(), kRows, kWidth, p[dy], kWidth,
                                                static_cast<float*>(p[dbias]), false));
        return kernels.RmsNormBackward(stream, {.dtype = dtype(),
                                                .rows = kRows,
                                                .groups = 1,
                                                .width = kWidth,
                                                .x = p[x],
                                                .x_stride = kWidth,
                                                .weight = p[weight],
                                                .rstd = static_cast<float*>(p[rstd]),
                                                .dy = p[dy],
                                                .dy_stride = kWidth,
                                                .dx = p[dy],
                                                .dx_stride = kWidth,
                                                .dweight = static_cast<float*>(p[dweight]),
                                                .add_dweight = false});
      });
  const auto is_nan = [&](size_t operand, int64_t i) {
    return std::isnan(ValueOf(got[operand], static_cast<size_t>(i)));
  };
  for (int64_t i = 0; i < kWidth * kWidth; ++i) {
    ASSERT_FALSE(is_nan(product, i) || is_nan(dtable, i)) << i;
    ASSERT_EQ(is_nan(dweight, i), i >= kWidth) << i;
    ASSERT_EQ(is_nan(dbias, i), i >= kWidth) << i;
  }
}

}  // namespace megatrain
