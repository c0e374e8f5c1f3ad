// TokenStream holds the tokenized documents of consecutive data files. Each file is tokenized once
// and kept in a cache file of its own.
#ifndef MEGATRAIN_ENGINE_DATA_SEQUENCES_TOKEN_STREAM_H_
#define MEGATRAIN_ENGINE_DATA_SEQUENCES_TOKEN_STREAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/file.h"
#include "engine/data/cache/file_hashes.h"
#include "engine/data/cache/token_cache.h"
#include "engine/data/sequences/file_words.h"
#include "engine/job/job_spec.h"

namespace megatrain {

// Options for tokenizing files and for the place of the result.
struct TokenStreamOptions {
  FileWordsOptions words;
  std::string cache_directory;
  // Remembers the hashes of the files; not owned. If null, every file is hashed.
  FileHashes* hashes = nullptr;
  bool verify = false;                    // check the cache files whole, not as they are read
  FileSystem* files = PosixFileSystem();  // must outlive the stream
  int threads = 1;                        // for tokenizing; the words do not depend on it
};

// The words of the documents of some files, in order. A word is a token with its marks (packing.h).
// Thread safety: const methods may be called from several threads.
class TokenStream {
 public:
  // Finds each file's words in the cache or makes them. Works on several small files or plain texts
  // at a time. Words that were made stay in the cache if a later file fails. `progress` may be
  // null. It is called on the calling thread with the bytes of the files that were finished since
  // the last call, or with 0. The tokenizer, the chat template and `hashes` of `options` are used
  // during the call only; the file system must outlive the result. REQUIRES: no file has format
  // `tokens`, and threads >= 1.
  //
  // Returns the errors of FileWordMaker for the first bad file, but InvalidArgument in place of
  // OutOfRange for an id that is not below the vocabulary. Returns Aborted if a file changed while
  // it was read, or if another job keeps replacing the same words by others. Returns the errors of
  // the file system, of writing the cache, of reading what was just written there, and of
  // `progress`. If bad records are skipped, a plain text for which FileWordMaker returns
  // InvalidArgument is counted as a bad record in place of the error, unless it is unreadable().
  static absl::StatusOr<std::unique_ptr<TokenStream>> Open(absl::Span<const DataFile> files,
                                                           const TokenStreamOptions& options,
                                                           const ByteProgress& progress);

  int64_t words() const { return words_; }
  int64_t documents() const { return documents_; }
  // Returns the number of assistant's turns without loss, as DocumentEncoder counts them.
  int64_t turns_without_loss() const { return turns_without_loss_; }
  const BadRecords& bad_records() const { return bad_records_; }
  // Returns the XXH3-128 (32 hex digits) of the files' contents and everything that affects the
  // words, but for which records were left out.
  const std::string& key() const { return key_; }
  // Reads words [first, first + count). Returns the errors of CacheFile::Read, and DataLoss for a
  // token that is not below the vocabulary. REQUIRES: the range lies in the stream.
  absl::Status Read(int64_t first, int64_t count, uint32_t* words) const;

 private:
  // The words of one file, and the place of the first of them in the stream.
  struct Part {
    int64_t first = 0;
    std::unique_ptr<CacheFile> words;
  };
  explicit TokenStream(int64_t vocabulary) : vocabulary_(vocabulary) {}

  const int64_t vocabulary_;
  std::vector<Part> parts_;  // those with words
  int64_t words_ = 0;
  int64_t documents_ = 0;
  int64_t turns_without_loss_ = 0;
  BadRecords bad_records_;
  std::string key_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_TOKEN_STREAM_H_
