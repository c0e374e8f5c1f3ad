// Cuts attention over packed documents into calls of cuDNN.
//
// A call takes a run of adjacent documents. Building a graph takes half a second, so few graphs
// must suffice for all documents of a job. Therefore the number of documents in a run is a power of
// two, and the length of its graph is one of a few (CudnnLengthBucket). A run is not filled up with
// documents of length zero, which cuDNN takes only from 9.25 on. A document that does not fit with
// even one head may form a run that is computed by blocks (cudnn_blocks.h).
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_DOCUMENT_RUNS_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_DOCUMENT_RUNS_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace megatrain {

struct DocumentRun {
  // The number of documents is a power of two, at most cuda::kPackedDocumentsMax.
  int64_t first = 0, documents = 0;
  int64_t tokens = 0;    // of all documents together
  int64_t length = 0;    // CudnnLengthBucket of the longest, or of a block
  int64_t kv_heads = 0;  // computed at once; divides the number of all

  // Returns true for one document that is computed by blocks of `length` tokens.
  bool in_blocks() const { return tokens > documents * length; }
  bool operator==(const DocumentRun&) const = default;
};

// Returns true if one call can take the run. The answer must not depend on `first`. A run that fits
// for some heads must fit for fewer.
using RunFits = std::function<bool(const DocumentRun& run)>;

// Returns the length, less than `tokens`, of the blocks into which one document of `tokens` is cut
// with one head of keys and values. Returns 0 if the document is not cut.
using BlockLength = std::function<int64_t(int64_t tokens)>;

// Returns runs that cover all documents in order. Returns none if a document does not fit with even
// one head of keys and values and is not cut into blocks. `starts` has documents + 1 elements, and
// no document may be empty. The functions are used during the call only.
std::vector<DocumentRun> CutIntoRuns(std::span<const int32_t> starts, int64_t kv_heads,
                                     const RunFits& fits, const BlockLength& block_length);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_DOCUMENT_RUNS_H_
