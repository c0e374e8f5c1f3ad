// Writes and reads the cache files of prepared data, which are arrays of numbers with checksums.
//
// Layout (little-endian):
//   elements * element_bytes of payload
//   the XXH3-64 of each block of kCacheBlockBytes of the payload, of which the last may be shorter
//   meta_bytes of text that describes the payload
//   CacheTrailer
// A file is written as NAME.tmp, synced and renamed. Its trailer and text are checked when it is
// opened, and each block when it is read. So neither a half-written nor a damaged file is taken for
// a good one, and opening takes the same time whatever the size.
//
// Files below kSyncedBytesMin are not synced: there may be a hundred thousand of them, and a sync
// takes longer than making one again. A power failure may lose those of the last half minute.
#ifndef MEGATRAIN_ENGINE_DATA_CACHE_TOKEN_CACHE_H_
#define MEGATRAIN_ENGINE_DATA_CACHE_TOKEN_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/data/records/data_file_io.h"

namespace megatrain {

inline constexpr size_t kSyncedBytesMin = size_t{1} << 20;
inline constexpr uint32_t kCacheBlockBytes = uint32_t{1} << 16;

// The end of a cache file.
struct CacheTrailer {
  char magic[8];           // "MTCACHE3"
  uint32_t element_bytes;  // divides kCacheBlockBytes
  uint32_t block_bytes;    // kCacheBlockBytes
  uint64_t elements;
  uint64_t meta_bytes;
  char key[32];           // XXH3-128 in hex of everything that affects the content
  uint64_t meta_xxh3;     // XXH3-64, like the next one
  uint64_t trailer_xxh3;  // covers the fields above
};
static_assert(sizeof(CacheTrailer) == 80);

// Writes one cache file. Not thread-safe. A file that may be there is found or made so:
//   before = files->Examine(path)
//   file = CacheFile::Open(...); done if that is good
//   writer = Create(..., before); if it is not null: Append, Finish
//   CacheFile::Open(...) again
class CacheFileWriter {
 public:
  // Begins to write `directory`/`name`, creating the directory if need be. `replaced` is what
  // Examine said of that file before the caller tried to open it: by default, that there is none.
  // If another writer is making the same file, waits for it. Returns null if the file is there and
  // is not `replaced`: another writer has made it, and it can be opened. Takes over a NAME.tmp that
  // a killed process left. `progress` may be null; it is called with 0 bytes during the wait, and
  // its error ends the wait. Returns the errors of writing and of `progress`. `files` must outlive
  // the writer. REQUIRES: `element_bytes` divides kCacheBlockBytes, and `key` has at most 32
  // characters.
  static absl::StatusOr<std::unique_ptr<CacheFileWriter>> Create(
      const std::string& directory, const std::string& name, const std::string& key,
      size_t element_bytes, const ByteProgress& progress = {},
      FileSystem* files = PosixFileSystem(),
      const absl::StatusOr<FileInfo>& replaced = absl::NotFoundError(""));
  // Removes NAME.tmp unless Finish succeeded.
  ~CacheFileWriter();
  CacheFileWriter(const CacheFileWriter&) = delete;
  CacheFileWriter& operator=(const CacheFileWriter&) = delete;

  // Appends `count` elements of element_bytes each. Returns the errors of writing.
  absl::Status Append(const void* elements, size_t count);
  // Writes `meta` and the trailer, syncs the file unless it is small, and gives it its name.
  // Returns the errors of writing. Call it once, last. REQUIRES: `meta` has at most 16 MiB, because
  // Open takes a file with a longer one for damaged.
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
  // Opens `directory`/`name`. Returns NotFound if there is no such file, and DataLoss if it is
  // damaged or does not match `key` and `element_bytes`; in both cases it must be made again.
  // Returns other errors of reading. With `verify` it also does as Read for every block. `progress`
  // is then called with 0 bytes between reads, and its error is returned. `files` must outlive the
  // result.
  static absl::StatusOr<std::unique_ptr<CacheFile>> Open(
      const std::string& directory, const std::string& name, const std::string& key,
      size_t element_bytes, const ByteProgress& progress = {},
      FileSystem* files = PosixFileSystem(), bool verify = false);
  int64_t elements() const { return elements_; }
  const std::string& meta() const { return meta_; }
  // Reads elements [first, first + count) and checks the blocks that they lie in. Returns DataLoss
  // if one is damaged, and removes the file, so that it is made again at the next start. Returns
  // DataLoss also if the file has become shorter, and the errors of reading. REQUIRES: the range
  // lies in [0, elements()).
  absl::Status Read(int64_t first, int64_t count, void* elements) const;

 private:
  CacheFile(std::unique_ptr<DataFileReader> reader, FileSystem* files, size_t element_bytes,
            int64_t elements, std::string meta)
      : reader_(std::move(reader)),
        files_(files),
        element_bytes_(element_bytes),
        elements_(elements),
        meta_(std::move(meta)) {}
  int64_t payload_bytes() const { return elements_ * static_cast<int64_t>(element_bytes_); }
  // Reads the blocks that bytes [begin, end) of the payload lie in, checks them, and copies the
  // bytes.
  absl::Status ReadChecked(int64_t begin, int64_t end, char* to) const;

  const std::unique_ptr<DataFileReader> reader_;
  FileSystem* const files_;
  const size_t element_bytes_;
  const int64_t elements_;
  const std::string meta_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_CACHE_TOKEN_CACHE_H_
