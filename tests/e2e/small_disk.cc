#include "tests/e2e/small_disk.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

absl::Status NotAllowed(const char* what) {
  return absl::PermissionDeniedError(absl::StrCat(what, ": ", std::strerror(errno)));
}

// Mounts of its own, from which none get out; once a process.
absl::Status OwnMounts() {
  static bool done = false;
  if (done) return absl::OkStatus();
  const uid_t uid = geteuid();
  const gid_t gid = getegid();
  if (unshare(CLONE_NEWNS) != 0) {
    // Who is not root may be it among its own.
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return NotAllowed("unshare");
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << uid << " " << uid << " 1";
    std::ofstream("/proc/self/gid_map") << gid << " " << gid << " 1";
  }
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return NotAllowed("mount");
  done = true;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SmallDisk>> SmallDisk::Mount(const std::string& directory,
                                                            int64_t bytes) {
  if (const absl::Status status = OwnMounts(); !status.ok()) return status;
  const std::string options = absl::StrCat("mode=0700,size=", bytes);
  if (mount("tmpfs", directory.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
    return NotAllowed("mount");
  }
  return std::unique_ptr<SmallDisk>(new SmallDisk(directory));
}

SmallDisk::~SmallDisk() { umount2(directory_.c_str(), MNT_DETACH); }

absl::Status SmallDisk::Fill() {
  const int fd = open(Filler().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return NotAllowed("open");
  const std::vector<char> block(1 << 16);
  size_t bytes = block.size();
  while (bytes > 0) {
    const ssize_t written = write(fd, block.data(), bytes);
    if (written < 0 && errno != EINTR && errno != ENOSPC) {
      close(fd);
      return NotAllowed("write");
    }
    // Up to the last byte.
    if (written < 0 && errno == ENOSPC) bytes /= 2;
  }
  close(fd);
  return absl::OkStatus();
}

void SmallDisk::MakeRoom() { std::remove(Filler().c_str()); }

}  // namespace megatrain
