#include "server/worker/record_log.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/descriptor_file.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

constexpr int kNameDigits = 20;
constexpr int kHashDigits = 16;
// The shortest line: "HASH t 1 0 ".
constexpr size_t kLineBytesMin = kHashDigits + 7;

std::string LineHash(std::string_view rest) {
  return absl::StrFormat("%0*x", kHashDigits, XXH3_64bits(rest.data(), rest.size()));
}

// Reads a number and the ' ' after it, and removes both from *rest.
bool ConsumeNumber(std::string_view* rest, int64_t* value) {
  const size_t end = rest->find(' ');
  if (end == std::string_view::npos) return false;
  const bool number = absl::SimpleAtoi(absl::string_view(rest->data(), end), value);
  rest->remove_prefix(end + 1);
  return number && *value >= 0;
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

}  // namespace

std::string SegmentName(int64_t sequence) {
  return absl::StrFormat("%0*d.log", kNameDigits, sequence);
}

std::optional<int64_t> ParseSegmentName(const std::string& name) {
  int64_t sequence = 0;
  if (!absl::SimpleAtoi(name.substr(0, kNameDigits), &sequence) || sequence < 1 ||
      name != SegmentName(sequence)) {
    return std::nullopt;
  }
  return sequence;
}

std::string EncodeRecord(LogRecord::Kind kind, int64_t sequence, int64_t step,
                         std::string_view text) {
  std::string rest =
      absl::StrCat(" ", std::string(1, static_cast<char>(kind)), " ", sequence, " ", step, " ");
  rest.append(text);
  return absl::StrCat(LineHash(rest), rest, "\n");
}

std::optional<LogRecord> DecodeRecord(std::string_view line) {
  if (line.size() < kLineBytesMin) return std::nullopt;
  std::string_view rest = line.substr(kHashDigits);
  if (line.substr(0, kHashDigits) != LineHash(rest)) return std::nullopt;
  LogRecord record;
  record.kind = static_cast<LogRecord::Kind>(rest[1]);
  rest.remove_prefix(3);
  if (!ConsumeNumber(&rest, &record.sequence) || !ConsumeNumber(&rest, &record.step) ||
      record.sequence == 0) {
    return std::nullopt;
  }
  if (record.kind != LogRecord::Kind::kText && record.kind != LogRecord::Kind::kFellBack) {
    return std::nullopt;
  }
  record.text = rest;
  return record;
}

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
  // A second writer would take the first one's unfinished line for a torn one.
  std::unique_ptr<FileLock> lock = TryLockThrough(fd);
  if (lock == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory, ": another log is open there; one at a time may append"));
  }
  std::unique_ptr<RecordLog> log(new RecordLog(directory, options, std::move(lock)));
  MT_RETURN_IF_ERROR(log->Load(notes));
  return log;
}

absl::Status RecordLog::Load(std::vector<std::string>* notes) {
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      PosixFileSystem()->ListDirectory(directory_));
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
  size_t whole_end = 0;             // the end of the last whole one
  for (size_t begin = 0; begin < content.size();) {
    const size_t end = content.find('\n', begin);
    if (end == std::string::npos) {
      ++behind;  // a line that is not whole
      break;
    }
    const std::optional<LogRecord> record =
        DecodeRecord(std::string_view(content).substr(begin, end - begin));
    begin = end + 1;
    // Numbers only grow: anything else was not written here by Append.
    if (!record.has_value() || record->sequence < next_sequence_) {
      ++behind;
      continue;
    }
    damaged += std::exchange(behind, 0);
    whole_end = begin;
    Count(record->kind, record->sequence, record->step);
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
  file_ = Descriptor(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!file_.is_open()) return FileError("open", path, errno);
  if (whole_end < content.size() && ::ftruncate(file_.get(), segment.bytes) != 0) {
    return FileError("cut back", path, errno);
  }
  return absl::OkStatus();
}

void RecordLog::Count(LogRecord::Kind kind, int64_t sequence, int64_t step) {
  next_sequence_ = sequence + 1;
  if (kind == LogRecord::Kind::kText) {
    step_max_ = std::max(step_max_, step);
    return;
  }
  while (!markers_.empty() && markers_.back().second >= step) markers_.pop_back();
  markers_.emplace_back(sequence, step);
  step_max_ = std::min(step_max_, step);
}

bool RecordLog::Superseded(int64_t sequence, int64_t step) const {
  // The first marker behind the record has the lowest step of those behind it.
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
    const std::string line = EncodeRecord(kind, sequence, step, text);
    MT_RETURN_IF_ERROR(PrepareSegment(static_cast<int64_t>(line.size()), sequence));
    MT_RETURN_IF_ERROR(WriteLine(line));
    MutexLock lock(&mutex_);
    segments_.rbegin()->second.bytes += static_cast<int64_t>(line.size());
    Count(kind, sequence, step);
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
    if (file_.is_open() && (bytes == 0 || bytes + line_bytes <= options_.segment_bytes)) {
      return absl::OkStatus();
    }
  }
  const std::string path = JoinPath(directory_, SegmentName(sequence));
  if (file_.is_open()) {
    // Behind a whole segment nothing torn may be left, and a power cut must not take from its
    // middle.
    if (torn_) MT_RETURN_IF_ERROR(WriteLine(""));
    if (::fdatasync(file_.get()) != 0) return FileError("sync", directory_, errno);
  }
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0640));
  if (!file.is_open()) return FileError("create", path, errno);
  file_ = std::move(file);
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
  unsynced_ = true;
  return SyncDirectory();
}

absl::Status RecordLog::SyncDirectory() {
  if (unsynced_) MT_RETURN_IF_ERROR(PosixFileSystem()->SyncDirectory(directory_));
  unsynced_ = false;
  return absl::OkStatus();
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
    if (::ftruncate(file_.get(), bytes) != 0) return FileError("cut back", path, errno);
    torn_ = false;
  }
  const absl::Status status = WriteAll(file_.get(), path, line);
  if (!status.ok()) torn_ = ::ftruncate(file_.get(), bytes) != 0;
  return status;
}

absl::Status RecordLog::Sync() {
  MutexLock lock(&append_mutex_);
  if (file_.is_open() && ::fdatasync(file_.get()) != 0) return FileError("sync", directory_, errno);
  return SyncDirectory();
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
    listeners = listeners_;
  }
  for (const std::shared_ptr<Listener>& listener : listeners) {
    MutexLock lock(&listener->mutex);
    if (listener->active) listener->changed();
  }
}

int64_t RecordLog::next_sequence() const {
  MutexLock lock(&mutex_);
  return next_sequence_;
}

bool RecordLog::closed() const {
  MutexLock lock(&mutex_);
  return closed_;
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

}  // namespace megatrain
