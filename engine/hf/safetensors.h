// Reads and writes safetensors files; safetensors_format.h describes the format.
#ifndef MEGATRAIN_ENGINE_HF_SAFETENSORS_H_
#define MEGATRAIN_ENGINE_HF_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"

namespace megatrain {

// Returns the shape for messages: "[2, 3]".
std::string ShapeText(const std::vector<int64_t>& shape);

// A tensor's entry in the header.
struct SafetensorsTensor {
  std::string name;
  std::string dtype;           // the format's name: "BF16"
  std::vector<int64_t> shape;  // empty for a scalar
  int64_t elements = 0;
  int64_t begin = 0;  // in bytes from the start of the file's data
  int64_t end = 0;

  int64_t bytes() const { return end - begin; }
};

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;       // ordered by `begin`
  std::map<std::string, std::string> metadata;  // "__metadata__"
  int64_t data_offset = 0;                      // where the data starts in the file
};

// Parses a header and checks it. `json` is the header without the length before it, `file_bytes`
// the size of the file, and `path` begins every message. Returns InvalidArgument for everything
// that the format forbids in it, except that any white space may end it. The largest length,
// kSafetensorsHeaderBytesMax, is not checked.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, int64_t file_bytes,
                                                         const std::string& path);

// An open file whose header was checked. Thread safety: const methods may be called from several
// threads.
class SafetensorsReader {
 public:
  // Opens the file and checks its header. Returns InvalidArgument for what ParseSafetensorsHeader
  // refuses and for a length of the header that the format forbids, and the errors of `files`.
  // Messages name the file, and the tensor if they are about one. `files` must outlive the reader.
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(FileSystem* files,
                                                                 const std::string& path);

  // Reads and checks the header of a file that is already open. Returns the same InvalidArgument,
  // and the errors of RandomAccessFile::Read.
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(
      std::unique_ptr<RandomAccessFile> file);

  const SafetensorsHeader& header() const { return header_; }
  const std::string& path() const { return file_->path(); }
  // Returns the tensor of that name, valid as long as the reader, or null if there is none.
  const SafetensorsTensor* Find(std::string_view name) const;
  // Reads `bytes` bytes of the tensor's data, starting at its byte `offset`. Returns the errors of
  // RandomAccessFile::Read. REQUIRES: `tensor` is of header(), and the bytes lie within it.
  absl::Status Read(const SafetensorsTensor& tensor, int64_t offset, void* out,
                    int64_t bytes) const;

 private:
  SafetensorsReader(std::unique_ptr<RandomAccessFile> file, SafetensorsHeader header);

  const std::unique_ptr<RandomAccessFile> file_;
  const SafetensorsHeader header_;
  std::map<std::string_view, const SafetensorsTensor*> by_name_;
};

// Declares a tensor that will be written.
struct SafetensorsDeclaration {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
};

// Returns what precedes the data in a file with these tensors: the length and the header, with the
// metadata {"format": "pt"} that transformers expects. Sets *data_bytes to the bytes of the data.
// Returns InvalidArgument, beginning with `path`, for an unknown dtype, a name that is a duplicate
// or not UTF-8, a shape that overflows, is negative or does not fill whole bytes, or a header
// longer than the format allows.
absl::StatusOr<std::string> MakeSafetensorsHeader(
    const std::vector<SafetensorsDeclaration>& tensors, const std::string& path,
    int64_t* data_bytes);

// Writes one file: the header first, then the data of every tensor in the order declared, in pieces
// of any size. Methods return the errors of FileWriter (file.h) besides those that they name. Not
// thread-safe.
class SafetensorsWriter {
 public:
  // Creates or empties the file and writes its header. Returns the errors of MakeSafetensorsHeader.
  // `files` must outlive the writer.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      FileSystem* files, const std::string& path,
      const std::vector<SafetensorsDeclaration>& tensors);

  // Appends data of the tensors. After an error the file is incomplete, and only the destructor may
  // follow. The destructor does not remove the file.
  absl::Status Append(const void* data, int64_t bytes);
  // Syncs and closes the file. Returns FailedPrecondition if the data is not as long as declared.
  // Call it once.
  absl::Status Finish();

  int64_t file_bytes() const { return file_bytes_; }  // the size of the finished file
  int64_t data_bytes() const { return data_bytes_; }  // the size of its tensors
  // Returns the XXH3-128 of the whole file as 32 hex digits. REQUIRES: Finish succeeded.
  std::string Hash() const { return file_->Hash(); }

 private:
  SafetensorsWriter(std::unique_ptr<FileWriter> file, int64_t header_bytes, int64_t data_bytes)
      : file_(std::move(file)), file_bytes_(header_bytes + data_bytes), data_bytes_(data_bytes) {}

  const std::unique_ptr<FileWriter> file_;
  const int64_t file_bytes_;
  const int64_t data_bytes_;
};

// Returns the size of a file with these tensors, header included. REQUIRES: MakeSafetensorsHeader
// accepts them.
int64_t SafetensorsFileBytes(const std::vector<SafetensorsDeclaration>& tensors);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_SAFETENSORS_H_
