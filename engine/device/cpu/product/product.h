// A single-threaded matrix product on strided blocks, by oneDNN. MatMul and attention of the cpu
// device are built from it. Only the thread pool runs work in parallel, so oneDNN's OpenMP is
// limited to one thread.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_PRODUCT_PRODUCT_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_PRODUCT_PRODUCT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/dtype.h"

namespace megatrain {

// Describes out[m, n] (+)= alpha * op(a)[m, k] * op(b)[k, n] (+ bias[n]), with strides as in
// MatMulArgs.
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::kF32;      // the type of a, b and bias
  DType out_dtype = DType::kF32;  // the type of out
  bool transpose_a = false, transpose_b = false;
  bool bias = false;
  bool accumulate = false;  // adds the product to out; the sum is rounded once
  int64_t a_stride = 0, b_stride = 0, out_stride = 0;
  float alpha = 1;

  friend bool operator==(const ProductShape&, const ProductShape&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const ProductShape& s) {
    return H::combine(std::move(h), s.m, s.n, s.k, s.dtype, s.out_dtype, s.transpose_a,
                      s.transpose_b, s.bias, s.accumulate, s.a_stride, s.b_stride, s.out_stride,
                      s.alpha);
  }
};

// Returns the library and the instruction set that it uses here: "oneDNN 2.7.3 (avx512_core_bf16)".
std::string ProductLibrary();

// The product of one shape, ready to run. Thread safety: one thread at a time, because it remembers
// the operands' addresses between calls. Several objects of one shape share oneDNN's generated
// code, so each thread can have its own.
class Product {
 public:
  // Calls UseOneOpenMpThread. Returns Internal if oneDNN cannot make such a product.
  static absl::StatusOr<std::unique_ptr<Product>> Create(const ProductShape& shape);
  ~Product();

  // Returns the size of the scratch memory that Run needs.
  size_t scratch_bytes() const;
  // Returns when the product is done; Internal if oneDNN fails. `scratch` must have
  // scratch_bytes(), aligned to 64 bytes, and is used during the call only. `bias` is null unless
  // shape.bias. REQUIRES: the calling thread has called UseOneOpenMpThread.
  absl::Status Run(const void* a, const void* b, void* out, const void* bias, void* scratch);

 private:
  struct State;
  explicit Product(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Returns true if this processor multiplies BF16 natively and the environment variable
// DNNL_MAX_CPU_ISA allows oneDNN to use that.
bool HasNativeBf16();

// Limits OpenMP permanently to one thread in parallel regions that the calling thread starts.
void UseOneOpenMpThread();

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_PRODUCT_PRODUCT_H_
