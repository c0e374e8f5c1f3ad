#include "server/files/root_directory.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/file.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

// A rename elsewhere in the tree may make the kernel ask for another try.
constexpr int kTries = 100;

std::optional<std::string> Below(absl::string_view path, const std::string& directory) {
  if (!absl::ConsumePrefix(&path, directory)) return std::nullopt;
  if (!path.empty() && path.front() != '/' && directory != "/") return std::nullopt;
  while (absl::ConsumePrefix(&path, "/")) {
  }
  return path.empty() ? "." : std::string(path);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const RootDirectory>> RootDirectory::Open(const std::string& path) {
  std::string name = path;
  while (name.size() > 1 && name.back() == '/') name.pop_back();
  Descriptor directory(::open(name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory.is_open()) {
    return errno == ENOTDIR ? absl::InvalidArgumentError(absl::StrCat(name, " is not a directory"))
                            : FileError("open", name, errno);
  }
  MT_ASSIGN_OR_RETURN(std::string real_path, PosixFileSystem()->RealPath(name));
  std::shared_ptr<const RootDirectory> root(
      new RootDirectory(std::move(name), std::move(real_path), std::move(directory)));
  // Whether it may be entered is the account's affair.
  const Descriptor self(root->OpenBeneath(".", O_PATH));
  if (!self.is_open() && (errno == ENOSYS || errno == EPERM || errno == EINVAL)) {
    return absl::UnimplementedError(absl::StrCat(
        "paths cannot be kept beneath ", root->path_, ": openat2: ", std::strerror(errno),
        ". It needs Linux 5.8, and a container that allows it"));
  }
  return root;
}

std::optional<std::string> RootDirectory::Beneath(const std::string& path) const {
  if (std::optional<std::string> below = Below(path, path_)) return below;
  return Below(path, real_path_);
}

int RootDirectory::OpenBeneath(const std::string& relative, int flags, mode_t mode) const {
  flags |= O_CLOEXEC;
  if (path_ == "/") return ::openat(directory_.get(), relative.c_str(), flags, mode);
  open_how how = {};
  how.flags = static_cast<uint64_t>(flags);
  how.mode = mode;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  for (int attempt = 1;; ++attempt) {
    const long fd = ::syscall(SYS_openat2, directory_.get(), relative.c_str(), &how, sizeof(how));
    if (fd >= 0 || (errno != EAGAIN && errno != EINTR) || attempt == kTries) {
      return static_cast<int>(fd);
    }
  }
}

}  // namespace megatrain
