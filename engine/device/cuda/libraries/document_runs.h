// Cuts attention over packed documents into runs of adjacent documents.
//
// cuDNN computes a run by one graph, with some or all heads at once. Building a graph takes half a
// second, so few graphs must suffice for all documents of a job. Therefore the number of documents
// in a run is a power of two, and the length of its graph is one of a few (CudnnLengthBucket). A
// run is not filled up with documents of length 0, which cuDNN takes only from version 9.25 on. A
// document that does not fit even with one head of keys and values may be a run that is computed by
// blocks (cudnn_blocks.h).
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_DOCUMENT_RUNS_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_DOCUMENT_RUNS_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace megatrain {

// The documents [first, first + documents) of a call.
struct DocumentRun {
  // `documents` is a power of two, at most cuda::kPackedDocumentsMax.
  int64_t first = 0, documents = 0;
  int64_t tokens = 0;    // of all documents together
  int64_t length = 0;    // CudnnLengthBucket of the longest document, or the length of blocks
  int64_t kv_heads = 0;  // the heads of keys and values at once; divides the number of all

  // Returns true for one document that is computed by blocks of `length` tokens.
  bool in_blocks() const { return tokens > documents * length; }
  bool operator==(const DocumentRun&) const = default;
};

// Returns true if one call of cuDNN can take the run. The answer must not depend on `first`. A run
// that fits with some heads must fit with fewer heads.
using RunFits = std::function<bool(const DocumentRun& run)>;

// Returns the length of the blocks into which one document of `tokens` tokens is cut, with one head
// of keys and values at a time. The length is less than `tokens`, or 0 if the document is not cut.
using BlockLength = std::function<int64_t(int64_t tokens)>;

// Returns runs that cover all documents in order. Returns an empty list if a document does not fit
// even with one head of keys and values and is not cut into blocks, and also if there are no
// documents. `starts` [documents + 1] is that of AttentionArgs, and kv_heads the number of all
// heads of keys and values. The functions are used during the call only. REQUIRES: `starts` is not
// empty, no document is empty, and kv_heads > 0.
std::vector<DocumentRun> CutIntoRuns(std::span<const int32_t> starts, int64_t kv_heads,
                                     const RunFits& fits, const BlockLength& block_length);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_DOCUMENT_RUNS_H_
