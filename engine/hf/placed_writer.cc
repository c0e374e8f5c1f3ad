#include "engine/hf/placed_writer.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<PlacedWriter>> PlacedWriter::Create(FileSystem* files,
                                                                   const std::string& path,
                                                                   int64_t bytes) {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<BlockFile> file, files->NewBlockFile(path, bytes));
  return std::unique_ptr<PlacedWriter>(new PlacedWriter(path, std::move(file), bytes));
}

absl::Status PlacedWriter::Write(int64_t offset, const void* data, int64_t bytes) {
  const char* from = static_cast<const char*>(data);
  missing_ -= bytes;
  while (bytes > 0) {
    const int64_t number = offset / kBlockBytes, begin = number * kBlockBytes;
    const int64_t block_bytes = std::min(kBlockBytes, bytes_ - begin);
    const int64_t length = std::min(bytes, begin + block_bytes - offset);
    Block& block = begun_[number];
    if (block.data == nullptr) {
      if (unused_.empty()) {
        unused_.emplace_back(static_cast<char*>(std::aligned_alloc(kDirectAlignment, kBlockBytes)));
      }
      block.data = std::move(unused_.back());
      unused_.pop_back();
      if (block.data == nullptr)
        return absl::ResourceExhaustedError("no memory for a file's block");
    }
    std::memcpy(block.data.get() + (offset - begin), from, static_cast<size_t>(length));
    block.filled += length;
    if (block.filled == block_bytes) {
      MT_RETURN_IF_ERROR(file_->Write(begin, block.data.get(), block_bytes));
      unused_.push_back(std::move(block.data));
      begun_.erase(number);
    }
    offset += length;
    from += length;
    bytes -= length;
  }
  return absl::OkStatus();
}

absl::Status PlacedWriter::Finish() {
  if (missing_ != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        path_, ": ", bytes_ - missing_, " bytes were written, ", bytes_, " were declared"));
  }
  MT_RETURN_IF_ERROR(file_->Sync());
  return file_->Close();
}

}  // namespace megatrain
