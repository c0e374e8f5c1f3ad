#include "engine/device/cuda/libraries/cublas_lt.h"

#include <cublasLt.h>

#include <algorithm>
#include <compare>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/device/cuda/libraries/shared_library.h"

namespace megatrain {
namespace {

constexpr char kLibrary[] = "libcublasLt.so.13";

// The functions that are used, by their names in the library.
struct Functions {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;

  // The first that is missing, or null.
  const char* Find(void* library) {
    FunctionFinder find(library);
    find(create, "cublasLtCreate");
    find(destroy, "cublasLtDestroy");
    find(version, "cublasLtGetVersion");
    find(matmul, "cublasLtMatmul");
    find(heuristic, "cublasLtMatmulAlgoGetHeuristic");
    find(desc_create, "cublasLtMatmulDescCreate");
    find(desc_destroy, "cublasLtMatmulDescDestroy");
    find(desc_set, "cublasLtMatmulDescSetAttribute");
    find(layout_create, "cublasLtMatrixLayoutCreate");
    find(layout_destroy, "cublasLtMatrixLayoutDestroy");
    find(layout_set, "cublasLtMatrixLayoutSetAttribute");
    find(preference_create, "cublasLtMatmulPreferenceCreate");
    find(preference_destroy, "cublasLtMatmulPreferenceDestroy");
    find(preference_set, "cublasLtMatmulPreferenceSetAttribute");
    return find.missing();
  }
};

cudaDataType_t TypeOf(DType dtype) { return dtype == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF; }

// The largest power of two up to 256 that divides the address, which heuristics ask for, and the
// distance between columns: it does not change with the column that a range of rows begins with.
uint32_t AlignmentOf(const void* address, int64_t distance = 0) {
  const uintptr_t bits = reinterpret_cast<uintptr_t>(address) | static_cast<uintptr_t>(distance);
  return bits == 0 ? 256 : static_cast<uint32_t>(std::min<uintptr_t>(256, bits & -bits));
}

// The values that select the algorithm, the sizes of SearchedProduct. Alignment is among them
// because some algorithms need it.
struct Key {
  int64_t m, n, k, a_stride, b_stride, out_stride;
  int dtype, out_dtype;
  bool transpose_a, transpose_b, add, bias;
  uint32_t align_a, align_b, align_c, align_out, align_bias;

  auto operator<=>(const Key&) const = default;
};

// A product that is ready to be queued. Kept as long as the library is.
struct Plan {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, out = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
};

class LoadedCublasLt : public CublasLt {
 public:
  LoadedCublasLt(const Functions& functions, cublasLtHandle_t handle, std::string place,
                 bool split_sums)
      : f_(functions), handle_(handle), place_(std::move(place)), split_sums_(split_sums) {}

  ~LoadedCublasLt() override {
    for (auto& [key, plan] : plans_) Destroy(plan);
    f_.destroy(handle_);
  }

  // CUBLAS_VERSION's form: 10000 * major + 100 * minor + patch.
  CudaLibrary Library() const override {
    const size_t version = f_.version();
    return {"cuBLASLt", absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100),
            place_};
  }

  int Product(void* stream, const CudaProduct& product, void* workspace,
              int64_t workspace_bytes) override {
    const CudaProduct searched = SearchedProduct(product);
    const Key key = KeyOf(searched);
    // The numbers of columns and the bias' address are the call's, so a plan is one call's at a
    // time.
    MutexLock lock(&mutex_);
    auto found = plans_.find(key);
    if (found == plans_.end()) {
      Plan made;
      cublasStatus_t status = Make(searched, &made);
      if (status == 0) status = Choose(key, made, workspace_bytes, &made.algorithm);
      if (status != CUBLAS_STATUS_SUCCESS) {
        Destroy(made);
        return status;
      }
      found = plans_.emplace(key, made).first;
    }
    const Plan& plan = found->second;
    cublasStatus_t status = SetOperands(product, plan);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    const auto run = [&](const cublasLtMatmulAlgo_t& algorithm) {
      const float alpha = product.alpha, beta = product.c != nullptr ? 1 : 0;
      const void* const c = product.c != nullptr ? product.c : product.out;
      return f_.matmul(handle_, plan.desc, &alpha, product.a, plan.a, product.b, plan.b, &beta, c,
                       plan.out, product.out, plan.out, &algorithm, workspace,
                       static_cast<size_t>(workspace_bytes), static_cast<cudaStream_t>(stream));
    };
    status = run(plan.algorithm);
    const bool is_searched = product.n == searched.n && product.k == searched.k;
    const bool is_refused =
        status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
    if (is_searched || !is_refused) return status;
    // Nothing was queued. The answer depends on sizes alone, as the algorithm does.
    cublasLtMatmulAlgo_t own = {};
    status = Choose(key, plan, workspace_bytes, &own);
    return status == CUBLAS_STATUS_SUCCESS ? run(own) : status;
  }

 private:
  void Destroy(Plan& plan) {
    if (plan.desc != nullptr) f_.desc_destroy(plan.desc);
    for (cublasLtMatrixLayout_t layout : {plan.a, plan.b, plan.out}) {
      if (layout != nullptr) f_.layout_destroy(layout);
    }
  }

  template <typename T>
  cublasStatus_t SetDesc(const Plan& plan, cublasLtMatmulDescAttributes_t attribute,
                         const T& value) {
    return f_.desc_set(plan.desc, attribute, &value, sizeof(value));
  }

  static Key KeyOf(const CudaProduct& p) {
    const int64_t element = DTypeBytes(p.dtype), out_element = DTypeBytes(p.out_dtype);
    return {p.m,
            p.n,
            p.k,
            p.a_stride,
            p.b_stride,
            p.out_stride,
            static_cast<int>(p.dtype),
            static_cast<int>(p.out_dtype),
            p.transpose_a,
            p.transpose_b,
            p.c != nullptr,
            p.bias != nullptr,
            AlignmentOf(p.a, p.a_stride * element),
            AlignmentOf(p.b, p.b_stride * element),
            AlignmentOf(p.c, p.out_stride * out_element),
            AlignmentOf(p.out, p.out_stride * out_element),
            AlignmentOf(p.bias)};
  }

  // Makes the plan but for its algorithm.
  cublasStatus_t Make(const CudaProduct& p, Plan* plan) {
    // Strict FP32: neither TF32 nor sums of BF16 pieces.
    cublasStatus_t status = f_.desc_create(&plan->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const cublasOperation_t transposed_a = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t transposed_b = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    if (status == 0) status = SetDesc(*plan, CUBLASLT_MATMUL_DESC_TRANSA, transposed_a);
    if (status == 0) status = SetDesc(*plan, CUBLASLT_MATMUL_DESC_TRANSB, transposed_b);
    if (status == 0 && p.bias != nullptr) {
      const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
      const int32_t type = TypeOf(p.out_dtype);
      status = SetDesc(*plan, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
      if (status == 0) status = SetDesc(*plan, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
      if (status == 0) status = SetDesc(*plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    }
    const auto layout = [&](cublasLtMatrixLayout_t* made, DType dtype, int64_t rows,
                            int64_t columns, int64_t stride) {
      if (status != 0) return;
      status = f_.layout_create(made, TypeOf(dtype), static_cast<uint64_t>(rows),
                                static_cast<uint64_t>(columns), stride);
    };
    layout(&plan->a, p.dtype, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.a_stride);
    layout(&plan->b, p.dtype, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.b_stride);
    layout(&plan->out, p.out_dtype, p.m, p.n, p.out_stride);
    return status;
  }

  // Gives the plan what calls of one plan differ in.
  cublasStatus_t SetOperands(const CudaProduct& p, const Plan& plan) {
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    const auto set_columns = [&](cublasLtMatrixLayout_t layout, int64_t columns) {
      const auto value = static_cast<uint64_t>(columns);
      if (status == 0) {
        status = f_.layout_set(layout, CUBLASLT_MATRIX_LAYOUT_COLS, &value, sizeof(value));
      }
    };
    set_columns(plan.a, p.transpose_a ? p.m : p.k);
    set_columns(plan.b, p.transpose_b ? p.k : p.n);
    set_columns(plan.out, p.n);
    if (status == 0 && p.bias != nullptr) {
      status = SetDesc(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    }
    return status;
  }

  // The library's first choice for the plan's sizes. Split sums go through the workspace in FP32:
  // summed in the output, they would be rounded more than once.
  cublasStatus_t Choose(const Key& key, const Plan& plan, int64_t workspace_bytes,
                        cublasLtMatmulAlgo_t* algorithm) {
    cublasLtMatmulPreference_t preference = nullptr;
    cublasStatus_t status = f_.preference_create(&preference);
    if (status != 0) return status;
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      if (status == 0) status = f_.preference_set(preference, attribute, &value, sizeof(value));
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_bytes));
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<uint32_t>(split_sums_ ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                          : CUBLASLT_REDUCTION_SCHEME_NONE));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.align_a);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.align_b);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.add ? key.align_c : key.align_out);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.align_out);
    cublasLtMatmulHeuristicResult_t result = {};
    int found = 0;
    if (status == 0) {
      status = f_.heuristic(handle_, plan.desc, plan.a, plan.b, plan.out, plan.out, preference, 1,
                            &result, &found);
    }
    f_.preference_destroy(preference);
    if (status == 0 && found == 0) status = CUBLAS_STATUS_NOT_SUPPORTED;
    if (status == 0) *algorithm = result.algo;
    return status;
  }

  const Functions f_;
  const cublasLtHandle_t handle_;
  const std::string place_;
  const bool split_sums_;
  Mutex mutex_;
  std::map<Key, Plan> plans_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<CublasLt>> CublasLt::Load(bool split_sums) {
  const absl::StatusOr<SharedLibrary> library = OpenSharedLibrary(kLibrary);
  if (!library.ok()) {
    return absl::UnavailableError(
        absl::StrCat("cuda: ", library.status().message(),
                     "; install CUDA 13's cuBLAS, or name its directory in LD_LIBRARY_PATH"));
  }
  Functions functions;
  if (const char* missing = functions.Find(library->handle); missing != nullptr) {
    return absl::UnavailableError(
        absl::StrCat("cuda: ", library->path, " has no ", missing, "; another version is needed"));
  }
  cublasLtHandle_t handle = nullptr;
  if (const cublasStatus_t status = functions.create(&handle); status != CUBLAS_STATUS_SUCCESS) {
    return absl::UnavailableError(
        absl::StrCat("cuda: cublasLtCreate of ", library->path, " gave ", status));
  }
  return std::make_unique<LoadedCublasLt>(functions, handle, library->Describe(), split_sums);
}

}  // namespace megatrain
