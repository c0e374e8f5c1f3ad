// How attention over packed documents is cut into calls of cuDNN.
//
// A call takes a run: documents that lie one after another, so that nothing of other calls lies
// between them. Their number is a power of two and the length that its graph is made for comes in
// steps (CudnnLengthBucket): a graph takes half a second to build, so that few are to do for all
// that a job's documents may be. No document of length zero fills a run up: cuDNN takes them from
// 9.25 on only. A document that fits with no head may be a run of its own that goes by blocks
// (cudnn_blocks.h).
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_DOCUMENT_RUNS_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_DOCUMENT_RUNS_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace megatrain {

struct DocumentRun {
  int64_t first = 0, documents = 0;  // the number is a power of two
  int64_t tokens = 0;                // of all of them
  int64_t length = 0;                // CudnnLengthBucket of the longest; of a block
  int64_t kv_heads = 0;              // at once, with their query heads; divides all of them

  // One document by blocks of `length` tokens.
  bool in_blocks() const { return tokens > documents * length; }
  bool operator==(const DocumentRun&) const = default;
};

// Whether one call may be for this run, of which `first` is not to be looked at. What fits for some
// heads fits for fewer.
using RunFits = std::function<bool(const DocumentRun& run)>;

// The length of the blocks, less than the document's, that one document of so many tokens is cut
// into with one head of keys and values; 0: it is not cut.
using BlockLength = std::function<int64_t(int64_t tokens)>;

// Runs that cover all documents, in their order; none where one document does not fit with even one
// head of keys and values and is not cut into blocks. `starts`: [documents + 1]; none is empty.
std::vector<DocumentRun> CutIntoRuns(std::span<const int32_t> starts, int64_t kv_heads,
                                     const RunFits& fits, const BlockLength& block_length);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_DOCUMENT_RUNS_H_
