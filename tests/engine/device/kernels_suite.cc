#include "tests/engine/device/kernels_suite.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

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
  if (dtype() == DType::kBF16 && device_->truncates_sums()) {
    constexpr double kTermsAtOnce = 8;
    return 2.0 / 3 * std::ceil(static_cast<double>(k) / kTermsAtOnce) * 2 * kUnit;
  }
  return std::sqrt(static_cast<double>(k)) * kUnit;
}

TEST_P(KernelsSuite, MatMul) {
  struct Case {
    int64_t m, n, k;
    int padding;
  };
  for (const Case& c : {Case{1, 1, 1, 0}, Case{7, 13, 5, 3}, Case{130, 70, 65, 1},
                        Case{33, 70, 1100, 0}, Case{257, 191, 96, 8}, Case{6, 9, 17000, 0}}) {
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
      ExpectLikeReference(device(), operands,
                          (out_dtype == DType::kF32 ? kRounding : 3e-3) + SumError(c.k),
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

TEST_P(KernelsSuite, RmsNormAndBackward) {
  struct Case {
    int64_t rows, groups, width, padding;
  };
  // Odd strides, then such that rows may be moved in packs: of every length that a device might
  // treat in its own way, and more rows than it might have at once.
  for (const Case& c :
       {Case{1, 1, 1, 5}, Case{37, 1, 100, 5}, Case{300, 3, 24, 5}, Case{129, 1, 771, 5},
        Case{5, 1, 1501, 5}, Case{1, 1, 8, 0}, Case{35, 3, 64, 8}, Case{20, 2, 128, 0},
        Case{9, 5, 256, 8}, Case{21, 1, 896, 0}, Case{11, 1, 1536, 8}, Case{7, 1, 3584, 0},
        Case{5, 1, 4104, 8}, Case{3, 1, 8712, 0}, Case{1100, 16, 64, 0}, Case{1100, 1, 1040, 0}}) {
    if (!SizeIsTested(c.rows * c.groups * c.width)) continue;
    // The gradient by x added, the one by the weight written over whatever was there; the reverse.
    for (bool accumulate : {false, true}) {
      Operands operands(static_cast<uint64_t>(c.rows));
      const int64_t stride = c.groups * c.width + c.padding;
      const size_t x = operands.Random(dtype(), c.rows * stride, 2.0);
      const size_t weight = operands.Random(dtype(), c.width);
      const size_t y = operands.Random(dtype(), c.rows * stride);
      const size_t rstd = operands.Random(DType::kF32, c.rows * c.groups);
      const size_t dy = operands.Random(dtype(), c.rows * stride);
      const size_t dx = operands.Random(dtype(), c.rows * stride);
      const size_t dweight = operands.Random(DType::kF32, c.width);
      SCOPED_TRACE(testing::Message() << c.rows << " rows of " << c.groups << "x" << c.width
                                      << ", stride " << stride << ", accumulate " << accumulate);
      ExpectLikeReference(
          device(), operands, tolerance(),
          [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
            MT_RETURN_IF_ERROR(kernels.RmsNorm(stream, {.dtype = dtype(),
                                                        .rows = c.rows,
                                                        .groups = c.groups,
                                                        .width = c.width,
                                                        .epsilon = 1e-5f,
                                                        .x = p[x],
                                                        .x_stride = stride,
                                                        .weight = p[weight],
                                                        .y = p[y],
                                                        .y_stride = stride,
                                                        .rstd = static_cast<float*>(p[rstd])}));
            return kernels.RmsNormBackward(stream,
                                           {.dtype = dtype(),
                                            .rows = c.rows,
                                            .groups = c.groups,
                                            .width = c.width,
                                            .x = p[x],
                                            .x_stride = stride,
                                            .weight = p[weight],
                                            .rstd = static_cast<float*>(p[rstd]),
                                            .dy = p[dy],
                                            .dy_stride = stride,
                                            .dx = accumulate || c.rows % 2 == 0 ? p[dx] : p[dy],
                                            .dx_stride = stride,
                                            .accumulate = accumulate,
                                            .dweight = static_cast<float*>(p[dweight]),
                                            .add_dweight = !accumulate});
          });
    }
  }
}

TEST_P(KernelsSuite, Rope) {
  struct Case {
    int64_t head_dim, padding;
  };
  for (const Case& c : {Case{2, 4}, Case{10, 4}, Case{64, 4}, Case{96, 4}, Case{64, 8}, Case{80, 0},
                        Case{128, 16}}) {
    for (bool inverse : {false, true}) {
      const int64_t head_dim = c.head_dim;
      Operands operands(static_cast<uint64_t>(head_dim));
      const int64_t tokens = 70, heads = 3, stride = heads * head_dim + c.padding;
      const size_t x = operands.Random(dtype(), tokens * stride);
      std::vector<int32_t> where;
      for (int64_t t = 0; t < tokens; ++t) where.push_back(static_cast<int32_t>(t % 37));
      const size_t positions = operands.Ints(where);
      const size_t cosine = operands.Random(DType::kF32, 37 * head_dim / 2);
      const size_t sine = operands.Random(DType::kF32, 37 * head_dim / 2);
      SCOPED_TRACE(testing::Message() << tokens << "x" << heads << "x" << head_dim << ", stride "
                                      << stride << ", inverse " << inverse);
      ExpectLikeReference(device(), operands, tolerance(),
                          [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
                            return kernels.Rope(stream,
                                                {.dtype = dtype(),
                                                 .tokens = tokens,
                                                 .heads = heads,
                                                 .head_dim = head_dim,
                                                 .x = p[x],
                                                 .stride = stride,
                                                 .positions = static_cast<int32_t*>(p[positions]),
                                                 .cosine = static_cast<float*>(p[cosine]),
                                                 .sine = static_cast<float*>(p[sine]),
                                                 .inverse = inverse});
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

TEST_P(KernelsSuite, GluAndBackward) {
  for (int64_t width : {1, 30, 257, 8, 520}) {
    const int64_t tokens = SizeIsTested(150 * 520) ? 150 : 20;
    SCOPED_TRACE(testing::Message() << tokens << "x" << width);
    Operands operands(static_cast<uint64_t>(width));
    const size_t gate_up = operands.Random(dtype(), tokens * 2 * width, 4.0);
    const size_t out = operands.Random(dtype(), tokens * width);
    const size_t dout = operands.Random(dtype(), tokens * width);
    ExpectLikeReference(
        device(), operands, tolerance(),
        [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
          MT_RETURN_IF_ERROR(kernels.Glu(stream, {dtype(), tokens, width, p[gate_up], p[out]}));
          return kernels.GluBackward(stream,
                                     {dtype(), tokens, width, p[gate_up], p[dout], p[gate_up]});
        });
  }
}

TEST_P(KernelsSuite, GluAtTheEnds) {
  Operands operands(5);
  const std::vector<float> gates = {-1e4f, -90.0f, -88.0f, -87.0f, 1e-30f, 20.0f, 90.0f, 1e4f};
  std::vector<float> gate_up = gates;
  gate_up.resize(16, 2.0f);
  const size_t in = operands.Values(dtype(), gate_up);
  const size_t out = operands.Random(dtype(), 8);
  ExpectLikeReference(device(), operands, tolerance(),
                      [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
                        return kernels.Glu(stream, {dtype(), 1, 8, p[in], p[out]});
                      });
}

TEST_P(KernelsSuite, EmbeddingAndBackward) {
  struct Case {
    int64_t hidden, tokens;
    std::vector<std::pair<int64_t, int64_t>> runs;  // of the sorted ids: how many times which
    int64_t vocabulary = 50;
  };
  // Runs of one id: short ones, long ones side by side, all tokens, and such as end where the
  // pieces may end that a device cuts them into.
  for (const Case& c :
       {Case{3, 400, {}}, Case{600, 400, {{250, 7}}}, Case{264, 1, {}},
        Case{8, 1400, {{8, 1}, {1, 2}, {600, 3}, {500, 4}, {7, 5}, {16, 6}, {8, 9}}},
        Case{1032, 64, {{64, 49}}}, Case{40, 129, {{32, 2}, {32, 3}, {64, 4}}},
        // So much that a device has no memory for the sums of many pieces.
        Case{int64_t{1} << 19, 72, {{40, 1}, {21, 0}, {11, 2}}, 3}}) {
    const int64_t hidden = c.hidden, tokens = c.tokens, vocabulary = c.vocabulary;
    // In an emulation 20 s: the sums are FP32 in both.
    if (hidden > 10'000 && dtype() == DType::kF32) continue;
    if (!SizeIsTested(hidden * tokens)) continue;
    SCOPED_TRACE(testing::Message()
                 << tokens << " tokens of " << hidden << ", vocabulary " << vocabulary);
    Operands operands(static_cast<uint64_t>(hidden));
    std::vector<int32_t> ids_of(static_cast<size_t>(tokens)), order(ids_of.size());
    for (int32_t& id : ids_of) id = static_cast<int32_t>(10 + operands.random()() % 20);
    auto next = ids_of.begin();
    for (const auto& [count, id] : c.runs) next = std::fill_n(next, count, id);
    std::shuffle(ids_of.begin(), ids_of.end(), operands.random());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return ids_of[static_cast<size_t>(a)] < ids_of[static_cast<size_t>(b)];
    });
    const size_t ids = operands.Ints(ids_of), sorted = operands.Ints(order);
    const size_t table = operands.Random(dtype(), vocabulary * hidden);
    const size_t out = operands.Random(dtype(), tokens * hidden);
    // Added to, or written over whatever was there, in rows of ids without tokens too.
    const bool add = tokens % 8 == 0;
    const size_t dtable = operands.Random(DType::kF32, vocabulary * hidden);
    ExpectLikeReference(
        device(), operands, 2 * tolerance(),
        [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
          MT_RETURN_IF_ERROR(
              kernels.Embedding(stream, {dtype(), tokens, hidden, vocabulary,
                                         static_cast<int32_t*>(p[ids]), p[table], p[out]}));
          return kernels.EmbeddingBackward(
              stream,
              {dtype(), tokens, hidden, vocabulary, static_cast<int32_t*>(p[ids]),
               static_cast<int32_t*>(p[sorted]), p[out], static_cast<float*>(p[dtable]), add});
        });
  }
}

// SwiGLU's backward gives its output again, of which weights' gradients are made: the same bits
// whether packs can be moved or not.
TEST_P(KernelsSuite, GluBackwardGivesTheForwardsBits) {
  for (int64_t width : {1, 37, 264}) {
    Operands operands(static_cast<uint64_t>(width));
    const int64_t tokens = 130;
    const size_t gate_up = operands.Random(dtype(), tokens * 2 * width, 8.0);
    const size_t out = operands.Random(dtype(), tokens * width);
    const size_t dout = operands.Random(dtype(), tokens * width);
    const auto got = RunOn(
        device(), operands, [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
          MT_RETURN_IF_ERROR(kernels.Glu(stream, {dtype(), tokens, width, p[gate_up], p[out]}));
          return kernels.GluBackward(stream,
                                     {dtype(), tokens, width, p[gate_up], p[dout], p[gate_up]});
        });
    EXPECT_EQ(got[dout].bytes, got[out].bytes) << width;
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
