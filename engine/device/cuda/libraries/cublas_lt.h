// Matrix products by cuBLASLt, NVIDIA's library for products, which is loaded at run time.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUBLAS_LT_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUBLAS_LT_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/device/cuda/libraries/cuda_api.h"

namespace megatrain {

// Returns the product for which the algorithm of `product` is searched: `product` with its number
// of tokens rounded up. So products with about as many tokens share an algorithm. A search takes a
// tenth of a millisecond, and an expert may get any number of tokens.
//
// There are eight rounded numbers between two powers of two: 1000 -> 1024, 1030 -> 1152. The number
// of tokens is n if b is not transposed, and k if only b is transposed. If both are transposed,
// nothing is rounded. All other sizes are those of weights. The workspace of an algorithm for more
// tokens suffices for fewer. REQUIRES: n and k are positive.
constexpr CudaProduct SearchedProduct(CudaProduct product) {
  const auto round_up = [](int64_t count) {
    const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(count)));
    const int64_t step = std::max(int64_t{1}, power / 8);
    return (count + step - 1) / step * step;
  };
  if (!product.transpose_b) {
    product.n = round_up(product.n);
  } else if (!product.transpose_a) {
    product.k = round_up(product.k);
  }
  return product;
}

// Thread safety: all methods may be called from any thread.
class CublasLt {
 public:
  // Loads the library for the calling thread's current device. `split_sums` allows the library to
  // split a product's sums into parts. Returns Unavailable if the library is not found or cannot be
  // used. The message then lists the places that were searched, or says what is wrong.
  static absl::StatusOr<std::unique_ptr<CublasLt>> Load(bool split_sums);
  virtual ~CublasLt() = default;

  // Returns the library's name, version and file.
  virtual CudaLibrary Library() const = 0;
  // Queues a product as CudaApi::Product does, but returns a cublasStatus_t, 0 for success. The
  // algorithm is the library's first choice for SearchedProduct(product). If that algorithm does
  // not take `product`, the first choice for `product` itself is used. REQUIRES: workspace_bytes is
  // the same in all calls, and the calling thread's current device is that of Load.
  virtual int Product(void* stream, const CudaProduct& product, void* workspace,
                      int64_t workspace_bytes) = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUBLAS_LT_H_
