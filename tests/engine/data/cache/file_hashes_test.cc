#include "engine/data/cache/file_hashes.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/read_file.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1700000000);
const FileHash kHash = {std::string(32, 'a'), 2, 17};

FileInfo Info() {
  FileInfo info;
  info.bytes = 100;
  info.modified = kNow - absl::Hours(2) + absl::Nanoseconds(5);
  info.changed = kNow - absl::Hours(1) + absl::Nanoseconds(7);
  info.device = 3;
  info.inode = 4;
  return info;
}

TEST(FileHashesTest, RemembersAcrossProcesses) {
  TestDirectory directory;
  {
    FileHashes hashes(directory / "cache", false, PosixFileSystem());
    EXPECT_FALSE(hashes.Find(Info()).has_value());
    hashes.Remember(Info(), kHash, kNow);
    EXPECT_TRUE(hashes.Find(Info()).has_value());
    ASSERT_TRUE(hashes.Save().ok());
  }
  const FileHashes again(directory / "cache", false, PosixFileSystem());
  const auto found = again.Find(Info());
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->hash, kHash.hash);
  EXPECT_EQ(found->id_bytes, 2);
  EXPECT_EQ(found->largest_id, 17);
  // All that tells a file from another or from what it was.
  for (const auto& change : {+[](FileInfo* i) { ++i->bytes; }, +[](FileInfo* i) { ++i->inode; },
                             +[](FileInfo* i) { ++i->device; },
                             +[](FileInfo* i) { i->modified += absl::Nanoseconds(1); },
                             +[](FileInfo* i) { i->changed += absl::Nanoseconds(1); }}) {
    FileInfo other = Info();
    change(&other);
    EXPECT_FALSE(again.Find(other).has_value());
  }
  const FileHashes forgetful(directory / "cache", true, PosixFileSystem());
  EXPECT_FALSE(forgetful.Find(Info()).has_value());
}

TEST(FileHashesTest, WhatWasJustChangedIsNotRemembered) {
  TestDirectory directory;
  FileHashes hashes(directory.path(), false, PosixFileSystem());
  FileInfo info = Info();
  info.changed = kNow - absl::Milliseconds(10);
  hashes.Remember(info, kHash, kNow);
  EXPECT_FALSE(hashes.Find(info).has_value());
  info.changed = kNow - absl::Seconds(2);  // a whole second: of a file system with coarse times
  hashes.Remember(info, kHash, kNow);
  EXPECT_FALSE(hashes.Find(info).has_value());
  info.changed = kNow - absl::Milliseconds(300);
  hashes.Remember(info, kHash, kNow);
  EXPECT_TRUE(hashes.Find(info).has_value());
}

TEST(FileHashesTest, KeepsWhatOthersRemembered) {
  TestDirectory directory;
  FileInfo other = Info();
  other.inode = 9;
  FileHashes one(directory.path(), false, PosixFileSystem());
  FileHashes two(directory.path(), false, PosixFileSystem());
  one.Remember(Info(), kHash, kNow);
  two.Remember(other, kHash, kNow);
  ASSERT_TRUE(one.Save().ok());
  ASSERT_TRUE(two.SaveIfDue().ok());  // too soon
  EXPECT_FALSE(FileHashes(directory.path(), false, PosixFileSystem()).Find(other).has_value());
  ASSERT_TRUE(two.Save().ok());
  const FileHashes both(directory.path(), false, PosixFileSystem());
  EXPECT_TRUE(both.Find(Info()).has_value());
  EXPECT_TRUE(both.Find(other).has_value());
}

TEST(FileHashesTest, WhatIsForgottenIsKeptForOthers) {
  TestDirectory directory;
  FileInfo other = Info();
  other.inode = 9;
  FileHashes hashes(directory.path(), false, PosixFileSystem());
  hashes.Remember(Info(), kHash, kNow);
  hashes.Remember(other, kHash, kNow);
  ASSERT_TRUE(hashes.Save().ok());
  FileHashes forgetful(directory.path(), true, PosixFileSystem());
  const FileHash anew = {.hash = std::string(32, 'b')};
  forgetful.Remember(Info(), anew, kNow);
  ASSERT_TRUE(forgetful.Save().ok());
  EXPECT_FALSE(forgetful.Find(other).has_value());
  const FileHashes both(directory.path(), false, PosixFileSystem());
  ASSERT_TRUE(both.Find(Info()).has_value() && both.Find(other).has_value());
  EXPECT_EQ(both.Find(Info())->hash, anew.hash);
  EXPECT_EQ(both.Find(Info())->largest_id, -1);
  EXPECT_EQ(both.Find(other)->hash, kHash.hash);
}

TEST(FileHashesTest, WhatWasWrittenIsNotWrittenAgain) {
  TestDirectory directory;
  FileHashes hashes(directory / "cache", false, PosixFileSystem());
  ASSERT_TRUE(hashes.Save().ok());
  EXPECT_FALSE(std::filesystem::exists(directory / "cache")) << "there was nothing to write";
  hashes.Remember(Info(), kHash, kNow);
  ASSERT_TRUE(hashes.Save().ok());
  // Another process has hashed the file after a change; that is not undone.
  FileInfo changed = Info();
  changed.changed += absl::Minutes(5);
  FileHashes later(directory / "cache", false, PosixFileSystem());
  later.Remember(changed, kHash, kNow);
  ASSERT_TRUE(later.Save().ok());
  FileInfo other = Info();
  other.inode = 9;
  hashes.Remember(other, kHash, kNow);
  ASSERT_TRUE(hashes.Save().ok());
  const FileHashes all(directory / "cache", false, PosixFileSystem());
  EXPECT_TRUE(all.Find(changed).has_value());
  EXPECT_TRUE(all.Find(other).has_value());
}

TEST(FileHashesTest, WhatCouldNotBeWrittenIsWrittenLater) {
  TestDirectory directory;
  directory.Write("file", "");
  FileHashes hashes(directory / "file/below", false, PosixFileSystem());
  hashes.Remember(Info(), kHash, kNow);
  EXPECT_FALSE(hashes.Save().ok());
  std::filesystem::remove(directory / "file");
  ASSERT_TRUE(hashes.Save().ok());
  EXPECT_TRUE(
      FileHashes(directory / "file/below", false, PosixFileSystem()).Find(Info()).has_value());
}

TEST(FileHashesTest, WaitsForTheNextTimeWhileAnotherWrites) {
  TestDirectory directory;
  FileHashes hashes(directory.path(), false, PosixFileSystem());
  hashes.Remember(Info(), kHash, kNow);
  auto other = PosixFileSystem()->TryLock(directory / "hashes.cache.tmp");
  ASSERT_TRUE(other.ok() && *other != nullptr) << other.status();
  directory.Write("hashes.cache.tmp", "half");
  EXPECT_TRUE(hashes.Save().ok());
  EXPECT_EQ(ReadFileOrEmpty(directory / "hashes.cache.tmp"), "half");
  other->reset();
  EXPECT_TRUE(hashes.Save().ok());
  EXPECT_TRUE(FileHashes(directory.path(), false, PosixFileSystem()).Find(Info()).has_value());
}

TEST(FileHashesTest, ADamagedFileIsForgotten) {
  TestDirectory directory;
  FileHashes hashes(directory.path(), false, PosixFileSystem());
  hashes.Remember(Info(), kHash, kNow);
  ASSERT_TRUE(hashes.Save().ok());
  const std::string whole = ReadFileOrEmpty(directory / "hashes.cache");
  const auto remembers = [&](const std::string& text) {
    directory.Write("hashes.cache", text);
    return FileHashes(directory.path(), false, PosixFileSystem()).Find(Info()).has_value();
  };
  ASSERT_TRUE(remembers(whole));
  for (size_t i = 0; i + 1 < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_FALSE(remembers(damaged)) << i;
    EXPECT_FALSE(remembers(whole.substr(0, i))) << i;
  }
}

}  // namespace
}  // namespace megatrain
