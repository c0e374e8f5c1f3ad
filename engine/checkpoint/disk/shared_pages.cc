#include "engine/checkpoint/disk/shared_pages.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/comm/exchange.h"

namespace megatrain {
namespace {

constexpr int64_t kPage = kDirectAlignment;

int64_t PageBegin(int64_t offset) { return offset / kPage * kPage; }

// Bytes for another rank's page, which follow it.
struct Fragment {
  int64_t file = 0, offset = 0, bytes = 0;
};

// Returns the ranges that neighbouring pieces make together.
std::vector<FileRange> Joined(const std::vector<FilePiece>& pieces) {
  std::vector<FileRange> ranges;
  for (const FilePiece& piece : pieces) {
    if (piece.bytes == 0) continue;
    if (ranges.empty() || ranges.back().end != piece.offset) {
      ranges.push_back({piece.offset, piece.offset});
    }
    ranges.back().end = piece.offset + piece.bytes;
  }
  return ranges;
}

}  // namespace

std::vector<FileRange> SharedPages::AddFile(int file, int64_t file_bytes,
                                            const std::vector<FilePiece>& pieces) {
  std::vector<FileRange> own;
  for (const FileRange& range : Joined(pieces)) {
    // The file's last page is whole at the file's end.
    const int64_t begin = std::min(PageBegin(range.begin + kPage - 1), range.end);
    const int64_t end = range.end == file_bytes ? range.end : std::max(PageBegin(range.end), begin);
    if (begin < end) own.push_back({begin, end});
    for (const FileRange& rest : {FileRange{range.begin, begin}, FileRange{end, range.end}}) {
      if (rest.begin == rest.end) continue;
      std::string bytes(static_cast<size_t>(rest.end - rest.begin), '\0');
      CopyFromPieces(pieces, rest.begin, bytes.data(), static_cast<int64_t>(bytes.size()));
      Keep(file, file_bytes, rest.begin, bytes);
    }
  }
  return own;
}

void SharedPages::Keep(int file, int64_t file_bytes, int64_t offset, absl::string_view bytes) {
  const int64_t begin = PageBegin(offset);
  std::map<int64_t, Page>& pages = pages_[file];
  if (offset == begin) {
    Page& page = pages[begin];
    page.offset = begin;
    page.bytes.resize(static_cast<size_t>(std::min(kPage, file_bytes - begin)));
  }
  const auto page = pages.find(begin);
  if (page != pages.end()) {
    std::memcpy(page->second.bytes.data() + (offset - begin), bytes.data(), bytes.size());
    page->second.filled += static_cast<int64_t>(bytes.size());
    return;
  }
  const Fragment fragment = {file, offset, static_cast<int64_t>(bytes.size())};
  outbox_.append(reinterpret_cast<const char*>(&fragment), sizeof(fragment));
  outbox_.append(bytes.data(), bytes.size());
}

absl::Status SharedPages::Exchange(Communicator* communicator, int begin, int end) {
  MT_RETURN_IF_ERROR(ExchangeBytes(communicator, outbox_, [&](int rank, absl::string_view bytes) {
    while (begin <= rank && rank < end && !bytes.empty()) {
      Fragment fragment;
      std::memcpy(&fragment, bytes.data(), sizeof(fragment));
      bytes.remove_prefix(sizeof(fragment));
      std::map<int64_t, Page>& pages = pages_[static_cast<int>(fragment.file)];
      const auto page = pages.find(PageBegin(fragment.offset));
      if (page != pages.end()) {
        std::memcpy(page->second.bytes.data() + fragment.offset % kPage, bytes.data(),
                    static_cast<size_t>(fragment.bytes));
        page->second.filled += fragment.bytes;
      }
      bytes.remove_prefix(static_cast<size_t>(fragment.bytes));
    }
  }));
  outbox_ = {};
  for (const auto& [file, pages] : pages_) {
    for (const auto& [offset, page] : pages) {
      if (page.filled == static_cast<int64_t>(page.bytes.size())) continue;
      return absl::InternalError(absl::StrCat("the ranks gave ", page.filled, " of ",
                                              page.bytes.size(), " bytes of the page at byte ",
                                              offset, " of file ", file));
    }
  }
  return absl::OkStatus();
}

std::vector<FilePiece> SharedPages::PagesOf(int file) {
  std::vector<FilePiece> pieces;
  for (auto& [offset, page] : pages_[file]) {
    pieces.push_back({offset, page.bytes.data(), static_cast<int64_t>(page.bytes.size())});
  }
  return pieces;
}

}  // namespace megatrain
