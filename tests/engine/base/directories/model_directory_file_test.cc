#include "engine/base/directories/model_directory_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

TEST(ModelDirectoryFileTest, AFileThatIsMissingIsNoError) {
  const TestDirectory directory;
  directory.Write("config.json", "{}");
  const auto content = ReadModelDirectoryFile(directory.path(), "config.json");
  ASSERT_TRUE(content.ok()) << content.status();
  EXPECT_EQ(content->value_or("nothing"), "{}");
  const auto missing = ReadModelDirectoryFile(directory.path(), "tokenizer.json");
  ASSERT_TRUE(missing.ok()) << missing.status();
  EXPECT_FALSE(missing->has_value());
}

TEST(ModelDirectoryFileTest, WhatIsNoSmallFileIsRefused) {
  const TestDirectory directory;
  std::filesystem::create_directory(directory / "folder");
  EXPECT_EQ(ReadModelDirectoryFile(directory.path(), "folder").status(),
            absl::InvalidArgumentError(directory / "folder" + ": not a regular file"));
  // Sparse, and a byte too long.
  const std::string path = directory.Write("long", "");
  ASSERT_EQ(::truncate(path.c_str(), (256 << 20) + 1), 0);
  EXPECT_EQ(ReadModelDirectoryFile(directory.path(), "long").status(),
            absl::InvalidArgumentError(path + ": 268435457 bytes, more than 268435456"));
  // Any other error is that of the file system.
  const auto other = ReadModelDirectoryFile(directory.path(), std::string(300, 'x'));
  EXPECT_TRUE(absl::IsInvalidArgument(other.status())) << other.status();
}

}  // namespace
}  // namespace megatrain
