#include "engine/data/parquet/parquet_records.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/job/data_format.h"

namespace megatrain {
namespace {

constexpr size_t kReceiveBytes = size_t{1} << 20;

absl::Status Failed(const std::string& path, const char* what, int error) {
  return absl::InternalError(
      absl::StrCat(path, ": the program that reads Parquet ", what, ": ", std::strerror(error)));
}

// Starts `program` with `socket` as its standard input. It inherits no other descriptor but
// standard error, no blocked or handled signal, and no terminal's signals.
absl::StatusOr<pid_t> Start(const std::string& path, const std::string& program, int socket,
                            const std::vector<std::string>& arguments) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  const absl::Cleanup destroy = [&] {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  };
  posix_spawn_file_actions_adddup2(&actions, socket, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, program.c_str(), &actions, &attributes, argv.data(), environ);
  if (error != 0) return Failed(path, "cannot be started", error);
  return pid;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ParquetRecordReader>> ParquetRecordReader::Open(
    const DataFileReader* file, const std::string& column) {
  MT_ASSIGN_OR_RETURN(const std::string program, ParquetProgram(file->path()));
  int pair[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    return Failed(file->path(), "cannot be reached", errno);
  }
  Descriptor ours(pair[0]);
  const Descriptor theirs(pair[1]);
  MT_ASSIGN_OR_RETURN(const pid_t pid, Start(file->path(), program, theirs.get(),
                                             {absl::StrCat(file->size()), column}));
  return std::unique_ptr<ParquetRecordReader>(new ParquetRecordReader(file, std::move(ours), pid));
}

ParquetRecordReader::ParquetRecordReader(const DataFileReader* file, Descriptor socket,
                                         pid_t program)
    : file_(file), socket_(std::move(socket)), program_(program), buffer_(kReceiveBytes) {}

ParquetRecordReader::~ParquetRecordReader() {
  if (program_ < 0) return;
  ::kill(program_, SIGKILL);
  while (::waitpid(program_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

int64_t ParquetRecordReader::bytes_read() const { return std::min(bytes_read_, file_->size()); }

std::string ParquetRecordReader::Place(const Record& record) const {
  return absl::StrCat(": row ", record.element);
}

absl::Status ParquetRecordReader::Ended() {
  int status = 0;
  while (::waitpid(program_, &status, 0) < 0 && errno == EINTR) {
  }
  program_ = -1;
  return absl::InvalidArgumentError(
      absl::StrCat(file_->path(), ": the program that reads Parquet ",
                   WIFSIGNALED(status) ? absl::StrCat("was ended by signal ", WTERMSIG(status))
                                       : absl::StrCat("ended with exit code ", WEXITSTATUS(status)),
                   "; the file may be damaged, or the machine may lack memory"));
}

absl::Status ParquetRecordReader::Receive(size_t bytes) {
  if (end_ - begin_ >= bytes) return absl::OkStatus();
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  if (buffer_.size() < bytes) buffer_.resize(std::max(bytes, 2 * buffer_.size()));
  while (end_ < bytes) {
    const ssize_t got = ::recv(socket_.get(), buffer_.data() + end_, buffer_.size() - end_, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Ended();
    end_ += static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::Status ParquetRecordReader::Send(const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(socket_.get(), from, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return Ended();
    from += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return absl::OkStatus();
}

absl::Status ParquetRecordReader::AnswerRead(const ParquetHeader& header) {
  if (header.at < 0 || header.bytes < 0 || header.bytes > kParquetReadBytesMax) {
    return absl::InternalError(absl::StrCat(file_->path(),
                                            ": the program that reads Parquet asks for ",
                                            header.bytes, " bytes at ", header.at));
  }
  int64_t got = 0;
  answer_.resize(sizeof(got) + static_cast<size_t>(header.bytes));
  MT_ASSIGN_OR_RETURN(const size_t read, file_->ReadUpTo(header.at, answer_.data() + sizeof(got),
                                                         static_cast<size_t>(header.bytes)));
  got = static_cast<int64_t>(read);
  std::memcpy(answer_.data(), &got, sizeof(got));
  bytes_read_ += got;
  return Send(answer_.data(), sizeof(got) + read);
}

absl::StatusOr<bool> ParquetRecordReader::Next(Record* record) {
  *record = Record();
  while (!done_) {
    ParquetHeader header;
    MT_RETURN_IF_ERROR(Receive(sizeof(header)));
    std::memcpy(&header, buffer_.data() + begin_, sizeof(header));
    begin_ += sizeof(header);
    if (header.message == ParquetMessage::kRead) {
      MT_RETURN_IF_ERROR(AnswerRead(header));
      continue;
    }
    const int64_t bytes_max = header.message == ParquetMessage::kRecord
                                  ? static_cast<int64_t>(kRecordBytesMax)
                                  : kParquetReasonBytesMax;
    if (header.bytes < 0 || header.bytes > bytes_max) {
      return absl::InvalidArgumentError(absl::StrCat(file_->path(), ": row ", header.at, " takes ",
                                                     header.bytes, " bytes as JSON; up to ",
                                                     bytes_max, " are possible"));
    }
    MT_RETURN_IF_ERROR(Receive(static_cast<size_t>(header.bytes)));
    const std::string_view text(buffer_.data() + begin_, static_cast<size_t>(header.bytes));
    begin_ += text.size();
    record->element = header.at;
    switch (header.message) {
      case ParquetMessage::kRecord:
        record->json = text;
        return true;
      case ParquetMessage::kDefect:
        record->defect = absl::InvalidArgumentError(std::string(text));
        return true;
      case ParquetMessage::kFailure:
        return absl::InvalidArgumentError(absl::StrCat(file_->path(), ": ", std::string(text)));
      default:
        done_ = true;
    }
  }
  return false;
}

}  // namespace megatrain
