// cuDNN's graphs of attention (SDPA). A graph is a computation that cuDNN has planned for one
// shape. Graphs are built and run for a GPU of this machine, or only built for the properties of a
// GPU of another machine. Only cudnn_graphs.cc uses cuDNN's frontend.
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

// The numbers of a graph's operands. A call of a graph passes an address for each of its operands.
// Those from kDOut to kDV are gradients.
enum CudnnOperand : int64_t {
  kQ = 1,
  kK,
  kV,
  kOut,
  kStatistics,  // log(sum(exp(score)))
  kDOut,
  kDQ,
  kDK,
  kDV,
  // Operands of packed documents only:
  kLengthsOfQ,  // int32 [documents], the tokens of each document
  kLengthsOfK,  // as kLengthsOfQ
  // The offsets of kPackedQ, int64 [documents + 1]: where each document begins and where the last
  // one ends, in elements. The numbers after this one are those of the other tensors' offsets
  // (OffsetsOf).
  kOffsets,
};
// The tensors that have offsets of their own, because each may have another distance between
// tokens. The gradient by the output shares the offsets of the output.
enum PackedTensor : int {
  kPackedQ,
  kPackedK,
  kPackedV,
  kPackedOut,
  kPackedStatistics,
  kPackedDQ,
  kPackedDK,
  kPackedDV,
  kPackedTensors,  // the number of tensors
};
// Returns the number of the operand that has the offsets of `tensor`, a PackedTensor.
constexpr int64_t OffsetsOf(int tensor) { return int64_t{kOffsets} + tensor; }

// The shape for which a graph is built. Operands are BF16, statistics FP32.
struct CudnnGraphKey {
  bool backward = false;
  // If true, query i of a document sees the keys up to i. Otherwise it sees all keys.
  bool causal = true;
  // If > 0, query i sees no keys before i - window + 1. REQUIRES: causal if window > 0.
  int64_t window = 0;
  // If true, documents may have any lengths up to `length`. Lengths and offsets in device memory
  // tell them, separately for queries and keys. If false, all documents have `length` tokens.
  bool packed = false;
  int64_t documents = 0, length = 0, heads = 0, kv_heads = 0, head_dim = 0, value_dim = 0;
  // The distances between tokens in elements.
  int64_t q_stride = 0, k_stride = 0, v_stride = 0, out_stride = 0;
  int64_t dq_stride = 0, dk_stride = 0, dv_stride = 0;
  // The distance in elements between heads of statistics, which are [heads, tokens]. It is not used
  // for packed documents, whose statistics are [tokens, heads] and contiguous.
  int64_t statistics_stride = 0;
  float scale = 0;

  auto operator<=>(const CudnnGraphKey&) const = default;
};

// A graph that has been built. Only the CudnnGraphs that made it can run it, and must outlive it. A
// forward graph reads kQ, kK and kV and writes kOut and kStatistics. A backward graph reads these
// five and kDOut, and writes kDQ, kDK and kDV. A graph of packed documents also reads the lengths,
// and the offsets of each of these.
class CudnnGraph {
 public:
  virtual ~CudnnGraph() = default;
  // Returns the bytes of device memory that a run needs.
  virtual int64_t workspace_bytes() const = 0;
};

// The addresses of operands in device memory, by their numbers (CudnnOperand and OffsetsOf).
using CudnnAddresses = std::unordered_map<int64_t, void*>;

// Builds and runs graphs.
//
// Thread safety: one thread at a time may call Make, and one thread at a time may call Run. A Make
// and a Run may happen at the same time. After Open, the current device of both threads must be
// that of Open.
class CudnnGraphs {
 public:
  // Opens cuDNN for the calling thread's current device. Returns Unavailable if cuDNN or the CUDA
  // runtime is not found (listing the places that were searched), if cuDNN is too old or built for
  // another CUDA version, or if cuDNN cannot be set up. A missing NVRTC (CUDA's compiler at run
  // time) is no error here, and Library tells of it. Make then fails for graphs that must be
  // compiled.
  static absl::StatusOr<std::unique_ptr<CudnnGraphs>> Open();
  // Opens cuDNN for a GPU with these properties, as cuDNN writes them in JSON. `capability` is the
  // compute capability, 10 * major + minor. Graphs can be made but not run. Returns Unavailable as
  // Open does, and InvalidArgument if `properties` cannot be read.
  static absl::StatusOr<std::unique_ptr<CudnnGraphs>> OpenFor(const std::string& properties,
                                                              int32_t capability);
  virtual ~CudnnGraphs() = default;

  // Returns cuDNN's name, version and file, and whether NVRTC is missing.
  virtual CudaLibrary Library() const = 0;
  // Builds a graph with the first engine (an implementation in cuDNN) that cuDNN's heuristics name
  // and that can be built. Engines are not timed. Returns Unimplemented, with cuDNN's message, if
  // the graph cannot be built. Takes about half a second.
  virtual absl::StatusOr<std::unique_ptr<CudnnGraph>> Make(const CudnnGraphKey& key) = 0;
  // Queues a graph that this object made on `stream`, a cudaStream_t. Returns 0 for success, else
  // kAttentionFailed or a greater number. After OpenFor it always returns kAttentionFailed.
  // `workspace` is device memory of at least graph.workspace_bytes(). `addresses` has all operands
  // of the graph. The memory must stay valid until the stream has run the graph.
  virtual int Run(void* stream, const CudnnGraph& graph, CudnnAddresses addresses,
                  void* workspace) = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_GRAPHS_H_
