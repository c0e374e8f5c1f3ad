// The cache files of prepared data: arrays of numbers with checksums.
//
// Layout (little-endian):
//   elements * element_bytes of payload | meta_bytes of text that describes it | CacheTrailer
// A file is written as NAME.tmp, synced and renamed, and its trailer has checksums of everything.
// So neither a half-written nor a damaged file is taken for a good one.
#ifndef MEGATRAIN_ENGINE_DATA_SEQUENCES_TOKEN_CACHE_H_
#define MEGATRAIN_ENGINE_DATA_SEQUENCES_TOKEN_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/data/records/data_file_io.h"

namespace megatrain {

struct CacheTrailer {
  char magic[8];  // "MTCACHE2"
  uint32_t element_bytes;
  uint32_t reserved;  // 0
  uint64_t elements;
  uint64_t meta_bytes;
  char key[32];           // XXH3-128 in hex of everything that affects the content
  uint64_t payload_xxh3;  // XXH3-64, like the next two
  uint64_t meta_xxh3;
  uint64_t trailer_xxh3;  // covers the fields above
};
static_assert(sizeof(CacheTrailer) == 88);

// Writes one cache file. Not thread-safe.
class CacheFileWriter {
 public:
  // Begins to write `directory`/`name`, creating the directory if need be. If another process is
  // writing the same file, waits until it has finished and returns null: the file can then be read.
  // Takes over a NAME.tmp that a killed process left. `progress` is called with 0 bytes while it
  // waits, and its error ends the wait. `files` must outlive the writer.
  static absl::StatusOr<std::unique_ptr<CacheFileWriter>> Create(
      const std::string& directory, const std::string& name, const std::string& key,
      size_t element_bytes, const ByteProgress& progress = {},
      FileSystem* files = PosixFileSystem());
  // Removes NAME.tmp unless Finish succeeded.
  ~CacheFileWriter();
  CacheFileWriter(const CacheFileWriter&) = delete;
  CacheFileWriter& operator=(const CacheFileWriter&) = delete;

  // Appends `count` elements of element_bytes each. Returns the errors of writing.
  absl::Status Append(const void* elements, size_t count);
  // Writes `meta` and the trailer, syncs the file and gives it its name. Returns the errors of
  // writing. Nothing may be appended afterwards.
  absl::Status Finish(const std::string& meta);

 private:
  struct State;
  explicit CacheFileWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// A cache file that is open for reading. Thread safety: const methods may be called from several
// threads.
class CacheFile {
 public:
  // Reads the whole file once and verifies its checksums. Returns NotFound if there is none, and
  // DataLoss if it is damaged or does not match `key` and `element_bytes`; in both cases it must be
  // made again. `progress` is called with 0 bytes while it reads, and its error is returned.
  // `files` must outlive the result.
  static absl::StatusOr<std::unique_ptr<CacheFile>> Open(const std::string& directory,
                                                         const std::string& name,
                                                         const std::string& key,
                                                         size_t element_bytes,
                                                         const ByteProgress& progress = {},
                                                         FileSystem* files = PosixFileSystem());
  int64_t elements() const { return elements_; }
  const std::string& meta() const { return meta_; }
  // Reads elements [first, first + count). REQUIRES: the range lies in the file.
  absl::Status Read(int64_t first, int64_t count, void* elements) const;

 private:
  CacheFile(std::unique_ptr<DataFileReader> reader, size_t element_bytes, int64_t elements,
            std::string meta)
      : reader_(std::move(reader)),
        element_bytes_(element_bytes),
        elements_(elements),
        meta_(std::move(meta)) {}
  const std::unique_ptr<DataFileReader> reader_;
  const size_t element_bytes_;
  const int64_t elements_;
  const std::string meta_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_TOKEN_CACHE_H_
