// As much of cuBLASLt as the engine calls, without a GPU: it computes nothing, and notes what it is
// asked for.
#include "tests/engine/device/cuda/libraries/fake_cublas_lt.h"

#include <cublasLt.h>

#include <cstring>

namespace {

megatrain::FakeCublasLtCalls calls;

// What the opaque descriptions hold.
struct Description {
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  const void* bias = nullptr;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int32_t bias_type = -1;
};
static_assert(sizeof(Description) <= sizeof(cublasLtMatmulDescOpaque_t));
struct Layout {
  uint64_t rows = 0, columns = 0;
  bool is_bf16 = false;
};
struct Preference {
  uint32_t alignment_a = 0, alignment_b = 0, alignment_c = 0;
  uint64_t workspace_bytes = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
};

template <typename Fake, typename Opaque>
cublasStatus_t Create(const Fake& fake, Opaque** made) {
  *made = reinterpret_cast<Opaque*>(new Fake(fake));
  ++calls.objects;
  return CUBLAS_STATUS_SUCCESS;
}
template <typename Fake>
cublasStatus_t Destroy(const void* made) {
  delete static_cast<const Fake*>(made);
  --calls.objects;
  return CUBLAS_STATUS_SUCCESS;
}
const Layout& LayoutOf(cublasLtMatrixLayout_t layout) {
  return *reinterpret_cast<const Layout*>(layout);
}

template <typename T>
void Read(const void* from, size_t bytes, T* to) {
  if (bytes == sizeof(T)) std::memcpy(to, from, bytes);
}

}  // namespace

extern "C" {

megatrain::FakeCublasLtCalls* FakeCublasLt() { return &calls; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(&calls);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
size_t cublasLtGetVersion() { return 130102; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t) {
  Description description;
  description.compute = compute;
  return Create(description, desc);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  return Destroy<Description>(desc);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  Description& description = *reinterpret_cast<Description*>(desc);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) Read(value, bytes, &description.transpose_a);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSB) Read(value, bytes, &description.transpose_b);
  if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER) Read(value, bytes, &description.bias);
  if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE) Read(value, bytes, &description.epilogue);
  if (attribute == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE) Read(value, bytes, &description.bias_type);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t stride) {
  if (static_cast<uint64_t>(stride) < rows) return CUBLAS_STATUS_INVALID_VALUE;
  return Create(Layout{rows, columns, type == CUDA_R_16BF}, layout);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(const cublasLtMatrixLayout_t layout) {
  return Destroy<Layout>(layout);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  if (attribute != CUBLASLT_MATRIX_LAYOUT_COLS) return CUBLAS_STATUS_INVALID_VALUE;
  Read(value, bytes, &reinterpret_cast<Layout*>(layout)->columns);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return Create(Preference(), preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return Destroy<Preference>(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  Preference& asked = *reinterpret_cast<Preference*>(preference);
  if (attribute == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES) {
    Read(value, bytes, &asked.alignment_a);
  } else if (attribute == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES) {
    Read(value, bytes, &asked.alignment_b);
  } else if (attribute == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES) {
    Read(value, bytes, &asked.alignment_c);
  } else if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    Read(value, bytes, &asked.workspace_bytes);
  } else if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
    Read(value, bytes, &asked.reductions);
  }
  return CUBLAS_STATUS_SUCCESS;
}

// The algorithm is the sizes that it was searched for.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t out,
                                              cublasLtMatmulPreference_t preference, int,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  const bool transposed = reinterpret_cast<Description*>(desc)->transpose_a == CUBLAS_OP_T;
  results[0].algo.data[0] = LayoutOf(out).columns;
  results[0].algo.data[1] = transposed ? LayoutOf(a).rows : LayoutOf(a).columns;
  const Preference& asked = *reinterpret_cast<Preference*>(preference);
  calls.searched_alignment_a = asked.alignment_a;
  calls.searched_alignment_b = asked.alignment_b;
  calls.searched_alignment_c = asked.alignment_c;
  calls.searched_workspace_bytes = asked.workspace_bytes;
  calls.may_split_sums = asked.reductions != CUBLASLT_REDUCTION_SCHEME_NONE;
  calls.parts_are_fp32 = asked.reductions == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  ++calls.searches;
  *found = calls.find_nothing ? 0 : 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void*, cublasLtMatrixLayout_t a, const void*,
                              cublasLtMatrixLayout_t b, const void* beta, const void* c,
                              cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t out,
                              const cublasLtMatmulAlgo_t* algorithm, void*, size_t, cudaStream_t) {
  const Description& description = *reinterpret_cast<Description*>(desc);
  const bool transposed_a = description.transpose_a == CUBLAS_OP_T;
  const bool transposed_b = description.transpose_b == CUBLAS_OP_T;
  const uint64_t k = transposed_a ? LayoutOf(a).rows : LayoutOf(a).columns;
  const uint64_t k_of_b = transposed_b ? LayoutOf(b).columns : LayoutOf(b).rows;
  const uint64_t n = transposed_b ? LayoutOf(b).rows : LayoutOf(b).columns;
  const uint64_t m = transposed_a ? LayoutOf(a).columns : LayoutOf(a).rows;
  if (k != k_of_b || n != LayoutOf(out).columns || m != LayoutOf(out).rows) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (calls.refuse_others && (algorithm->data[0] != n || algorithm->data[1] != k)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  ++calls.products;
  calls.m = static_cast<int64_t>(m);
  calls.n = static_cast<int64_t>(n);
  calls.k = static_cast<int64_t>(k);
  calls.searched_n = static_cast<int64_t>(algorithm->data[0]);
  calls.searched_k = static_cast<int64_t>(algorithm->data[1]);
  calls.bias = description.bias;
  calls.strict_fp32 = description.compute == CUBLAS_COMPUTE_32F;
  calls.of_bf16 = LayoutOf(a).is_bf16 && LayoutOf(b).is_bf16;
  calls.is_bf16 = LayoutOf(out).is_bf16;
  calls.adds_bias = description.epilogue == CUBLASLT_EPILOGUE_BIAS;
  calls.bias_is_bf16 = description.bias_type == CUDA_R_16BF;
  calls.alpha = *static_cast<const float*>(alpha);
  calls.beta = *static_cast<const float*>(beta);
  calls.c = c;
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
