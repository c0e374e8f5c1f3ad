#include "engine/checkpoint/directory_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/file.h"
#include "tests/fault/fault_injection_file_system.h"

namespace megatrain {
namespace {

TEST(DirectoryLockTest, OneHolderAtATime) {
  const std::string directory = testing::TempDir() + "/lock/new";
  {
    auto lock = LockDirectory(directory);
    ASSERT_TRUE(lock.ok()) << lock.status();
    EXPECT_THAT(LockDirectory(directory).status().message(),
                testing::HasSubstr("another process is training into it"));
  }
  EXPECT_TRUE(LockDirectory(directory).ok());
}

TEST(DirectoryLockTest, ADirectoryThatCannotBeMadeIsNamed) {
  EXPECT_THAT(LockDirectory("/proc/none").status().message(), testing::HasSubstr("/proc/none"));
}

// The directory is made, and then the lock's file.
TEST(DirectoryLockTest, AFullDiskKeepsItsCode) {
  for (const int64_t after : {0, 1}) {
    FaultInjectionFileSystem files;
    files.FailAfter(after, FaultInjectionFileSystem::Fault::kNoSpace);
    const absl::Status status = LockDirectory("/jobs/new", &files).status();
    EXPECT_TRUE(IsDiskFull(status)) << status;
    files.FailAfter(after, FaultInjectionFileSystem::Fault::kIoError);
    EXPECT_EQ(LockDirectory("/jobs/other", &files).status().code(),
              absl::StatusCode::kFailedPrecondition);
  }
}

}  // namespace
}  // namespace megatrain
