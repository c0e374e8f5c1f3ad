// Sums, conversions and the embedding's gradient over ranges of elements, for the cpu device. Each
// call runs on the calling thread. The cpu kernels distribute ranges over the pool's threads.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_ELEMENTWISE_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_ELEMENTWISE_H_

#include <cstdint>

#include "engine/device/kernels.h"

namespace megatrain {

// Return the sum of x[i]^2 and the sum of x[i] for i < n, in FP64.
double SumOfSquaresOf(const float* x, int64_t n);
double SumOf(const float* x, int64_t n);

// Computes out[i] += the sum over rows of x[row, i] for i < n, in FP32 in the order of the rows.
// Rows of `x`, which has type `dtype`, are `stride` elements apart.
void AddUpRows(DType dtype, const void* x, int64_t rows, int64_t n, int64_t stride, float* out);

// Computes elements [begin, end) of y (see AddArgs), counted row by row. Several threads may
// compute different ranges at once.
void AddElements(const AddArgs& args, int64_t begin, int64_t end);

// Computes out[i] = scale * x[i] for n elements of type `dtype`, rounded once. `out` may be `x`.
void ScaleElements(DType dtype, const void* x, int64_t n, float scale, void* out);

// Convert n elements. NarrowToBf16 rounds to nearest even, and its `out` may begin at `x`. The
// operands of WidenToFloat must not overlap.
void NarrowToBf16(const float* x, int64_t n, bf16_t* out);
void WidenToFloat(const bf16_t* x, int64_t n, float* out);
// Do the same conversions for a block [rows, columns], whose rows are x_stride and out_stride
// elements apart. Operands must not overlap.
void NarrowBlock(const float* x, int64_t x_stride, int64_t rows, int64_t columns, bf16_t* out,
                 int64_t out_stride);
void WidenBlock(const bf16_t* x, int64_t x_stride, int64_t rows, int64_t columns, float* out,
                int64_t out_stride);

// Writes the block x [rows, columns], converted to type `dtype` and transposed, to out [columns,
// rows]. Strides are distances between rows in elements. Operands must not overlap.
void TransposeBlock(const float* x, int64_t x_stride, int64_t rows, int64_t columns, DType dtype,
                    void* out, int64_t out_stride);

// Adds the gradients of some ids to columns [column_begin, column_end) of args.dtable. These are
// the ids whose first place in sorted_positions is in [place_begin, place_end); all of their tokens
// are added. args.add is not read, so the caller must zero dtable first if it is false. Several
// threads may compute different ranges at once.
void EmbeddingBackwardIds(const EmbeddingBackwardArgs& args, int64_t place_begin, int64_t place_end,
                          int64_t column_begin, int64_t column_end);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_ELEMENTWISE_H_
