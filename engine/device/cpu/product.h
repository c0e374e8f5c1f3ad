// A single-threaded matrix product on strided blocks, by oneDNN: what MatMul and attention are
// built from. All parallelism is the thread pool's; oneDNN's OpenMP is limited to one thread.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_PRODUCT_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_PRODUCT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/dtype.h"

namespace megatrain {

// out[m, n] (+)= op(a)[m, k] * op(b)[k, n] (+ bias[n]); strides as in MatMulArgs.
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::kF32;      // of a, b, bias
  DType out_dtype = DType::kF32;  // of out
  bool transpose_a = false, transpose_b = false;
  bool bias = false;
  bool accumulate = false;  // out is added to, rounded once
  int64_t a_stride = 0, b_stride = 0, out_stride = 0;

  friend bool operator==(const ProductShape&, const ProductShape&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const ProductShape& s) {
    return H::combine(std::move(h), s.m, s.n, s.k, s.dtype, s.out_dtype, s.transpose_a,
                      s.transpose_b, s.bias, s.accumulate, s.a_stride, s.b_stride, s.out_stride);
  }
};

// The library and the instructions that it chooses here, as "oneDNN 2.7.3 (avx512_core_bf16)".
std::string ProductLibrary();

// Thread safety: one thread at a time (it remembers the operands' places between calls); as many
// objects of one shape as there are threads share oneDNN's generated code.
class Product {
 public:
  static absl::StatusOr<std::unique_ptr<Product>> Create(const ProductShape& shape);
  ~Product();

  size_t scratch_bytes() const;
  // scratch: scratch_bytes(), 64-byte aligned, used during the call. bias: null unless shape.bias.
  absl::Status Run(const void* a, const void* b, void* out, const void* bias, void* scratch);

 private:
  struct State;
  explicit Product(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Whether this processor, as far as oneDNN may use it (DNNL_MAX_CPU_ISA), multiplies BF16 natively.
bool HasNativeBf16();

// Limits OpenMP to one thread in regions that the calling thread starts, for good.
void UseOneOpenMpThread();

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_PRODUCT_H_
