#include "engine/device/cuda/cuda_kernels.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/device/cuda/cuda_status.h"
#include "engine/device/cuda/kernels/delta/delta_sizes.h"
#include "engine/device/cuda/kernels/launchers.h"

namespace megatrain {
namespace {

CudaStream& Of(Stream& stream) { return static_cast<CudaStream&>(stream); }

// Checks that our own kernels may take a call that cuDNN has not taken.
absl::Status CheckOwnMayTake(const AttentionArgs& args) {
  if (args.choice != AttentionChoice::kLibrary) return absl::OkStatus();
  std::string shaping;
  if (args.shaping.window > 0) {
    absl::StrAppend(&shaping, ", a window of ", args.shaping.window, " tokens");
  }
  if (args.shaping.softcap > 0) absl::StrAppend(&shaping, ", a softcap of ", args.shaping.softcap);
  if (args.shaping.sinks != nullptr) absl::StrAppend(&shaping, ", sinks");
  return absl::FailedPreconditionError(absl::StrCat(
      "attention by the library alone was asked for, and cuDNN does not take ", args.tokens,
      " tokens in ", args.documents, " documents, ", args.heads, " heads of ", args.head_dim,
      " with values of ", args.value_dim, ", ", DTypeName(args.dtype), shaping,
      "; engine.attention: auto has our own kernels take them"));
}

absl::Status CheckKeyDim(int64_t key_dim) {
  if (key_dim <= cuda::kDeltaKeyDimMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cuda: a gated delta net with keys of ", key_dim,
                                                 " elements; up to ", cuda::kDeltaKeyDimMax,
                                                 " are possible. Write device: cpu"));
}

}  // namespace

CudaStream::~CudaStream() {
  // Nothing can be done about an error here, and a device that is lost gives one.
  (void)api_->SetDevice(ordinal_);
  (void)api_->StreamSynchronize(stream_);
  (void)api_->StreamDestroy(stream_);
  if (workspace_ != nullptr) (void)api_->Free(workspace_);
}

void* CudaStream::scratch() const {
  return static_cast<char*>(workspace_) + kProductWorkspaceBytes;
}

// A kernel can be launched on streams of the thread's current device only. An error is the
// launch's too.
cuda::Queue CudaKernels::QueueOf(Stream& stream) const {
  (void)api_->SetDevice(ordinal_);
  return {Of(stream).get(), paths_};
}

absl::Status CudaKernels::Launched(int error, const char* kernel) const {
  return CudaStatus(*api_, error, kernel);
}

// cuBLAS is column-major: a row-major [rows, columns] is its transpose there. So out^T = op(b)^T
// op(a)^T: the operands change places, and each is transposed where it was. The edge takes a bias
// in the output's type.
absl::Status CudaKernels::MatMul(Stream& stream, const MatMulArgs& args) {
  if (args.m == 0 || args.n == 0) return absl::OkStatus();
  if (args.k == 0) return absl::InvalidArgumentError("a matrix product with k = 0");
  CudaProduct product;
  product.m = args.n;
  product.n = args.m;
  product.k = args.k;
  product.dtype = args.dtype;
  product.out_dtype = args.out_dtype;
  product.transpose_a = args.transpose_b;
  product.transpose_b = args.transpose_a;
  product.a = args.b;
  product.a_stride = args.b_stride;
  product.b = args.a;
  product.b_stride = args.a_stride;
  product.c = args.addend;
  product.out = args.out;
  product.out_stride = args.out_stride;
  product.bias = args.bias;
  product.alpha = args.alpha;
  MT_RETURN_IF_ERROR(CudaStatus(*api_, api_->SetDevice(ordinal_), "cudaSetDevice"));
  if (args.bias != nullptr && args.dtype != args.out_dtype) {
    float* const widened = static_cast<float*>(Of(stream).scratch());
    if (args.n * int64_t{sizeof(float)} > cuda::kScratchBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("cuda: a bias of ", args.n, " elements is too long to be widened"));
    }
    MT_RETURN_IF_ERROR(
        Launched(cuda::WidenBf16(QueueOf(stream), args.bias, args.n, widened), "WidenBf16"));
    product.bias = widened;
  }
  return CudaStatus(*api_,
                    api_->Product(Of(stream).get(), product, Of(stream).product_workspace(),
                                  kProductWorkspaceBytes),
                    "cublasLtMatmul");
}

absl::Status CudaKernels::RmsNorm(Stream& stream, const RmsNormArgs& args) {
  return Launched(cuda::RmsNorm(QueueOf(stream), args), "RmsNorm");
}
absl::Status CudaKernels::RmsNormBackward(Stream& stream, const RmsNormBackwardArgs& args) {
  return Launched(cuda::RmsNormBackward(QueueOf(stream), args, Of(stream).scratch()),
                  "RmsNormBackward");
}
absl::Status CudaKernels::Rope(Stream& stream, const RopeArgs& args) {
  return Launched(cuda::Rope(QueueOf(stream), args), "Rope");
}
absl::Status CudaKernels::CopyHeads(Stream& stream, const CopyHeadsArgs& args) {
  return Launched(cuda::CopyHeads(QueueOf(stream), args), "CopyHeads");
}
absl::Status CudaKernels::SumHeads(Stream& stream, const SumHeadsArgs& args) {
  return Launched(cuda::SumHeads(QueueOf(stream), args), "SumHeads");
}
absl::Status CudaKernels::Attention(Stream& stream, const AttentionArgs& args) {
  MT_RETURN_IF_ERROR(CudaStatus(*api_, api_->SetDevice(ordinal_), "cudaSetDevice"));
  if (args.choice != AttentionChoice::kOwn) {
    const int error = api_->Attention(Of(stream).get(), args, Of(stream).product_workspace(),
                                      kProductWorkspaceBytes);
    if (error != kNotTaken) return CudaStatus(*api_, error, "cuDNN's attention");
    MT_RETURN_IF_ERROR(CheckOwnMayTake(args));
  }
  return Launched(cuda::Attention(QueueOf(stream), args), "Attention");
}
absl::Status CudaKernels::AttentionBackward(Stream& stream, const AttentionBackwardArgs& args) {
  MT_RETURN_IF_ERROR(CudaStatus(*api_, api_->SetDevice(ordinal_), "cudaSetDevice"));
  if (args.forward.choice != AttentionChoice::kOwn) {
    const int error = api_->AttentionBackward(Of(stream).get(), args);
    if (error != kNotTaken) return CudaStatus(*api_, error, "cuDNN's gradient of attention");
    MT_RETURN_IF_ERROR(CheckOwnMayTake(args.forward));
  }
  return Launched(cuda::AttentionBackward(QueueOf(stream), args), "AttentionBackward");
}
void CudaKernels::PrepareAttention(const AttentionBackwardArgs& args) {
  if (args.forward.choice == AttentionChoice::kOwn) return;
  api_->PrepareAttention(args, kProductWorkspaceBytes);
}
absl::Status CudaKernels::StoreInCache(Stream& stream, const CachedAttentionArgs& args) {
  return Launched(cuda::StoreInCache(QueueOf(stream), args), "StoreInCache");
}
absl::Status CudaKernels::CachedAttention(Stream& stream, const CachedAttentionArgs& args) {
  return Launched(cuda::CachedAttention(QueueOf(stream), args), "CachedAttention");
}
absl::Status CudaKernels::Glu(Stream& stream, const GluArgs& args) {
  return Launched(cuda::Glu(QueueOf(stream), args), "Glu");
}
absl::Status CudaKernels::GluBackward(Stream& stream, const GluBackwardArgs& args) {
  return Launched(cuda::GluBackward(QueueOf(stream), args), "GluBackward");
}
absl::Status CudaKernels::SigmoidGate(Stream& stream, const SigmoidGateArgs& args) {
  return Launched(cuda::SigmoidGate(QueueOf(stream), args), "SigmoidGate");
}
absl::Status CudaKernels::SigmoidGateBackward(Stream& stream, const SigmoidGateBackwardArgs& args) {
  return Launched(cuda::SigmoidGateBackward(QueueOf(stream), args), "SigmoidGateBackward");
}
absl::Status CudaKernels::Route(Stream& stream, const RouteArgs& args) {
  if (const int64_t floats = args.experts + args.groups; floats > cuda::kRouteFloatsMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cuda: a router of ", args.experts, " experts in ", args.groups, " groups; up to ",
        cuda::kRouteFloatsMax, " are possible together. Write device: cpu"));
  }
  return Launched(cuda::Route(QueueOf(stream), args), "Route");
}
absl::Status CudaKernels::RouteBackward(Stream& stream, const RouteBackwardArgs& args) {
  return Launched(cuda::RouteBackward(QueueOf(stream), args), "RouteBackward");
}
absl::Status CudaKernels::RouterSums(Stream& stream, const RouterSumsArgs& args) {
  return Launched(cuda::RouterSums(QueueOf(stream), args, Of(stream).scratch()), "RouterSums");
}
absl::Status CudaKernels::SortAssignments(Stream& stream, const SortAssignmentsArgs& args) {
  return Launched(cuda::SortAssignments(QueueOf(stream), args, Of(stream).scratch()),
                  "SortAssignments");
}
absl::Status CudaKernels::GatherRows(Stream& stream, const GatherRowsArgs& args) {
  return Launched(cuda::GatherRows(QueueOf(stream), args), "GatherRows");
}
absl::Status CudaKernels::AddRows(Stream& stream, const AddRowsArgs& args) {
  return Launched(cuda::AddRows(QueueOf(stream), args), "AddRows");
}
absl::Status CudaKernels::WeighRows(Stream& stream, const WeighRowsArgs& args) {
  return Launched(cuda::WeighRows(QueueOf(stream), args), "WeighRows");
}
absl::Status CudaKernels::Add(Stream& stream, const AddArgs& args) {
  return Launched(cuda::Add(QueueOf(stream), args), "Add");
}
absl::Status CudaKernels::CausalConv(Stream& stream, const CausalConvArgs& args) {
  return Launched(cuda::CausalConv(QueueOf(stream), args), "CausalConv");
}
absl::Status CudaKernels::CausalConvBackward(Stream& stream, const CausalConvBackwardArgs& args) {
  return Launched(cuda::CausalConvBackward(QueueOf(stream), args, Of(stream).scratch()),
                  "CausalConvBackward");
}
absl::Status CudaKernels::GatedDelta(Stream& stream, const GatedDeltaArgs& args) {
  MT_RETURN_IF_ERROR(CheckKeyDim(args.key_dim));
  return Launched(cuda::GatedDelta(QueueOf(stream), args), "GatedDelta");
}
absl::Status CudaKernels::GatedDeltaBackward(Stream& stream, const GatedDeltaBackwardArgs& args) {
  MT_RETURN_IF_ERROR(CheckKeyDim(args.forward.key_dim));
  return Launched(cuda::GatedDeltaBackward(QueueOf(stream), args), "GatedDeltaBackward");
}
absl::Status CudaKernels::GatedNorm(Stream& stream, const GatedNormArgs& args) {
  return Launched(cuda::GatedNorm(QueueOf(stream), args), "GatedNorm");
}
absl::Status CudaKernels::GatedNormBackward(Stream& stream, const GatedNormBackwardArgs& args) {
  return Launched(cuda::GatedNormBackward(QueueOf(stream), args, Of(stream).scratch()),
                  "GatedNormBackward");
}
absl::Status CudaKernels::Embedding(Stream& stream, const EmbeddingArgs& args) {
  return Launched(cuda::Embedding(QueueOf(stream), args), "Embedding");
}
absl::Status CudaKernels::EmbeddingBackward(Stream& stream, const EmbeddingBackwardArgs& args) {
  if (!args.add) {
    MT_RETURN_IF_ERROR(
        Zero(stream, args.dtable, args.vocabulary * args.hidden * int64_t{sizeof(float)}));
  }
  return Launched(cuda::EmbeddingBackward(QueueOf(stream), args, Of(stream).scratch()),
                  "EmbeddingBackward");
}
absl::Status CudaKernels::CrossEntropy(Stream& stream, const CrossEntropyArgs& args) {
  return Launched(cuda::CrossEntropy(QueueOf(stream), args), "CrossEntropy");
}
absl::Status CudaKernels::PreferenceLoss(Stream& stream, const PreferenceLossArgs& args) {
  return Launched(cuda::PreferenceLoss(QueueOf(stream), args), "PreferenceLoss");
}
absl::Status CudaKernels::BiasBackward(Stream& stream, DType dtype, int64_t rows, int64_t n,
                                       const void* dy, int64_t stride, float* dbias, bool add) {
  return Launched(cuda::BiasBackward(QueueOf(stream), dtype, rows, n, dy, stride, dbias, add,
                                     Of(stream).scratch()),
                  "BiasBackward");
}
absl::Status CudaKernels::SumOfSquares(Stream& stream, const float* x, int64_t n, double* sum) {
  return Launched(cuda::SumOfSquares(QueueOf(stream), x, n, sum, Of(stream).scratch()),
                  "SumOfSquares");
}
absl::Status CudaKernels::Sum(Stream& stream, const float* x, int64_t n, double* sum) {
  return Launched(cuda::Sum(QueueOf(stream), x, n, sum, Of(stream).scratch()), "Sum");
}
absl::Status CudaKernels::CastToBf16InPlace(Stream& stream, void* x, int64_t n) {
  return Launched(cuda::CastToBf16InPlace(QueueOf(stream), x, n, Of(stream).scratch()),
                  "CastToBf16InPlace");
}
absl::Status CudaKernels::Zero(Stream& stream, void* x, int64_t bytes) {
  return CudaStatus(*api_, api_->Zero(QueueOf(stream).stream, x, bytes), "cudaMemsetAsync");
}

absl::Status CudaKernels::Scale(Stream& stream, DType dtype, void* x, int64_t n,
                                const void* factor) {
  return Launched(cuda::Scale(QueueOf(stream), dtype, x, n, factor), "Scale");
}

absl::Status CudaKernels::AdamW(Stream& stream, const AdamWArgs& args) {
  return Launched(cuda::AdamW(QueueOf(stream), args), "AdamW");
}

}  // namespace megatrain
