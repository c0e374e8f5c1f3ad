// Reading a user's data file: position by position, or once from front to back with its hash.
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

namespace megatrain {

// An open regular file. Thread safety: const methods may be called from several threads.
// Positional reads, not a mapping: a file that shrinks under a running job is then an error to
// report and not a SIGBUS, and its pages do not count as the process's memory.
class DataFileReader {
 public:
  // NotFound, or InvalidArgument for what is no regular file. `files` must outlive the reader.
  static absl::StatusOr<std::unique_ptr<DataFileReader>> Open(
      const std::string& path, FileSystem* files = PosixFileSystem());
  DataFileReader(const DataFileReader&) = delete;
  DataFileReader& operator=(const DataFileReader&) = delete;

  const std::string& path() const { return file_->path(); }
  int64_t size() const { return file_->size(); }  // bytes, when it was opened

  // Reads exactly `bytes` at `offset`; DataLoss if the file ends before.
  absl::Status ReadAt(int64_t offset, void* to, size_t bytes) const;
  // Reads up to `bytes`; fewer only at the end.
  absl::StatusOr<size_t> ReadUpTo(int64_t offset, void* to, size_t bytes) const;

 private:
  explicit DataFileReader(std::unique_ptr<RandomAccessFile> file) : file_(std::move(file)) {}
  const std::unique_ptr<RandomAccessFile> file_;
};

// Called with the bytes just done, 0 where work goes on that is not counted. An error abandons the
// work and is what it returns. May be null.
using ByteProgress = std::function<absl::Status(int64_t bytes)>;

// The file's bytes in order, and XXH3-128 over them.
class HashingStream {
 public:
  // `file` must outlive the stream.
  explicit HashingStream(const DataFileReader* file);
  ~HashingStream();
  HashingStream(const HashingStream&) = delete;
  HashingStream& operator=(const HashingStream&) = delete;

  // Up to `bytes` more; 0 at the end.
  absl::StatusOr<size_t> Read(void* to, size_t bytes);
  int64_t offset() const { return offset_; }
  // Of what has been read so far, in hex.
  std::string Digest() const;

 private:
  struct Hash;
  const DataFileReader* const file_;
  int64_t offset_ = 0;
  std::unique_ptr<Hash> hash_;
};

// XXH3-128 of the whole file, in hex.
absl::StatusOr<std::string> HashDataFile(const DataFileReader& file, const ByteProgress& progress);

// XXH3-128 of a text, in hex.
std::string HashText(std::string_view text);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_RECORDS_DATA_FILE_IO_H_
