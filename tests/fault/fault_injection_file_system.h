// A file system in memory that fails when told to, and that loses what was not synced when the
// power goes.
//
// Each inode has two contents: what a program sees, and what the disk has. For a file, Sync copies
// the first to the second; for a directory, SyncDirectory does so with its entries. A power cut
// leaves what the disk has.
//
// Thread safety: the methods of FileSystem and of its files may be called from several threads at
// once, the others while no such call runs.
#ifndef MEGATRAIN_TESTS_FAULT_FAULT_INJECTION_FILE_SYSTEM_H_
#define MEGATRAIN_TESTS_FAULT_FAULT_INJECTION_FILE_SYSTEM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/base/file.h"

namespace megatrain {

class FaultInjectionFileSystem : public FileSystem {
 public:
  enum class Fault {
    kNone,
    kNoSpace,     // this operation: ResourceExhausted, without effect
    kIoError,     // this operation: Internal, without effect
    kShortWrite,  // this operation: half of a write, then ResourceExhausted
    kPowerCut,    // this operation and all that follow: Internal, without effect
  };
  // What a power cut leaves. File systems differ: data and names may go to disk in either order.
  enum class Loss { kDataAndNames, kData, kNames, kNothing };

  FaultInjectionFileSystem();
  ~FaultInjectionFileSystem() override;

  // The operation after `n` more operations fails so. Every method that returns a status is an
  // operation, and in RemoveTree every name removed is one.
  void FailAfter(int64_t n, Fault fault);
  // Since the last FailAfter.
  int64_t operations() const { return operations_; }
  bool fault_happened() const { return happened_; }
  // Ends every fault; unsynced content is lost as `loss` says. Open files become unusable.
  void Restart(Loss loss);
  // Everything there counts as synced: the starting point of a test.
  void SyncAll();
  // All files of `other`, unshared: cheaper than to make them again.
  void CopyFrom(const FaultInjectionFileSystem& other);
  void set_capacity_bytes(int64_t bytes) { capacity_bytes_ = bytes; }

  // The visible content, to damage it: null if there is no such file.
  std::string* MutableContent(const std::string& path);
  void WriteFile(const std::string& path, const std::string& content);  // with its directories

  absl::StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<BlockFile>> NewBlockFile(const std::string& path,
                                                          int64_t bytes) override;
  absl::StatusOr<std::unique_ptr<BlockFile>> OpenBlockFile(const std::string& path,
                                                           int64_t bytes) override;
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForReading(
      const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::Status CreateDirectories(const std::string& path) override;
  absl::Status RemoveFile(const std::string& path) override;
  absl::Status RemoveTree(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) override;
  bool FileExists(const std::string& path) override;
  bool IsDirectory(const std::string& path) override;
  absl::StatusOr<FileInfo> Examine(const std::string& path) override;
  absl::StatusOr<std::string> RealPath(const std::string& path) override;
  absl::Status CheckWritable(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<FileLock>> TryLock(const std::string& path) override;
  absl::StatusOr<int64_t> FreeDiskBytes(const std::string& path) override;

 private:
  struct Inode;
  using Entries = std::map<std::string, std::shared_ptr<Inode>>;
  class MemoryFile;
  class MemoryWritableFile;
  class MemoryBlockFile;
  class MemoryRandomAccessFile;

  // Counts an operation; its fault if it is the one that fails. *short_write, if not null, may be
  // set instead.
  absl::Status Operation(const char* operation, const std::string& path,
                         bool* short_write = nullptr);
  std::shared_ptr<Inode> Find(const std::string& path);
  // The directory that holds the last name of `path`, or null; the name in *name.
  std::shared_ptr<Inode> FindParent(const std::string& path, std::string* name);
  // Creates the file, or empties an existing one unless it is to be kept.
  absl::StatusOr<std::shared_ptr<Inode>> Create(const std::string& path, bool keep = false);
  // Fails unless `bytes` more bytes fit on the disk.
  absl::Status CheckRoom(const std::string& path, int64_t bytes) const;
  absl::Status Append(Inode& inode, const std::string& path, const char* data, int64_t bytes);
  static int64_t Bytes(const Inode& inode);
  static void Lose(Inode& inode, Loss loss);
  static void Keep(Inode& inode);
  static std::shared_ptr<Inode> Copy(const Inode& inode);

  mutable std::recursive_mutex mutex_;  // methods call each other
  std::shared_ptr<Inode> root_;
  int64_t capacity_bytes_ = int64_t{1} << 40;
  int64_t operations_ = 0;
  int64_t fail_after_ = -1;
  Fault fault_ = Fault::kNone;
  bool happened_ = false;
  int64_t boots_ = 0;  // files of an earlier one are unusable
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_FAULT_FAULT_INJECTION_FILE_SYSTEM_H_
