#include "engine/device/cuda/libraries/cudnn_attention.h"

#include <cuda_runtime_api.h>

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/libraries/cuda_api.h"
#include "engine/device/cuda/libraries/cudnn_blocks.h"
#include "engine/device/cuda/libraries/cudnn_choice.h"
#include "engine/device/cuda/libraries/cudnn_graph_cache.h"
#include "engine/device/cuda/libraries/cudnn_graphs.h"
#include "engine/device/cuda/libraries/cudnn_operands.h"
#include "engine/device/cuda/libraries/document_runs.h"

namespace megatrain {
namespace {

using Addresses = CudnnAddresses;

constexpr int kHopper = 9;  // of compute capability, the major number

// A call's workspace over packed documents: what the device is told of them, statistics [tokens,
// heads], cuDNN's own.
struct PackedWorkspace {
  PackedWorkspace(void* memory, int64_t bytes, const DocumentRun& run, int64_t heads)
      : index(static_cast<char*>(memory)),
        statistics(reinterpret_cast<float*>(index + CudnnAligned(cuda::kPackedIndexBytes))),
        rest(reinterpret_cast<char*>(statistics) +
             CudnnAligned(run.tokens * heads * int64_t{sizeof(float)})),
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
    if (!CudnnMayTake(args)) return kNotTaken;
    if (!IsUniform(args)) return PackedForward(stream, args, workspace, workspace_bytes);
    Addresses addresses = AddressesOf(args, 0, 0);
    addresses[kStatistics] = args.lse;
    return Run(stream, UniformKeyOf(args), std::move(addresses), workspace, workspace_bytes);
  }

  int Backward(void* stream, const AttentionBackwardArgs& args) override {
    if (!CudnnMayTake(args)) return kNotTaken;
    const std::optional<CudnnGraphKey> uniform = UniformKeyOf(args);
    return uniform.has_value() ? UniformBackward(stream, args, *uniform)
                               : PackedBackward(stream, args);
  }

  void Prepare(const AttentionBackwardArgs& args, int64_t workspace_bytes) override {
    graphs_.Want(GraphsOf(args, workspace_bytes, takes_packed_));
  }

 private:
  // One document and some heads at a time.
  int UniformBackward(void* stream, const AttentionBackwardArgs& args, const CudnnGraphKey& key) {
    const AttentionArgs& f = args.forward;
    const int64_t group = GroupOf(f);

    // The statistics of a document among others do not lie packed: a copy does, before the rest.
    const bool copies = f.documents > 1;
    const int64_t copy_bytes =
        copies ? CudnnAligned(key.heads * key.length * int64_t{sizeof(float)}) : 0;
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
          if (error != cudaSuccess) {
            (void)cudaGetLastError();  // the next call would report it again
            return error;
          }
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
    const std::vector<DocumentRun> runs = RunsOf(args, workspace_bytes, takes_packed_);
    const auto bytes_left = [&](const DocumentRun& run) {
      return PackedWorkspace(workspace, workspace_bytes, run, run.kv_heads * group).rest_bytes;
    };
    if (!HaveGraphs(args, runs, bytes_left)) return kNotTaken;
    for (const DocumentRun& run : runs) {
      const CudnnGraphKey key = KeysOfRun(args, run).front();
      const PackedWorkspace memory(workspace, workspace_bytes, run, key.heads);
      const int error =
          PackedRun(stream, args, run, key, memory, [&](int64_t kv_head, Addresses addresses) {
            const int64_t token = args.document_starts[run.first];
            addresses.merge(AddressesOf(args, token, kv_head));
            const int status =
                Run(stream, key, std::move(addresses), memory.rest, memory.rest_bytes);
            if (status != 0) return status;
            return cuda::TransposeStatistics(
                stream, memory.statistics, run.tokens, key.heads, key.heads,
                args.lse + kv_head * group * args.tokens + token, args.tokens);
          });
      if (error != 0) return error;
    }
    return 0;
  }

  int PackedBackward(void* stream, const AttentionBackwardArgs& args) {
    const AttentionArgs& f = args.forward;
    const int64_t group = GroupOf(f);
    const std::vector<DocumentRun> runs = RunsOf(args, takes_packed_);
    const auto memory_of = [&](const DocumentRun& run) {
      return PackedWorkspace(args.workspace, args.workspace_bytes, run, run.kv_heads * group);
    };
    const auto bytes_left = [&](const DocumentRun& run) {
      return run.in_blocks() ? CudnnBlockWorkspace(args, run).rest_bytes
                             : memory_of(run).rest_bytes;
    };
    if (!HaveGraphs(args, runs, bytes_left)) return kNotTaken;
    for (const DocumentRun& run : runs) {
      int error = 0;
      if (run.in_blocks()) {
        error = CudnnBackwardByBlocks(
            stream, args, run,
            [&](const CudnnGraphKey& key, Addresses addresses, void* workspace, int64_t bytes) {
              return Run(stream, key, std::move(addresses), workspace, bytes);
            });
      } else {
        const CudnnGraphKey key = KeysOfRun(args, run).front();
        const PackedWorkspace memory = memory_of(run);
        error = PackedRun(stream, f, run, key, memory, [&](int64_t kv_head, Addresses addresses) {
          const int64_t token = f.document_starts[run.first];
          const int status = cuda::TransposeStatistics(
              stream, f.lse + kv_head * group * f.tokens + token, key.heads, run.tokens, f.tokens,
              memory.statistics, key.heads);
          if (status != 0) return status;
          addresses.merge(AddressesOf(args, token, kv_head));
          return Run(stream, key, std::move(addresses), memory.rest, memory.rest_bytes);
        });
      }
      if (error != 0) return error;
    }
    return 0;
  }

  // Calls `call` for the heads of a run.
  template <typename Call>
  static int PackedRun(void* stream, const AttentionArgs& args, const DocumentRun& run,
                       const CudnnGraphKey& key, const PackedWorkspace& memory, const Call& call) {
    const std::span<const int32_t> starts = StartsOf(args).subspan(
        static_cast<size_t>(run.first), static_cast<size_t>(run.documents) + 1);
    int error = WriteIndex(stream, key, starts, memory.index);
    for (int64_t kv_head = 0; kv_head < args.kv_heads && error == 0; kv_head += run.kv_heads) {
      Addresses addresses = {{kStatistics, memory.statistics}};
      AddIndex(key.backward, memory.index, memory.index, &addresses);
      error = call(kv_head, std::move(addresses));
    }
    return error;
  }

  // Returns true if the call can be taken: all graphs must exist before the first is queued.
  template <typename Args, typename BytesLeft>
  bool HaveGraphs(const Args& args, const std::vector<DocumentRun>& runs,
                  const BytesLeft& bytes_left) {
    for (const DocumentRun& run : runs) {
      for (const CudnnGraphKey& key : KeysOfRun(args, run)) {
        if (GraphOf(key, bytes_left(run)) == nullptr) return false;
      }
    }
    return !runs.empty();
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
