// What the fake of cuBLASLt tells of the calls that it got, and what it is told to refuse.
#ifndef MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_LIBRARIES_FAKE_CUBLAS_LT_H_
#define MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_LIBRARIES_FAKE_CUBLAS_LT_H_

#include <cstdint>

namespace megatrain {

// In cuBLAS' terms, of column-major matrices.
struct FakeCublasLtCalls {
  int searches = 0, products = 0;
  int objects = 0;  // descriptions, layouts and preferences that are there
  // The sizes of the last product, and of the search that found its algorithm.
  int64_t m = 0, n = 0, k = 0;
  int64_t searched_n = 0, searched_k = 0;
  const void* bias = nullptr;
  // The operands' alignment in the last search, the memory that its algorithms may take, and how
  // they may split sums.
  uint32_t searched_alignment_a = 0, searched_alignment_b = 0, searched_alignment_c = 0;
  uint64_t searched_workspace_bytes = 0;
  bool may_split_sums = false;
  bool parts_are_fp32 = false;  // nothing but sums of FP32 parts was allowed
  // The last product.
  bool strict_fp32 = false;  // neither TF32 nor pieces of BF16
  bool of_bf16 = false, is_bf16 = false;
  bool adds_bias = false, bias_is_bf16 = false;
  float alpha = 0, beta = 0;
  const void* c = nullptr;
  // Products of other sizes than were searched are not supported.
  bool refuse_others = false;
  bool find_nothing = false;  // searches end without an algorithm
};

}  // namespace megatrain

// Returns the library's own, by the name under which it is looked up.
extern "C" megatrain::FakeCublasLtCalls* FakeCublasLt();

#endif  // MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_LIBRARIES_FAKE_CUBLAS_LT_H_
