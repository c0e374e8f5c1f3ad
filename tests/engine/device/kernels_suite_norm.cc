// The suite's tests of RMSNorm and its gradient.
#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/base/status.h"
#include "tests/engine/device/kernels_suite.h"

namespace megatrain {

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

// The forms of the families: weights that are added to 1, no weight, an addend of its own or in
// place; full-width QK norm; rows of each operand a distance of their own apart.
TEST_P(KernelsSuite, RmsNormForms) {
  struct Case {
    int64_t rows, groups, width, padding;
  };
  enum Addend { kNone, kApart, kInPlace };
  for (const Case& c : {Case{37, 1, 100, 5}, Case{30, 3, 24, 1}, Case{35, 3, 64, 8},
                        Case{9, 1, 896, 16}, Case{7, 1, 3584, 8}, Case{3, 1, 8712, 8}}) {
    if (!SizeIsTested(c.rows * c.groups * c.width)) continue;
    for (const bool weighted : {true, false}) {
      for (const bool one_plus : {true, false}) {
        for (const Addend kind : {kNone, kApart, kInPlace}) {
          if ((weighted && !one_plus && kind == kNone) || (c.groups > 1 && kind != kNone)) continue;
          Operands operands(static_cast<uint64_t>(c.width));
          const int64_t all = c.groups * c.width;
          const int64_t x_stride = 3 * all + c.padding, y_stride = all;
          const int64_t dy_stride = all + 2 * c.padding, dx_stride = 2 * all + c.padding;
          const size_t x = operands.Random(dtype(), c.rows * x_stride, 2.0);
          const size_t weight = operands.Random(dtype(), c.width);
          const size_t y = operands.Random(dtype(), c.rows * y_stride);
          const size_t addend = operands.Random(dtype(), c.rows * y_stride);
          const size_t rstd = operands.Random(DType::kF32, c.rows * c.groups);
          const size_t dy = operands.Random(dtype(), c.rows * dy_stride);
          const size_t dx = operands.Random(dtype(), c.rows * dx_stride);
          const size_t dweight = operands.Random(DType::kF32, c.width);
          SCOPED_TRACE(testing::Message()
                       << c.rows << " rows of " << c.groups << "x" << c.width << ", weighted "
                       << weighted << ", one plus " << one_plus << ", addend " << kind);
          const KernelCall call = [&](Kernels& kernels, Stream& stream,
                                      const std::vector<void*>& p) {
            const void* const addends[] = {nullptr, p[addend], p[y]};
            MT_RETURN_IF_ERROR(kernels.RmsNorm(stream, {.dtype = dtype(),
                                                        .rows = c.rows,
                                                        .groups = c.groups,
                                                        .width = c.width,
                                                        .epsilon = 1e-5f,
                                                        .x = p[x],
                                                        .x_stride = x_stride,
                                                        .weight = weighted ? p[weight] : nullptr,
                                                        .y = p[y],
                                                        .y_stride = y_stride,
                                                        .rstd = static_cast<float*>(p[rstd]),
                                                        .one_plus_weight = one_plus,
                                                        .addend = addends[kind]}));
            return kernels.RmsNormBackward(
                stream, {.dtype = dtype(),
                         .rows = c.rows,
                         .groups = c.groups,
                         .width = c.width,
                         .x = p[x],
                         .x_stride = x_stride,
                         .weight = weighted ? p[weight] : nullptr,
                         .rstd = static_cast<float*>(p[rstd]),
                         .dy = p[dy],
                         .dy_stride = dy_stride,
                         .dx = p[dx],
                         .dx_stride = dx_stride,
                         .accumulate = kind == kApart,
                         .dweight = weighted ? static_cast<float*>(p[dweight]) : nullptr,
                         .add_dweight = kind == kInPlace,
                         .one_plus_weight = one_plus});
          };
          ExpectLikeReference(device(), operands, tolerance(), call);
        }
      }
    }
  }
}

// Where a row is small, epsilon is most of what its mean is divided by.
TEST_P(KernelsSuite, RmsNormOfSmallRowsAndOfZeros) {
  constexpr int64_t kRows = 9, kWidth = 100;
  Operands operands(5);
  std::vector<float> values = Normal(operands.random(), kRows * kWidth, 1e-3);
  std::fill_n(values.begin() + 4 * kWidth, kWidth, 0.0f);
  const size_t x = operands.Values(dtype(), values);
  const size_t weight = operands.Random(dtype(), kWidth);
  const size_t y = operands.Random(dtype(), kRows * kWidth);
  const size_t rstd = operands.Random(DType::kF32, kRows);
  const size_t dy = operands.Random(dtype(), kRows * kWidth);
  const size_t dx = operands.Random(dtype(), kRows * kWidth);
  const size_t dweight = operands.Random(DType::kF32, kWidth);
  const KernelCall call = [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
    MT_RETURN_IF_ERROR(kernels.RmsNorm(stream, {.dtype = dtype(),
                                                .rows = kRows,
                                                .groups = 1,
                                                .width = kWidth,
                                                .epsilon = 1e-5f,
                                                .x = p[x],
                                                .x_stride = kWidth,
                                                .weight = p[weight],
                                                .y = p[y],
                                                .y_stride = kWidth,
                                                .rstd = static_cast<float*>(p[rstd])}));
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
                                            .dx = p[dx],
                                            .dx_stride = kWidth,
                                            .dweight = static_cast<float*>(p[dweight]),
                                            .add_dweight = false});
  };
  ExpectLikeReference(device(), operands, tolerance(), call);
  const auto got = RunOn(device(), operands, call);
  EXPECT_NEAR(ValueOf(got[rstd], 4), 1 / std::sqrt(1e-5), 1e-3);
}

}  // namespace megatrain
