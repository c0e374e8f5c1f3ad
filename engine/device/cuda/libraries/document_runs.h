// How attention over packed documents is cut into calls of cuDNN.
//
// A call takes a run: documents that lie one after another, so that nothing of other calls lies
// between them. Their number is a power of two and the length that its graph is made for comes in
// steps (CudnnLengthBucket): a graph takes half a second to build, so that few are to do for all
// that a job's documents may be. No document of length zero fills a run up: cuDNN takes them from
// 9.25 on only.
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
  int64_t length = 0;                // CudnnLengthBucket of the longest
  int64_t kv_heads = 0;              // at once, with their query heads; divides all of them

  bool operator==(const DocumentRun&) const = default;
};

// Whether one call may be for this run, of which `first` is not to be looked at. What fits for some
// heads fits for fewer.
using RunFits = std::function<bool(const DocumentRun& run)>;

// Runs that cover all documents, in their order; none where one document does not fit with even one
// head of keys and values. `starts`: [documents + 1]; none is empty.
std::vector<DocumentRun> CutIntoRuns(std::span<const int32_t> starts, int64_t kv_heads,
                                     const RunFits& fits);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_DOCUMENT_RUNS_H_
