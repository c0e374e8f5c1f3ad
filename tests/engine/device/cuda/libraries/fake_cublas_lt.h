// What the fake of cuBLASLt tells of the calls that it got, and what it is told to refuse.
#ifndef MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_LIBRARIES_FAKE_CUBLAS_LT_H_
#define MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_LIBRARIES_FAKE_CUBLAS_LT_H_

#include <cstdint>

namespace megatrain {

// In cuBLAS' terms, of column-major matrices.
struct FakeCublasLtCalls {
  int searches = 0, products = 0;
  int objects = 0;  // descriptions, layouts and preferences that are there
  // Of the last product, and of the search that found its algorithm.
  int64_t m = 0, n = 0, k = 0;
  int64_t searched_n = 0, searched_k = 0;
  const void* bias = nullptr;
  uint32_t searched_alignment_a = 0;  // of the last search
  // Products of other sizes than were searched are not supported.
  bool refuse_others = false;
};

}  // namespace megatrain

// Returns the library's own, by the name under which it is looked up.
extern "C" megatrain::FakeCublasLtCalls* FakeCublasLt();

#endif  // MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_LIBRARIES_FAKE_CUBLAS_LT_H_
