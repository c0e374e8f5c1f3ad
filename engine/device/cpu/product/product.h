// A single-threaded matrix product of strided matrices, by the library oneDNN. MatMul and attention
// of the cpu device are built from it. Work runs in parallel on the engine's thread pool only, so
// OpenMP, which oneDNN uses, is limited to one thread.
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

// Describes out[m, n] (+)= alpha * op(a)[m, k] * op(b)[k, n] (+ bias[n]), with transposition and
// strides as in MatMulArgs.
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::kF32;      // the type of a, b and bias
  DType out_dtype = DType::kF32;  // the type of out
  bool transpose_a = false, transpose_b = false;
  bool bias = false;        // true: there is a bias
  bool accumulate = false;  // true: adds the product to out, and the sum is rounded once
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

// Returns the library, its version and the instruction set that it uses on this processor, such as
// "oneDNN 2.7.3 (avx512_core_bf16)".
std::string ProductLibrary();

// The product of one shape, ready to run.
//
// Thread safety: one thread at a time may use an object, because it holds the operands' addresses
// during a call. Objects of one shape share oneDNN's generated code, so each thread can have its
// own object. Any thread may call Create.
class Product {
 public:
  // Calls UseOneOpenMpThread. Returns Internal if oneDNN cannot make such a product.
  static absl::StatusOr<std::unique_ptr<Product>> Create(const ProductShape& shape);
  ~Product();

  // Returns the size of the scratch memory that Run needs, in bytes.
  size_t scratch_bytes() const;
  // Computes the product and returns when it is done. Returns Internal if oneDNN fails. `bias` is
  // not read unless shape.bias. `scratch` must have scratch_bytes(), aligned to 64 bytes. No
  // pointer is used after the call. REQUIRES: the calling thread has called UseOneOpenMpThread.
  absl::Status Run(const void* a, const void* b, void* out, const void* bias, void* scratch);

 private:
  struct State;
  explicit Product(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Returns true if this processor has instructions for BF16 products (AVX-512 BF16) and oneDNN uses
// them. The environment variable DNNL_MAX_CPU_ISA can keep oneDNN from that.
bool HasNativeBf16();

// Limits OpenMP, for good, to one thread in the parallel regions that the calling thread starts.
// Further calls on the same thread do nothing.
void UseOneOpenMpThread();

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_PRODUCT_PRODUCT_H_
