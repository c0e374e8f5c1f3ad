// The input is a safetensors file. Whatever opens must be sound: every tensor's data can be read,
// tensors cover the data one after the other.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/hf/safetensors.h"

namespace megatrain {
namespace {

class MemoryFile : public RandomAccessFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : data_(data), size_(static_cast<int64_t>(size)) {}
  absl::StatusOr<int64_t> ReadUpTo(int64_t offset, void* out, int64_t bytes) const override {
    if (offset < 0 || bytes < 0 || offset > size_ || bytes > size_ - offset) {
      return absl::DataLossError(absl::StrCat("read of ", bytes, " at ", offset));
    }
    if (bytes > 0) std::memcpy(out, data_ + offset, bytes);
    return bytes;
  }
  int64_t size() const override { return size_; }
  const std::string& path() const override { return path_; }

 private:
  const uint8_t* const data_;
  const int64_t size_;
  const std::string path_ = "input";
};

void Check(bool condition) {
  if (!condition) __builtin_trap();
}

void TestOne(const uint8_t* data, size_t size) {
  const auto reader = SafetensorsReader::Open(std::make_unique<MemoryFile>(data, size));
  if (!reader.ok()) {
    Check(!reader.status().message().empty());
    return;
  }
  int64_t covered = 0;
  for (const SafetensorsTensor& tensor : (*reader)->header().tensors) {
    Check(tensor.begin == covered && tensor.end >= tensor.begin && tensor.elements >= 0);
    covered = tensor.end;
    std::vector<char> bytes(tensor.bytes());
    Check((*reader)->Read(tensor, 0, bytes.data(), tensor.bytes()).ok());
    Check((*reader)->Find(tensor.name) == &tensor);
  }
  Check((*reader)->header().data_offset + covered == static_cast<int64_t>(size));
}

}  // namespace
}  // namespace megatrain

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  megatrain::TestOne(data, size);
  return 0;
}
