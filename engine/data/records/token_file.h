// A user's file of token ids: format `tokens`.
#ifndef MEGATRAIN_ENGINE_DATA_RECORDS_TOKEN_FILE_H_
#define MEGATRAIN_ENGINE_DATA_RECORDS_TOKEN_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/data/records/data_file_io.h"
#include "engine/job/job_spec.h"

namespace megatrain {

// Accepted: .npy (versions 1 to 3) holding a one-dimensional array of little-endian uint16 or
// uint32, and .bin holding nothing but such numbers, their type given by `dtype`. Ids are read
// where they lie; there is no copy. Thread safety: const methods may be called from several
// threads.
class TokenFile {
 public:
  // Reads the header alone. InvalidArgument names the file, what it holds and what is accepted.
  static absl::StatusOr<std::unique_ptr<TokenFile>> Open(const DataFile& file,
                                                         FileSystem* files = PosixFileSystem());

  const std::string& path() const { return reader_->path(); }
  int64_t bytes() const { return reader_->size(); }
  int64_t tokens() const { return tokens_; }
  int element_bytes() const { return element_bytes_; }  // 2 or 4

  // Reads all of it once: an id at or above `vocabulary` is refused with the file, the element and
  // the byte. Returns XXH3-128 of the file in hex.
  absl::StatusOr<std::string> Scan(int64_t vocabulary, const ByteProgress& progress) const;

  // ids[0, count) = elements [first, first + count), checked again to be below `vocabulary`: the
  // file may have been written to since. REQUIRES: the range lies in the file.
  absl::Status Read(int64_t first, int64_t count, int64_t vocabulary, int32_t* ids) const;

 private:
  TokenFile(std::unique_ptr<DataFileReader> reader, int element_bytes, int64_t data_offset,
            int64_t tokens)
      : reader_(std::move(reader)),
        element_bytes_(element_bytes),
        data_offset_(data_offset),
        tokens_(tokens) {}
  absl::Status OutsideVocabulary(int64_t element, uint32_t id, int64_t vocabulary) const;

  const std::unique_ptr<DataFileReader> reader_;
  const int element_bytes_;
  const int64_t data_offset_;
  const int64_t tokens_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_RECORDS_TOKEN_FILE_H_
