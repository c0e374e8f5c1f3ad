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
  const int64_t m = 700, n = 450, k = 90;
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
      SCOPED_TRACE(testing::Message() << c.rows << "x" << c.groups << "x" << c.width);
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
                                            .dweight = static_cast<float*>(p[dweight])});
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
    Operands operands(3);
    KernelCall call;
    MakeAttention(shape, dtype(), false, &operands, &call);
    SCOPED_TRACE(testing::Message() << "head_dim " << shape.head_dim);
    ExpectLikeReference(device(), operands, dtype() == DType::kF32 ? 4e-6 : 5e-3, call);
  }
}

TEST_P(KernelsSuite, AttentionBackward) {
  for (const AttentionCase& shape : AttentionCases()) {
    Operands operands(4);
    KernelCall call;
    MakeAttention(shape, dtype(), true, &operands, &call);
    SCOPED_TRACE(testing::Message() << "head_dim " << shape.head_dim);
    // BF16: P, dS and the output that delta is taken from are rounded too.
    ExpectLikeReference(device(), operands, dtype() == DType::kF32 ? 4e-6 : 8e-3, call);
  }
}

TEST_P(KernelsSuite, SwiGluAndBackward) {
  for (int64_t width : {1, 30, 257, 8, 520}) {
    Operands operands(static_cast<uint64_t>(width));
    const int64_t tokens = 150;
    const size_t gate_up = operands.Random(dtype(), tokens * 2 * width, 4.0);
    const size_t out = operands.Random(dtype(), tokens * width);
    const size_t dout = operands.Random(dtype(), tokens * width);
    ExpectLikeReference(
        device(), operands, tolerance(),
        [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
          MT_RETURN_IF_ERROR(kernels.SwiGlu(stream, {dtype(), tokens, width, p[gate_up], p[out]}));
          return kernels.SwiGluBackward(stream,
                                        {dtype(), tokens, width, p[gate_up], p[dout], p[gate_up]});
        });
  }
}

TEST_P(KernelsSuite, SwiGluAtTheEnds) {
  Operands operands(5);
  const std::vector<float> gates = {-1e4f, -90.0f, -88.0f, -87.0f, 1e-30f, 20.0f, 90.0f, 1e4f};
  std::vector<float> gate_up = gates;
  gate_up.resize(16, 2.0f);
  const size_t in = operands.Values(dtype(), gate_up);
  const size_t out = operands.Random(dtype(), 8);
  ExpectLikeReference(device(), operands, tolerance(),
                      [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
                        return kernels.SwiGlu(stream, {dtype(), 1, 8, p[in], p[out]});
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
    const size_t dtable = operands.Random(DType::kF32, vocabulary * hidden);
    ExpectLikeReference(
        device(), operands, 2 * tolerance(),
        [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
          MT_RETURN_IF_ERROR(
              kernels.Embedding(stream, {dtype(), tokens, hidden, vocabulary,
                                         static_cast<int32_t*>(p[ids]), p[table], p[out]}));
          return kernels.EmbeddingBackward(
              stream, {dtype(), tokens, hidden, vocabulary, static_cast<int32_t*>(p[ids]),
                       static_cast<int32_t*>(p[sorted]), p[out], static_cast<float*>(p[dtable])});
        });
  }
}

TEST_P(KernelsSuite, CrossEntropy) {
  struct Case {
    int64_t vocabulary, padding;
  };
  for (const Case& c :
       {Case{2, 3}, Case{259, 3}, Case{9001, 3}, Case{4, 0}, Case{260, 4}, Case{20004, 0}}) {
    const int64_t vocabulary = c.vocabulary, tokens = 11, stride = vocabulary + c.padding;
    std::vector<int32_t> labels_of;
    for (int64_t t = 0; t < tokens; ++t) {
      labels_of.push_back(t % 4 == 3 ? -100 : static_cast<int32_t>((t * 7919) % vocabulary));
    }
    Operands operands(static_cast<uint64_t>(vocabulary));
    const size_t logits = operands.Random(DType::kF32, tokens * stride, 5.0);
    const size_t labels = operands.Ints(labels_of);
    const size_t losses = operands.Random(DType::kF32, tokens);
    for (bool loss_only : {false, true}) {
      const KernelCall run = [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
        return kernels.CrossEntropy(stream, {.dtype = dtype(),
                                             .tokens = tokens,
                                             .vocabulary = vocabulary,
                                             .logits = static_cast<float*>(p[logits]),
                                             .logits_stride = stride,
                                             .labels = static_cast<int32_t*>(p[labels]),
                                             .scale = 1.0f / 8,
                                             .loss_only = loss_only,
                                             .losses = static_cast<float*>(p[losses])});
      };
      const auto got = RunOn(device(), operands, run);
      std::vector<Operands::Operand> want = operands.all();
      std::vector<void*> pointers;
      for (Operands::Operand& operand : want) pointers.push_back(operand.bytes.data());
      ReferenceKernels reference;
      NoStream no_stream;
      ASSERT_TRUE(run(reference, no_stream, pointers).ok());
      const size_t size = static_cast<size_t>(DTypeBytes(dtype()));
      double difference = 0, norm = 0;
      for (int64_t t = 0; t < tokens; ++t) {
        const size_t i = static_cast<size_t>(t);
        EXPECT_NEAR(ValueOf(got[losses], i), ValueOf(want[losses], i),
                    1e-6 + 1e-6 * ValueOf(want[losses], i));
        if (loss_only) continue;
        const size_t row = static_cast<size_t>(t * stride * 4);
        Operands::Operand a{
            dtype() == DType::kF32 ? Operands::Operand::kF32 : Operands::Operand::kBF16, {}};
        Operands::Operand b = a;
        const auto cut = [&](const Operands::Operand& from) {
          const auto begin = from.bytes.begin() + static_cast<std::ptrdiff_t>(row);
          return std::vector<char>(
              begin, begin + static_cast<std::ptrdiff_t>(size * static_cast<size_t>(vocabulary)));
        };
        a.bytes = cut(got[logits]);
        b.bytes = cut(want[logits]);
        for (size_t j = 0; j < static_cast<size_t>(vocabulary); ++j) {
          const double error = ValueOf(a, j) - ValueOf(b, j);
          difference += error * error;
          norm += ValueOf(b, j) * ValueOf(b, j);
          if (labels_of[i] < 0) {
            EXPECT_EQ(ValueOf(a, j), 0.0);
          }
        }
      }
      if (!loss_only) {
        EXPECT_LE(std::sqrt(difference), tolerance() * std::sqrt(norm));
      }
    }
  }
}

// A label that cannot be is -inf; a NaN must not go unseen.
TEST_P(KernelsSuite, CrossEntropyOfLogitsThatAreNotFinite) {
  for (int64_t vocabulary : {260, 20004}) {
    for (float bad : {-HUGE_VALF, std::nanf("")}) {
      Operands operands(11);
      std::vector<float> logits_of = Normal(operands.random(), vocabulary, 5.0);
      for (int64_t i = 0; i < vocabulary; ++i) {
        if (std::isinf(bad) ? i >= 100 : i == vocabulary - 3) {
          logits_of[static_cast<size_t>(i)] = bad;
        }
      }
      double sum = 0;
      for (float logit : logits_of) sum += std::exp(static_cast<double>(logit));
      const double want = std::log(sum) - static_cast<double>(logits_of[5]);
      const size_t logits = operands.Values(DType::kF32, logits_of);
      const size_t labels = operands.Ints({5});
      const size_t losses = operands.Random(DType::kF32, 1);
      const auto got = RunOn(
          device(), operands, [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
            return kernels.CrossEntropy(stream, {.dtype = dtype(),
                                                 .tokens = 1,
                                                 .vocabulary = vocabulary,
                                                 .logits = static_cast<float*>(p[logits]),
                                                 .logits_stride = vocabulary,
                                                 .labels = static_cast<int32_t*>(p[labels]),
                                                 .scale = 1,
                                                 .losses = static_cast<float*>(p[losses])});
          });
      if (std::isnan(bad)) {
        EXPECT_TRUE(std::isnan(ValueOf(got[losses], 0)));
      } else {
        EXPECT_NEAR(ValueOf(got[losses], 0), want, 2e-6 * want);
      }
    }
  }
}

}  // namespace megatrain
