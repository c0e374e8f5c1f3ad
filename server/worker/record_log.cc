#include "server/worker/record_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/file.h"
#include "engine/base/status.h"
#include "server/worker/record_line.h"

namespace megatrain {
namespace {

constexpr char kSegmentSuffix[] = ".log";
// A page of a reader: some hundred records.
constexpr int64_t kReadBytes = int64_t{64} << 10;

std::string SegmentName(int64_t first) { return absl::StrFormat("%020d%s", first, kSegmentSuffix); }

std::optional<int64_t> ParseSegmentName(const std::string& name) {
  int64_t first = 0;
  if (name.size() != 24 || !absl::SimpleAtoi(name.substr(0, 20), &first) || first < 1 ||
      SegmentName(first) != name) {
    return std::nullopt;
  }
  return first;
}

absl::Status WriteAll(int fd, const std::string& path, std::string_view data) {
  while (!data.empty()) {
    const ssize_t written = ::write(fd, data.data(), data.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return FileError("write", path, errno, static_cast<int64_t>(data.size()));
    }
    data.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

// Up to `bytes` at `offset`, appended to *out; fewer only at the end of the file.
absl::Status ReadInto(int fd, const std::string& path, int64_t offset, int64_t bytes,
                      std::string* out) {
  const size_t before = out->size();
  out->resize(before + static_cast<size_t>(bytes));
  size_t done = 0;
  while (done < static_cast<size_t>(bytes)) {
    const ssize_t got = ::pread(fd, out->data() + before + done, static_cast<size_t>(bytes) - done,
                                offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int error = errno;
      out->resize(before);
      return FileError("read", path, error);
    }
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  out->resize(before + done);
  return absl::OkStatus();
}

}  // namespace

struct RecordLog::Listener {
  explicit Listener(std::function<void()> changed_) : changed(std::move(changed_)) {}
  const std::function<void()> changed;
  Mutex mutex;  // held over a call
  bool active ABSL_GUARDED_BY(mutex) = true;
};

absl::StatusOr<std::unique_ptr<RecordLog>> RecordLog::Open(const std::string& directory,
                                                           const RecordLogOptions& options,
                                                           std::vector<std::string>* notes) {
  MT_RETURN_IF_ERROR(PosixFileSystem()->CreateDirectories(directory));
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return FileError("open", directory, errno);
  // A second writer would take the first one's unfinished line for a torn one. A file system
  // without locks protects nothing, but forbids nothing either.
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(fd);
    return absl::FailedPreconditionError(
        absl::StrCat(directory, ": another log is open there; one at a time may append"));
  }
  std::unique_ptr<RecordLog> log(new RecordLog(directory, options, fd));
  MT_RETURN_IF_ERROR(log->Load(notes));
  return log;
}

RecordLog::~RecordLog() {
  if (fd_ >= 0) ::close(fd_);
  ::close(lock_fd_);
}

absl::Status RecordLog::Load(std::vector<std::string>* notes) {
  FileSystem* const files = PosixFileSystem();
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, files->ListDirectory(directory_));
  std::vector<int64_t> firsts;  // sorted as the names are
  for (const std::string& name : names) {
    if (const std::optional<int64_t> first = ParseSegmentName(name)) firsts.push_back(*first);
  }
  for (const int64_t first : firsts) {
    MT_RETURN_IF_ERROR(LoadSegment(first, JoinPath(directory_, SegmentName(first)),
                                   first == firsts.back(), notes));
  }
  return absl::OkStatus();
}

absl::Status RecordLog::LoadSegment(int64_t first, const std::string& path, bool last,
                                    std::vector<std::string>* notes) {
  MT_ASSIGN_OR_RETURN(const std::string content,
                      ReadWholeFile(PosixFileSystem(), path, int64_t{1} << 40));
  MutexLock append_lock(&append_mutex_);
  MutexLock lock(&mutex_);
  next_sequence_ = std::max(next_sequence_, first);
  int64_t damaged = 0, behind = 0;  // lines before and behind the last whole one
  size_t whole_end = 0;             // of that
  for (size_t begin = 0; begin < content.size();) {
    const size_t end = content.find('\n', begin);
    if (end == std::string::npos) break;
    const std::optional<RecordLine> line =
        ParseRecordLine(std::string_view(content).substr(begin, end - begin));
    begin = end + 1;
    // Numbers only grow: anything else was not written here by Append.
    if (!line.has_value() || line->sequence < next_sequence_) {
      ++behind;
      continue;
    }
    damaged += std::exchange(behind, 0);
    whole_end = begin;
    next_sequence_ = line->sequence + 1;
    if (line->kind == 'f') {
      AddMarker(line->sequence, line->step);
    } else {
      step_max_ = std::max(step_max_, line->step);
    }
  }
  Segment& segment = segments_[first];
  segment.path = path;
  segment.bytes = static_cast<int64_t>(last ? whole_end : content.size());
  if (last && whole_end < content.size()) {
    notes->push_back(absl::StrCat(path, ": its last ", content.size() - whole_end,
                                  " bytes are no whole record (the process or the machine ended "
                                  "while writing) and were cut off"));
  }
  if (!last) damaged += behind;
  if (damaged > 0) {
    notes->push_back(absl::StrCat(path, ": ", damaged, " damaged records are left out"));
  }
  if (!last) return absl::OkStatus();
  fd_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd_ < 0) return FileError("open", path, errno);
  if (whole_end < content.size() && ::ftruncate(fd_, segment.bytes) != 0) {
    return FileError("cut back", path, errno);
  }
  return absl::OkStatus();
}

void RecordLog::AddMarker(int64_t sequence, int64_t step) {
  while (!markers_.empty() && markers_.back().second >= step) markers_.pop_back();
  markers_.emplace_back(sequence, step);
  step_max_ = std::min(step_max_, step);
}

bool RecordLog::Superseded(int64_t sequence, int64_t step) const {
  // Of the markers behind the record the first has the lowest step.
  const auto marker = std::upper_bound(
      markers_.begin(), markers_.end(), sequence,
      [](int64_t value, const std::pair<int64_t, int64_t>& m) { return value < m.first; });
  return marker != markers_.end() && marker->second < step;
}

absl::StatusOr<int64_t> RecordLog::Append(int64_t step, std::string_view text) {
  if (text.find('\n') != std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(directory_, ": a record is one line"));
  }
  if (static_cast<int64_t>(text.size()) > kTextBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(directory_, ": a record of ", text.size(),
                                                   " bytes is longer than ", kTextBytesMax));
  }
  return AppendLine(LogRecord::Kind::kText, step, text);
}

absl::Status RecordLog::FallBack(int64_t step) {
  {
    MutexLock lock(&mutex_);
    if (step_max_ <= step) return absl::OkStatus();
  }
  return AppendLine(LogRecord::Kind::kFellBack, step, "").status();
}

absl::StatusOr<int64_t> RecordLog::AppendLine(LogRecord::Kind kind, int64_t step,
                                              std::string_view text) {
  int64_t sequence = 0;
  {
    MutexLock append_lock(&append_mutex_);
    {
      MutexLock lock(&mutex_);
      if (closed_) return absl::FailedPreconditionError(absl::StrCat(directory_, ": is closed"));
      sequence = next_sequence_;
    }
    const bool marker = kind == LogRecord::Kind::kFellBack;
    const std::string line = FormatRecordLine({marker ? 'f' : 't', sequence, step, text});
    MT_RETURN_IF_ERROR(PrepareSegment(static_cast<int64_t>(line.size()), sequence));
    MT_RETURN_IF_ERROR(WriteLine(line));
    MutexLock lock(&mutex_);
    segments_.rbegin()->second.bytes += static_cast<int64_t>(line.size());
    next_sequence_ = sequence + 1;
    if (marker) {
      AddMarker(sequence, step);
    } else {
      step_max_ = std::max(step_max_, step);
    }
  }
  Announce();
  return sequence;
}

// The last segment is open and has room for the line.
absl::Status RecordLog::PrepareSegment(int64_t line_bytes, int64_t sequence) {
  std::vector<std::string> obsolete;
  {
    MutexLock lock(&mutex_);
    const int64_t bytes = segments_.empty() ? 0 : segments_.rbegin()->second.bytes;
    if (fd_ >= 0 && (bytes == 0 || bytes + line_bytes <= options_.segment_bytes)) {
      return absl::OkStatus();
    }
  }
  const std::string path = JoinPath(directory_, SegmentName(sequence));
  if (fd_ >= 0) {
    // Behind a whole segment nothing torn may be left, and a power cut must not take from its
    // middle.
    if (torn_) MT_RETURN_IF_ERROR(WriteLine(""));
    if (::fdatasync(fd_) != 0) return FileError("sync", directory_, errno);
  }
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0640);
  if (fd < 0) return FileError("create", path, errno);
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
  {
    MutexLock lock(&mutex_);
    segments_[sequence] = {path, 0};
    while (static_cast<int>(segments_.size()) > std::max(1, options_.segments_max)) {
      obsolete.push_back(segments_.begin()->second.path);
      segments_.erase(segments_.begin());
    }
    const int64_t first = segments_.begin()->first;
    // What they marked is gone.
    while (!markers_.empty() && markers_.front().first <= first) markers_.erase(markers_.begin());
  }
  // One that stays is found when the log is opened again, and removed by the next segment.
  for (const std::string& old : obsolete) PosixFileSystem()->RemoveFile(old).IgnoreError();
  return PosixFileSystem()->SyncDirectory(directory_);
}

// Cuts off what an earlier failed write left, then writes: all of the line or nothing.
absl::Status RecordLog::WriteLine(std::string_view line) {
  std::string path;
  int64_t bytes = 0;
  {
    MutexLock lock(&mutex_);
    path = segments_.rbegin()->second.path;
    bytes = segments_.rbegin()->second.bytes;
  }
  if (torn_) {
    if (::ftruncate(fd_, bytes) != 0) return FileError("cut back", path, errno);
    torn_ = false;
  }
  const absl::Status status = WriteAll(fd_, path, line);
  if (!status.ok()) torn_ = ::ftruncate(fd_, bytes) != 0;
  return status;
}

absl::Status RecordLog::Sync() {
  MutexLock lock(&append_mutex_);
  if (fd_ >= 0 && ::fdatasync(fd_) != 0) return FileError("sync", directory_, errno);
  return absl::OkStatus();
}

void RecordLog::Close() {
  {
    MutexLock append_lock(&append_mutex_);
    MutexLock lock(&mutex_);
    closed_ = true;
  }
  Announce();
}

void RecordLog::Announce() {
  std::vector<std::shared_ptr<Listener>> listeners;
  {
    MutexLock lock(&mutex_);
    changed_.NotifyAll();
    listeners = listeners_;
  }
  for (const std::shared_ptr<Listener>& listener : listeners) {
    MutexLock lock(&listener->mutex);
    if (listener->active) listener->changed();
  }
}

int64_t RecordLog::first_sequence() const {
  MutexLock lock(&mutex_);
  return segments_.empty() ? next_sequence_ : segments_.begin()->first;
}

int64_t RecordLog::next_sequence() const {
  MutexLock lock(&mutex_);
  return next_sequence_;
}

bool RecordLog::closed() const {
  MutexLock lock(&mutex_);
  return closed_;
}

bool RecordLog::WaitFor(int64_t sequence, double seconds) const {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(std::min(seconds, 1e9));
  MutexLock lock(&mutex_);
  while (next_sequence_ <= sequence && !closed_) {
    const double left =
        std::chrono::duration<double>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0) break;
    changed_.WaitFor(&mutex_, left);
  }
  return next_sequence_ > sequence;
}

std::unique_ptr<RecordLog::Subscription> RecordLog::Subscribe(std::function<void()> changed) const {
  auto listener = std::make_shared<Listener>(std::move(changed));
  MutexLock lock(&mutex_);
  listeners_.push_back(listener);
  return std::unique_ptr<Subscription>(new Subscription(this, std::move(listener)));
}

RecordLog::Subscription::~Subscription() {
  {
    MutexLock lock(&log_->mutex_);
    auto& listeners = log_->listeners_;
    listeners.erase(std::find(listeners.begin(), listeners.end(), listener_));
  }
  MutexLock lock(&listener_->mutex);
  listener_->active = false;
}

std::unique_ptr<RecordLog::Reader> RecordLog::Read(int64_t sequence) const {
  return std::unique_ptr<Reader>(new Reader(this, sequence));
}

RecordLog::Reader::~Reader() { CloseSegment(); }

void RecordLog::Reader::CloseSegment() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  offset_ = 0;
  buffer_.clear();
}

absl::StatusOr<int64_t> RecordLog::Reader::Available(int64_t* missed) {
  while (true) {
    std::string path;
    {
      MutexLock lock(&log_->mutex_);
      const auto& segments = log_->segments_;
      if (fd_ >= 0) {
        const auto after = segments.upper_bound(segment_);
        const bool kept = after != segments.begin() && std::prev(after)->first == segment_;
        // A segment that was removed since it was opened is still read to its end.
        const int64_t end = kept ? std::prev(after)->second.bytes : ::lseek(fd_, 0, SEEK_END);
        if (offset_ < end || after == segments.end()) return end - offset_;
        // Read to its end: what is missing up to the next one was damaged or removed.
        *missed += std::max<int64_t>(0, after->first - next_);
        next_ = std::max(next_, after->first);
      }
      if (next_ >= log_->next_sequence_ || segments.empty()) return 0;
      auto holds = segments.upper_bound(next_);
      if (holds == segments.begin()) {
        *missed += holds->first - next_;
        next_ = holds->first;
      } else {
        --holds;
      }
      segment_ = holds->first;
      path = holds->second.path;
    }
    CloseSegment();
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    // Removed meanwhile: the list no longer has it.
    if (fd_ < 0 && errno != ENOENT) return FileError("open", path, errno);
    if (fd_ < 0) {
      MutexLock lock(&log_->mutex_);
      if (log_->segments_.contains(segment_)) return FileError("open", path, ENOENT);
    }
  }
}

absl::Status RecordLog::Reader::Next(int64_t records_max, std::vector<LogRecord>* records,
                                     int64_t* missed) {
  const size_t first_new = records->size();
  const size_t enough = first_new + static_cast<size_t>(std::max<int64_t>(0, records_max));
  while (records->size() < enough) {
    size_t begin = 0;
    for (size_t end;
         records->size() < enough && (end = buffer_.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      const std::optional<RecordLine> line =
          ParseRecordLine(std::string_view(buffer_).substr(begin, end - begin));
      if (!line.has_value() || line->sequence < next_) continue;
      *missed += line->sequence - next_;
      next_ = line->sequence + 1;
      LogRecord record;
      record.kind = line->kind == 'f' ? LogRecord::Kind::kFellBack : LogRecord::Kind::kText;
      record.sequence = line->sequence;
      record.step = line->step;
      record.text = std::string(line->text);
      records->push_back(std::move(record));
    }
    buffer_.erase(0, begin);
    if (records->size() == enough) break;
    MT_ASSIGN_OR_RETURN(const int64_t available, Available(missed));
    if (available <= 0) break;
    const size_t before = buffer_.size();
    MT_RETURN_IF_ERROR(
        ReadInto(fd_, log_->directory_, offset_, std::min(available, kReadBytes), &buffer_));
    if (buffer_.size() == before) break;  // cut short from outside
    offset_ += static_cast<int64_t>(buffer_.size() - before);
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
