#include "server/rpc/unix_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/file.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

absl::Status CheckDirectory(const std::string& directory) {
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return FileError("create directory", directory, errno);
  }
  struct stat info = {};
  if (stat(directory.c_str(), &info) != 0) return FileError("look at", directory, errno);
  if (!S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(directory, ": is not a directory"));
  }
  if (info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: belongs to user %d with mode %04o; this version serves only sockets in a directory "
        "that nobody but the daemon's user (%d) can enter: use another, or chmod 0700",
        directory, info.st_uid, info.st_mode & 07777, geteuid()));
  }
  return absl::OkStatus();
}

// Whether a process accepts connections there.
absl::StatusOr<bool> IsListening(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return FileError("open a socket for", path, errno);
  const int result = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  const int error = errno;
  close(fd);
  if (result == 0 || error == EAGAIN) return true;  // EAGAIN: its queue is full
  if (error == ECONNREFUSED || error == ENOENT) return false;
  return FileError("connect to", path, error);
}

}  // namespace

absl::Status PreparePrivateSocket(const std::string& path) {
  if (!absl::StartsWith(path, "/")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "unix:", path, ": expects an absolute path, as in unix:/run/user/1000/m.sock"));
  }
  constexpr size_t kPathBytesMax = sizeof(sockaddr_un::sun_path) - 1;
  if (path.size() > kPathBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("unix:", path, ": is ", path.size(),
                                                   " bytes long; the system allows sockets ",
                                                   kPathBytesMax));
  }
  MT_RETURN_IF_ERROR(CheckDirectory(ParentDirectory(path)));
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::OkStatus() : FileError("look at", path, errno);
  }
  if (!S_ISSOCK(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("unix:", path, ": there is a file of that name, which is no socket"));
  }
  MT_ASSIGN_OR_RETURN(const bool listening, IsListening(path));
  if (listening) {
    return absl::FailedPreconditionError(
        absl::StrCat("unix:", path, ": another process listens there"));
  }
  if (unlink(path.c_str()) != 0) return FileError("remove", path, errno);
  return absl::OkStatus();
}

}  // namespace megatrain
