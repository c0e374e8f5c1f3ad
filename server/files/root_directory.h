// A directory that paths are opened beneath, never outside, whatever symbolic links lie in it and
// whoever changes them meanwhile: the kernel resolves each path (openat2) from the directory's
// descriptor.
//
// Thread safety: const methods may be called from several threads.
#ifndef MEGATRAIN_SERVER_FILES_ROOT_DIRECTORY_H_
#define MEGATRAIN_SERVER_FILES_ROOT_DIRECTORY_H_

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/descriptor.h"

namespace megatrain {

class RootDirectory {
 public:
  // `path` is absolute. NotFound or InvalidArgument if it is no directory, Unimplemented if the
  // kernel does not have openat2 or a sandbox forbids it. "/" bounds nothing.
  static absl::StatusOr<std::shared_ptr<const RootDirectory>> Open(const std::string& path);

  // What of the absolute `path` is beneath this directory, "." for itself; nothing if it is
  // elsewhere by its text. The directory goes by its name and by the one without symbolic links.
  std::optional<std::string> Beneath(const std::string& path) const;

  // open(2) of `relative`, with O_CLOEXEC. -1 and errno, which is EXDEV if a link or `..` leads
  // out; links within are followed, absolute ones lead out even if they come back.
  int OpenBeneath(const std::string& relative, int flags, mode_t mode = 0) const;

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
