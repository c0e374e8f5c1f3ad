#include "engine/device/cuda/libraries/document_runs.h"

#include <algorithm>

#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/libraries/cudnn_sizes.h"

namespace megatrain {
namespace {

// A graph goes over the blocks of `length` tokens for every document, and leaves those that are
// beyond its end: at most so many times the blocks that there are.
constexpr int64_t kBlocksMax = 4;

bool IsMostlyEmpty(const DocumentRun& run) {
  return run.length > kCudnnLengthMin && run.documents * run.length > kBlocksMax * run.tokens;
}

}  // namespace

std::vector<DocumentRun> CutIntoRuns(std::span<const int32_t> starts, int64_t kv_heads,
                                     const RunFits& fits, const BlockLength& block_length) {
  const int64_t documents = static_cast<int64_t>(starts.size()) - 1;
  const auto run_of = [&](int64_t first, int64_t count) {
    int64_t longest = 0;
    for (int64_t d = first; d < first + count; ++d) {
      longest = std::max<int64_t>(longest, starts[d + 1] - starts[d]);
    }
    return DocumentRun{.first = first,
                       .documents = count,
                       .tokens = starts[first + count] - starts[first],
                       .length = CudnnLengthBucket(longest),
                       .kv_heads = kv_heads};
  };
  std::vector<DocumentRun> runs;
  for (int64_t first = 0; first < documents; first += runs.back().documents) {
    DocumentRun run = run_of(first, 1);
    while (run.kv_heads > 0 && (kv_heads % run.kv_heads != 0 || !fits(run))) --run.kv_heads;
    if (run.kv_heads == 0) {
      run.kv_heads = 1;
      run.length = block_length(run.tokens);
      if (run.length == 0) return {};
      runs.push_back(run);
      continue;
    }
    // As many documents as go with all heads.
    while (run.kv_heads == kv_heads && 2 * run.documents <= cuda::kPackedDocumentsMax &&
           first + 2 * run.documents <= documents) {
      const DocumentRun twice = run_of(first, 2 * run.documents);
      if (IsMostlyEmpty(twice) || !fits(twice)) break;
      run = twice;
    }
    runs.push_back(run);
  }
  return runs;
}

}  // namespace megatrain
