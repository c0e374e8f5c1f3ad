#include "tests/fault/fault_injection_file_system.h"

#include <gtest/gtest.h>

namespace megatrain {
namespace {

using Fault = FaultInjectionFileSystem::Fault;
using Loss = FaultInjectionFileSystem::Loss;

std::string Content(FaultInjectionFileSystem& files, const std::string& path) {
  const std::string* content = files.MutableContent(path);
  return content == nullptr ? "(none)" : *content;
}

TEST(FaultInjectionFileSystemTest, WhatWasNotSyncedIsLost) {
  for (const Loss loss : {Loss::kDataAndNames, Loss::kData, Loss::kNames, Loss::kNothing}) {
    FaultInjectionFileSystem files;
    ASSERT_TRUE(files.CreateDirectories("/d").ok());
    files.SyncAll();
    auto file = files.NewWritableFile("/d/a");
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->Append("12", 2).ok());
    ASSERT_TRUE((*file)->Sync().ok());
    ASSERT_TRUE((*file)->Append("34", 2).ok());
    files.Restart(loss);
    EXPECT_FALSE((*file)->Append("5", 1).ok()) << "a file of before the restart";
    const bool names = loss == Loss::kDataAndNames || loss == Loss::kNames;
    EXPECT_EQ(Content(files, "/d/a"), names ? "(none)" : loss == Loss::kData ? "12" : "1234");
  }
}

TEST(FaultInjectionFileSystemTest, ARenameIsDurableOnceTheDirectoryIsSynced) {
  for (const bool synced : {false, true}) {
    FaultInjectionFileSystem files;
    files.WriteFile("/d/a.tmp/x", "content");
    files.SyncAll();
    ASSERT_TRUE(files.Rename("/d/a.tmp", "/d/a").ok());
    ASSERT_TRUE(!synced || files.SyncDirectory("/d").ok());
    files.Restart(Loss::kDataAndNames);
    EXPECT_EQ(Content(files, "/d/a/x"), synced ? "content" : "(none)");
    EXPECT_EQ(Content(files, "/d/a.tmp/x"), synced ? "(none)" : "content");
  }
}

TEST(FaultInjectionFileSystemTest, AFileReplacedAsAWholeIsOldOrNewAtEveryCut) {
  bool reached_end = false;
  for (int64_t n = 0; !reached_end; ++n) {
    FaultInjectionFileSystem files;
    files.WriteFile("/d/a", "old");
    files.SyncAll();
    files.FailAfter(n, Fault::kPowerCut);
    const bool written = AtomicWriteFile(&files, "/d/a", "new").ok();
    reached_end = !files.fault_happened();
    files.Restart(Loss::kDataAndNames);
    EXPECT_TRUE(Content(files, "/d/a") == "new" || !written) << n;
    EXPECT_NE(Content(files, "/d/a"), "(none)") << n;
    EXPECT_NE(Content(files, "/d/a"), "") << n;
  }
}

TEST(FaultInjectionFileSystemTest, TheNthOperationFailsOnceOrForGood) {
  FaultInjectionFileSystem files;
  files.FailAfter(1, Fault::kNoSpace);
  EXPECT_TRUE(files.CreateDirectories("/d").ok());
  EXPECT_EQ(files.CreateDirectories("/e").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(files.CreateDirectories("/e").ok());
  files.FailAfter(0, Fault::kPowerCut);
  EXPECT_FALSE(files.CreateDirectories("/f").ok());
  EXPECT_FALSE(files.CreateDirectories("/f").ok());
  EXPECT_FALSE(files.FileExists("/f"));
}

TEST(FaultInjectionFileSystemTest, AShortWriteLeavesAHalf) {
  FaultInjectionFileSystem files;
  auto file = files.NewWritableFile("/a");
  ASSERT_TRUE(file.ok());
  files.FailAfter(0, Fault::kShortWrite);
  EXPECT_EQ((*file)->Append("1234", 4).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Content(files, "/a"), "12");
}

TEST(FaultInjectionFileSystemTest, ADiskHoldsItsCapacity) {
  FaultInjectionFileSystem files;
  files.set_capacity_bytes(10);
  auto file = files.NewWritableFile("/a");
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE((*file)->Append("12345678", 8).ok());
  EXPECT_EQ(*files.FreeDiskBytes("/"), 2);
  EXPECT_EQ((*file)->Append("1234", 4).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Content(files, "/a"), "1234567812");
}

TEST(FaultInjectionFileSystemTest, ATreeIsRemovedNameByName) {
  FaultInjectionFileSystem files;
  files.WriteFile("/d/a", "1");
  files.WriteFile("/d/b", "2");
  files.FailAfter(1, Fault::kIoError);
  EXPECT_FALSE(files.RemoveTree("/d").ok());
  EXPECT_EQ(Content(files, "/d/a"), "(none)");
  EXPECT_EQ(Content(files, "/d/b"), "2");
}

}  // namespace
}  // namespace megatrain
