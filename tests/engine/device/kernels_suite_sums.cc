// Of the suite: sums over all of an operand, casts, zeros.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <vector>

#include "engine/base/status.h"
#include "tests/engine/device/kernels_suite.h"

namespace megatrain {

TEST_P(KernelsSuite, BiasBackward) {
  struct Case {
    int64_t rows, n, padding;
  };
  for (const Case& c : {Case{700, 1, 2}, Case{700, 45, 2}, Case{700, 130, 2}, Case{1, 8, 0},
                        Case{700, 264, 8}, Case{3000, 1152, 0}}) {
    const int64_t rows = SizeIsTested(c.rows * c.n) ? c.rows : 40, n = c.n, stride = n + c.padding;
    SCOPED_TRACE(testing::Message() << rows << "x" << n << ", stride " << stride);
    Operands operands(static_cast<uint64_t>(n));
    const size_t dy = operands.Random(dtype(), rows * stride);
    // Added to, or written over whatever was there.
    const bool add = rows == 700;
    const size_t dbias = operands.Random(DType::kF32, n);
    ExpectLikeReference(device(), operands, 4e-6,
                        [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
                          return kernels.BiasBackward(stream, dtype(), rows, n, p[dy], stride,
                                                      static_cast<float*>(p[dbias]), add);
                        });
  }
}

TEST_P(KernelsSuite, GradientsOfNoRowsAreZero) {
  constexpr int64_t kWidth = 40;
  Operands operands(5);
  const size_t x = operands.Random(dtype(), kWidth);
  const size_t weight = operands.Random(dtype(), kWidth);
  const size_t rstd = operands.Random(DType::kF32, 1);
  const size_t dx = operands.Random(dtype(), kWidth);
  const size_t gradients = operands.Random(DType::kF32, 2 * kWidth);
  const auto got =
      RunOn(device(), operands, [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
        auto* const out = static_cast<float*>(p[gradients]);
        MT_RETURN_IF_ERROR(kernels.BiasBackward(stream, dtype(), 0, kWidth, p[x], kWidth, out,
                                                /*add=*/false));
        return kernels.RmsNormBackward(stream, {.dtype = dtype(),
                                                .rows = 0,
                                                .width = kWidth,
                                                .x = p[x],
                                                .x_stride = kWidth,
                                                .weight = p[weight],
                                                .rstd = static_cast<float*>(p[rstd]),
                                                .dy = p[x],
                                                .dy_stride = kWidth,
                                                .dx = p[dx],
                                                .dx_stride = kWidth,
                                                .dweight = out + kWidth,
                                                .add_dweight = false});
      });
  const std::vector<float> zeros(2 * kWidth, 0.0f);
  EXPECT_EQ(std::memcmp(got[gradients].bytes.data(), zeros.data(), zeros.size() * sizeof(float)),
            0);
}

TEST_P(KernelsSuite, SumsAreInDouble) {
  for (int64_t n : {1, 77, 100003, 2500002}) {
    if (!SizeIsTested(n / 8)) continue;
    std::vector<float> values = Normal(Operands(9).random(), n, 1.0);
    Operands operands(9);
    const size_t x = operands.Values(DType::kF32, values);
    const size_t sums = operands.Values(DType::kF32, {0, 0, 0, 0});  // two doubles
    const auto got = RunOn(
        device(), operands, [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
          MT_RETURN_IF_ERROR(kernels.SumOfSquares(stream, static_cast<float*>(p[x]), n,
                                                  static_cast<double*>(p[sums])));
          return kernels.Sum(stream, static_cast<float*>(p[x]), n,
                             static_cast<double*>(p[sums]) + 1);
        });
    long double want[2] = {0, 0};
    double size = 0, sum[2];
    for (float value : values) {
      want[0] += static_cast<double>(value) * value;
      want[1] += value;
      size += std::abs(value);
    }
    std::memcpy(sum, got[sums].bytes.data(), sizeof(sum));
    EXPECT_NEAR(sum[0], static_cast<double>(want[0]), 1e-13 * static_cast<double>(want[0]));
    EXPECT_NEAR(sum[1], static_cast<double>(want[1]), 1e-13 * size);
  }
}

TEST_P(KernelsSuite, SumOfSquaresShowsWhatIsNotFinite) {
  for (float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF, 3e38f}) {
    std::vector<float> values(70001, 1.0f);
    values[69990] = bad;
    Operands operands(9);
    const size_t x = operands.Values(DType::kF32, values);
    const size_t sum = operands.Values(DType::kF32, {0, 0});  // a double
    const auto got = RunOn(device(), operands,
                           [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
                             return kernels.SumOfSquares(stream, static_cast<float*>(p[x]), 70001,
                                                         static_cast<double*>(p[sum]));
                           });
    double result = 0;
    std::memcpy(&result, got[sum].bytes.data(), 8);
    EXPECT_EQ(std::isfinite(result), std::isfinite(bad)) << bad;
  }
}

TEST_P(KernelsSuite, CastToBf16InPlaceRoundsToNearestEven) {
  for (int64_t n : {1, 19, 300007, 5000003}) {
    if (!SizeIsTested(n / 32)) continue;
    std::vector<float> values = Normal(Operands(8).random(), n, 1.0);
    const float special[] = {
        std::nanf(""), -std::nanf("0x7fffff"), HUGE_VALF, 3.4e38f, -0.0f, 1.00390625f, 1.01171875f};
    for (size_t i = 0; i < std::size(special) && n > 10; ++i) {
      values[i] = values[values.size() - 1 - i] = special[i];
    }
    Operands operands(8);
    const size_t x = operands.Values(DType::kF32, values);
    const auto got = RunOn(device(), operands,
                           [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
                             return kernels.CastToBf16InPlace(stream, p[x], n);
                           });
    for (size_t i = 0; i < values.size(); ++i) {
      bf16_t rounded = 0;
      std::memcpy(&rounded, got[x].bytes.data() + 2 * i, 2);
      ASSERT_EQ(rounded, FloatToBf16(values[i])) << "element " << i << ", " << values[i];
    }
  }
}

TEST_P(KernelsSuite, Scale) {
  for (int64_t n : {1, 19, 4096, 300007}) {
    if (!SizeIsTested(n / 32)) continue;
    SCOPED_TRACE(testing::Message() << n << " elements");
    Operands operands(static_cast<uint64_t>(n));
    const size_t x = operands.Random(dtype(), n);
    const size_t factor = operands.Random(dtype(), 1);
    const KernelCall call = [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
      return kernels.Scale(stream, dtype(), p[x], n, p[factor]);
    };
    const auto got = RunOn(device(), operands, call), want = RunOnReference(operands, call);
    ExpectSame(got[x], want[x], NameOf(operands, x));
  }
}

TEST_P(KernelsSuite, Zero) {
  Operands operands(7);
  const size_t x = operands.Random(DType::kF32, 100000);
  const auto got =
      RunOn(device(), operands, [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
        return kernels.Zero(stream, p[x], 399999);
      });
  EXPECT_EQ(std::count(got[x].bytes.begin(), got[x].bytes.end() - 1, 0), 399999);
  EXPECT_EQ(got[x].bytes.back(), operands.all()[x].bytes.back());
}

TEST_P(KernelsSuite, Add) {
  struct Case {
    int64_t rows, width, padding;
  };
  for (const Case& c : {Case{1, 1, 0}, Case{1, 300007, 0}, Case{37, 19, 5}, Case{130, 256, 64}}) {
    if (!SizeIsTested(c.rows * c.width / 32)) continue;
    for (const DType a_dtype : {DType::kF32, dtype()}) {
      for (const DType b_dtype : {DType::kF32, dtype()}) {
        for (const int add : {0, 1, 2}) {  // nothing, apart, in place
          SCOPED_TRACE(testing::Message() << c.rows << "x" << c.width << ", addend " << add);
          const int64_t stride = c.width + c.padding, elements = c.rows * stride;
          Operands operands(static_cast<uint64_t>(elements));
          const size_t a = operands.Random(a_dtype, elements);
          const size_t b = operands.Random(b_dtype, elements);
          const size_t y = operands.Random(dtype(), elements);
          const KernelCall call = [&](Kernels& kernels, Stream& stream,
                                      const std::vector<void*>& p) {
            return kernels.Add(stream, {.rows = c.rows,
                                        .width = c.width,
                                        .a = {a_dtype, p[a], stride},
                                        .b = {b_dtype, add == 0 ? nullptr : p[b], stride},
                                        .y_dtype = add == 2 ? b_dtype : dtype(),
                                        .y = p[add == 2 ? b : y],
                                        .y_stride = stride});
          };
          const auto got = RunOn(device(), operands, call), want = RunOnReference(operands, call);
          for (size_t i : {a, b, y}) {
            ExpectSame(got[i], want[i], NameOf(operands, i));
          }
        }
      }
    }
  }
}

}  // namespace megatrain
