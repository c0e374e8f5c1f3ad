// The element-wise half of attention by blocks (attention.h): the softmax between the products of a
// block. `scores` are the products q.k. They become scale * score or, with a softcap, softcap *
// tanh(scale * score / softcap). A masked score gives a probability of exactly 0.
//
// Rows of scores, p, dp and ds are read and written in whole vectors. So strides must be multiples
// of 16 elements and at least `columns`. Strides are distances between rows in elements.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_SOFTMAX_BLOCK_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_SOFTMAX_BLOCK_H_

#include <cstdint>

#include "engine/base/dtype.h"

namespace megatrain {

// One step of the online softmax (Milakov & Gimelshein 2018) over a block of scores with one row
// for each query.
struct SoftmaxStepArgs {
  DType dtype = DType::kF32;  // the type of p
  int64_t rows = 0, columns = 0;
  float scale = 0;          // positive
  float softcap = 0;        // 0: none
  float* scores = nullptr;  // [rows, columns]: q.k; overwritten if there is a softcap
  int64_t stride = 0;       // of scores
  void* p = nullptr;        // [rows, columns]; each row may start at the first byte of its scores
  int64_t p_stride = 0;
  // [rows]: columns [first, last) of a row are visible. The range may be empty. If it exceeds the
  // block, it is cut to the block.
  const int32_t* first = nullptr;
  const int32_t* last = nullptr;
  // [rows]: the largest score after scale and softcap, and the sum of exp(score - largest), both
  // over the steps so far. At first they must be -inf and 0 or, with a sink, the sink and 1.
  float* largest = nullptr;
  float* sum = nullptr;
  // [rows, dim], contiguous, 0 at first: the sum of p times the values so far. SoftmaxStep rescales
  // it to the new `largest`. Then the caller must add the product of the new p with the values.
  float* accumulator = nullptr;
  int64_t dim = 0;
};
// Writes p and updates largest, sum and accumulator.
void SoftmaxStep(const SoftmaxStepArgs& args);

// Computes out[row] [dim] = accumulator[row] / sum[row] and lse[row] = largest[row] + log(sum[row])
// after the last step. Reads only rows, dim, accumulator, largest and sum of `args`. REQUIRES: each
// row has seen a key or has a sink.
void SoftmaxFinish(const SoftmaxStepArgs& args, DType out_dtype, void* out, int64_t out_stride,
                   float* lse);

// The backward pass over a transposed block, with one row for each key and one column for each
// query. It computes p = exp(score - lse) and ds = p * (dp - delta) * scale, both of type `dtype`.
// Here `score` is the score after scale and softcap. With a softcap, ds has the further factor 1 -
// (score / softcap)^2.
struct SoftmaxBackwardArgs {
  DType dtype = DType::kF32;
  int64_t rows = 0, columns = 0;
  float scale = 0;
  float softcap = 0;              // 0: none
  const float* scores = nullptr;  // [rows, columns]: q.k
  const float* dp = nullptr;      // [rows, columns]: the gradient by p
  int64_t stride = 0;             // of scores and dp
  void* p = nullptr;     // [rows, columns]; each row may start at the first byte of its scores
  void* ds = nullptr;    // [rows, columns]; each row may start at the first byte of its dp
  int64_t p_stride = 0;  // of p and ds
  const int32_t* first = nullptr;  // [rows]: queries [first, last) see the key of a row
  const int32_t* last = nullptr;
  const float* lse = nullptr;    // [columns]
  const float* delta = nullptr;  // [columns]: rowsum(dO * O)
};
void SoftmaxBackwardBlock(const SoftmaxBackwardArgs& args);

// Computes out[row] = the sum of a[row, i] * b[row, i] for i < n, in FP32. Both have type `dtype`,
// and their rows are `stride` elements apart.
void RowDots(DType dtype, int64_t rows, int64_t n, const void* a, const void* b, int64_t stride,
             float* out);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_SOFTMAX_BLOCK_H_
