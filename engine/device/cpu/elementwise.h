// Sums, conversions and the embedding's gradient over ranges of elements. The cpu kernels
// distribute such ranges over the pool's threads; each call runs on the calling thread.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_ELEMENTWISE_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_ELEMENTWISE_H_

#include "engine/device/kernels.h"

namespace megatrain {

// Return the sum of x[i]^2 and of x[i], in FP64.
double SumOfSquaresOf(const float* x, int64_t n);
double SumOf(const float* x, int64_t n);

// out[i] += sum over rows of x[row, i] for n columns, in the order of the rows.
void AddUpRows(DType dtype, const void* x, int64_t rows, int64_t n, int64_t stride, float* out);

// Computes elements [begin, end) of y (see AddArgs), counted row by row.
void AddElements(const AddArgs& args, int64_t begin, int64_t end);

// Computes out[i] = scale * x[i] for n elements of dtype. `out` may be `x`.
void ScaleElements(DType dtype, const void* x, int64_t n, float scale, void* out);

// Convert n elements from left to right. NarrowToBf16 may work in place (`out` == `x`); the other
// operands must not overlap. NarrowToBf16 rounds to nearest even.
void NarrowToBf16(const float* x, int64_t n, bf16_t* out);
void WidenToFloat(const bf16_t* x, int64_t n, float* out);
// Do the same conversions for a [rows, columns] block whose rows are a stride apart, in elements.
void NarrowBlock(const float* x, int64_t x_stride, int64_t rows, int64_t columns, bf16_t* out,
                 int64_t out_stride);
void WidenBlock(const bf16_t* x, int64_t x_stride, int64_t rows, int64_t columns, float* out,
                int64_t out_stride);

// Converts a [rows, columns] block to dtype, transposed: `out` is [columns, rows]. Strides are in
// elements.
void TransposeBlock(const float* x, int64_t x_stride, int64_t rows, int64_t columns, DType dtype,
                    void* out, int64_t out_stride);

// Adds to columns [column_begin, column_end) of args.dtable the gradient of some ids: those whose
// first place in sorted_positions is in [begin, end). args.add is not read: without it the caller
// zeroes dtable first.
void EmbeddingBackwardIds(const EmbeddingBackwardArgs& args, int64_t begin, int64_t end,
                          int64_t column_begin, int64_t column_end);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_ELEMENTWISE_H_
