#include "engine/data/records/npy_header.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

constexpr char kMagic[] = "\x93NUMPY";  // 6 bytes, then major and minor version
constexpr size_t kMagicBytes = 6;
// numpy writes 128 bytes for a plain array; a structured type may need more.
constexpr uint32_t kHeaderBytesMax = 1 << 20;

// Reads the Python dictionary literal that the header is: strings, True or False, a tuple of
// integers; nothing else occurs for a plain array.
class LiteralReader {
 public:
  explicit LiteralReader(std::string_view text) : text_(text) {}

  bool Take(char c) {
    SkipSpace();
    if (position_ >= text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
  }
  bool TakeWord(std::string_view word) {
    SkipSpace();
    if (text_.substr(position_, word.size()) != word) return false;
    position_ += word.size();
    return true;
  }
  bool TakeString(std::string* value) {
    SkipSpace();
    if (position_ >= text_.size()) return false;
    const char quote = text_[position_];
    if (quote != '\'' && quote != '"') return false;
    const size_t close = text_.find(quote, position_ + 1);
    if (close == std::string_view::npos) return false;
    *value = std::string(text_.substr(position_ + 1, close - position_ - 1));
    position_ = close + 1;
    return true;
  }
  bool TakeInteger(int64_t* value) {
    SkipSpace();
    const size_t begin = position_;
    int64_t number = 0;
    while (position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9') {
      if (number > (std::numeric_limits<int64_t>::max() - 9) / 10) return false;
      number = number * 10 + (text_[position_++] - '0');
    }
    *value = number;
    return position_ > begin;
  }
  bool AtEnd() {
    SkipSpace();
    return position_ == text_.size();
  }

 private:
  void SkipSpace() {
    while (position_ < text_.size() &&
           std::isspace(static_cast<unsigned char>(text_[position_])) != 0) {
      ++position_;
    }
  }
  const std::string_view text_;
  size_t position_ = 0;
};

bool TakeShape(LiteralReader* reader, std::vector<int64_t>* shape) {
  if (!reader->Take('(')) return false;
  shape->clear();
  while (!reader->Take(')')) {
    int64_t extent = 0;
    if (!reader->TakeInteger(&extent)) return false;
    shape->push_back(extent);
    if (!reader->Take(',')) return reader->Take(')');
  }
  return true;
}

bool ParseLiteral(std::string_view text, NpyHeader* header) {
  LiteralReader reader(text);
  bool descr = false, order = false, shape = false;
  if (!reader.Take('{')) return false;
  while (!reader.Take('}')) {
    std::string key;
    if (!reader.TakeString(&key) || !reader.Take(':')) return false;
    if (key == "descr" && !descr) {
      descr = reader.TakeString(&header->descr);
      if (!descr) return false;
    } else if (key == "fortran_order" && !order) {
      // Both orders are the same in one dimension.
      order = reader.TakeWord("True") || reader.TakeWord("False");
      if (!order) return false;
    } else if (key == "shape" && !shape) {
      shape = TakeShape(&reader, &header->shape);
      if (!shape) return false;
    } else {
      return false;
    }
    if (!reader.Take(',')) {
      if (!reader.Take('}')) return false;
      break;
    }
  }
  return descr && order && shape && reader.AtEnd();
}

}  // namespace

absl::StatusOr<NpyHeader> ReadNpyHeader(const DataFileReader& file) {
  unsigned char start[12] = {};
  MT_ASSIGN_OR_RETURN(const size_t got, file.ReadUpTo(0, start, sizeof(start)));
  if (got < sizeof(start) || std::memcmp(start, kMagic, kMagicBytes) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": is not a .npy file: it does not begin as numpy.save writes"));
  }
  const int major = start[6];
  if (major < 1 || major > 3) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": .npy version ", major, "; 1 to 3 are known"));
  }
  uint32_t header_bytes = start[8] | static_cast<uint32_t>(start[9]) << 8;
  int64_t header_offset = 10;
  if (major >= 2) {
    header_bytes |= static_cast<uint32_t>(start[10]) << 16 | static_cast<uint32_t>(start[11]) << 24;
    header_offset = 12;
  }
  if (header_bytes > kHeaderBytesMax || header_offset + header_bytes > file.size()) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": its .npy header claims ",
                                                   header_bytes, " bytes of a file of ",
                                                   file.size()));
  }
  std::string text(header_bytes, '\0');
  MT_RETURN_IF_ERROR(file.ReadAt(header_offset, text.data(), text.size()));
  NpyHeader header;
  header.data_offset = header_offset + header_bytes;
  if (!ParseLiteral(text, &header)) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": its .npy header is not one of a plain array: ",
                     text.substr(0, std::min<size_t>(text.size(), 200))));
  }
  return header;
}

}  // namespace megatrain
