// cuDNN's graphs of attention (SDPA). They are built and run for a GPU of this machine, or only
// built for the properties of a GPU of another machine. Only the source of this header uses cuDNN's
// frontend.
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

// The operands of a graph. A call passes addresses under these numbers.
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
  // With packed documents only:
  kLengthsOfQ,  // int32 [documents], in tokens
  kLengthsOfK,  // as kLengthsOfQ
  // The offsets of the first PackedTensor: int64 [documents + 1], where each document begins and
  // where the last one ends, in elements. The numbers from here on are the offsets of the other
  // tensors (OffsetsOf).
  kOffsets,
};
// The tensors that have offsets of their own, because the distance between tokens may differ. The
// gradient of the output shares the offsets of the output.
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
// Returns the number of the operand that has the offsets of a PackedTensor.
constexpr int64_t OffsetsOf(int tensor) { return int64_t{kOffsets} + tensor; }

// The shape for which a graph is built. Operands are BF16, statistics FP32.
struct CudnnGraphKey {
  bool backward = false;
  // If true, token i of a document sees the tokens up to i. Otherwise it sees all tokens.
  bool causal = true;
  // If > 0, token i sees the tokens from i - window + 1 on. REQUIRES: causal.
  int64_t window = 0;
  // If true, documents have any length up to `length`, given by offsets and lengths in device
  // memory, separately for queries and keys. Otherwise all have `length` tokens.
  bool packed = false;
  int64_t documents = 0, length = 0, heads = 0, kv_heads = 0, head_dim = 0, value_dim = 0;
  int64_t q_stride = 0, k_stride = 0, v_stride = 0, out_stride = 0;  // between tokens
  int64_t dq_stride = 0, dk_stride = 0, dv_stride = 0;
  // The distance between heads of statistics, which are [heads, tokens]. Those of packed documents
  // are [tokens, heads] and contiguous.
  int64_t statistics_stride = 0;
  float scale = 0;

  auto operator<=>(const CudnnGraphKey&) const = default;
};

// A graph that has been built. Only the CudnnGraphs that made it can run it.
class CudnnGraph {
 public:
  virtual ~CudnnGraph() = default;
  virtual int64_t workspace_bytes() const = 0;
};

// Addresses by CudnnOperand and OffsetsOf.
using CudnnAddresses = std::unordered_map<int64_t, void*>;

// Thread safety: one thread at a time may call Make, and one Run. They may run at the same time.
class CudnnGraphs {
 public:
  // Opens cuDNN for the calling thread's current device. Returns Unavailable if cuDNN or the CUDA
  // runtime is not found (listing the places that were searched), cuDNN is too old or built for
  // another CUDA version, or cannot be set up. A missing NVRTC is no error here, but Make fails for
  // graphs that must be compiled; Library tells of it.
  static absl::StatusOr<std::unique_ptr<CudnnGraphs>> Open();
  // Opens cuDNN for a GPU with these properties, as cuDNN writes them in JSON. `capability` is 10 *
  // major + minor. The graphs can be inspected but not run. Returns the errors of Open, and
  // InvalidArgument if `properties` cannot be read.
  static absl::StatusOr<std::unique_ptr<CudnnGraphs>> OpenFor(const std::string& properties,
                                                              int32_t capability);
  virtual ~CudnnGraphs() = default;

  // Returns cuDNN's name, version and file, and whether NVRTC is missing.
  virtual CudaLibrary Library() const = 0;
  // Builds a graph with the first engine that cuDNN's heuristics name and that can be built.
  // Engines are not timed. Returns Unimplemented, with cuDNN's message, if there is no such engine.
  virtual absl::StatusOr<std::unique_ptr<CudnnGraph>> Make(const CudnnGraphKey& key) = 0;
  // Queues a graph that this object made. Returns 0 for success, else kAttentionFailed or a greater
  // number. `workspace` has the graph's workspace_bytes.
  virtual int Run(void* stream, const CudnnGraph& graph, CudnnAddresses addresses,
                  void* workspace) = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_GRAPHS_H_
