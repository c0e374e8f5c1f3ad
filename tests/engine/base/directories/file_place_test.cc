#include "engine/base/directories/file_place.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

TEST(FilePlaceTest, IsTheDirectoryInWhichTheFileIsNamed) {
  const TestDirectory directory;
  fs::create_directories(directory / "far/sub");
  fs::create_directory_symlink(directory / "far", directory / "link");
  directory.Write("far/file", "");
  fs::create_symlink(directory / "far/file", directory / "file");
  EXPECT_EQ(DirectoryOfFile("file").value(), fs::current_path().string());
  EXPECT_EQ(DirectoryOfFile(directory / "./far//sub/../file").value(), directory / "far");
  EXPECT_EQ(DirectoryOfFile(directory / "link/file").value(), directory / "link");
  EXPECT_EQ(DirectoryOfFile(directory / "file").value(), directory.path());
  EXPECT_EQ(DirectoryOfFile(directory / "none/../file").value(), directory.path());
  EXPECT_EQ(DirectoryOfFile("/file").value(), "/");
}

TEST(FilePlaceTest, DotsBehindALinkLeadWhereTheyLeadTheSystem) {
  const TestDirectory directory;
  fs::create_directories(directory / "far/sub");
  fs::create_directory_symlink(directory / "far/sub", directory / "link");
  EXPECT_EQ(DirectoryOfFile(directory / "link/../file").value(), directory / "far");
}

}  // namespace
}  // namespace megatrain
