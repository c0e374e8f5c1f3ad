#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <optional>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/status.h"
#include "server/worker/record_log.h"

namespace megatrain {
namespace {

// Some hundred records of step metrics.
constexpr int64_t kReadBytes = int64_t{64} << 10;

}  // namespace

std::unique_ptr<RecordLog::Reader> RecordLog::Read(int64_t sequence) const {
  return std::unique_ptr<Reader>(new Reader(this, sequence));
}

absl::StatusOr<int64_t> RecordLog::Reader::Available() {
  while (true) {
    std::string path;
    {
      MutexLock lock(&log_->mutex_);
      const auto& segments = log_->segments_;
      if (file_.is_open()) {
        const auto after = segments.upper_bound(segment_);
        const bool kept = after != segments.begin() && std::prev(after)->first == segment_;
        // A segment that was removed since it was opened is still read to its end.
        const int64_t end = kept ? std::prev(after)->second.bytes : lseek(file_.get(), 0, SEEK_END);
        if (offset_ < end || after == segments.end()) return end - offset_;
        // The records up to the next segment were damaged or removed.
        next_ = std::max(next_, after->first);
      }
      if (next_ >= log_->next_sequence_ || segments.empty()) return 0;
      auto holds = segments.upper_bound(next_);
      if (holds == segments.begin()) {
        next_ = holds->first;
      } else {
        --holds;
      }
      segment_ = holds->first;
      path = holds->second.path;
    }
    offset_ = 0;
    buffer_.clear();
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const int error = errno;
    file_ = Descriptor(fd);
    if (file_.is_open()) continue;
    if (error != ENOENT) return FileError("open", path, error);
    // Fine if it was removed meanwhile: then the list has it no longer.
    MutexLock lock(&log_->mutex_);
    if (log_->segments_.contains(segment_)) return FileError("open", path, ENOENT);
  }
}

absl::Status RecordLog::Reader::Fill(int64_t bytes) {
  const size_t before = buffer_.size();
  buffer_.resize(before + static_cast<size_t>(bytes));
  ssize_t got;
  do {
    got = ::pread(file_.get(), buffer_.data() + before, static_cast<size_t>(bytes), offset_);
  } while (got < 0 && errno == EINTR);
  const int error = errno;
  buffer_.resize(before + static_cast<size_t>(std::max<ssize_t>(0, got)));
  if (got < 0) return FileError("read", log_->directory_, error);
  offset_ += got;
  return absl::OkStatus();
}

absl::Status RecordLog::Reader::Next(int64_t records_max, std::vector<LogRecord>* records) {
  const size_t first_new = records->size();
  const size_t enough = first_new + static_cast<size_t>(std::max<int64_t>(0, records_max));
  while (records->size() < enough) {
    size_t begin = 0;
    for (size_t end;
         records->size() < enough && (end = buffer_.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      std::optional<LogRecord> record =
          DecodeRecord(std::string_view(buffer_).substr(begin, end - begin));
      if (!record.has_value() || record->sequence < next_) continue;
      next_ = record->sequence + 1;
      records->push_back(*std::move(record));
    }
    buffer_.erase(0, begin);
    if (records->size() == enough) break;
    MT_ASSIGN_OR_RETURN(const int64_t available, Available());
    if (available <= 0) break;
    const int64_t offset = offset_;
    MT_RETURN_IF_ERROR(Fill(std::min(available, kReadBytes)));
    if (offset_ == offset) break;  // the file was cut short by somebody else
  }
  MutexLock lock(&log_->mutex_);
  for (size_t i = first_new; i < records->size(); ++i) {
    LogRecord& record = (*records)[i];
    record.superseded =
        record.kind == LogRecord::Kind::kText && log_->Superseded(record.sequence, record.step);
  }
  return absl::OkStatus();
}

}  // namespace megatrain
