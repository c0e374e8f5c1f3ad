#include "server/files/rooted_file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/descriptor_file.h"
#include "engine/base/directory_tree.h"
#include "engine/base/status.h"
#include "server/files/job_files.h"
#include "server/files/own_directory.h"

namespace megatrain {
namespace {

constexpr mode_t kFileMode = 0640;
constexpr mode_t kDirectoryMode = 0750;
constexpr mode_t kPermissions = 0777;
// Directories that are made for one path: it is a model's or a checkpoint's, and more is nobody's
// intention.
constexpr int kDepthMax = 64;
// Of a name that others make and remove at the same time.
constexpr int kTries = 16;
// A pipe or a terminal does not hold up or take over the process; what is not a file is refused
// once it is open.
constexpr int kPassive = O_NONBLOCK | O_NOCTTY;

std::string WithoutTrailingSlash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

// ---- Paths to descriptors ----

absl::StatusOr<RootedFileSystem::Place> RootedFileSystem::Find(const std::string& path) const {
  if (path.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError("a path holds a zero byte");
  }
  Place place;
  for (const auto& root : roots_) {
    std::optional<std::string> relative = root->Beneath(path);
    if (!relative.has_value()) continue;
    // The innermost: the one that leaves least, and nothing if it is the root itself.
    const bool is_root = *relative == ".";
    if (place.root == nullptr || is_root || relative->size() < place.relative.size()) {
      place = {root, *std::move(relative)};
      if (is_root) return place;
    }
  }
  if (place.root != nullptr) return place;
  if (std::optional<Place> own = FindInOwnDirectory(path)) return *std::move(own);
  return absl::PermissionDeniedError(absl::StrCat(
      path, " is outside the directories that jobs may use: ",
      absl::StrJoin(roots_, ", ",
                    [](std::string* out, const auto& root) { absl::StrAppend(out, root->path()); }),
      "; name a path beneath one of them"));
}

std::optional<RootedFileSystem::Place> RootedFileSystem::FindInOwnDirectory(
    const std::string& path) const {
  const std::string job = state_directory_.empty() ? "" : JobOfOwnDirectory(state_directory_, path);
  if (job.empty()) return std::nullopt;
  // Only the daemon changes names in the directory above.
  const std::string own = OwnCheckpointDirectory(state_directory_, job);
  struct stat info;
  if (::lstat(own.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) ||
      info.st_uid != (identity_.has_value() ? identity_->uid : ::geteuid())) {
    return std::nullopt;
  }
  const absl::StatusOr<std::shared_ptr<const RootDirectory>> root = RootDirectory::Open(own);
  if (!root.ok()) return std::nullopt;
  return Place{*root, (*root)->Beneath(path).value_or(".")};
}

absl::Status RootedFileSystem::OpenError(const char* operation, const std::string& path,
                                         const RootDirectory& root, int error) const {
  if (error == EXDEV) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " leads out of ", root.path(),
                     ", by .. or by a symbolic link (one to an absolute path does); name the place "
                     "itself, beneath a directory that jobs may use"));
  }
  if (error == ENXIO) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  return FileError(operation, path, error);
}

absl::StatusOr<Descriptor> RootedFileSystem::Open(const char* operation, const std::string& path,
                                                  int flags) const {
  MT_ASSIGN_OR_RETURN(const Place place, Find(path));
  Descriptor descriptor(place.root->OpenBeneath(place.relative, flags));
  if (!descriptor.is_open()) return OpenError(operation, path, *place.root, errno);
  return descriptor;
}

absl::StatusOr<RootedFileSystem::Entry> RootedFileSystem::OpenParent(
    const char* operation, const std::string& path) const {
  const std::string whole = WithoutTrailingSlash(path);
  Entry entry;
  entry.name = whole.substr(whole.rfind('/') + 1);
  MT_ASSIGN_OR_RETURN(const Place place, Find(whole));
  if (place.relative == "." || entry.name.empty() || entry.name == "." || entry.name == "..") {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot ", operation, " ", path, ": it has no name of its own to change"));
  }
  MT_ASSIGN_OR_RETURN(entry.directory,
                      Open(operation, ParentDirectory(whole), O_PATH | O_DIRECTORY));
  return entry;
}

absl::StatusOr<Descriptor> RootedFileSystem::OpenOrCreate(const char* operation,
                                                          const std::string& path,
                                                          int flags) const {
  MT_ASSIGN_OR_RETURN(const Place place, Find(path));
  for (int attempt = 1;; ++attempt) {
    Descriptor made(place.root->OpenBeneath(place.relative, flags | O_CREAT | O_EXCL, kFileMode));
    if (made.is_open()) {
      if (::fchmod(made.get(), kFileMode) != 0) return FileError(operation, path, errno);
      return made;
    }
    if (errno != EEXIST) return OpenError(operation, path, *place.root, errno);
    Descriptor there(place.root->OpenBeneath(place.relative, flags | kPassive));
    if (there.is_open()) {
      struct stat info;
      if (::fstat(there.get(), &info) != 0) return FileError("examine", path, errno);
      if (!S_ISREG(info.st_mode)) return OpenError(operation, path, *place.root, ENXIO);
      return there;
    }
    if (errno != ENOENT || attempt == kTries) {
      return OpenError(operation, path, *place.root, errno);
    }
  }
}

absl::StatusOr<Descriptor> RootedFileSystem::OpenNearest(const std::string& path,
                                                         std::string* existing) const {
  *existing = WithoutTrailingSlash(path);
  while (true) {
    MT_ASSIGN_OR_RETURN(const Place place, Find(*existing));
    Descriptor descriptor(place.root->OpenBeneath(place.relative, O_PATH));
    if (descriptor.is_open()) return descriptor;
    if ((errno != ENOENT && errno != ENOTDIR) || place.relative == ".") {
      return OpenError("open", *existing, *place.root, errno);
    }
    *existing = ParentDirectory(*existing);
  }
}

// ---- Files ----

absl::StatusOr<Descriptor> RootedFileSystem::OpenEmptied(const std::string& path) const {
  const ScopedIdentity as(identity_ ? &*identity_ : nullptr);
  MT_RETURN_IF_ERROR(as.status());
  MT_ASSIGN_OR_RETURN(Descriptor file, OpenOrCreate("create", path, O_WRONLY));
  if (::ftruncate(file.get(), 0) != 0) return FileError("empty", path, errno);
  return file;
}

absl::StatusOr<Descriptor> RootedFileSystem::OpenToRead(const std::string& path) const {
  const ScopedIdentity as(identity_ ? &*identity_ : nullptr);
  MT_RETURN_IF_ERROR(as.status());
  return Open("open", path, O_RDONLY | kPassive);
}

absl::StatusOr<std::unique_ptr<WritableFile>> RootedFileSystem::NewWritableFile(
    const std::string& path) {
  MT_ASSIGN_OR_RETURN(Descriptor file, OpenEmptied(path));
  return WriteThrough(path, file.Release());
}

absl::StatusOr<std::unique_ptr<BlockFile>> RootedFileSystem::NewBlockFile(const std::string& path,
                                                                          int64_t bytes) {
  MT_ASSIGN_OR_RETURN(Descriptor file, OpenEmptied(path));
  return WriteBlocksThrough(path, file.Release(), bytes);
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> RootedFileSystem::OpenForReading(
    const std::string& path) {
  MT_ASSIGN_OR_RETURN(Descriptor file, OpenToRead(path));
  return ReadThrough(path, file.Release());
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> RootedFileSystem::OpenBlocksForReading(
    const std::string& path) {
  MT_ASSIGN_OR_RETURN(Descriptor file, OpenToRead(path));
  return ReadThrough(path, file.Release(), /*direct=*/true);
}

absl::StatusOr<std::unique_ptr<FileLock>> RootedFileSystem::TryLock(const std::string& path) {
  const ScopedIdentity as(identity_ ? &*identity_ : nullptr);
  MT_RETURN_IF_ERROR(as.status());
  for (int attempt = 1;; ++attempt) {
    MT_ASSIGN_OR_RETURN(Descriptor file, OpenOrCreate("open", path, O_RDWR));
    struct stat held, named;
    if (::fstat(file.get(), &held) != 0) return FileError("examine", path, errno);
    std::unique_ptr<FileLock> lock = TryLockThrough(file.Release());
    if (lock == nullptr) return lock;
    // Whoever held it may have renamed or removed the file that is now locked here.
    const absl::StatusOr<Descriptor> again = Open("open", path, O_PATH);
    const bool same = again.ok() && ::fstat(again->get(), &named) == 0 &&
                      held.st_ino == named.st_ino && held.st_dev == named.st_dev;
    if (same) return lock;
    if (attempt == kTries) return nullptr;  // it changes hands all the time
  }
}

// ---- Names ----

absl::Status RootedFileSystem::Rename(const std::string& from, const std::string& to) {
  const ScopedIdentity as(identity_ ? &*identity_ : nullptr);
  MT_RETURN_IF_ERROR(as.status());
  MT_ASSIGN_OR_RETURN(const Entry source, OpenParent("rename", from));
  MT_ASSIGN_OR_RETURN(const Entry target, OpenParent("rename to", to));
  if (::renameat(source.directory.get(), source.name.c_str(), target.directory.get(),
                 target.name.c_str()) != 0) {
    return FileError("rename", absl::StrCat(from, " to ", to), errno);
  }
  return absl::OkStatus();
}

absl::Status RootedFileSystem::SyncDirectory(const std::string& path) {
  Descriptor directory;
  {
    const ScopedIdentity as(identity_ ? &*identity_ : nullptr);
    MT_RETURN_IF_ERROR(as.status());
    MT_ASSIGN_OR_RETURN(directory, Open("open", path, O_RDONLY | O_DIRECTORY));
  }
  return SyncDirectoryThrough(path, directory.Release());
}

absl::Status RootedFileSystem::CreateDirectories(const std::string& path) {
  const ScopedIdentity as(identity_ ? &*identity_ : nullptr);
  MT_RETURN_IF_ERROR(as.status());
  return CreateBeneath(WithoutTrailingSlash(path), kDepthMax);
}

absl::Status RootedFileSystem::CreateBeneath(const std::string& path, int depth) const {
  const absl::StatusOr<Descriptor> there = Open("create", path, O_PATH | O_DIRECTORY);
  if (there.ok()) return absl::OkStatus();
  if (!absl::IsNotFound(there.status()) || depth == 0) return there.status();
  MT_RETURN_IF_ERROR(CreateBeneath(ParentDirectory(path), depth - 1));
  MT_ASSIGN_OR_RETURN(const Entry entry, OpenParent("create", path));
  if (::mkdirat(entry.directory.get(), entry.name.c_str(), kDirectoryMode) != 0) {
    const int error = errno;
    // Somebody was faster, or a link leads to one.
    if (error == EEXIST && IsDirectoryNow(path)) return absl::OkStatus();
    return FileError("create", path, error);
  }
  const Descriptor made(::openat(entry.directory.get(), entry.name.c_str(),
                                 O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info;
  if (!made.is_open() || ::fstat(made.get(), &info) != 0) return FileError("open", path, errno);
  // Only what the umask took away: the parent may have passed its group on by the set-group-id bit,
  // which some sandboxes do not let be set again.
  if ((info.st_mode & kPermissions) != kDirectoryMode &&
      ::fchmod(made.get(), (info.st_mode & S_ISGID) | kDirectoryMode) != 0) {
    return FileError("set the mode of", path, errno);
  }
  return absl::OkStatus();
}

absl::Status RootedFileSystem::RemoveFile(const std::string& path) {
  const ScopedIdentity as(identity_ ? &*identity_ : nullptr);
  MT_RETURN_IF_ERROR(as.status());
  MT_ASSIGN_OR_RETURN(const Entry entry, OpenParent("remove", path));
  if (::unlinkat(entry.directory.get(), entry.name.c_str(), 0) != 0) {
    return FileError("remove", path, errno);
  }
  return absl::OkStatus();
}

absl::Status RootedFileSystem::RemoveTree(const std::string& path) {
  const ScopedIdentity as(identity_ ? &*identity_ : nullptr);
  MT_RETURN_IF_ERROR(as.status());
  const absl::StatusOr<Entry> entry = OpenParent("remove", path);
  if (absl::IsNotFound(entry.status())) return absl::OkStatus();
  if (!entry.ok()) return entry.status();
  return RemoveTreeAt(entry->directory.get(), entry->name, path);
}

// ---- What is there ----

absl::StatusOr<std::vector<std::string>> RootedFileSystem::ListDirectory(const std::string& path) {
  Descriptor directory;
  {
    const ScopedIdentity as(identity_ ? &*identity_ : nullptr);
    MT_RETURN_IF_ERROR(as.status());
    MT_ASSIGN_OR_RETURN(directory, Open("list", path, O_RDONLY | O_DIRECTORY));
  }
  return ListThrough(path, directory.Release());
}

bool RootedFileSystem::FileExists(const std::string& path) {
  const ScopedIdentity as(identity_ ? &*identity_ : nullptr);
  return as.status().ok() && Open("open", WithoutTrailingSlash(path), O_PATH | O_NOFOLLOW).ok();
}

bool RootedFileSystem::IsDirectoryNow(const std::string& path) const {
  return Open("open", path, O_PATH | O_DIRECTORY).ok();
}

bool RootedFileSystem::IsDirectory(const std::string& path) {
  const ScopedIdentity as(identity_ ? &*identity_ : nullptr);
  return as.status().ok() && IsDirectoryNow(path);
}

absl::StatusOr<FileInfo> RootedFileSystem::Examine(const std::string& path) {
  const ScopedIdentity as(identity_ ? &*identity_ : nullptr);
  MT_RETURN_IF_ERROR(as.status());
  MT_ASSIGN_OR_RETURN(const Descriptor file, Open("examine", path, O_PATH));
  struct stat info;
  if (::fstat(file.get(), &info) != 0) return FileError("examine", path, errno);
  return InfoOf(info);
}

absl::StatusOr<std::string> RootedFileSystem::RealPath(const std::string& path) {
  const ScopedIdentity as(identity_ ? &*identity_ : nullptr);
  MT_RETURN_IF_ERROR(as.status());
  MT_ASSIGN_OR_RETURN(const Descriptor file, Open("examine", path, O_PATH));
  char real[PATH_MAX];
  const std::string link = absl::StrCat("/proc/self/fd/", file.get());
  const ssize_t bytes = ::readlink(link.c_str(), real, sizeof(real));
  if (bytes < 0) return FileError("examine", path, errno);
  return std::string(real, static_cast<size_t>(bytes));
}

absl::Status RootedFileSystem::CheckWritable(const std::string& path) {
  const ScopedIdentity as(identity_ ? &*identity_ : nullptr);
  MT_RETURN_IF_ERROR(as.status());
  std::string existing;
  MT_ASSIGN_OR_RETURN(const Descriptor nearest, OpenNearest(path, &existing));
  struct stat info;
  if (::fstat(nearest.get(), &info) != 0) return FileError("examine", existing, errno);
  if (!S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(existing, " is not a directory"));
  }
  // The bare call: the C library's own does not ask as the thread's file user.
  if (::syscall(SYS_faccessat2, nearest.get(), "", W_OK | X_OK, AT_EACCESS | AT_EMPTY_PATH) != 0) {
    return FileError("write in", existing, errno);
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> RootedFileSystem::FreeDiskBytes(const std::string& path) {
  const ScopedIdentity as(identity_ ? &*identity_ : nullptr);
  MT_RETURN_IF_ERROR(as.status());
  std::string existing;
  MT_ASSIGN_OR_RETURN(const Descriptor nearest, OpenNearest(path, &existing));
  struct statvfs info;
  if (::fstatvfs(nearest.get(), &info) != 0) return FileError("examine", existing, errno);
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

}  // namespace megatrain
