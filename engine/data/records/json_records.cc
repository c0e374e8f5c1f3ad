#include "engine/data/records/json_records.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

// The memory that a reader keeps from one record to the next. More is given back behind the record.
constexpr size_t kKeptBytes = size_t{16} << 20;

bool IsJsonSpace(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

}  // namespace

JsonRecordReader::JsonRecordReader(ByteSource* text, std::string path, size_t chunk_bytes,
                                   size_t record_bytes_max)
    : text_(text),
      path_(std::move(path)),
      chunk_bytes_(chunk_bytes),
      record_bytes_max_(record_bytes_max) {}

std::string JsonRecordReader::Place(const Record& record) const {
  std::string place = absl::StrCat(":", record.line);
  if (record.element > 0) absl::StrAppend(&place, ": element ", record.element);
  return place;
}

absl::Status JsonRecordReader::Error(int64_t line, const std::string& what) const {
  return absl::InvalidArgumentError(absl::StrCat(path_, ":", line, ": ", what));
}

absl::Status JsonRecordReader::TooLong(int64_t line) const {
  return Error(line, absl::StrCat("the record that begins here is longer than ",
                                  FormatBytes(static_cast<int64_t>(record_bytes_max_)),
                                  "; cut it into several"));
}

absl::StatusOr<bool> JsonRecordReader::Fill() {
  if (record_begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + record_begin_, end_ - record_begin_);
    buffer_offset_ += static_cast<int64_t>(record_begin_);
    position_ -= record_begin_;
    end_ -= record_begin_;
    record_begin_ = 0;
  }
  if (buffer_.size() > kKeptBytes && buffer_.size() / 2 > end_ + chunk_bytes_) {
    buffer_.resize(end_ + chunk_bytes_);
    buffer_.shrink_to_fit();
  }
  if (buffer_.size() < end_ + chunk_bytes_) {
    buffer_.resize(std::max(end_ + chunk_bytes_, 2 * buffer_.size()));
  }
  MT_ASSIGN_OR_RETURN(const size_t got, text_->Read(buffer_.data() + end_, chunk_bytes_));
  end_ += got;
  return got > 0;
}

absl::StatusOr<bool> JsonRecordReader::HasByte() {
  while (position_ == end_) {
    MT_ASSIGN_OR_RETURN(const bool more, Fill());
    if (!more) return false;
  }
  return true;
}

absl::StatusOr<bool> JsonRecordReader::SkipWhiteSpace() {
  while (true) {
    record_begin_ = position_;
    MT_ASSIGN_OR_RETURN(const bool more, HasByte());
    if (!more) return false;
    while (position_ < end_ && IsJsonSpace(buffer_[position_])) {
      if (buffer_[position_] == '\n') ++line_;
      ++position_;
    }
    if (position_ < end_) {
      record_begin_ = position_;
      return true;
    }
  }
}

absl::Status JsonRecordReader::Begin() {
  begun_ = true;
  constexpr char kByteOrderMark[] = "\xef\xbb\xbf";
  while (end_ < 3) {
    MT_ASSIGN_OR_RETURN(const bool more, Fill());
    if (!more) break;
  }
  if (end_ >= 3 && std::memcmp(buffer_.data(), kByteOrderMark, 3) == 0) position_ = 3;
  MT_ASSIGN_OR_RETURN(const bool more, SkipWhiteSpace());
  if (!more) {
    done_ = true;
    return absl::OkStatus();
  }
  if (buffer_[position_] == '[') {
    array_ = true;
    ++position_;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> JsonRecordReader::Next(Record* record) {
  if (!begun_) MT_RETURN_IF_ERROR(Begin());
  if (done_) return false;
  return array_ ? NextElement(record) : NextLine(record);
}

absl::StatusOr<bool> JsonRecordReader::NextLine(Record* record) {
  MT_ASSIGN_OR_RETURN(const bool more, SkipWhiteSpace());
  if (!more) {
    done_ = true;
    return false;
  }
  record->line = line_;
  record->element = 0;
  size_t line_end = 0;
  while (true) {
    const void* found = std::memchr(buffer_.data() + position_, '\n', end_ - position_);
    if (found != nullptr) {
      line_end = static_cast<size_t>(static_cast<const char*>(found) - buffer_.data());
      position_ = line_end + 1;
      ++line_;
      break;
    }
    position_ = end_;
    if (position_ - record_begin_ > record_bytes_max_) return TooLong(record->line);
    MT_ASSIGN_OR_RETURN(const bool filled, Fill());
    if (!filled) {
      line_end = position_ = end_;
      break;
    }
  }
  if (line_end - record_begin_ > record_bytes_max_) return TooLong(record->line);
  while (line_end > record_begin_ && IsJsonSpace(buffer_[line_end - 1])) --line_end;
  record->json = std::string_view(buffer_.data() + record_begin_, line_end - record_begin_);
  record->offset = buffer_offset_ + static_cast<int64_t>(record_begin_);
  record_begin_ = position_;
  return true;
}

absl::StatusOr<bool> JsonRecordReader::FindElement() {
  MT_ASSIGN_OR_RETURN(bool more, SkipWhiteSpace());
  if (more && buffer_[position_] == ']' && elements_ == 0) {
    more = true;
  } else if (more && elements_ > 0 && buffer_[position_] == ',') {
    ++position_;
    MT_ASSIGN_OR_RETURN(more, SkipWhiteSpace());
    if (more && buffer_[position_] == ']') {
      return Error(line_,
                   absl::StrCat("a comma behind the array's last element, number ", elements_));
    }
  } else if (more && elements_ > 0 && buffer_[position_] != ']') {
    return Error(line_,
                 absl::StrCat("',' or ']' expected behind element ", elements_, " of the array"));
  }
  if (!more) {
    return Error(line_, absl::StrCat("the file ends inside its array, behind element ", elements_,
                                     ": it is cut short"));
  }
  if (buffer_[position_] == ']') {
    ++position_;
    MT_ASSIGN_OR_RETURN(more, SkipWhiteSpace());
    if (more) return Error(line_, "text behind the end of the array");
    done_ = true;
    return false;
  }
  return true;
}

absl::Status JsonRecordReader::SkipElement() {
  const int64_t first_line = line_;
  int64_t depth = 0;
  bool in_string = false;
  bool escaped = false;
  bool complete = false;
  while (!complete) {
    MT_ASSIGN_OR_RETURN(const bool more, HasByte());
    if (!more) {
      return Error(first_line, absl::StrCat("the file ends inside element ", elements_,
                                            " of the array, which begins here"));
    }
    for (; position_ < end_ && !complete; ++position_) {
      const char c = buffer_[position_];
      if (c == '\n') ++line_;
      if (in_string) {
        if (escaped) {
          escaped = false;
        } else if (c == '\\') {
          escaped = true;
        } else if (c == '"') {
          in_string = false;
        }
      } else if (c == '"') {
        in_string = true;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (depth == 0 && (c == ',' || c == ']' || c == '}')) {
        complete = true;  // the end of an element without brackets
        break;
      } else if (c == '}' || c == ']') {
        complete = --depth == 0;
      }
    }
    if (position_ - record_begin_ > record_bytes_max_) return TooLong(first_line);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> JsonRecordReader::NextElement(Record* record) {
  MT_ASSIGN_OR_RETURN(const bool more, FindElement());
  if (!more) return false;
  record->line = line_;
  record->element = ++elements_;
  MT_RETURN_IF_ERROR(SkipElement());
  if (position_ == record_begin_) {
    return Error(line_, absl::StrCat("element ", elements_, " of the array is missing"));
  }
  size_t element_end = position_;
  while (IsJsonSpace(buffer_[element_end - 1])) --element_end;
  record->json = std::string_view(buffer_.data() + record_begin_, element_end - record_begin_);
  record->offset = buffer_offset_ + static_cast<int64_t>(record_begin_);
  record_begin_ = position_;
  return true;
}

}  // namespace megatrain
