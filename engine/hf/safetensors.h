// Reading and writing safetensors files (safetensors_format.h describes them).
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

struct SafetensorsTensor {
  std::string name;
  std::string dtype;           // as the format names it: "BF16"
  std::vector<int64_t> shape;  // empty: one element
  int64_t elements = 0;
  int64_t begin = 0;  // of the data, in bytes from the data's start
  int64_t end = 0;

  int64_t bytes() const { return end - begin; }
};

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;       // by begin
  std::map<std::string, std::string> metadata;  // "__metadata__"
  int64_t data_offset = 0;                      // of the data in the file
};

// Checks a header against the whole format. `json` is the N bytes after the length, `file_bytes`
// the file's size, `path` begins every message.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, int64_t file_bytes,
                                                         const std::string& path);

// A file whose header was checked. Thread safety: const methods may be called from several threads.
class SafetensorsReader {
 public:
  // InvalidArgument, with the file and the tensor, for everything the format forbids.
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(FileSystem* files,
                                                                 const std::string& path);

  // The same for a file that is open already.
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(
      std::unique_ptr<RandomAccessFile> file);

  const SafetensorsHeader& header() const { return header_; }
  const std::string& path() const { return file_->path(); }
  // Null if there is no tensor of that name. Lives as long as the reader.
  const SafetensorsTensor* Find(std::string_view name) const;
  // Reads `bytes` of the tensor's data from byte `offset` of it. REQUIRES: they lie within it.
  absl::Status Read(const SafetensorsTensor& tensor, int64_t offset, void* out,
                    int64_t bytes) const;

 private:
  SafetensorsReader(std::unique_ptr<RandomAccessFile> file, SafetensorsHeader header);

  const std::unique_ptr<RandomAccessFile> file_;
  const SafetensorsHeader header_;
  std::map<std::string_view, const SafetensorsTensor*> by_name_;
};

// A tensor to be written.
struct SafetensorsDeclaration {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
};

// Writes one file: the header at once, then every tensor's data in the order declared, in pieces of
// any size.
class SafetensorsWriter {
 public:
  // InvalidArgument: an unknown dtype, a name twice, a shape that overflows. metadata is
  // {"format": "pt"}, as transformers expects.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      FileSystem* files, const std::string& path,
      const std::vector<SafetensorsDeclaration>& tensors);

  absl::Status Append(const void* data, int64_t bytes);
  // Syncs and closes. FailedPrecondition if the data is not as long as declared.
  absl::Status Finish();

  int64_t file_bytes() const { return file_bytes_; }  // of the finished file
  int64_t data_bytes() const { return data_bytes_; }  // of its tensors
  // XXH3-128 of the whole file, 32 hex digits; after Finish.
  std::string Hash() const { return file_->Hash(); }

 private:
  SafetensorsWriter(std::unique_ptr<FileWriter> file, int64_t header_bytes, int64_t data_bytes)
      : file_(std::move(file)), file_bytes_(header_bytes + data_bytes), data_bytes_(data_bytes) {}

  const std::unique_ptr<FileWriter> file_;
  const int64_t file_bytes_;
  const int64_t data_bytes_;
};

// Bytes of a file with these tensors, header included. REQUIRES: they are valid (Create checks).
int64_t SafetensorsFileBytes(const std::vector<SafetensorsDeclaration>& tensors);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_SAFETENSORS_H_
