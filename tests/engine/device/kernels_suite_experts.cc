// The suite's tests of the kernels that move rows between tokens and experts.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "tests/engine/device/expert_cases.h"
#include "tests/engine/device/kernels_suite.h"

namespace megatrain {
namespace {

struct RowsCase {
  int64_t tokens, experts, chosen, used, width;
};

const std::vector<RowsCase>& RowsCases() {
  static const std::vector<RowsCase>& cases = *new std::vector<RowsCase>{
      {1, 1, 1, 1, 1},       {20, 1, 1, 1, 8},      {12, 5, 5, 5, 37},     {40, 8, 2, 5, 100},
      {9, 32, 4, 30, 264},   {3, 128, 8, 128, 512}, {70, 16, 1, 3, 17},    {150, 64, 6, 64, 1032},
      {700, 128, 8, 9, 130}, {5, 6, 2, 6, 5000},    {300, 16, 4, 16, 2048}};
  return cases;
}

std::string NameOf(const RowsCase& c) {
  return std::to_string(c.tokens) + " tokens of " + std::to_string(c.width) + ", " +
         std::to_string(c.chosen) + " of " + std::to_string(c.experts) + " experts";
}

// The cases of a tested size.
std::vector<RowsCase> TestedRowsCases() {
  std::vector<RowsCase> tested;
  for (const RowsCase& c : RowsCases()) {
    if (SizeIsTested(c.tokens * c.chosen * c.width)) tested.push_back(c);
  }
  return tested;
}

char* RowAt(void* x, DType dtype, int64_t row, int64_t width) {
  return static_cast<char*>(x) + row * width * DTypeBytes(dtype);
}

}  // namespace

// Copies are exact, and so are products that are rounded once.
TEST_P(KernelsSuite, GatherRows) {
  for (const RowsCase& c : TestedRowsCases()) {
    SCOPED_TRACE(NameOf(c));
    Operands operands(static_cast<uint64_t>(c.width));
    const SortedChoice sorted =
        ChooseExperts(operands.random(), c.tokens, c.experts, c.chosen, c.used);
    const ChoiceOperands choice(&operands, sorted);
    const size_t x = operands.Random(dtype(), c.tokens * c.width);
    const size_t weights = operands.Random(DType::kF32, sorted.row_count());
    const size_t out = operands.Random(dtype(), sorted.row_count() * c.width);
    const size_t weighted = operands.Random(dtype(), sorted.row_count() * c.width);
    for (const std::vector<int64_t>& bounds : CutsOfRows(sorted)) {
      const KernelCall call = [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
        for (size_t i = 0; i + 1 < bounds.size(); ++i) {
          for (const bool with_weights : {false, true}) {
            MT_RETURN_IF_ERROR(kernels.GatherRows(
                stream,
                {.dtype = dtype(),
                 .width = c.width,
                 .range = choice.Range(p, bounds[i], bounds[i + 1] - bounds[i]),
                 .x = p[x],
                 .weights = with_weights ? static_cast<const float*>(p[weights]) : nullptr,
                 .out = RowAt(p[with_weights ? weighted : out], dtype(), bounds[i], c.width)}));
          }
        }
        return absl::OkStatus();
      };
      const auto got = RunOn(device(), operands, call), want = RunOnReference(operands, call);
      ExpectSame(got[out], want[out], "out, " + NameOf(operands, out));
      ExpectSame(got[weighted], want[weighted], "weighted, " + NameOf(operands, weighted));
      ExpectSame(got[x], want[x], "x, " + NameOf(operands, x));
    }
  }
}

// The sums have the same bits however the rows are cut.
TEST_P(KernelsSuite, AddRows) {
  for (const RowsCase& c : TestedRowsCases()) {
    SCOPED_TRACE(NameOf(c));
    Operands operands(static_cast<uint64_t>(c.width));
    const SortedChoice sorted =
        ChooseExperts(operands.random(), c.tokens, c.experts, c.chosen, c.used);
    const ChoiceOperands choice(&operands, sorted);
    const size_t x = operands.Random(dtype(), sorted.row_count() * c.width);
    const size_t weights = operands.Random(DType::kF32, sorted.row_count());
    const size_t sum = operands.Random(DType::kF32, c.tokens * c.width);
    const size_t weighted = operands.Random(DType::kF32, c.tokens * c.width);
    std::vector<std::vector<char>> bits[2];
    for (const std::vector<int64_t>& bounds : CutsOfRows(sorted)) {
      const KernelCall call = [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
        for (size_t i = 0; i + 1 < bounds.size(); ++i) {
          for (const bool with_weights : {false, true}) {
            MT_RETURN_IF_ERROR(kernels.AddRows(
                stream, {.dtype = dtype(),
                         .width = c.width,
                         .range = choice.Range(p, bounds[i], bounds[i + 1] - bounds[i]),
                         .x = RowAt(p[x], dtype(), bounds[i], c.width),
                         .weights = with_weights ? static_cast<const float*>(p[weights]) : nullptr,
                         .sum = static_cast<float*>(p[with_weights ? weighted : sum])}));
          }
        }
        return absl::OkStatus();
      };
      const auto got = RunOn(device(), operands, call), want = RunOnReference(operands, call);
      ExpectClose(got[sum], want[sum], 2e-6, "sum, " + NameOf(operands, sum));
      ExpectClose(got[weighted], want[weighted], 2e-6,
                  "weighted sum, " + NameOf(operands, weighted));
      bits[0].push_back(got[sum].bytes);
      bits[1].push_back(got[weighted].bytes);
    }
    for (const auto& of_cuts : bits) {
      for (const std::vector<char>& of_cut : of_cuts) {
        EXPECT_TRUE(of_cut == of_cuts[0]) << "THE CUT CHANGES BITS";
      }
    }
  }
}

// A token without a row in the range keeps its bits, whatever they are.
TEST_P(KernelsSuite, AddRowsLeavesOtherTokensAlone) {
  constexpr int64_t kTokens = 60, kWidth = 24, kFirst = 33, kRows = 7;
  Operands operands(4);
  const SortedChoice sorted = ChooseExperts(operands.random(), kTokens, 12, 3, 11);
  const ChoiceOperands choice(&operands, sorted);
  std::vector<bool> has_row(kTokens, false);
  for (size_t row = kFirst; row < kFirst + kRows; ++row) {
    has_row[static_cast<size_t>(sorted.assignments[row] / sorted.chosen)] = true;
  }
  std::vector<float> before(kTokens * kWidth, 1.0f);
  for (size_t i = 0; i < before.size(); ++i) {
    if (!has_row[i / kWidth]) before[i] = std::numeric_limits<float>::quiet_NaN();
  }
  const size_t x = operands.Random(dtype(), kRows * kWidth);
  const size_t sum = operands.Values(DType::kF32, before);
  ExpectLikeReference(device(), operands, 2e-6,
                      [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
                        return kernels.AddRows(stream, {.dtype = dtype(),
                                                        .width = kWidth,
                                                        .range = choice.Range(p, kFirst, kRows),
                                                        .x = p[x],
                                                        .sum = static_cast<float*>(p[sum])});
                      });
}

// The tile of the bias begins one expert before that of the first row.
TEST_P(KernelsSuite, WeighRows) {
  for (const RowsCase& c : TestedRowsCases()) {
    for (const bool with_bias : {false, true}) {
      SCOPED_TRACE(NameOf(c) + (with_bias ? ", bias" : ""));
      Operands operands(static_cast<uint64_t>(c.width));
      const SortedChoice sorted =
          ChooseExperts(operands.random(), c.tokens, c.experts, c.chosen, c.used);
      const ChoiceOperands choice(&operands, sorted);
      const int64_t rows = sorted.row_count(), bias_width = c.width / 2 + 3;
      const size_t weights = operands.Random(DType::kF32, rows);
      const size_t out = operands.Random(dtype(), rows * c.width);
      const size_t dout = operands.Random(dtype(), rows * c.width);
      const size_t dweights = operands.Random(DType::kF32, rows);
      const size_t bias = operands.Random(dtype(), c.experts * bias_width);
      const size_t dy = operands.Random(dtype(), rows * bias_width);
      std::vector<char> bits;
      for (const std::vector<int64_t>& bounds : CutsOfRows(sorted)) {
        const KernelCall call = [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
          for (size_t i = 0; i + 1 < bounds.size(); ++i) {
            const int64_t first = bounds[i], count = bounds[i + 1] - first;
            WeighRowsArgs args{.dtype = dtype(),
                               .width = c.width,
                               .range = choice.Range(p, first, count),
                               .weights = static_cast<const float*>(p[weights]),
                               .out = RowAt(p[out], dtype(), first, c.width),
                               .dout = RowAt(p[dout], dtype(), first, c.width),
                               .dweights = static_cast<float*>(p[dweights])};
            if (with_bias) {
              // The tile begins with the first row's expert.
              const auto after = std::upper_bound(sorted.offsets.begin(), sorted.offsets.end(),
                                                  static_cast<int32_t>(first));
              const int64_t expert =
                  std::clamp<int64_t>(after - sorted.offsets.begin() - 2, 0, c.experts - 1);
              args.bias = RowAt(p[bias], dtype(), expert, bias_width);
              args.bias_width = bias_width;
              args.dy = RowAt(p[dy], dtype(), first, bias_width);
              args.choice = static_cast<const int32_t*>(p[choice.choice]);
              args.first_expert = expert;
            }
            MT_RETURN_IF_ERROR(kernels.WeighRows(stream, args));
          }
          return absl::OkStatus();
        };
        const auto got = RunOn(device(), operands, call), want = RunOnReference(operands, call);
        ExpectClose(got[dweights], want[dweights], 4e-6, "dweights, " + NameOf(operands, dweights));
        // The reference rounds dout once.
        ExpectSame(got[dout], want[dout], "dout, " + NameOf(operands, dout));
        ExpectSame(got[out], want[out], "out, " + NameOf(operands, out));
        if (bits.empty()) bits = got[dweights].bytes;
        EXPECT_TRUE(got[dweights].bytes == bits) << "THE CUT CHANGES BITS";
      }
    }
  }
}

// Only the weights of the range's rows get a gradient.
TEST_P(KernelsSuite, WeighRowsLeavesOtherRowsAlone) {
  constexpr int64_t kFirst = 10, kRows = 9, kWidth = 40;
  Operands operands(3);
  const SortedChoice sorted = ChooseExperts(operands.random(), 20, 6, 2, 6);
  const ChoiceOperands choice(&operands, sorted);
  std::vector<float> before(sorted.choice.size(), std::numeric_limits<float>::quiet_NaN());
  for (size_t row = kFirst; row < kFirst + kRows; ++row) {
    before[static_cast<size_t>(sorted.assignments[row])] = 1.0f;
  }
  const size_t weights = operands.Random(DType::kF32, sorted.row_count());
  const size_t out = operands.Random(dtype(), kRows * kWidth);
  const size_t dout = operands.RandomBefore(dtype(), kRows * kWidth, kWidth);
  const size_t dweights = operands.Values(DType::kF32, before);
  ExpectLikeReference(device(), operands, tolerance(),
                      [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
                        return kernels.WeighRows(stream,
                                                 {.dtype = dtype(),
                                                  .width = kWidth,
                                                  .range = choice.Range(p, kFirst, kRows),
                                                  .weights = static_cast<const float*>(p[weights]),
                                                  .out = p[out],
                                                  .dout = p[dout],
                                                  .dweights = static_cast<float*>(p[dweights])});
                      });
}

}  // namespace megatrain
