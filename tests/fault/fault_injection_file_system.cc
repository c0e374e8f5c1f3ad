#include "tests/fault/fault_injection_file_system.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

std::vector<std::string> Names(const std::string& path) {
  return absl::StrSplit(path, '/', absl::SkipEmpty());
}

}  // namespace

struct FaultInjectionFileSystem::Inode {
  bool is_directory = false;
  std::string content, synced_content;  // a file's
  Entries entries, synced_entries;      // a directory's
};

using Lock = std::lock_guard<std::recursive_mutex>;

// A file that is being written.
class FaultInjectionFileSystem::MemoryFile {
 public:
  MemoryFile(FaultInjectionFileSystem* files, std::string path, std::shared_ptr<Inode> inode)
      : files_(files), path_(std::move(path)), inode_(std::move(inode)), boot_(files->boots_) {}

  absl::Status Begin(const char* operation, bool* short_write = nullptr) {
    if (boot_ != files_->boots_) return FileError(operation, path_, EBADF);
    return files_->Operation(operation, path_, short_write);
  }
  absl::Status Sync() {
    const Lock lock(files_->mutex_);
    MT_RETURN_IF_ERROR(Begin("sync"));
    inode_->synced_content = inode_->content;
    return absl::OkStatus();
  }
  absl::Status Close() {
    const Lock lock(files_->mutex_);
    return Begin("close");
  }

  FaultInjectionFileSystem* const files_;
  const std::string path_;
  const std::shared_ptr<Inode> inode_;

 private:
  const int64_t boot_;
};

class FaultInjectionFileSystem::MemoryWritableFile : public WritableFile {
 public:
  explicit MemoryWritableFile(MemoryFile file) : file_(std::move(file)) {}

  absl::Status Append(const void* data, int64_t bytes) override {
    const Lock lock(file_.files_->mutex_);
    bool short_write = false;
    MT_RETURN_IF_ERROR(file_.Begin("write", &short_write));
    if (short_write) bytes /= 2;
    MT_RETURN_IF_ERROR(
        file_.files_->Append(*file_.inode_, file_.path_, static_cast<const char*>(data), bytes));
    return short_write ? FileError("write", file_.path_, ENOSPC, bytes) : absl::OkStatus();
  }
  absl::Status Sync() override { return file_.Sync(); }
  absl::Status Close() override { return file_.Close(); }

 private:
  MemoryFile file_;
};

// As on a disk that has reserved the room, the file has its size from the start.
class FaultInjectionFileSystem::MemoryBlockFile : public BlockFile {
 public:
  explicit MemoryBlockFile(MemoryFile file) : file_(std::move(file)) {}

  absl::Status Write(int64_t offset, const void* data, int64_t bytes) override {
    const Lock lock(file_.files_->mutex_);
    std::string& content = file_.inode_->content;
    const int64_t size = static_cast<int64_t>(content.size());
    const bool aligned = offset % kDirectAlignment == 0 &&
                         reinterpret_cast<uintptr_t>(data) % kDirectAlignment == 0 &&
                         (bytes % kDirectAlignment == 0 || offset + bytes == size);
    if (!aligned || offset + bytes > size) return FileError("write", file_.path_, EINVAL);
    bool short_write = false;
    MT_RETURN_IF_ERROR(file_.Begin("write", &short_write));
    if (short_write) bytes /= 2;
    std::memcpy(content.data() + offset, data, static_cast<size_t>(bytes));
    return short_write ? FileError("write", file_.path_, ENOSPC, bytes) : absl::OkStatus();
  }
  absl::Status Sync() override { return file_.Sync(); }
  absl::Status Close() override { return file_.Close(); }

 private:
  MemoryFile file_;
};

class FaultInjectionFileSystem::MemoryRandomAccessFile : public RandomAccessFile {
 public:
  MemoryRandomAccessFile(FaultInjectionFileSystem* files, std::string path,
                         std::shared_ptr<Inode> inode)
      : files_(files),
        path_(std::move(path)),
        inode_(std::move(inode)),
        size_(static_cast<int64_t>(inode_->content.size())) {}

  absl::StatusOr<int64_t> ReadUpTo(int64_t offset, void* out, int64_t bytes) const override {
    const Lock lock(files_->mutex_);
    MT_RETURN_IF_ERROR(files_->Operation("read", path_));
    const int64_t there = static_cast<int64_t>(inode_->content.size()) - offset;
    const int64_t got = std::clamp<int64_t>(there, 0, bytes);
    if (got > 0) std::memcpy(out, inode_->content.data() + offset, got);
    return got;
  }
  int64_t size() const override { return size_; }
  const std::string& path() const override { return path_; }

 private:
  FaultInjectionFileSystem* const files_;
  const std::string path_;
  const std::shared_ptr<Inode> inode_;
  const int64_t size_;
};

FaultInjectionFileSystem::FaultInjectionFileSystem() : root_(std::make_shared<Inode>()) {
  root_->is_directory = true;
}

FaultInjectionFileSystem::~FaultInjectionFileSystem() = default;

void FaultInjectionFileSystem::FailAfter(int64_t n, Fault fault) {
  operations_ = 0;
  fail_after_ = n;
  fault_ = fault;
  happened_ = false;
}

void FaultInjectionFileSystem::Restart(Loss loss) {
  FailAfter(-1, Fault::kNone);
  ++boots_;
  Lose(*root_, loss);
}

void FaultInjectionFileSystem::CopyFrom(const FaultInjectionFileSystem& other) {
  root_ = Copy(*other.root_);
  Keep(*root_);
}

std::shared_ptr<FaultInjectionFileSystem::Inode> FaultInjectionFileSystem::Copy(
    const Inode& inode) {
  auto copy = std::make_shared<Inode>(inode);
  for (auto& [name, child] : copy->entries) child = Copy(*child);
  return copy;
}

void FaultInjectionFileSystem::SyncAll() { Keep(*root_); }

void FaultInjectionFileSystem::Lose(Inode& inode, Loss loss) {
  if (loss == Loss::kDataAndNames || loss == Loss::kNames) inode.entries = inode.synced_entries;
  if (loss == Loss::kDataAndNames || loss == Loss::kData) inode.content = inode.synced_content;
  for (auto& [name, child] : inode.entries) Lose(*child, loss);
  Keep(inode);  // what was found after the cut is what the disk has
}

void FaultInjectionFileSystem::Keep(Inode& inode) {
  inode.synced_entries = inode.entries;
  inode.synced_content = inode.content;
  for (auto& [name, child] : inode.entries) Keep(*child);
}

absl::Status FaultInjectionFileSystem::Operation(const char* operation, const std::string& path,
                                                 bool* short_write) {
  const int64_t index = operations_++;
  if (fault_ == Fault::kNone || index < fail_after_) return absl::OkStatus();
  if (index > fail_after_ && fault_ != Fault::kPowerCut) return absl::OkStatus();
  happened_ = true;
  if (fault_ == Fault::kShortWrite && short_write != nullptr) {
    *short_write = true;
    return absl::OkStatus();
  }
  const bool no_space = fault_ == Fault::kNoSpace || fault_ == Fault::kShortWrite;
  return FileError(operation, path, no_space ? ENOSPC : EIO);
}

std::shared_ptr<FaultInjectionFileSystem::Inode> FaultInjectionFileSystem::Find(
    const std::string& path) {
  std::shared_ptr<Inode> inode = root_;
  for (const std::string& name : Names(path)) {
    const auto it = inode->entries.find(name);
    if (it == inode->entries.end()) return nullptr;
    inode = it->second;
  }
  return inode;
}

std::shared_ptr<FaultInjectionFileSystem::Inode> FaultInjectionFileSystem::FindParent(
    const std::string& path, std::string* name) {
  const std::vector<std::string> names = Names(path);
  if (names.empty()) return nullptr;
  *name = names.back();
  std::shared_ptr<Inode> parent = Find(ParentDirectory(path));
  return parent != nullptr && parent->is_directory ? parent : nullptr;
}

int64_t FaultInjectionFileSystem::Bytes(const Inode& inode) {
  int64_t bytes = static_cast<int64_t>(inode.content.size());
  for (const auto& [name, child] : inode.entries) bytes += Bytes(*child);
  return bytes;
}

absl::Status FaultInjectionFileSystem::CheckRoom(const std::string& path, int64_t bytes) const {
  return bytes <= capacity_bytes_ - Bytes(*root_) ? absl::OkStatus()
                                                  : FileError("write", path, ENOSPC, bytes);
}

absl::Status FaultInjectionFileSystem::Append(Inode& inode, const std::string& path,
                                              const char* data, int64_t bytes) {
  const absl::Status room = CheckRoom(path, bytes);
  const int64_t fits = std::min(bytes, capacity_bytes_ - Bytes(*root_));
  inode.content.append(data, static_cast<size_t>(std::max<int64_t>(fits, 0)));
  return room;
}

std::string* FaultInjectionFileSystem::MutableContent(const std::string& path) {
  const std::shared_ptr<Inode> inode = Find(path);
  return inode == nullptr || inode->is_directory ? nullptr : &inode->content;
}

void FaultInjectionFileSystem::WriteFile(const std::string& path, const std::string& content) {
  std::shared_ptr<Inode> inode = root_;
  for (const std::string& name : Names(path)) {
    inode->is_directory = true;
    std::shared_ptr<Inode>& child = inode->entries[name];
    if (child == nullptr) child = std::make_shared<Inode>();
    inode = child;
  }
  inode->content = content;
}

absl::StatusOr<std::shared_ptr<FaultInjectionFileSystem::Inode>> FaultInjectionFileSystem::Create(
    const std::string& path, bool keep) {
  MT_RETURN_IF_ERROR(Operation("create", path));
  std::string name;
  const std::shared_ptr<Inode> parent = FindParent(path, &name);
  if (parent == nullptr) return FileError("create", path, ENOENT);
  std::shared_ptr<Inode>& inode = parent->entries[name];
  if (inode == nullptr) inode = std::make_shared<Inode>();
  if (inode->is_directory) return FileError("create", path, EISDIR);
  if (!keep) inode->content.clear();
  return inode;
}

absl::StatusOr<std::unique_ptr<WritableFile>> FaultInjectionFileSystem::NewWritableFile(
    const std::string& path) {
  const Lock lock(mutex_);
  MT_ASSIGN_OR_RETURN(std::shared_ptr<Inode> inode, Create(path));
  return std::make_unique<MemoryWritableFile>(MemoryFile(this, path, std::move(inode)));
}

absl::StatusOr<std::unique_ptr<BlockFile>> FaultInjectionFileSystem::NewBlockFile(
    const std::string& path, int64_t bytes) {
  const Lock lock(mutex_);
  MT_ASSIGN_OR_RETURN(std::shared_ptr<Inode> inode, Create(path));
  MT_RETURN_IF_ERROR(CheckRoom(path, bytes));
  inode->content.assign(static_cast<size_t>(bytes), '\0');
  return std::make_unique<MemoryBlockFile>(MemoryFile(this, path, std::move(inode)));
}

absl::StatusOr<std::unique_ptr<BlockFile>> FaultInjectionFileSystem::OpenBlockFile(
    const std::string& path, int64_t bytes) {
  const Lock lock(mutex_);
  MT_ASSIGN_OR_RETURN(std::shared_ptr<Inode> inode, Create(path, /*keep=*/true));
  MT_RETURN_IF_ERROR(CheckRoom(path, bytes - static_cast<int64_t>(inode->content.size())));
  inode->content.resize(static_cast<size_t>(bytes));
  return std::make_unique<MemoryBlockFile>(MemoryFile(this, path, std::move(inode)));
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> FaultInjectionFileSystem::OpenForReading(
    const std::string& path) {
  const Lock lock(mutex_);
  MT_RETURN_IF_ERROR(Operation("open", path));
  std::shared_ptr<Inode> inode = Find(path);
  if (inode == nullptr) return FileError("open", path, ENOENT);
  if (inode->is_directory) return FileError("open", path, EISDIR);
  return std::make_unique<MemoryRandomAccessFile>(this, path, std::move(inode));
}

absl::Status FaultInjectionFileSystem::Rename(const std::string& from, const std::string& to) {
  const Lock lock(mutex_);
  MT_RETURN_IF_ERROR(Operation("rename", from));
  std::string from_name, to_name;
  const std::shared_ptr<Inode> source = FindParent(from, &from_name);
  const std::shared_ptr<Inode> target = FindParent(to, &to_name);
  if (source == nullptr || target == nullptr || source->entries.count(from_name) == 0) {
    return FileError("rename", from, ENOENT);
  }
  const auto existing = target->entries.find(to_name);
  if (existing != target->entries.end() && existing->second->is_directory &&
      !existing->second->entries.empty()) {
    return FileError("rename", from, ENOTEMPTY);
  }
  target->entries[to_name] = source->entries[from_name];
  source->entries.erase(from_name);
  return absl::OkStatus();
}

absl::Status FaultInjectionFileSystem::SyncDirectory(const std::string& path) {
  const Lock lock(mutex_);
  MT_RETURN_IF_ERROR(Operation("sync", path));
  const std::shared_ptr<Inode> inode = Find(path);
  if (inode == nullptr || !inode->is_directory) return FileError("sync", path, ENOENT);
  inode->synced_entries = inode->entries;
  return absl::OkStatus();
}

absl::Status FaultInjectionFileSystem::CreateDirectories(const std::string& path) {
  const Lock lock(mutex_);
  MT_RETURN_IF_ERROR(Operation("create", path));
  std::shared_ptr<Inode> inode = root_;
  for (const std::string& name : Names(path)) {
    std::shared_ptr<Inode>& child = inode->entries[name];
    if (child == nullptr) {
      child = std::make_shared<Inode>();
      child->is_directory = true;
    }
    inode = child;
    if (!inode->is_directory) return FileError("create", path, ENOTDIR);
  }
  return absl::OkStatus();
}

absl::Status FaultInjectionFileSystem::RemoveFile(const std::string& path) {
  const Lock lock(mutex_);
  MT_RETURN_IF_ERROR(Operation("remove", path));
  std::string name;
  const std::shared_ptr<Inode> parent = FindParent(path, &name);
  if (parent == nullptr || parent->entries.count(name) == 0) {
    return FileError("remove", path, ENOENT);
  }
  if (parent->entries[name]->is_directory) return FileError("remove", path, EISDIR);
  parent->entries.erase(name);
  return absl::OkStatus();
}

absl::Status FaultInjectionFileSystem::RemoveTree(const std::string& path) {
  const Lock lock(mutex_);
  const std::shared_ptr<Inode> inode = Find(path);
  if (inode == nullptr) return Operation("remove", path);
  if (!inode->is_directory) return RemoveFile(path);
  const Entries entries = inode->entries;
  for (const auto& [name, child] : entries) MT_RETURN_IF_ERROR(RemoveTree(JoinPath(path, name)));
  MT_RETURN_IF_ERROR(Operation("remove", path));
  std::string name;
  const std::shared_ptr<Inode> parent = FindParent(path, &name);
  if (parent != nullptr) parent->entries.erase(name);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> FaultInjectionFileSystem::ListDirectory(
    const std::string& path) {
  const Lock lock(mutex_);
  MT_RETURN_IF_ERROR(Operation("list", path));
  const std::shared_ptr<Inode> inode = Find(path);
  if (inode == nullptr || !inode->is_directory) return FileError("list", path, ENOENT);
  std::vector<std::string> names;
  for (const auto& [name, child] : inode->entries) names.push_back(name);
  return names;
}

bool FaultInjectionFileSystem::FileExists(const std::string& path) {
  const Lock lock(mutex_);
  return Find(path) != nullptr;
}

bool FaultInjectionFileSystem::IsDirectory(const std::string& path) {
  const Lock lock(mutex_);
  const std::shared_ptr<Inode> inode = Find(path);
  return inode != nullptr && inode->is_directory;
}

absl::StatusOr<FileInfo> FaultInjectionFileSystem::Examine(const std::string& path) {
  const Lock lock(mutex_);
  MT_RETURN_IF_ERROR(Operation("examine", path));
  const std::shared_ptr<Inode> inode = Find(path);
  if (inode == nullptr) return FileError("examine", path, ENOENT);
  FileInfo info;
  info.is_regular = !inode->is_directory;
  info.is_directory = inode->is_directory;
  info.bytes = static_cast<int64_t>(inode->content.size());
  info.inode = reinterpret_cast<uintptr_t>(inode.get());
  return info;
}

absl::StatusOr<std::string> FaultInjectionFileSystem::RealPath(const std::string& path) {
  const Lock lock(mutex_);
  MT_RETURN_IF_ERROR(Operation("examine", path));
  if (Find(path) == nullptr) return FileError("examine", path, ENOENT);
  return path;  // there are no links
}

absl::Status FaultInjectionFileSystem::CheckWritable(const std::string& path) {
  const Lock lock(mutex_);
  return Operation("write in", path);
}

absl::StatusOr<std::unique_ptr<FileLock>> FaultInjectionFileSystem::TryLock(
    const std::string& path) {
  const Lock lock(mutex_);
  MT_RETURN_IF_ERROR(Operation("open", path));
  std::string name;
  const std::shared_ptr<Inode> parent = FindParent(path, &name);
  if (parent == nullptr) return FileError("open", path, ENOENT);
  std::shared_ptr<Inode>& inode = parent->entries[name];
  if (inode == nullptr) inode = std::make_shared<Inode>();
  return std::make_unique<FileLock>();  // nobody else is there
}

absl::StatusOr<int64_t> FaultInjectionFileSystem::FreeDiskBytes(const std::string& path) {
  const Lock lock(mutex_);
  MT_RETURN_IF_ERROR(Operation("examine", path));
  return capacity_bytes_ - Bytes(*root_);
}

}  // namespace megatrain
