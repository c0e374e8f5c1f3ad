// A file system that counts what is opened through it for reading.
#ifndef MEGATRAIN_TESTS_SUPPORT_COUNTING_FILE_SYSTEM_H_
#define MEGATRAIN_TESTS_SUPPORT_COUNTING_FILE_SYSTEM_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/watched_file_system.h"

namespace megatrain {

// For one thread. Its files must not outlive it.
class CountingFileSystem : public WatchedFileSystem {
 public:
  explicit CountingFileSystem(FileSystem* base = PosixFileSystem())
      : WatchedFileSystem(base, [] { return absl::OkStatus(); }) {}

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForReading(
      const std::string& path) override {
    return Count(path, WatchedFileSystem::OpenForReading(path));
  }
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenBlocksForReading(
      const std::string& path) override {
    return Count(path, WatchedFileSystem::OpenBlocksForReading(path));
  }

  // Returns how often files of that name were opened, in whatever directory.
  int opened(const std::string& name) const {
    const auto found = opened_.find(name);
    return found == opened_.end() ? 0 : found->second;
  }
  int open_max() const { return open_max_; }  // the most that were open at a time
  int64_t read_bytes() const { return counts_.read_bytes; }

 private:
  struct Counts {
    int open = 0;  // files
    int64_t read_bytes = 0;
  };
  class File : public RandomAccessFile {
   public:
    File(std::unique_ptr<RandomAccessFile> base, Counts* counts)
        : base_(std::move(base)), counts_(counts) {}
    ~File() override { --counts_->open; }
    absl::StatusOr<int64_t> ReadUpTo(int64_t offset, void* out, int64_t bytes) const override {
      absl::StatusOr<int64_t> got = base_->ReadUpTo(offset, out, bytes);
      if (got.ok()) counts_->read_bytes += *got;
      return got;
    }
    int64_t size() const override { return base_->size(); }
    const std::string& path() const override { return base_->path(); }

   private:
    const std::unique_ptr<RandomAccessFile> base_;
    Counts* const counts_;
  };

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Count(
      const std::string& path, absl::StatusOr<std::unique_ptr<RandomAccessFile>> file) {
    if (!file.ok()) return file;
    ++opened_[path.substr(path.rfind('/') + 1)];
    open_max_ = std::max(open_max_, ++counts_.open);
    return std::make_unique<File>(*std::move(file), &counts_);
  }

  std::map<std::string, int> opened_;
  Counts counts_;
  int open_max_ = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SUPPORT_COUNTING_FILE_SYSTEM_H_
