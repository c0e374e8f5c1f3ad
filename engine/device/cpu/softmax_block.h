// The element-wise half of blocked attention: what happens between the products of one block.
// Scores are scaled by `scale` and a masked score gives a probability that is a true zero. Rows of
// scores, p, dp and ds are read and written in whole vectors: strides are multiples of 16 elements
// and at least `columns`.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_SOFTMAX_BLOCK_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_SOFTMAX_BLOCK_H_

#include <cstdint>

#include "engine/base/dtype.h"

namespace megatrain {

// One step of the online softmax (Milakov & Gimelshein 2018) over a block of scores, a row a query.
struct SoftmaxStepArgs {
  DType dtype = DType::kF32;  // of p
  int64_t rows = 0, columns = 0;
  float scale = 0;
  const float* scores = nullptr;  // [rows, columns]
  int64_t stride = 0;
  void* p = nullptr;  // [rows, columns]; each row may start at the first byte of its scores
  int64_t p_stride = 0;
  const int32_t* first = nullptr;  // [rows]: the columns [first, last) of a row are visible,
  const int32_t* last = nullptr;   // clamped to the block; may be empty
  float* largest = nullptr;        // [rows], of the scaled scores so far; -inf at the start
  float* sum = nullptr;            // [rows], of exp(score - largest) so far; 0 at the start
  float* accumulator = nullptr;    // [rows, dim], contiguous: rescaled to the new largest
  int64_t dim = 0;
};
void SoftmaxStep(const SoftmaxStepArgs& args);

// out[row] = accumulator[row] / sum[row]; lse[row] = largest + log(sum).
void SoftmaxFinish(const SoftmaxStepArgs& args, DType out_dtype, void* out, int64_t out_stride,
                   float* lse);

// Backward over a transposed block, a row a key: p = exp(scale * scores - lse) and
// ds = p * (dp - delta) * scale, both of type dtype.
struct SoftmaxBackwardArgs {
  DType dtype = DType::kF32;
  int64_t rows = 0, columns = 0;
  float scale = 0;
  const float* scores = nullptr;  // [rows, columns]
  const float* dp = nullptr;      // [rows, columns]
  int64_t stride = 0;
  void* p = nullptr;   // [rows, columns]; each row may start at the first byte of its scores
  void* ds = nullptr;  // [rows, columns]; each row may start at the first byte of its dp
  int64_t p_stride = 0;
  const int32_t* first = nullptr;  // [rows]: queries [first, last) of a row see this key
  const int32_t* last = nullptr;
  const float* lse = nullptr;    // [columns]
  const float* delta = nullptr;  // [columns]: rowsum(dO * O)
};
void SoftmaxBackwardBlock(const SoftmaxBackwardArgs& args);

// out[row] = sum of a[row, i] * b[row, i].
void RowDots(DType dtype, int64_t rows, int64_t n, const void* a, const void* b, int64_t stride,
             float* out);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_SOFTMAX_BLOCK_H_
