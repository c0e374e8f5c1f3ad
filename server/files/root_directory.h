// RootDirectory opens paths beneath a directory and never outside it, even if others change
// symbolic links in it meanwhile. The kernel resolves each path beneath the directory (openat2).
//
// Thread safety: const methods may be called from several threads.
#ifndef MEGATRAIN_SERVER_FILES_ROOT_DIRECTORY_H_
#define MEGATRAIN_SERVER_FILES_ROOT_DIRECTORY_H_

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/descriptor.h"

namespace megatrain {

class RootDirectory {
 public:
  // Opens the directory. "/" bounds nothing, so all links are followed. Returns NotFound if there
  // is no such directory, InvalidArgument if `path` is not a directory, Unimplemented if the kernel
  // does not have openat2 or a sandbox forbids it, and otherwise FileError's codes. REQUIRES:
  // `path` is absolute.
  static absl::StatusOr<std::shared_ptr<const RootDirectory>> Open(const std::string& path);

  // Returns the part of the absolute `path` beneath this directory, "." for the directory itself.
  // Only texts are compared, and nothing is opened: links and `..` in `path` are not resolved.
  // Returns nullopt if `path` does not begin with the directory's path, as it was given to Open or
  // without symbolic links.
  std::optional<std::string> Beneath(const std::string& path) const;

  // Opens `relative` as open(2) does, with O_CLOEXEC. Symbolic links within the directory are
  // followed. An absolute link counts as leading out, even if it leads back. Links of /proc that
  // are no paths are refused (ELOOP). Returns a descriptor, which the caller must close, or -1 and
  // errno. EXDEV says that a link or `..` leads out, and EAGAIN that others renamed directories
  // during each of 100 tries. Beneath "/" open(2) itself is used, without these limits and tries.
  // REQUIRES: `mode` is 0 unless `flags` have O_CREAT.
  int OpenBeneath(const std::string& relative, int flags, mode_t mode = 0) const;

  // Returns the path as it was given to Open, without slashes at its end unless it is "/".
  const std::string& path() const { return path_; }

 private:
  RootDirectory(std::string path, std::string real_path, Descriptor directory)
      : path_(std::move(path)),
        real_path_(std::move(real_path)),
        directory_(std::move(directory)) {}

  const std::string path_;
  const std::string real_path_;
  const Descriptor directory_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_FILES_ROOT_DIRECTORY_H_
