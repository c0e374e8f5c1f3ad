// Tells whether a file has changed, without reading it.
#ifndef MEGATRAIN_SERVER_IDENTITY_FILE_LOOK_H_
#define MEGATRAIN_SERVER_IDENTITY_FILE_LOOK_H_

#include <sys/stat.h>
#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/time/time.h"

namespace megatrain {

// The marks of a file that change with its content. Files with equal looks are taken to have the
// same content.
struct FileLook {
  dev_t device = 0;
  ino_t inode = 0;
  off_t bytes = 0;
  absl::Time modified, changed;
  mode_t mode = 0;
  uid_t uid = 0;

  bool operator==(const FileLook&) const = default;
};

// Returns the look of a file that stat(2) or fstat(2) has examined.
inline FileLook LookOf(const struct stat& info) {
  FileLook look;
  look.device = info.st_dev;
  look.inode = info.st_ino;
  look.bytes = info.st_size;
  look.modified = absl::TimeFromTimespec(info.st_mtim);
  look.changed = absl::TimeFromTimespec(info.st_ctim);
  look.mode = info.st_mode;
  look.uid = info.st_uid;
  return look;
}

// Looks at what `path` leads to. Returns nullopt if it cannot be looked at.
inline std::optional<FileLook> LookAt(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return std::nullopt;
  return LookOf(info);
}

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_IDENTITY_FILE_LOOK_H_
