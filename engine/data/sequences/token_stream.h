// The tokenised documents of consecutive data files. They are tokenised once and kept in a cache
// file.
#ifndef MEGATRAIN_ENGINE_DATA_SEQUENCES_TOKEN_STREAM_H_
#define MEGATRAIN_ENGINE_DATA_SEQUENCES_TOKEN_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/file.h"
#include "engine/data/records/json_records.h"
#include "engine/data/sequences/document_encoder.h"
#include "engine/data/sequences/token_cache.h"
#include "engine/job/job_spec.h"

namespace megatrain {

struct TokenStreamOptions {
  DocumentEncoderOptions encoder;
  std::string cache_directory;
  size_t chunk_bytes = kRecordChunkBytes;  // the size of one read from a data file
  FileSystem* files = PosixFileSystem();   // must outlive the stream
  int threads = 1;                         // for tokenising; the words do not depend on it
};

// Returns true if the file holds JSON records. All formats but `text` do, and `text` does in files
// named .jsonl or .json. Any other text file is one document.
bool HoldsJsonRecords(const DataFile& file);

// The words (packing.h) of the documents of some files, in order. Thread safety: const methods may
// be called from several threads.
class TokenStream {
 public:
  // Hashes the files, then finds their stream in the cache or makes it. `progress` may be null. It
  // counts every file's bytes twice, once hashed and once tokenised. The tokenizer and the chat
  // template of `options` are used during the call only; the file system must outlive the result.
  // REQUIRES: no file has format `tokens`.
  //
  // Returns InvalidArgument, naming the file and the line, element or byte, for malformed data,
  // invalid UTF-8, an empty file, or an id that is not below the vocabulary. Returns Aborted if a
  // file changes while it is read.
  static absl::StatusOr<std::unique_ptr<TokenStream>> Open(absl::Span<const DataFile> files,
                                                           const TokenStreamOptions& options,
                                                           const ByteProgress& progress);

  int64_t words() const { return cache_->elements(); }
  int64_t documents() const { return documents_; }
  // Returns the number of assistant's turns without loss, as DocumentEncoder counts them.
  int64_t turns_left_out() const { return turns_left_out_; }
  // Returns the XXH3-128 (32 hex digits) of the files' contents and everything that affects the
  // words.
  const std::string& key() const { return key_; }
  // Reads words [first, first + count). REQUIRES: the range lies in the stream.
  absl::Status Read(int64_t first, int64_t count, uint32_t* words) const {
    return cache_->Read(first, count, words);
  }

 private:
  TokenStream(std::unique_ptr<CacheFile> cache, std::string key, int64_t documents,
              int64_t turns_left_out)
      : cache_(std::move(cache)),
        key_(std::move(key)),
        documents_(documents),
        turns_left_out_(turns_left_out) {}

  const std::unique_ptr<CacheFile> cache_;
  const std::string key_;
  const int64_t documents_;
  const int64_t turns_left_out_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_TOKEN_STREAM_H_
