#include "engine/checkpoint/disk/transfer.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

// Calls copy(memory, byte of the block, bytes) for each part of the block that has a place.
template <typename Copy>
void ForEachPart(const std::vector<FilePiece>& pieces, int64_t offset, int64_t bytes,
                 const Copy& copy) {
  auto piece = std::partition_point(pieces.begin(), pieces.end(), [offset](const FilePiece& one) {
    return one.offset + one.bytes <= offset;
  });
  for (; piece != pieces.end() && piece->offset < offset + bytes; ++piece) {
    const int64_t begin = std::max(piece->offset, offset);
    const int64_t end = std::min(piece->offset + piece->bytes, offset + bytes);
    if (piece->data == nullptr || begin == end) continue;
    copy(piece->data + (begin - piece->offset), begin - offset, end - begin);
  }
}

}  // namespace

void CopyFromPieces(const std::vector<FilePiece>& pieces, int64_t offset, char* block,
                    int64_t bytes) {
  ForEachPart(pieces, offset, bytes, [block](const char* memory, int64_t at, int64_t length) {
    std::memcpy(block + at, memory, static_cast<size_t>(length));
  });
}

void CopyToPieces(const char* block, int64_t offset, int64_t bytes,
                  const std::vector<FilePiece>& pieces) {
  ForEachPart(pieces, offset, bytes, [block](char* memory, int64_t at, int64_t length) {
    std::memcpy(memory, block + at, static_cast<size_t>(length));
  });
}

absl::Status ReadInBlocks(
    const RandomAccessFile& file,
    absl::FunctionRef<absl::Status(int64_t offset, const char* block, int64_t bytes)> take,
    absl::FunctionRef<bool(int64_t offset, int64_t bytes)> wanted) {
  const TransferBlock block;
  for (int64_t offset = 0; offset < file.size(); offset += kTransferBlockBytes) {
    const int64_t bytes = std::min(kTransferBlockBytes, file.size() - offset);
    if (!wanted(offset, bytes)) continue;
    const int64_t pages = (bytes + kDirectAlignment - 1) / kDirectAlignment;
    MT_ASSIGN_OR_RETURN(const int64_t got,
                        file.ReadUpTo(offset, block.data(), pages * kDirectAlignment));
    if (got < bytes) {
      return absl::DataLossError(absl::StrCat(file.path(), " ends at byte ", offset + got, ", ",
                                              bytes - got, " bytes too early"));
    }
    MT_RETURN_IF_ERROR(take(offset, block.data(), bytes));
  }
  return absl::OkStatus();
}

}  // namespace megatrain
