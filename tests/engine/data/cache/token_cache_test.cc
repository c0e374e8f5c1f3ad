#include "engine/data/cache/token_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/fault/fault_injection_file_system.h"
#include "tests/support/read_file.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

const std::string kKey = HashText("what decides the content");

std::vector<uint32_t> Content() {
  std::vector<uint32_t> words(400000);  // more than the writer's buffer
  std::iota(words.begin(), words.end(), 5u);
  return words;
}

void WriteCache(const std::string& directory) {
  auto writer = CacheFileWriter::Create(directory, "x.cache", kKey, 4);
  ASSERT_TRUE(writer.ok()) << writer.status();
  const std::vector<uint32_t> words = Content();
  ASSERT_TRUE((*writer)->Append(words.data(), 3).ok());
  ASSERT_TRUE((*writer)->Append(words.data() + 3, words.size() - 3).ok());
  ASSERT_TRUE((*writer)->Finish("the meta").ok());
}

TEST(TokenCacheTest, ReadsWhatWasWritten) {
  TestDirectory directory;
  WriteCache(directory / "a/b");  // made as needed
  const auto cache = CacheFile::Open(directory / "a/b", "x.cache", kKey, 4);
  ASSERT_TRUE(cache.ok()) << cache.status();
  EXPECT_EQ((*cache)->elements(), 400000);
  EXPECT_EQ((*cache)->meta(), "the meta");
  std::vector<uint32_t> words(10);
  ASSERT_TRUE((*cache)->Read(399990, 10, words.data()).ok());
  EXPECT_EQ(words[0], 399995u);
  EXPECT_FALSE(std::filesystem::exists(directory / "a/b/x.cache.tmp"));
}

TEST(TokenCacheTest, RefusesEveryDamage) {
  TestDirectory directory;
  WriteCache(directory.path());
  const std::string whole = ReadFileOrEmpty(directory / "x.cache");
  const auto opens = [&](const std::string& content) {
    directory.Write("x.cache", content);
    return CacheFile::Open(directory.path(), "x.cache", kKey, 4, {}, PosixFileSystem(),
                           /*verify=*/true)
        .ok();
  };
  ASSERT_TRUE(opens(whole));
  // A flipped bit anywhere in the trailer, at some places in the payload, in the blocks' checksums
  // and in the meta.
  const size_t trailer = whole.size() - sizeof(CacheTrailer);
  std::vector<size_t> places(sizeof(CacheTrailer));
  std::iota(places.begin(), places.end(), trailer);
  for (const size_t place : {size_t{0}, whole.size() / 2, size_t{1599999}, size_t{1600000},
                             trailer - 9, trailer - 8, trailer - 1}) {
    places.push_back(place);
  }
  for (const size_t place : places) {
    std::string damaged = whole;
    damaged[place] = static_cast<char>(damaged[place] ^ 0x10);
    EXPECT_FALSE(opens(damaged)) << place;
  }
  for (const size_t size : {size_t{0}, size_t{10}, sizeof(CacheTrailer), whole.size() - 1}) {
    EXPECT_FALSE(opens(whole.substr(0, size))) << size;
  }
  EXPECT_FALSE(opens(whole + "x"));
  EXPECT_FALSE(CacheFile::Open(directory.path(), "none", kKey, 4).ok());
  ASSERT_TRUE(opens(whole));
  EXPECT_FALSE(CacheFile::Open(directory.path(), "x.cache", HashText("other"), 4).ok());
  EXPECT_FALSE(CacheFile::Open(directory.path(), "x.cache", kKey, 8).ok());
}

TEST(TokenCacheTest, ChecksWhatIsReadAndRemovesADamagedFile) {
  TestDirectory directory;
  WriteCache(directory.path());
  std::string damaged = ReadFileOrEmpty(directory / "x.cache");
  damaged[3 * kCacheBlockBytes + 5] ^= 1;
  directory.Write("x.cache", damaged);
  const auto cache = CacheFile::Open(directory.path(), "x.cache", kKey, 4);
  ASSERT_TRUE(cache.ok()) << cache.status();
  std::vector<uint32_t> words(kCacheBlockBytes / 2);  // of two blocks
  const auto read = [&](int64_t block, int64_t offset) {
    return (*cache)->Read(block * (kCacheBlockBytes / 4) + offset, 16384, words.data());
  };
  EXPECT_TRUE(read(0, 0).ok());
  EXPECT_TRUE(read(1, 0).ok());
  EXPECT_EQ(words[0], 5u + 16384);
  EXPECT_TRUE(read(4, 0).ok());
  EXPECT_TRUE(read(23, 0).ok());  // up to the last block, which is shorter
  EXPECT_TRUE((*cache)->Read(399999, 1, words.data()).ok());
  EXPECT_TRUE(std::filesystem::exists(directory / "x.cache"));
  const absl::Status status = read(2, 1);  // its last word is the damaged block's first
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("damaged near byte 131072; it was removed"));
  EXPECT_FALSE(std::filesystem::exists(directory / "x.cache"));
}

TEST(TokenCacheTest, ALargeFileOutlivesAPowerCut) {
  FaultInjectionFileSystem disk;
  disk.WriteFile("/cache/.keep", "");
  disk.SyncAll();
  auto writer = CacheFileWriter::Create("/cache", "x.cache", kKey, 4, {}, &disk);
  ASSERT_TRUE(writer.ok()) << writer.status();
  const std::vector<uint32_t> words(kSyncedBytesMin / sizeof(uint32_t), 7u);
  ASSERT_TRUE((*writer)->Append(words.data(), words.size()).ok());
  ASSERT_TRUE((*writer)->Finish("the meta").ok());
  disk.Restart(FaultInjectionFileSystem::Loss::kDataAndNames);
  const auto cache = CacheFile::Open("/cache", "x.cache", kKey, 4, {}, &disk, /*verify=*/true);
  ASSERT_TRUE(cache.ok()) << cache.status();
  EXPECT_EQ((*cache)->elements(), static_cast<int64_t>(words.size()));
}

// Each step of writing fails once: what is not told of is there after a power cut.
TEST(TokenCacheTest, NothingThatFailsIsTakenForWritten) {
  const std::vector<uint32_t> words(kSyncedBytesMin / sizeof(uint32_t), 7u);
  int untold = 0;
  for (int64_t n = 0;; ++n) {
    FaultInjectionFileSystem disk;
    disk.WriteFile("/cache/.keep", "");
    disk.SyncAll();
    disk.FailAfter(n, FaultInjectionFileSystem::Fault::kNoSpace);
    const absl::Status status = [&]() -> absl::Status {
      const auto writer = CacheFileWriter::Create("/cache", "x.cache", kKey, 4, {}, &disk);
      if (!writer.ok()) return writer.status();
      const absl::Status appended = (*writer)->Append(words.data(), words.size());
      return appended.ok() ? (*writer)->Finish("the meta") : appended;
    }();
    if (!disk.fault_happened()) {
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_GT(n, 8) << "there are more steps";
      break;
    }
    if (!status.ok()) {
      EXPECT_TRUE(IsDiskFull(status)) << n << ": " << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("data.cache_directory moves it")) << n;
      continue;
    }
    ++untold;
    disk.Restart(FaultInjectionFileSystem::Loss::kDataAndNames);
    EXPECT_TRUE(CacheFile::Open("/cache", "x.cache", kKey, 4, {}, &disk, /*verify=*/true).ok())
        << n;
  }
  EXPECT_LE(untold, 1) << "where it is looked whether the file is there";
}

TEST(TokenCacheTest, CheckingAWholeFileIsAbandonedWhenAsked) {
  TestDirectory directory;
  WriteCache(directory.path());
  int allowed = 0, calls = 0;
  const ByteProgress progress = [&](int64_t bytes) {
    EXPECT_EQ(bytes, 0);
    return ++calls > allowed ? absl::CancelledError("abandoned") : absl::OkStatus();
  };
  const auto open = [&](bool verify) {
    calls = 0;
    return CacheFile::Open(directory.path(), "x.cache", kKey, 4, progress, PosixFileSystem(),
                           verify)
        .status();
  };
  EXPECT_EQ(open(true).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(open(false).ok()) << "nothing is read that takes long";
  allowed = 100;
  EXPECT_TRUE(open(true).ok());
}

TEST(TokenCacheTest, AnEmptyFileIsWhole) {
  TestDirectory directory;
  auto writer = CacheFileWriter::Create(directory.path(), "x.cache", kKey, 4);
  ASSERT_TRUE((*writer)->Finish("nothing").ok());
  const auto cache = CacheFile::Open(directory.path(), "x.cache", kKey, 4, {}, PosixFileSystem(),
                                     /*verify=*/true);
  ASSERT_TRUE(cache.ok()) << cache.status();
  EXPECT_EQ((*cache)->elements(), 0);
  EXPECT_EQ((*cache)->meta(), "nothing");
}

TEST(TokenCacheTest, AnUnfinishedFileIsNeverThere) {
  TestDirectory directory;
  {
    auto writer = CacheFileWriter::Create(directory.path(), "x.cache", kKey, 4);
    const std::vector<uint32_t> words = Content();
    ASSERT_TRUE((*writer)->Append(words.data(), words.size()).ok());
    EXPECT_TRUE(std::filesystem::exists(directory / "x.cache.tmp"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  // What a killed process left is taken over.
  directory.Write("x.cache.tmp", std::string(10000000, 'x'));
  WriteCache(directory.path());
  EXPECT_TRUE(CacheFile::Open(directory.path(), "x.cache", kKey, 4).ok());
}

TEST(TokenCacheTest, AnotherWriterWaitsAndFindsTheFile) {
  TestDirectory directory;
  auto writer = CacheFileWriter::Create(directory.path(), "x.cache", kKey, 4);
  ASSERT_TRUE(writer.ok());
  std::thread other([&] {
    // Waits, or comes so late that the file is there.
    const auto second = CacheFileWriter::Create(directory.path(), "x.cache", kKey, 4);
    EXPECT_TRUE(second.ok()) << second.status();
    EXPECT_TRUE(second.ok() && *second == nullptr);
    EXPECT_TRUE(CacheFile::Open(directory.path(), "x.cache", kKey, 4).ok());
  });
  const std::vector<uint32_t> words = Content();
  ASSERT_TRUE((*writer)->Append(words.data(), words.size()).ok());
  ASSERT_TRUE((*writer)->Finish("meta").ok());
  writer->reset();
  other.join();
}

TEST(TokenCacheTest, AFileThatWasMadeSinceTheCallerLookedIsNotReplaced) {
  TestDirectory directory;
  const std::string path = directory / "x.cache";
  const auto none = PosixFileSystem()->Examine(path);
  ASSERT_FALSE(none.ok());
  WriteCache(directory.path());
  const auto create = [&](const absl::StatusOr<FileInfo>& before) {
    const auto writer = CacheFileWriter::Create(directory.path(), "x.cache", kKey, 4, {},
                                                PosixFileSystem(), before);
    EXPECT_TRUE(writer.ok()) << writer.status();
    return writer.ok() && *writer != nullptr;
  };
  EXPECT_FALSE(create(none));
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
  // A damaged file that was replaced.
  const auto damaged = PosixFileSystem()->Examine(path);
  EXPECT_TRUE(create(damaged));
  std::filesystem::rename(path, directory / "damaged");  // its inode stays in use
  WriteCache(directory.path());
  EXPECT_FALSE(create(damaged));
  // Reading a damaged file removes it, which is no making.
  std::filesystem::remove(path);
  EXPECT_TRUE(create(damaged));
}

TEST(TokenCacheTest, ADamagedFileIsMadeAgainIfTheOneThatBeganToDies) {
  TestDirectory directory;
  directory.Write("x.cache", "damaged");
  const auto damaged = PosixFileSystem()->Examine(directory / "x.cache");
  auto other =
      CacheFileWriter::Create(directory.path(), "x.cache", kKey, 4, {}, PosixFileSystem(), damaged);
  ASSERT_TRUE(other.ok() && *other != nullptr) << other.status();
  const auto writer = CacheFileWriter::Create(
      directory.path(), "x.cache", kKey, 4,
      [&](int64_t) {
        other->reset();
        return absl::OkStatus();
      },
      PosixFileSystem(), damaged);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_NE(*writer, nullptr);
  ASSERT_TRUE((*writer)->Finish("meta").ok());
  EXPECT_TRUE(CacheFile::Open(directory.path(), "x.cache", kKey, 4).ok());
}

TEST(TokenCacheTest, WaitingForAnotherWriterIsAbandonedWhenAsked) {
  TestDirectory directory;
  auto writer = CacheFileWriter::Create(directory.path(), "x.cache", kKey, 4);
  ASSERT_TRUE(writer.ok());
  int questions = 0;
  const auto second =
      CacheFileWriter::Create(directory.path(), "x.cache", kKey, 4, [&](int64_t bytes) {
        EXPECT_EQ(bytes, 0);
        return ++questions == 2 ? absl::CancelledError("abandoned") : absl::OkStatus();
      });
  EXPECT_EQ(second.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(questions, 2);
}

TEST(TokenCacheTest, SaysThatItCannotBeWritten) {
  TestDirectory directory;
  directory.Write("file", "");
  const auto writer = CacheFileWriter::Create(directory / "file/below", "x.cache", kKey, 4);
  ASSERT_FALSE(writer.ok());
  EXPECT_THAT(std::string(writer.status().message()), HasSubstr("data.cache_directory"));
}

// A limit on the size of files stands for a full disk.
TEST(TokenCacheTest, AFailedWriteIsAnErrorAndLeavesNothing) {
  TestDirectory directory;
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit limit = before;
  limit.rlim_cur = 500000;
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  {
    auto writer = CacheFileWriter::Create(directory.path(), "x.cache", kKey, 4);
    ASSERT_TRUE(writer.ok()) << writer.status();
    const std::vector<uint32_t> words = Content();
    const absl::Status status = (*writer)->Append(words.data(), words.size());
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("x.cache.tmp: File too large (prepared data; data.cache_directory "
                          "moves it)"));
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, old_handler);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace megatrain
