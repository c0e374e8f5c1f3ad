#include "engine/device/cuda/cudnn_attention.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/device/cuda/cuda_api.h"
#include "engine/device/cuda/cudnn_graphs.h"
#include "engine/device/cuda/cudnn_sizes.h"
#include "engine/device/cuda/document_runs.h"
#include "engine/device/cuda/kernels/launchers.h"

namespace megatrain {
namespace {

using Addresses = CudnnAddresses;

// Of documents that are not packed: lengths that sequences have, not those that single documents or
// a text that grows by a token happen to have.
constexpr int64_t kLengthStep = 512;
constexpr int64_t kAlignment = 256;
constexpr int kHopper = 9;  // of compute capability, the major number
// What cuDNN reckons with in 32 bits inside a document has not been looked at: no document and no
// run is so large that it would matter.
constexpr int64_t kRunElementsMax = std::numeric_limits<int32_t>::max();

int64_t AlignedBytes(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// The distance between tokens in elements, of the operand where it is longest.
int64_t TokenElements(const AttentionArgs& args) {
  return std::max({args.q_stride, args.k_stride, args.v_stride, args.heads * args.head_dim});
}
int64_t TokenElements(const AttentionBackwardArgs& args) {
  return std::max({TokenElements(args.forward), args.dq_stride, args.dk_stride, args.dv_stride});
}

// The length of all documents, or 0 if they differ.
int64_t CommonLength(const AttentionArgs& args) {
  const int64_t length = args.document_starts[1] - args.document_starts[0];
  for (int64_t d = 1; d < args.documents; ++d) {
    if (args.document_starts[d + 1] - args.document_starts[d] != length) return 0;
  }
  return length;
}

bool IsUniform(const AttentionArgs& args) {
  const int64_t length = CommonLength(args);
  return length > 0 && length % kLengthStep == 0 && length * TokenElements(args) <= kRunElementsMax;
}

bool HasEmptyDocument(const AttentionArgs& args) {
  for (int64_t d = 0; d < args.documents; ++d) {
    if (args.document_starts[d + 1] == args.document_starts[d]) return true;
  }
  return false;
}

bool Aligned(std::initializer_list<const void*> addresses,
             std::initializer_list<int64_t> distances) {
  for (const void* address : addresses) {
    if (reinterpret_cast<uintptr_t>(address) % 16 != 0) return false;
  }
  for (const int64_t distance : distances) {
    if (distance * 2 % 16 != 0) return false;
  }
  return true;
}

bool Takes(const AttentionArgs& args) {
  return args.dtype == DType::kBF16 && args.tokens > 0 && args.head_dim % 8 == 0 &&
         args.head_dim <= kCudnnHeadDimMax &&
         Aligned({args.q, args.k, args.v, args.out}, {args.q_stride, args.k_stride, args.v_stride});
}

bool Takes(const AttentionBackwardArgs& args) {
  return Takes(args.forward) && Aligned({args.dout, args.dq, args.dk, args.dv},
                                        {args.dq_stride, args.dk_stride, args.dv_stride});
}

CudnnGraphKey KeyOf(const AttentionArgs& args) {
  return {.head_dim = args.head_dim,
          .q_stride = args.q_stride,
          .k_stride = args.k_stride,
          .v_stride = args.v_stride,
          .out_stride = args.heads * args.head_dim,
          .scale = args.scale};
}
CudnnGraphKey KeyOf(const AttentionBackwardArgs& args) {
  CudnnGraphKey key = KeyOf(args.forward);
  key.backward = true;
  key.dq_stride = args.dq_stride;
  key.dk_stride = args.dk_stride;
  key.dv_stride = args.dv_stride;
  return key;
}

// The operands from `token` and from the first query head of `kv_head` on, without statistics.
Addresses AddressesOf(const AttentionArgs& args, int64_t token, int64_t kv_head) {
  const int64_t head = kv_head * (args.heads / args.kv_heads);
  const auto at = [&](const void* operand, int64_t stride, int64_t first_head) -> void* {
    return static_cast<char*>(const_cast<void*>(operand)) +
           2 * (token * stride + first_head * args.head_dim);
  };
  return {{kQ, at(args.q, args.q_stride, head)},
          {kK, at(args.k, args.k_stride, kv_head)},
          {kV, at(args.v, args.v_stride, kv_head)},
          {kOut, at(args.out, args.heads * args.head_dim, head)}};
}
Addresses AddressesOf(const AttentionBackwardArgs& args, int64_t token, int64_t kv_head) {
  AttentionArgs gradients = args.forward;
  gradients.q = args.dq;
  gradients.q_stride = args.dq_stride;
  gradients.k = args.dk;
  gradients.k_stride = args.dk_stride;
  gradients.v = args.dv;
  gradients.v_stride = args.dv_stride;
  gradients.out = const_cast<void*>(args.dout);
  Addresses d = AddressesOf(gradients, token, kv_head);
  Addresses all = AddressesOf(args.forward, token, kv_head);
  all.insert({{kDQ, d[kQ]}, {kDK, d[kK]}, {kDV, d[kV]}, {kDOut, d[kOut]}});
  return all;
}

// A call's workspace over packed documents: what the device is told of them, statistics [tokens,
// heads], cuDNN's own.
struct PackedWorkspace {
  PackedWorkspace(void* memory, int64_t bytes, const DocumentRun& run, int64_t heads)
      : index(static_cast<char*>(memory)),
        statistics(reinterpret_cast<float*>(index + AlignedBytes(cuda::kPackedIndexBytes))),
        rest(reinterpret_cast<char*>(statistics) +
             AlignedBytes(run.tokens * heads * int64_t{sizeof(float)})),
        rest_bytes(bytes - (rest - index)) {}

  char* const index;
  float* const statistics;
  char* const rest;
  const int64_t rest_bytes;
};

class LoadedCudnnAttention : public CudnnAttention {
 public:
  LoadedCudnnAttention(std::unique_ptr<CudnnGraphs> cudnn, bool takes_packed)
      : library_(cudnn->Library()), takes_packed_(takes_packed), cudnn_(std::move(cudnn)) {}

  CudaLibrary Library() const override { return library_; }

  int Forward(void* stream, const AttentionArgs& args, void* workspace,
              int64_t workspace_bytes) override {
    if (!Takes(args)) return kNotTaken;
    if (!IsUniform(args)) return PackedForward(stream, args, workspace, workspace_bytes);
    CudnnGraphKey key = KeyOf(args);
    key.documents = args.documents;
    key.length = CommonLength(args);
    key.heads = args.heads;
    key.kv_heads = args.kv_heads;
    key.statistics_stride = args.tokens;
    Addresses addresses = AddressesOf(args, 0, 0);
    addresses[kStatistics] = args.lse;
    return Run(stream, key, std::move(addresses), workspace, workspace_bytes);
  }

  int Backward(void* stream, const AttentionBackwardArgs& args) override {
    if (!Takes(args)) return kNotTaken;
    return IsUniform(args.forward) ? UniformBackward(stream, args) : PackedBackward(stream, args);
  }

 private:
  // One document and some heads at a time.
  int UniformBackward(void* stream, const AttentionBackwardArgs& args) {
    const AttentionArgs& f = args.forward;
    const int64_t group = f.heads / f.kv_heads;
    CudnnGraphKey key = KeyOf(args);
    key.documents = 1;
    key.length = CommonLength(f);
    key.kv_heads = f.kv_heads;
    const auto too_many = [&] {
      return f.kv_heads % key.kv_heads != 0 ||
             CudnnGradientBytes(1, key.kv_heads * group, key.length, key.head_dim) >
                 args.workspace_bytes;
    };
    while (key.kv_heads > 0 && too_many()) --key.kv_heads;
    if (key.kv_heads == 0) return kNotTaken;
    key.heads = key.kv_heads * group;
    key.statistics_stride = key.length;  // packed

    // The statistics of a document among others do not lie packed: a copy does, before the rest.
    const bool copies = f.documents > 1;
    const int64_t copy_bytes =
        copies ? AlignedBytes(key.heads * key.length * int64_t{sizeof(float)}) : 0;
    for (int64_t document = 0; document < f.documents; ++document) {
      const int64_t token = document * key.length;
      for (int64_t kv_head = 0; kv_head < f.kv_heads; kv_head += key.kv_heads) {
        float* statistics = f.lse + kv_head * group * f.tokens + token;
        if (copies) {
          const cudaError_t error =
              cudaMemcpy2DAsync(args.workspace, static_cast<size_t>(key.length) * 4, statistics,
                                static_cast<size_t>(f.tokens) * 4,
                                static_cast<size_t>(key.length) * 4, static_cast<size_t>(key.heads),
                                cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(stream));
          if (error != cudaSuccess) return error;
          statistics = static_cast<float*>(args.workspace);
        }
        Addresses addresses = AddressesOf(args, token, kv_head);
        addresses[kStatistics] = statistics;
        const int status =
            Run(stream, key, std::move(addresses), static_cast<char*>(args.workspace) + copy_bytes,
                args.workspace_bytes - copy_bytes);
        // All calls have one graph: the first says kNotTaken, or none does.
        if (status != 0) return status;
      }
    }
    return 0;
  }

  int PackedForward(void* stream, const AttentionArgs& args, void* workspace,
                    int64_t workspace_bytes) {
    const int64_t group = args.heads / args.kv_heads;
    const auto fits = [&](const DocumentRun& run) {
      return CudnnPackedForwardBytes(run.tokens, run.kv_heads * group) <= workspace_bytes &&
             run.tokens * TokenElements(args) <= kRunElementsMax;
    };
    return PackedRuns(stream, args, KeyOf(args), fits, workspace, workspace_bytes,
                      [&](const CudnnGraphKey& key, const DocumentRun& run, int64_t token,
                          int64_t kv_head, Addresses addresses, const PackedWorkspace& memory) {
                        addresses.merge(AddressesOf(args, token, kv_head));
                        const int status =
                            Run(stream, key, std::move(addresses), memory.rest, memory.rest_bytes);
                        if (status != 0) return status;
                        return cuda::TransposeStatistics(
                            stream, memory.statistics, run.tokens, key.heads, key.heads,
                            args.lse + kv_head * group * args.tokens + token, args.tokens);
                      });
  }

  int PackedBackward(void* stream, const AttentionBackwardArgs& args) {
    const AttentionArgs& f = args.forward;
    const int64_t group = f.heads / f.kv_heads;
    const auto fits = [&](const DocumentRun& run) {
      return CudnnGradientBytes(run.documents, run.kv_heads * group, run.length, f.head_dim) <=
                 args.workspace_bytes &&
             run.tokens * TokenElements(args) <= kRunElementsMax;
    };
    return PackedRuns(stream, f, KeyOf(args), fits, args.workspace, args.workspace_bytes,
                      [&](const CudnnGraphKey& key, const DocumentRun& run, int64_t token,
                          int64_t kv_head, Addresses addresses, const PackedWorkspace& memory) {
                        const int error = cuda::TransposeStatistics(
                            stream, f.lse + kv_head * group * f.tokens + token, key.heads,
                            run.tokens, f.tokens, memory.statistics, key.heads);
                        if (error != 0) return error;
                        addresses.merge(AddressesOf(args, token, kv_head));
                        return Run(stream, key, std::move(addresses), memory.rest,
                                   memory.rest_bytes);
                      });
  }

  // Cuts the documents into runs that fit and calls `call` for each and for its heads. All graphs
  // are there before the first call: either the whole is taken, or nothing is queued.
  template <typename Call>
  int PackedRuns(void* stream, const AttentionArgs& args, CudnnGraphKey key, const RunFits& fits,
                 void* workspace, int64_t workspace_bytes, const Call& call) {
    if (!takes_packed_ || HasEmptyDocument(args)) return kNotTaken;
    const std::span<const int32_t> starts(args.document_starts,
                                          static_cast<size_t>(args.documents) + 1);
    const std::vector<DocumentRun> runs = CutIntoRuns(starts, args.kv_heads, fits);
    if (runs.empty()) return kNotTaken;
    const int64_t group = args.heads / args.kv_heads;
    key.packed = true;
    const auto key_of = [&](const DocumentRun& run) {
      key.documents = run.documents;
      key.length = run.length;
      key.kv_heads = run.kv_heads;
      key.heads = run.kv_heads * group;
      return key;
    };
    for (const DocumentRun& run : runs) {
      const PackedWorkspace memory(workspace, workspace_bytes, run, run.kv_heads * group);
      MutexLock lock(&mutex_);
      if (GraphOf(key_of(run), memory.rest_bytes) == nullptr) return kNotTaken;
    }
    for (const DocumentRun& run : runs) {
      const CudnnGraphKey run_key = key_of(run);
      const PackedWorkspace memory(workspace, workspace_bytes, run, run_key.heads);
      if (const int error = Describe(stream, run_key, run, starts, memory.index); error != 0) {
        return error;
      }
      for (int64_t kv_head = 0; kv_head < args.kv_heads; kv_head += run.kv_heads) {
        Addresses addresses = {{kStatistics, memory.statistics},
                               {kLengthsOfQ, memory.index},
                               {kLengthsOfK, memory.index}};
        for (int t = 0; t < kPackedTensors; ++t) {
          if (t >= kPackedDQ && !key.backward) break;
          addresses[OffsetsOf(t)] = memory.index + (1 + t) * cuda::kPackedArrayBytes;
        }
        const int status =
            call(run_key, run, starts[run.first], kv_head, std::move(addresses), memory);
        if (status != 0) return status;
      }
    }
    return 0;
  }

  static int Describe(void* stream, const CudnnGraphKey& key, const DocumentRun& run,
                      std::span<const int32_t> starts, void* index) {
    cuda::PackedDocuments documents{.documents = static_cast<int32_t>(run.documents),
                                    .tensors = kPackedTensors};
    for (int64_t d = 0; d <= run.documents; ++d) {
      documents.starts[d] = starts[run.first + d] - starts[run.first];
    }
    documents.token_strides[kPackedQ] = key.q_stride;
    documents.token_strides[kPackedK] = key.k_stride;
    documents.token_strides[kPackedV] = key.v_stride;
    documents.token_strides[kPackedOut] = key.out_stride;
    documents.token_strides[kPackedStatistics] = key.heads;
    documents.token_strides[kPackedDQ] = key.dq_stride;
    documents.token_strides[kPackedDK] = key.dk_stride;
    documents.token_strides[kPackedDV] = key.dv_stride;
    return cuda::WritePackedIndex(stream, documents, index);
  }

  int Run(void* stream, const CudnnGraphKey& key, Addresses addresses, void* workspace,
          int64_t workspace_bytes) {
    MutexLock lock(&mutex_);
    const CudnnGraph* const graph = GraphOf(key, workspace_bytes);
    if (graph == nullptr) return kNotTaken;
    return cudnn_->Run(stream, *graph, std::move(addresses), workspace);
  }

  // Null: cuDNN has none, or it asks for more memory.
  const CudnnGraph* GraphOf(const CudnnGraphKey& key, int64_t workspace_bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    auto made = graphs_.find(key);
    if (made == graphs_.end()) {
      absl::StatusOr<std::unique_ptr<CudnnGraph>> graph = cudnn_->Make(key);
      made = graphs_.emplace(key, graph.ok() ? *std::move(graph) : nullptr).first;
    }
    const CudnnGraph* const graph = made->second.get();
    return graph != nullptr && graph->workspace_bytes() <= workspace_bytes ? graph : nullptr;
  }

  const CudaLibrary library_;
  const bool takes_packed_;
  Mutex mutex_;
  const std::unique_ptr<CudnnGraphs> cudnn_ ABSL_PT_GUARDED_BY(mutex_);
  // Null: there is none.
  std::map<CudnnGraphKey, std::unique_ptr<CudnnGraph>> graphs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<CudnnAttention>> CudnnAttention::Load() {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<CudnnGraphs> cudnn, CudnnGraphs::Open());
  int device = 0, major = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  }
  if (error != cudaSuccess) {
    return absl::UnavailableError(
        absl::StrCat("cudaDeviceGetAttribute gave ", static_cast<int>(error)));
  }
  return std::make_unique<LoadedCudnnAttention>(std::move(cudnn), major == kHopper);
}

}  // namespace megatrain
