// SequenceIndex finds the sequences of a token stream by number. A cache file keeps the numbers of
// the words at which they begin (packing.h).
#ifndef MEGATRAIN_ENGINE_DATA_SEQUENCES_SEQUENCE_INDEX_H_
#define MEGATRAIN_ENGINE_DATA_SEQUENCES_SEQUENCE_INDEX_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/data/cache/token_cache.h"
#include "engine/data/sequences/packing.h"
#include "engine/data/sequences/token_stream.h"

namespace megatrain {

// Thread safety: const methods may be called from several threads.
class SequenceIndex {
 public:
  // Opens the index in `cache_directory`, or makes it in one pass over `stream` if it is missing or
  // cannot be read. With `verify` it is checked whole, else as it is read. `stream` and `files`
  // must outlive the result. `progress` may be null; it is called with 0 bytes while the work goes
  // on. Returns the errors of `progress`, of SequencePacker, of TokenStream::Read, of writing the
  // cache, and of reading what was just written.
  static absl::StatusOr<std::unique_ptr<SequenceIndex>> Open(
      const TokenStream* stream, const PackingOptions& options, const std::string& cache_directory,
      const ByteProgress& progress, FileSystem* files = PosixFileSystem(), bool verify = false);

  const PackingCounts& counts() const { return counts_; }
  // Returns a sequence, in a time that does not depend on `index`, or the error of reading, or
  // DataLoss or Internal if the index does not fit the stream. Unused positions hold `pad_id`.
  // REQUIRES: 0 <= index < counts().sequences.
  absl::StatusOr<Sequence> Read(int64_t index, int32_t pad_id) const;

 private:
  SequenceIndex(const TokenStream* stream, const PackingOptions& options,
                std::unique_ptr<CacheFile> begins, const PackingCounts& counts)
      : stream_(stream), options_(options), begins_(std::move(begins)), counts_(counts) {}

  const TokenStream* const stream_;
  const PackingOptions options_;
  const std::unique_ptr<CacheFile> begins_;  // uint64 words
  const PackingCounts counts_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_SEQUENCE_INDEX_H_
