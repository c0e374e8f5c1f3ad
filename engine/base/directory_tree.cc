#include "engine/base/directory_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/file.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

// Tries at one name or directory that others fill, or replace, while it is removed.
constexpr int kTries = 4;

bool IsNotEmpty(int error) { return error == ENOTEMPTY || error == EEXIST; }

// OK if what was a directory is none any more, which is seen at the next try.
absl::Status OpenError(const std::string& path, int error) {
  const bool replaced = error == ENOENT || error == ENOTDIR || error == ELOOP;
  return replaced ? absl::OkStatus() : FileError("remove", path, error);
}

// Removes the file, the link or the directory `name`. `empty` is called for a directory that is not
// empty, which may by then be something else.
absl::Status RemoveEntry(int parent, const char* name, const std::string& path,
                         absl::FunctionRef<absl::Status()> empty) {
  for (int attempt = 0; attempt < kTries; ++attempt) {
    if (::unlinkat(parent, name, 0) == 0 || errno == ENOENT) return absl::OkStatus();
    const int error = errno;
    // A directory is EISDIR; some file systems say EPERM.
    if (error != EISDIR && error != EPERM) return FileError("remove", path, error);
    if (::unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT) return absl::OkStatus();
    if (errno == ENOTDIR && error == EISDIR) continue;  // it was one a moment ago
    if (!IsNotEmpty(errno)) return FileError("remove", path, errno == ENOTDIR ? error : errno);
    MT_RETURN_IF_ERROR(empty());
  }
  return FileError("remove", path, ENOTEMPTY);
}

// Empties one directory.
class TreeRemoval {
 public:
  // `top` and `cancelled` outlive this.
  TreeRemoval(DirectoryReader* top, const std::string& path, const std::function<bool()>& cancelled)
      : top_(top), path_(path), moved_prefix_(MakeMovedPrefix()), cancelled_(cancelled) {}

  absl::Status Run() {
    absl::Status status = RemoveAll(top_, 0);
    // More may be moved meanwhile.
    for (int64_t i = 0; i < moved_ && !IsCancelled(); ++i) {
      status.Update(Remove(top_->descriptor(), MovedName(i).c_str(), 0));
    }
    // Whatever else could not be removed by then.
    if (IsCancelled()) return absl::CancelledError(absl::StrCat("given up removing ", path_));
    return status;
  }

 private:
  bool IsCancelled() const { return cancelled_ && cancelled_(); }

  // Nobody else uses such a name by chance. Whoever does so on purpose makes the removal fail, or
  // loses what has the name.
  static std::string MakeMovedPrefix() {
    return absl::StrCat(".removed-", absl::ToUnixNanos(absl::Now()), "-");
  }
  std::string MovedName(int64_t number) const { return absl::StrCat(moved_prefix_, number); }

  // All names that `reader`, `level` directories below the top, gives.
  absl::Status RemoveAll(DirectoryReader* reader, int level) {
    absl::Status status;
    while (const char* name = IsCancelled() ? nullptr : reader->Next()) {
      status.Update(Remove(reader->descriptor(), name, level));
    }
    if (reader->error() != 0) status.Update(FileError("list", path_, reader->error()));
    return status;
  }

  absl::Status Remove(int parent, const char* name, int level) {
    const size_t length = path_.size();
    absl::StrAppend(&path_, "/", name);
    absl::Status status = RemoveEntry(parent, name, path_, [&] {
      return level + 1 < kTreeLevelsMax ? Empty(parent, name, level + 1) : MoveUp(parent, name);
    });
    path_.resize(length);
    return status;
  }

  absl::Status Empty(int parent, const char* name, int level) {
    Descriptor directory = OpenDirectoryAt(parent, name);
    if (!directory.is_open()) return OpenError(path_, errno);
    DirectoryReader reader(std::move(directory));
    return RemoveAll(&reader, level);
  }

  absl::Status MoveUp(int parent, const char* name) {
    if (::renameat(parent, name, top_->descriptor(), MovedName(moved_).c_str()) == 0) {
      ++moved_;
    } else if (errno != ENOENT) {
      return FileError("move up, to remove it,", path_, errno);
    }
    return absl::OkStatus();
  }

  DirectoryReader* const top_;
  std::string path_;  // of the directory that is being emptied
  const std::string moved_prefix_;
  const std::function<bool()>& cancelled_;
  int64_t moved_ = 0;  // directories moved to the top, named by their numbers
};

constexpr int64_t kTreeBytesMax = int64_t{1} << 53;  // sums of many trees do not overflow

void AddTree(DirectoryReader* reader, int level, std::string_view without, TreeSize* size) {
  while (const char* name = reader->Next()) {
    if (name == without) continue;
    struct stat info;
    if (::fstatat(reader->descriptor(), name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
      size->whole &= errno != EACCES;  // the names of a directory may be read, and no more
      continue;
    }
    if (S_ISREG(info.st_mode)) {
      // Files with holes may claim more than any disk has.
      size->bytes += std::min<int64_t>(info.st_size, kTreeBytesMax - size->bytes);
    } else if (S_ISDIR(info.st_mode) && level + 1 == kTreeLevelsMax) {
      size->whole = false;
    } else if (S_ISDIR(info.st_mode)) {
      Descriptor below = OpenDirectoryAt(reader->descriptor(), name);
      if (!below.is_open()) {
        size->whole &= errno != EACCES;
        continue;
      }
      DirectoryReader names(std::move(below));
      AddTree(&names, level + 1, "", size);
    }
  }
}

}  // namespace

DirectoryReader::DirectoryReader(Descriptor directory) : stream_(::fdopendir(directory.get())) {
  if (stream_ == nullptr) {
    error_ = errno;
  } else {
    directory.Release();
  }
}

DirectoryReader::~DirectoryReader() {
  if (stream_ != nullptr) ::closedir(stream_);
}

const char* DirectoryReader::Next() {
  if (stream_ == nullptr) return nullptr;
  while (true) {
    errno = 0;
    const dirent* const entry = ::readdir(stream_);
    if (entry == nullptr) {
      error_ = errno;
      return nullptr;
    }
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") return entry->d_name;
  }
}

Descriptor OpenDirectoryAt(int parent, const char* name) {
  return Descriptor(
      ::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
}

absl::Status RemoveTreeAt(int parent, const std::string& name, const std::string& path) {
  return RemoveEntry(parent, name.c_str(), path, [&]() -> absl::Status {
    Descriptor directory = OpenDirectoryAt(parent, name.c_str());
    if (directory.is_open()) return EmptyDirectory(std::move(directory), path);
    return OpenError(path, errno);
  });
}

absl::Status EmptyDirectory(Descriptor directory, const std::string& path,
                            const std::function<bool()>& cancelled) {
  DirectoryReader top(std::move(directory));
  return TreeRemoval(&top, path, cancelled).Run();
}

TreeSize MeasureTree(Descriptor directory, std::string_view without) {
  TreeSize size;
  DirectoryReader names(std::move(directory));
  AddTree(&names, 0, without, &size);
  return size;
}

}  // namespace megatrain
