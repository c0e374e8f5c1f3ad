// cuDNN's graphs of attention (SDPA): what they are made of, built and run on a GPU that is here,
// or built from the properties of one that is not. cuDNN's frontend is behind this header.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_GRAPHS_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_GRAPHS_H_

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "engine/device/cuda/libraries/cuda_api.h"

namespace megatrain {

// The operands of a graph, by the numbers that calls give their addresses by.
enum CudnnOperand : int64_t {
  kQ = 1,
  kK,
  kV,
  kOut,
  kStatistics,
  kDOut,
  kDQ,
  kDK,
  kDV,
  kLengthsOfQ,
  kLengthsOfK,
  kOffsets,  // of the first PackedTensor: OffsetsOf
};
// What has offsets of its own: each may have its own distance between tokens. The gradient of the
// output lies as the output does.
enum PackedTensor : int {
  kPackedQ,
  kPackedK,
  kPackedV,
  kPackedOut,
  kPackedStatistics,
  kPackedDQ,
  kPackedDK,
  kPackedDV,
  kPackedTensors,
};
constexpr int64_t OffsetsOf(int tensor) { return int64_t{kOffsets} + tensor; }

// The shape that a graph is built for. Operands are BF16, statistics FP32.
struct CudnnGraphKey {
  bool backward = false;
  // Token i of a document sees the tokens up to i; else all.
  bool causal = true;
  // Documents of any length up to `length`, by offsets and lengths in device memory, queries' and
  // keys' apart; else all are `length` tokens long.
  bool packed = false;
  int64_t documents = 0, length = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t q_stride = 0, k_stride = 0, v_stride = 0, out_stride = 0;  // of tokens
  int64_t dq_stride = 0, dk_stride = 0, dv_stride = 0;
  // Of heads: statistics are [heads, tokens]. Those of packed documents are [tokens, heads],
  // contiguous.
  int64_t statistics_stride = 0;
  float scale = 0;

  auto operator<=>(const CudnnGraphKey&) const = default;
};

// A graph that is built.
class CudnnGraph {
 public:
  virtual ~CudnnGraph() = default;
  virtual int64_t workspace_bytes() const = 0;
};

// By CudnnOperand, and OffsetsOf.
using CudnnAddresses = std::unordered_map<int64_t, void*>;

// Thread safety: Make by one thread at a time, Run by one thread at a time; both at once.
class CudnnGraphs {
 public:
  // For the device of the calling thread. Unavailable: cuDNN or what it needs is not found, with
  // where it was looked for, or is too old.
  static absl::StatusOr<std::unique_ptr<CudnnGraphs>> Open();
  // For a device that has these properties, as cuDNN writes them in JSON; `capability` is
  // 10 * major + minor. Its graphs can be looked at, not run.
  static absl::StatusOr<std::unique_ptr<CudnnGraphs>> OpenFor(const std::string& properties,
                                                              int32_t capability);
  virtual ~CudnnGraphs() = default;

  virtual CudaLibrary Library() const = 0;
  // The first engine that cuDNN's heuristics name and that can be built: never a timed one.
  // Unimplemented, with cuDNN's words: there is none.
  virtual absl::StatusOr<std::unique_ptr<CudnnGraph>> Make(const CudnnGraphKey& key) = 0;
  // 0, or from kAttentionFailed on. `workspace`: the graph's workspace_bytes.
  virtual int Run(void* stream, const CudnnGraph& graph, CudnnAddresses addresses,
                  void* workspace) = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_GRAPHS_H_
