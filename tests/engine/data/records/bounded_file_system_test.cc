#include "engine/data/records/bounded_file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

// Counts the files that are open.
class CountingFileSystem : public WatchedFileSystem {
 public:
  CountingFileSystem() : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }) {}
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForReading(
      const std::string& path) override {
    ++opened;
    auto file = PosixFileSystem()->OpenForReading(path);
    if (!file.ok()) return file.status();
    return std::unique_ptr<RandomAccessFile>(new File(*std::move(file), &open));
  }
  std::atomic<int> open{0};
  std::atomic<int> opened{0};

 private:
  class File : public RandomAccessFile {
   public:
    File(std::unique_ptr<RandomAccessFile> base, std::atomic<int>* open)
        : base_(std::move(base)), open_(open) {
      ++*open_;
    }
    ~File() override { --*open_; }
    absl::StatusOr<int64_t> ReadUpTo(int64_t offset, void* out, int64_t bytes) const override {
      return base_->ReadUpTo(offset, out, bytes);
    }
    int64_t size() const override { return base_->size(); }
    const std::string& path() const override { return base_->path(); }

   private:
    const std::unique_ptr<RandomAccessFile> base_;
    std::atomic<int>* const open_;
  };
};

class BoundedFileSystemTest : public ::testing::Test {
 protected:
  void OpenAll(int count) {
    for (int i = 0; i < count; ++i) {
      const std::string name = std::to_string(100 + i);
      auto file = bounded_.OpenForReading(directory_.Write(name, name));
      ASSERT_TRUE(file.ok()) << file.status();
      files_.push_back(*std::move(file));
    }
  }
  std::string Read(size_t i) {
    std::string text(3, '\0');
    const absl::Status status = files_[i]->Read(0, text.data(), 3);
    return status.ok() ? text : std::string(status.message());
  }
  TestDirectory directory_;
  CountingFileSystem counting_;
  BoundedFileSystem bounded_{&counting_, 4};
  std::vector<std::unique_ptr<RandomAccessFile>> files_;
};

TEST_F(BoundedFileSystemTest, KeepsTheDescriptorsThatWereUsedLast) {
  OpenAll(50);
  EXPECT_EQ(counting_.open, 4);
  for (size_t i = 0; i < files_.size(); ++i) EXPECT_EQ(Read(i), std::to_string(100 + i));
  EXPECT_EQ(counting_.open, 4);
  EXPECT_EQ(files_[0]->size(), 3);
  const int before = counting_.opened;
  for (const size_t i : {49, 46, 49, 47, 48}) EXPECT_EQ(Read(i), std::to_string(100 + i));
  EXPECT_EQ(counting_.opened, before);
  Read(0);  // in the place of 46, which was unused longest
  Read(49);
  Read(47);
  Read(48);
  EXPECT_EQ(counting_.opened, before + 1);
  Read(46);
  EXPECT_EQ(counting_.opened, before + 2);
  files_.clear();
  EXPECT_EQ(counting_.open, 0);
}

TEST_F(BoundedFileSystemTest, TellsAFileThatChanged) {
  OpenAll(10);
  directory_.Write("100", "longer");
  EXPECT_THAT(Read(0), HasSubstr("100: changed while it was in use"));
  std::filesystem::remove(directory_ / "101");
  EXPECT_THAT(Read(1), HasSubstr("101: No such file"));
  EXPECT_EQ(Read(2), "102");
}

// Each of these alone tells another content: the time of the last change, and the file itself.
TEST_F(BoundedFileSystemTest, TellsAFileThatChangedAndKeptItsLength) {
  OpenAll(10);
  std::filesystem::last_write_time(
      directory_ / "100",
      std::filesystem::last_write_time(directory_ / "100") + std::chrono::hours(1));
  EXPECT_THAT(Read(0), HasSubstr("100: changed while it was in use"));
  const auto time = std::filesystem::last_write_time(directory_ / "101");
  std::filesystem::rename(directory_.Write("other", "101"), directory_ / "101");
  std::filesystem::last_write_time(directory_ / "101", time);
  EXPECT_THAT(Read(1), HasSubstr("101: changed while it was in use"));
}

TEST_F(BoundedFileSystemTest, FilesOutliveTheFileSystemThatOpenedThem) {
  std::vector<std::unique_ptr<RandomAccessFile>> files;
  {
    BoundedFileSystem bounded(&counting_, 2);
    for (const std::string name : {"one", "two", "six"}) {
      auto file = bounded.OpenForReading(directory_.Write(name, name));
      ASSERT_TRUE(file.ok()) << file.status();
      files.push_back(*std::move(file));
    }
  }
  std::string text(3, '\0');
  for (const size_t i : {2, 0, 1}) {
    ASSERT_TRUE(files[i]->Read(0, text.data(), 3).ok());
    EXPECT_EQ("/" + text, files[i]->path().substr(files[i]->path().size() - 4));
  }
  EXPECT_EQ(counting_.open, 2);
  files.clear();
  EXPECT_EQ(counting_.open, 0);
}

TEST(DescriptorShareTest, IsAQuarterWithinBounds) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  for (const auto& [limit, share] : std::vector<std::pair<rlim_t, size_t>>{
           {3, 1}, {8, 2}, {403, 100}, {1024, 256}, {1100, 256}}) {
    if (limit > before.rlim_max) continue;
    rlimit changed = before;
    changed.rlim_cur = limit;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &changed), 0);
    const size_t got = DescriptorShare();
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_EQ(got, share) << limit;
  }
}

TEST_F(BoundedFileSystemTest, ServesManyThreads) {
  OpenAll(20);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (size_t i = 0; i < 400; ++i) {
        const size_t file = i * (2 * t + 1) % files_.size();
        EXPECT_EQ(Read(file), std::to_string(100 + file));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(counting_.open, 4);
}

}  // namespace
}  // namespace megatrain
