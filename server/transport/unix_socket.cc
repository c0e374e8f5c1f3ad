#include "server/transport/unix_socket.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/file.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

// Whose sockets they are on a shared machine: deploy/systemd makes it.
constexpr char kGroup[] = "megatrain";

absl::StatusOr<SocketAccess> CheckDirectory(const std::string& directory) {
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return FileError("create directory", directory, errno);
  }
  struct stat info = {};
  if (stat(directory.c_str(), &info) != 0) return FileError("look at", directory, errno);
  if (!S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(directory, ": is not a directory"));
  }
  if ((info.st_uid != geteuid() && info.st_uid != 0) || (info.st_mode & 022) != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: belongs to user %d with mode %04o; others could put a socket of their own in place of "
        "the daemon's: use a directory of the daemon's user (%d) with mode 0700, which is private, "
        "or 0750, which its group may enter",
        directory, info.st_uid, info.st_mode & 07777, geteuid()));
  }
  const bool is_private = info.st_uid == geteuid() && (info.st_mode & 077) == 0;
  return is_private ? SocketAccess::kPrivate : SocketAccess::kShared;
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

std::optional<gid_t> FindGroup(const char* name) {
  std::vector<char> buffer(1 << 16);
  group entry = {};
  group* found = nullptr;
  if (getgrnam_r(name, &entry, buffer.data(), buffer.size(), &found) != 0) return std::nullopt;
  return found == nullptr ? std::nullopt : std::optional<gid_t>(found->gr_gid);
}

std::string GroupName(gid_t gid) {
  std::vector<char> buffer(1 << 16);
  group entry = {};
  group* found = nullptr;
  if (getgrgid_r(gid, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) {
    return found->gr_name;
  }
  return absl::StrCat(gid);
}

}  // namespace

absl::StatusOr<SocketAccess> PrepareUnixSocket(const std::string& path) {
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
  MT_ASSIGN_OR_RETURN(const SocketAccess access, CheckDirectory(ParentDirectory(path)));
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return access;
    return FileError("look at", path, errno);
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
  return access;
}

absl::StatusOr<std::string> ShareUnixSocket(const std::string& path) {
  struct stat directory = {};
  if (stat(ParentDirectory(path).c_str(), &directory) != 0) {
    return FileError("look at the directory of", path, errno);
  }
  const std::optional<gid_t> named = FindGroup(kGroup);
  // A group that this process is not in may be given to a socket by root alone.
  if (!named.has_value() || lchown(path.c_str(), -1, *named) != 0) {
    if (lchown(path.c_str(), -1, directory.st_gid) != 0 && errno != EPERM) {
      return FileError("set the group of", path, errno);
    }
  }
  // The group first: until it is right, only the owner may connect.
  if (chmod(path.c_str(), 0660) != 0) return FileError("set the mode of", path, errno);
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return FileError("look at", path, errno);
  return GroupName(info.st_gid);
}

}  // namespace megatrain
