// Files of prepared data: numbers in order, checksummed, valid whole or not at all.
//
// Layout (little-endian):
//   elements * element_bytes of payload | meta_bytes of text that describes it | CacheTrailer
// A file is written as NAME.tmp, synced, and renamed, and its trailer is checksummed: neither a
// half-written file nor a damaged one is ever taken for whole.
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
  char key[32];           // XXH3-128 in hex of all that decides the content
  uint64_t payload_xxh3;  // XXH3-64
  uint64_t meta_xxh3;
  uint64_t trailer_xxh3;  // of the fields above
};
static_assert(sizeof(CacheTrailer) == 88);

class CacheFileWriter {
 public:
  // Begins DIRECTORY/NAME. While another process writes the same file this waits, and then returns
  // null: the file is there to be read. A NAME.tmp that a killed process left is taken over.
  // `progress` is asked now and then while it waits.
  // `files` must outlive the writer.
  static absl::StatusOr<std::unique_ptr<CacheFileWriter>> Create(
      const std::string& directory, const std::string& name, const std::string& key,
      size_t element_bytes, const ByteProgress& progress = {},
      FileSystem* files = PosixFileSystem());
  // Removes NAME.tmp if Finish was not reached.
  ~CacheFileWriter();
  CacheFileWriter(const CacheFileWriter&) = delete;
  CacheFileWriter& operator=(const CacheFileWriter&) = delete;

  absl::Status Append(const void* elements, size_t count);
  absl::Status Finish(const std::string& meta);

 private:
  struct State;
  explicit CacheFileWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Thread safety: const methods may be called from several threads.
class CacheFile {
 public:
  // Reads the file once and verifies every checksum. NotFound, or DataLoss that says what is wrong:
  // either way it is to be made again. `progress` is called with 0 bytes as the reading goes on.
  // `files` must outlive the file.
  static absl::StatusOr<std::unique_ptr<CacheFile>> Open(const std::string& directory,
                                                         const std::string& name,
                                                         const std::string& key,
                                                         size_t element_bytes,
                                                         const ByteProgress& progress = {},
                                                         FileSystem* files = PosixFileSystem());
  int64_t elements() const { return elements_; }
  const std::string& meta() const { return meta_; }
  // REQUIRES: the range lies in the file.
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
