// The suite on the cpu device, and what is promised of that device alone: results do not depend on
// the number of threads.
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/device/cpu/cpu_kernels.h"
#include "engine/optim/kernel/adamw_kernel.h"
#include "tests/engine/device/attention_cases.h"
#include "tests/engine/device/cpu_kernels_under_test.h"
#include "tests/engine/device/delta_cases.h"
#include "tests/engine/device/expert_cases.h"
#include "tests/engine/device/kernels_suite.h"

namespace megatrain {
namespace {

absl::StatusOr<std::unique_ptr<KernelsUnderTest>> MakeCpuKernels() {
  return std::make_unique<CpuKernelsUnderTest>(2);
}

INSTANTIATE_TEST_SUITE_P(Cpu, KernelsSuite,
                         testing::Combine(testing::Values(&MakeCpuKernels),
                                          testing::Values(DType::kF32, DType::kBF16)),
                         [](const auto& info) {
                           return std::string(DTypeName(std::get<1>(info.param)));
                         });

void ExpectSameForAllPools(const Operands& operands, const KernelCall& call) {
  CpuKernelsUnderTest one(1);
  const auto expected = RunOn(one, operands, call);
  for (int threads : {2, 3}) {
    CpuKernelsUnderTest several(threads);
    const auto results = RunOn(several, operands, call);
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(results[i].bytes, expected[i].bytes) << threads << " threads, operand " << i;
    }
  }
}

class CpuKernelsTest : public testing::TestWithParam<DType> {};

// The library chooses its code, and its blocks of k, by a task's shape and strides.
TEST_P(CpuKernelsTest, ProductsDoNotDependOnThreads) {
  std::mt19937_64 random(7);
  const auto size = [&](double least, double most) {
    const double x = std::uniform_real_distribution<>(0, 1)(random);
    return static_cast<int64_t>(least * std::pow(most / least, x));
  };
  for (int trial = 0; trial < 24; ++trial) {
    const int64_t m = size(16, 700), n = size(16, 700), k = size(385, 1200);
    const bool transpose_a = trial % 3 == 0, transpose_b = trial % 3 == 1;
    SCOPED_TRACE(absl::StrCat(m, " x ", n, " x ", k, transpose_a ? ", a transposed" : "",
                              transpose_b ? ", b transposed" : ""));
    Operands operands(static_cast<uint64_t>(trial));
    const size_t a = operands.Random(GetParam(), m * k), b = operands.Random(GetParam(), k * n);
    const size_t out = operands.Random(DType::kF32, m * n);
    ExpectSameForAllPools(operands,
                          [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
                            return kernels.MatMul(stream, {.m = m,
                                                           .n = n,
                                                           .k = k,
                                                           .dtype = GetParam(),
                                                           .out_dtype = DType::kF32,
                                                           .a = p[a],
                                                           .a_stride = transpose_a ? m : k,
                                                           .transpose_a = transpose_a,
                                                           .b = p[b],
                                                           .b_stride = transpose_b ? k : n,
                                                           .transpose_b = transpose_b,
                                                           .out = p[out],
                                                           .out_stride = n});
                          });
  }
}

TEST_P(CpuKernelsTest, AttentionDoesNotDependOnThreads) {
  for (const AttentionCase& shape : AttentionCases()) {
    Operands operands(5);
    KernelCall call;
    MakeAttention(shape, GetParam(), true, &operands, &call);
    ExpectSameForAllPools(operands, call);
  }
}

TEST_P(CpuKernelsTest, SumsOverRowsDoNotDependOnThreads) {
  Operands operands(6);
  const int64_t rows = 900, width = 200;
  const size_t x = operands.Random(GetParam(), rows * width);
  const size_t weight = operands.Random(GetParam(), width);
  const size_t rstd = operands.Random(DType::kF32, rows);
  const size_t dy = operands.Random(GetParam(), rows * width);
  const size_t dx = operands.Random(GetParam(), rows * width);
  const size_t dweight = operands.Random(DType::kF32, width);
  const size_t dbias = operands.Random(DType::kF32, width);
  const size_t large = operands.Random(DType::kF32, 200001);
  const size_t sums = operands.Raw(16);
  ExpectSameForAllPools(
      operands, [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
        absl::Status status =
            kernels.RmsNormBackward(stream, {.dtype = GetParam(),
                                             .rows = rows,
                                             .groups = 1,
                                             .width = width,
                                             .x = p[x],
                                             .x_stride = width,
                                             .weight = p[weight],
                                             .rstd = static_cast<float*>(p[rstd]),
                                             .dy = p[dy],
                                             .dy_stride = width,
                                             .dx = p[dx],
                                             .dx_stride = width,
                                             .accumulate = true,
                                             .dweight = static_cast<float*>(p[dweight])});
        status.Update(kernels.BiasBackward(stream, GetParam(), rows, width, p[dy], width,
                                           static_cast<float*>(p[dbias]), true));
        status.Update(kernels.SumOfSquares(stream, static_cast<float*>(p[large]), 200001,
                                           static_cast<double*>(p[sums])));
        status.Update(kernels.Sum(stream, static_cast<float*>(p[large]), 200001,
                                  static_cast<double*>(p[sums]) + 1));
        return status;
      });
}

// The product has few rows, so that the roles of its operands are exchanged.
TEST_P(CpuKernelsTest, ExpertsDoNotDependOnThreads) {
  constexpr int64_t kTokens = 700, kExperts = 24, kChosen = 3, kWidth = 300, kRows = 60;
  Operands operands(6);
  const SortedChoice sorted = ChooseExperts(operands.random(), kTokens, kExperts, kChosen, 20);
  const size_t logits = operands.Random(DType::kF32, kTokens * kExperts);
  const size_t choice = operands.Ints(sorted.choice), offsets = operands.Ints(sorted.offsets);
  const size_t assignments = operands.Ints(sorted.assignments), rows = operands.Ints(sorted.rows);
  const size_t probability = operands.Ints(std::vector<int32_t>(2 * kExperts));
  const size_t weights = operands.Random(DType::kF32, kTokens * kChosen);
  const size_t x = operands.Random(GetParam(), kTokens * kChosen * kWidth);
  const size_t sum = operands.Random(DType::kF32, kTokens * kWidth);
  const size_t matrix = operands.Random(GetParam(), kWidth * kWidth);
  const size_t y = operands.Random(GetParam(), kRows * kWidth);
  ExpectSameForAllPools(
      operands, [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
        const auto ints = [&](size_t operand) { return static_cast<int32_t*>(p[operand]); };
        absl::Status status =
            kernels.RouterSums(stream, {.tokens = kTokens,
                                        .experts = kExperts,
                                        .logits = static_cast<float*>(p[logits]),
                                        .probability = static_cast<double*>(p[probability])});
        status.Update(kernels.SortAssignments(stream, {.tokens = kTokens,
                                                       .experts = kExperts,
                                                       .chosen = kChosen,
                                                       .choice = ints(choice),
                                                       .offsets = ints(offsets),
                                                       .assignments = ints(assignments),
                                                       .rows = ints(rows)}));
        // By token and, of few rows, by columns.
        for (const int64_t count : {int64_t{50}, kTokens * kChosen - 50}) {
          const int64_t first = count == 50 ? 0 : 50;
          status.Update(kernels.AddRows(stream, {.dtype = GetParam(),
                                                 .width = kWidth,
                                                 .range = {.first = first,
                                                           .rows = count,
                                                           .tokens = kTokens,
                                                           .chosen = kChosen,
                                                           .assignments = ints(assignments),
                                                           .token_rows = ints(rows)},
                                                 .x = p[x],
                                                 .weights = static_cast<float*>(p[weights]),
                                                 .sum = static_cast<float*>(p[sum])}));
        }
        status.Update(kernels.MatMul(stream, {.m = kRows,
                                              .n = kWidth,
                                              .k = kWidth,
                                              .dtype = GetParam(),
                                              .out_dtype = GetParam(),
                                              .a = p[x],
                                              .a_stride = kWidth,
                                              .b = p[matrix],
                                              .b_stride = kWidth,
                                              .transpose_b = true,
                                              .out = p[y],
                                              .out_stride = kWidth}));
        return status;
      });
}

TEST_P(CpuKernelsTest, GatedDeltaDoesNotDependOnThreads) {
  for (const DeltaCase& shape : DeltaCases()) {
    Operands operands(5);
    KernelCall call;
    MakeGatedDelta(shape, GetParam(), true, &operands, &call);
    ExpectSameForAllPools(operands, call);
  }
}

TEST_P(CpuKernelsTest, DeltaNetsSumsOverTokensDoNotDependOnThreads) {
  constexpr int64_t kTokens = 900, kChannels = 300, kKernel = 4, kHeads = 5, kDim = 60;
  Operands operands(7);
  const DocumentOperands documents(&operands, {0, 100, 101, kTokens});
  const size_t x = operands.Random(GetParam(), kTokens * kChannels);
  const size_t y = operands.Random(GetParam(), kTokens * kChannels);
  const size_t dx = operands.Random(GetParam(), kTokens * kChannels);
  const size_t dgate = operands.Random(GetParam(), kTokens * kChannels);
  const size_t weight = operands.Random(GetParam(), kChannels * kKernel);
  const size_t dweight = operands.Random(DType::kF32, kChannels * kKernel);
  const size_t dnorm = operands.Random(DType::kF32, kDim);
  ExpectSameForAllPools(operands, [&](Kernels& kernels, Stream& stream,
                                      const std::vector<void*>& p) {
    absl::Status status =
        kernels.CausalConvBackward(stream, {.forward = {.dtype = GetParam(),
                                                        .documents = documents.Bind(p),
                                                        .channels = kChannels,
                                                        .kernel = kKernel,
                                                        .x = p[x],
                                                        .x_stride = kChannels,
                                                        .weight = p[weight]},
                                            .dy = p[y],
                                            .dy_stride = kChannels,
                                            .dx = p[dx],
                                            .dx_stride = kChannels,
                                            .dweight = static_cast<float*>(p[dweight])});
    status.Update(kernels.GatedNormBackward(stream, {.forward = {.dtype = GetParam(),
                                                                 .tokens = kTokens,
                                                                 .heads = kHeads,
                                                                 .head_dim = kDim,
                                                                 .epsilon = 1e-6f,
                                                                 .x = p[x],
                                                                 .weight = p[weight],
                                                                 .gate = p[dx],
                                                                 .gate_stride = kChannels},
                                                     .dout = p[y],
                                                     .dx = p[x],
                                                     .dgate = p[dgate],
                                                     .dgate_stride = kChannels,
                                                     .dweight = static_cast<float*>(p[dnorm])}));
    return status;
  });
}

// The update is cut into blocks here, and made as one beside it.
TEST_P(CpuKernelsTest, AdamWHasTheBitsOfASpan) {
  constexpr int64_t kElements = 70'001;
  AdamWStep step;
  step.step = 3;
  step.learning_rate = 1e-2;
  step.weight_decay = 0.5;
  const AdamWConstants constants = AdamWConstants::Make(step);
  for (const int bits : {0, 1, 2, 3}) {
    const bool split = bits & 1, decays = bits & 2;
    for (const bool is_bad : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << "split " << split << ", decays " << decays << ", a bad value " << is_bad);
      Operands operands(9);
      std::vector<float> gradients = Normal(operands.random(), kElements, 1.0);
      if (is_bad) gradients[40'000] = std::nanf("");
      const size_t gradient = operands.Values(GetParam(), gradients);
      const size_t weights = operands.Random(split ? DType::kBF16 : DType::kF32, kElements);
      const size_t remainder =
          operands.Ints(std::vector<int32_t>(kElements / 2 + 1, 0x01234567));  // two in each
      const size_t exp_avg = operands.Random(DType::kF32, kElements, 0.1);
      std::vector<float> squares = Normal(operands.random(), kElements, 1.0);
      for (float& square : squares) square = 0.01f + square * square;
      const size_t exp_avg_sq = operands.Values(DType::kF32, squares);
      const size_t untrusted = operands.Ints({0});
      const auto args_of = [&](const std::vector<void*>& p) {
        return AdamWArgs{
            .constants = constants,
            .decays = decays,
            .gradient_dtype = GetParam(),
            .span = {.gradient = p[gradient],
                     .weights = p[weights],
                     .remainder = split ? static_cast<int16_t*>(p[remainder]) : nullptr,
                     .exp_avg = static_cast<float*>(p[exp_avg]),
                     .exp_avg_sq = static_cast<float*>(p[exp_avg_sq]),
                     .elements = kElements},
            .untrusted = static_cast<int32_t*>(p[untrusted])};
      };
      CpuKernelsUnderTest cpu(3);
      const auto got =
          RunOn(cpu, operands, [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
            return kernels.AdamW(stream, args_of(p));
          });
      std::vector<Operands::Operand> want = operands.all();
      std::vector<void*> pointers;
      for (Operands::Operand& operand : want) pointers.push_back(operand.bytes.data());
      const AdamWArgs args = args_of(pointers);
      const bool trusted = AdamWUpdateSpan(constants, decays ? constants.decay : 1.0f,
                                           args.gradient_dtype, args.span);
      EXPECT_EQ(trusted, !is_bad);
      *args.untrusted = is_bad ? 1 : 0;
      for (size_t i = 0; i < want.size(); ++i) ExpectSame(got[i], want[i], NameOf(operands, i));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, CpuKernelsTest, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

TEST(CpuKernelsArgumentsTest, AttentionThatIsNotSupportedIsRefused) {
  CpuKernelsUnderTest cpu(1);
  static constexpr int32_t kStarts[] = {0, 3}, kLateStarts[] = {1, 3}, kShortStarts[] = {0, 2};
  const std::vector<float> q(24, 1.0f), kv(12, 1.0f);
  std::vector<float> out(24), lse(6);
  const AttentionArgs valid{.tokens = 3,
                            .heads = 2,
                            .kv_heads = 1,
                            .head_dim = 4,
                            .value_dim = 4,
                            .scale = 0.5f,
                            .document_starts = kStarts,
                            .documents = 1,
                            .q = q.data(),
                            .q_stride = 8,
                            .k = kv.data(),
                            .k_stride = 4,
                            .v = kv.data(),
                            .v_stride = 4,
                            .out = out.data(),
                            .lse = lse.data()};
  ASSERT_TRUE(cpu.kernels().Attention(cpu.stream(), valid).ok());
  const std::vector<std::function<void(AttentionArgs&)>> changes = {
      [](AttentionArgs& args) { args.kv_heads = 0; },
      [](AttentionArgs& args) { args.heads = 3, args.kv_heads = 2; },
      [](AttentionArgs& args) { args.head_dim = 0; },
      [](AttentionArgs& args) { args.head_dim = kCpuHeadDimMax + 1; },
      [](AttentionArgs& args) { args.value_dim = 0; },
      [](AttentionArgs& args) { args.value_dim = kCpuHeadDimMax + 1; },
      [](AttentionArgs& args) { args.shaping.window = -1; },
      [](AttentionArgs& args) { args.shaping.softcap = -1; },
      [](AttentionArgs& args) { args.shaping.softcap = std::nanf(""); },
      [](AttentionArgs& args) { args.shaping.softcap = HUGE_VALF; },
      [](AttentionArgs& args) { args.document_starts = kLateStarts; },
      [](AttentionArgs& args) { args.document_starts = kShortStarts; }};
  for (size_t i = 0; i < changes.size(); ++i) {
    AttentionBackwardArgs args;
    args.forward = valid;
    changes[i](args.forward);
    EXPECT_TRUE(absl::IsInvalidArgument(cpu.kernels().Attention(cpu.stream(), args.forward))) << i;
    EXPECT_TRUE(absl::IsInvalidArgument(cpu.kernels().AttentionBackward(cpu.stream(), args))) << i;
  }
  // Without tokens nothing is looked at.
  EXPECT_TRUE(cpu.kernels().Attention(cpu.stream(), {}).ok());
  EXPECT_TRUE(cpu.kernels().AttentionBackward(cpu.stream(), {}).ok());
}

TEST(CpuKernelsArgumentsTest, AProductWithoutTermsIsRefused) {
  CpuKernelsUnderTest cpu(1);
  const auto product = [&](int64_t m, int64_t n) {
    return cpu.kernels().MatMul(cpu.stream(), {.m = m, .n = n, .k = 0});
  };
  EXPECT_TRUE(absl::IsInvalidArgument(product(1, 1)));
  EXPECT_TRUE(product(0, 1).ok()) << "there is nothing to compute";
  EXPECT_TRUE(product(1, 0).ok()) << "there is nothing to compute";
}

TEST(CpuKernelsArgumentsTest, AWorkspaceThatIsTooSmallIsRefused) {
  CpuKernelsUnderTest cpu(1);
  constexpr int32_t kStarts[] = {0, 70};
  GatedDeltaBackwardArgs args;
  args.forward = {.documents = {.tokens = 70, .documents = 1, .starts = kStarts},
                  .key_heads = 1,
                  .value_heads = 2,
                  .key_dim = 16,
                  .value_dim = 16};
  args.workspace_bytes = cpu.kernels().GatedDeltaBackwardWorkspaceBytes({70, 1, 2, 16, 16}) - 1;
  EXPECT_TRUE(absl::IsInvalidArgument(cpu.kernels().GatedDeltaBackward(cpu.stream(), args)));
}

TEST(CpuKernelSizesTest, WorkspacesOfGradients) {
  const CpuKernelSizes sizes(4);
  // The sums of dq, and one more number of each token and head.
  EXPECT_EQ(sizes.AttentionBackwardWorkspaceBytes({.tokens = 100, .heads = 6, .head_dim = 64}),
            4 * 100 * 6 * (64 + 1));
  // For each value head its values, and a state for each whole chunk, in rows of whole vectors.
  EXPECT_EQ(sizes.GatedDeltaBackwardWorkspaceBytes({140, 2, 4, 72, 136}),
            4 * 4 * 144 * (140 + 2 * 80));
  // Here a key head takes 24 MiB: all four of them fit into 256 MiB, but ten of sixteen.
  constexpr int64_t kKeyHead = int64_t{24} << 20;
  EXPECT_EQ(sizes.GatedDeltaBackwardWorkspaceBytes({8192, 4, 8, 128, 128}), 4 * kKeyHead);
  EXPECT_EQ(sizes.GatedDeltaBackwardWorkspaceBytes({8192, 16, 32, 128, 128}), 10 * kKeyHead);
  // One alone takes 3 GiB.
  EXPECT_EQ(sizes.GatedDeltaBackwardWorkspaceBytes({1 << 20, 16, 32, 128, 128}), int64_t{3} << 30);
}

TEST(CpuKernelsClockTest, SecondsOfProductsAreCounted) {
  CpuKernelsUnderTest cpu(1);
  EXPECT_EQ(cpu.kernels().MatMulSeconds(), 0.0);
  const float a = 2, b = 3;
  float out = 0;
  ASSERT_TRUE(cpu.kernels()
                  .MatMul(cpu.stream(), {.m = 1,
                                         .n = 1,
                                         .k = 1,
                                         .a = &a,
                                         .a_stride = 1,
                                         .b = &b,
                                         .b_stride = 1,
                                         .out = &out,
                                         .out_stride = 1})
                  .ok());
  EXPECT_EQ(out, 6.0f);
  EXPECT_GT(cpu.kernels().MatMulSeconds(), 0.0);
}

}  // namespace
}  // namespace megatrain
