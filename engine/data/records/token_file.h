// TokenFile reads a user's file of token ids (job files call this format `tokens`).
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

// Two kinds of file are accepted: .npy (versions 1 to 3) with a one-dimensional array of
// little-endian uint16 or uint32, and .bin with nothing but such numbers, whose type
// DataFile::dtype gives. Ids are read from the file each time; they are not copied to memory or to
// a cache.
//
// Thread safety: const methods may be called from several threads.
class TokenFile {
 public:
  // Opens the file and reads no more than its header. Returns NotFound if there is no file, and
  // InvalidArgument, naming the file, its content and what is accepted, for any other kind of file.
  // Returns the errors of reading. `files` must outlive the result.
  static absl::StatusOr<std::unique_ptr<TokenFile>> Open(const DataFile& file,
                                                         FileSystem* files = PosixFileSystem());

  const std::string& path() const { return reader_->path(); }
  int64_t bytes() const { return reader_->size(); }
  int64_t tokens() const { return tokens_; }
  int element_bytes() const { return element_bytes_; }  // 2 or 4

  struct Scanned {
    std::string hash;         // XXH3-128 of the file as 32 hex digits
    int64_t largest_id = -1;  // -1 in an empty file
  };
  // Reads the whole file once, checks its ids and hashes it. Returns InvalidArgument, naming the
  // element and the byte, for an id that is not below `vocabulary`, and DataLoss if the file has
  // another number of elements by now. Returns the errors of reading and of `progress`, which may
  // be null.
  absl::StatusOr<Scanned> Scan(int64_t vocabulary, const ByteProgress& progress) const;

  // Sets ids[0, count) to elements [first, first + count). The file may have changed since Scan, so
  // ids are checked against `vocabulary` again. Returns InvalidArgument as Scan does, DataLoss if
  // the file ends before the range, and the errors of reading. REQUIRES: the range lies in [0,
  // tokens()). After an error `ids` is undefined.
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
