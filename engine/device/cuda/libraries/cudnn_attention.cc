#include "engine/device/cuda/libraries/cudnn_attention.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/libraries/cuda_api.h"
#include "engine/device/cuda/libraries/cudnn_choice.h"
#include "engine/device/cuda/libraries/cudnn_graph_cache.h"
#include "engine/device/cuda/libraries/cudnn_graphs.h"
#include "engine/device/cuda/libraries/document_runs.h"

namespace megatrain {
namespace {

using Addresses = CudnnAddresses;

constexpr int64_t kAlignment = 256;
constexpr int kHopper = 9;  // of compute capability, the major number

int64_t AlignedBytes(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

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
  LoadedCudnnAttention(std::unique_ptr<CudnnGraphs> cudnn, int device, bool takes_packed)
      : library_(cudnn->Library()),
        takes_packed_(takes_packed),
        cudnn_(std::move(cudnn)),
        graphs_(cudnn_.get(), [device] { (void)cudaSetDevice(device); }) {}

  CudaLibrary Library() const override {
    CudaLibrary library = library_;
    if (const std::string refused = graphs_.DescribeRefused(); !refused.empty()) {
      absl::StrAppend(&library.place, "; ", refused);
    }
    return library;
  }

  int Forward(void* stream, const AttentionArgs& args, void* workspace,
              int64_t workspace_bytes) override {
    if (!CudnnTakes(args)) return kNotTaken;
    if (!IsUniform(args)) return PackedForward(stream, args, workspace, workspace_bytes);
    Addresses addresses = AddressesOf(args, 0, 0);
    addresses[kStatistics] = args.lse;
    return Run(stream, UniformKeyOf(args), std::move(addresses), workspace, workspace_bytes);
  }

  int Backward(void* stream, const AttentionBackwardArgs& args) override {
    if (!CudnnTakes(args)) return kNotTaken;
    return IsUniform(args.forward) ? UniformBackward(stream, args) : PackedBackward(stream, args);
  }

  void Prepare(const AttentionBackwardArgs& args, int64_t workspace_bytes) override {
    graphs_.Want(GraphsOf(args, workspace_bytes, takes_packed_));
  }

 private:
  // One document and some heads at a time.
  int UniformBackward(void* stream, const AttentionBackwardArgs& args) {
    const AttentionArgs& f = args.forward;
    const int64_t group = GroupOf(f);
    const CudnnGraphKey key = UniformKeyOf(args);
    if (key.kv_heads == 0) return kNotTaken;

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
    const int64_t group = GroupOf(args);
    return PackedRuns(stream, args, args, RunsOf(args, workspace_bytes, takes_packed_), workspace,
                      workspace_bytes,
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
    const int64_t group = GroupOf(f);
    return PackedRuns(
        stream, f, args, RunsOf(args, takes_packed_), args.workspace, args.workspace_bytes,
        [&](const CudnnGraphKey& key, const DocumentRun& run, int64_t token, int64_t kv_head,
            Addresses addresses, const PackedWorkspace& memory) {
          const int error = cuda::TransposeStatistics(
              stream, f.lse + kv_head * group * f.tokens + token, key.heads, run.tokens, f.tokens,
              memory.statistics, key.heads);
          if (error != 0) return error;
          addresses.merge(AddressesOf(args, token, kv_head));
          return Run(stream, key, std::move(addresses), memory.rest, memory.rest_bytes);
        });
  }

  // Calls `call` for each run and for its heads. All graphs are there before the first call: either
  // the whole is taken, or nothing is queued.
  template <typename Args, typename Call>
  int PackedRuns(void* stream, const AttentionArgs& args, const Args& call_args,
                 const std::vector<DocumentRun>& runs, void* workspace, int64_t workspace_bytes,
                 const Call& call) {
    if (runs.empty()) return kNotTaken;
    const std::span<const int32_t> starts = StartsOf(args);
    const int64_t group = GroupOf(args);
    for (const DocumentRun& run : runs) {
      const PackedWorkspace memory(workspace, workspace_bytes, run, run.kv_heads * group);
      if (GraphOf(KeyOfRun(call_args, run), memory.rest_bytes) == nullptr) return kNotTaken;
    }
    for (const DocumentRun& run : runs) {
      const CudnnGraphKey run_key = KeyOfRun(call_args, run);
      const PackedWorkspace memory(workspace, workspace_bytes, run, run_key.heads);
      if (const int error = Describe(stream, run_key, run, starts, memory.index); error != 0) {
        return error;
      }
      for (int64_t kv_head = 0; kv_head < args.kv_heads; kv_head += run.kv_heads) {
        Addresses addresses = {{kStatistics, memory.statistics},
                               {kLengthsOfQ, memory.index},
                               {kLengthsOfK, memory.index}};
        for (int t = 0; t < kPackedTensors; ++t) {
          if (t >= kPackedDQ && !run_key.backward) break;
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
    const CudnnGraph* const graph = GraphOf(key, workspace_bytes);
    if (graph == nullptr) return kNotTaken;
    MutexLock lock(&run_mutex_);
    return cudnn_->Run(stream, *graph, std::move(addresses), workspace);
  }

  // Null: cuDNN has none, or it asks for more memory.
  const CudnnGraph* GraphOf(const CudnnGraphKey& key, int64_t workspace_bytes) {
    const CudnnGraph* const graph = graphs_.Get(key);
    return graph != nullptr && graph->workspace_bytes() <= workspace_bytes ? graph : nullptr;
  }

  const CudaLibrary library_;
  const bool takes_packed_;
  const std::unique_ptr<CudnnGraphs> cudnn_;
  Mutex run_mutex_;  // of cudnn_->Run
  CudnnGraphCache graphs_;
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
  return std::make_unique<LoadedCudnnAttention>(std::move(cudnn), device, major == kHopper);
}

}  // namespace megatrain
