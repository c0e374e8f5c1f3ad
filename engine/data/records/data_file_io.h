// Reads a user's data file, by position or once from front to back while hashing its content.
#ifndef MEGATRAIN_ENGINE_DATA_RECORDS_DATA_FILE_IO_H_
#define MEGATRAIN_ENGINE_DATA_RECORDS_DATA_FILE_IO_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/data/records/byte_source.h"

namespace megatrain {

// An open regular file. It is read by position and not mapped into memory. So a file that shrinks
// under a running job gives an error and not a SIGBUS, and its pages do not count as the process's
// memory. The errors of reading are those of file.h and, of a file that a BoundedFileSystem opened
// (bounded_file_system.h), Aborted if it has changed.
//
// Thread safety: const methods may be called from several threads.
class DataFileReader {
 public:
  // Returns NotFound if there is no file, InvalidArgument if it is not a regular file, and
  // otherwise the errors of file.h. `files` must outlive the reader.
  static absl::StatusOr<std::unique_ptr<DataFileReader>> Open(
      const std::string& path, FileSystem* files = PosixFileSystem());
  DataFileReader(const DataFileReader&) = delete;
  DataFileReader& operator=(const DataFileReader&) = delete;

  const std::string& path() const { return file_->path(); }
  int64_t size() const { return file_->size(); }  // in bytes, when the file was opened

  // Reads exactly `bytes` bytes at `offset`. Returns DataLoss if the file ends before that, and the
  // errors of reading.
  absl::Status ReadAt(int64_t offset, void* to, size_t bytes) const;
  // Reads up to `bytes` bytes at `offset` and returns how many it read: fewer only at the end of
  // the file. Returns the errors of reading.
  absl::StatusOr<size_t> ReadUpTo(int64_t offset, void* to, size_t bytes) const;

 private:
  explicit DataFileReader(std::unique_ptr<RandomAccessFile> file) : file_(std::move(file)) {}
  const std::unique_ptr<RandomAccessFile> file_;
};

// Reports progress. A function that takes one calls it with the number of bytes finished since the
// last call, or with 0 during work that is not counted in bytes. It is called on the thread that
// called the function, unless the function says otherwise (FileWordMaker). If it returns an error,
// the function abandons its work and returns that error. May be null.
using ByteProgress = std::function<absl::Status(int64_t bytes)>;

// Reads a file from front to back and computes the XXH3-128 of what was read.
class HashingStream : public ByteSource {
 public:
  // `file` must outlive the stream.
  explicit HashingStream(const DataFileReader* file);
  ~HashingStream() override;
  HashingStream(const HashingStream&) = delete;
  HashingStream& operator=(const HashingStream&) = delete;

  // Reads up to `bytes` more bytes and returns how many it read; 0 at the end of the file. Returns
  // the errors of DataFileReader.
  absl::StatusOr<size_t> Read(void* to, size_t bytes) override;
  int64_t offset() const { return offset_; }  // the number of bytes read so far
  // Returns the hash of everything read so far, as 32 hex digits.
  std::string Digest() const;

 private:
  struct Hash;
  const DataFileReader* const file_;
  int64_t offset_ = 0;
  std::unique_ptr<Hash> hash_;
};

// Returns the XXH3-128 of the whole file as 32 hex digits, or the error of reading or of
// `progress`.
absl::StatusOr<std::string> HashDataFile(const DataFileReader& file, const ByteProgress& progress);

// Returns the XXH3-128 of a text as 32 hex digits.
std::string HashText(std::string_view text);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_RECORDS_DATA_FILE_IO_H_
