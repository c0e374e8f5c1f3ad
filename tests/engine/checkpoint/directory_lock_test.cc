#include "engine/checkpoint/directory_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace megatrain
