#include "engine/trace/metrics_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

absl::Status FileError(const std::string& path, const std::string& what) {
  const int error = errno;
  const std::string message = absl::StrCat(path, ": ", what, ": ", std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) return absl::UnavailableError(message);
  return absl::InvalidArgumentError(message);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsWriter>> MetricsWriter::Open(const std::string& path) {
  struct stat before = {};
  if (::stat(path.c_str(), &before) == 0 && S_ISREG(before.st_mode) && before.st_size > 0) {
    std::ifstream file(path, std::ios::binary);
    std::string line;
    // A first line that was torn is no record either, but the only thing in the file.
    if (!std::getline(file, line)) return FileError(path, "cannot be read");
    constexpr std::string_view kBegin = "{\"step\":";
    const bool torn_record =
        file.eof() && line.compare(0, kBegin.size(), kBegin.substr(0, line.size())) == 0;
    if (!ParseStepRecord(line).ok() && !torn_record) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": exists and holds no step metrics; it is not overwritten"));
    }
  }
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return FileError(path, "cannot be written");
  return std::unique_ptr<MetricsWriter>(new MetricsWriter(path, fd));
}

MetricsWriter::~MetricsWriter() { ::close(fd_); }

absl::Status MetricsWriter::TruncateTo(int64_t step) {
  struct stat status = {};
  if (::fstat(fd_, &status) != 0) return FileError(path_, "cannot be read");
  if (!S_ISREG(status.st_mode)) return absl::OkStatus();  // a pipe cannot be cut
  std::ifstream file(path_, std::ios::binary);
  if (!file) return FileError(path_, "cannot be read");
  int64_t kept_bytes = 0;
  std::string line;
  while (std::getline(file, line) && !file.eof()) {  // at the end: a line without its '\n' is torn
    const absl::StatusOr<StepRecord> record = ParseStepRecord(line);
    if (!record.ok() || record->step > step) break;
    kept_bytes += static_cast<int64_t>(line.size()) + 1;
  }
  if (file.bad()) return FileError(path_, "cannot be read");
  if (::ftruncate(fd_, kept_bytes) != 0) return FileError(path_, "cannot be cut back");
  return absl::OkStatus();
}

absl::Status MetricsWriter::Write(const StepRecord& record) {
  const std::string line = StepRecordJson(record) + "\n";
  size_t written = 0;
  while (written < line.size()) {
    const ssize_t n = ::write(fd_, line.data() + written, line.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(path_, "cannot be written");
    written += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

}  // namespace megatrain
