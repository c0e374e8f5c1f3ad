#include "engine/base/watched_file_system.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

namespace megatrain {
namespace {

TEST(WatchedFileSystemTest, AsksBeforeEveryPieceAndStopsWhenTold) {
  int questions = 0, allowed = 1000;
  WatchedFileSystem files(PosixFileSystem(), [&] {
    return ++questions > allowed ? absl::CancelledError("abandoned") : absl::OkStatus();
  });
  const std::string path = ::testing::TempDir() + "/watched";
  // The pieces differ.
  std::string content(2 * WatchedFileSystem::kPieceBytes + 5, 'x');
  content[WatchedFileSystem::kPieceBytes] = 'y';
  content.back() = 'z';
  {
    auto file = files.NewWritableFile(path);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Append(content.data(), static_cast<int64_t>(content.size())).ok());
    ASSERT_TRUE((*file)->Sync().ok());
    ASSERT_TRUE((*file)->Close().ok());
  }
  EXPECT_EQ(questions, 5);  // made, three pieces, synced

  auto file = files.OpenForReading(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->size(), static_cast<int64_t>(content.size()));
  std::string read(content.size(), ' ');
  ASSERT_TRUE((*file)->Read(0, read.data(), static_cast<int64_t>(read.size())).ok());
  EXPECT_EQ(read, content);
  EXPECT_EQ(questions, 8);

  allowed = 9;
  EXPECT_EQ((*file)->Read(0, read.data(), static_cast<int64_t>(read.size())).code(),
            absl::StatusCode::kCancelled);
  EXPECT_EQ(questions, 10);
  EXPECT_EQ(files.NewWritableFile(path).status().code(), absl::StatusCode::kCancelled);
  // What was begun can still be removed.
  EXPECT_TRUE(files.RemoveFile(path).ok());
  EXPECT_FALSE(files.FileExists(path));
}

TEST(WatchedFileSystemTest, AsksBeforeEveryBlock) {
  int questions = 0, allowed = 1000;
  WatchedFileSystem files(PosixFileSystem(), [&] {
    return ++questions > allowed ? absl::CancelledError("abandoned") : absl::OkStatus();
  });
  const std::string path = ::testing::TempDir() + "/watched_blocks";
  alignas(kDirectAlignment) static char block[kDirectAlignment];
  auto file = files.NewBlockFile(path, 2 * kDirectAlignment);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Write(0, block, kDirectAlignment).ok());
  ASSERT_TRUE((*file)->Write(kDirectAlignment, block, kDirectAlignment).ok());
  ASSERT_TRUE((*file)->Sync().ok());
  EXPECT_EQ(questions, 4);
  const auto reader = files.OpenBlocksForReading(path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(*(*reader)->ReadUpTo(kDirectAlignment, block, kDirectAlignment), kDirectAlignment);
  EXPECT_EQ(questions, 5);
  allowed = 5;
  EXPECT_EQ((*file)->Write(0, block, kDirectAlignment).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ((*file)->Sync().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(files.NewBlockFile(path, 1).status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE((*file)->Close().ok());
}

TEST(WatchedFileSystemTest, ALongBlockIsWrittenInPieces) {
  int questions = 0;
  WatchedFileSystem files(PosixFileSystem(), [&] {
    ++questions;
    return absl::OkStatus();
  });
  const std::string path = ::testing::TempDir() + "/watched_long_block";
  constexpr int64_t kBytes = WatchedFileSystem::kPieceBytes + kDirectAlignment;
  alignas(kDirectAlignment) static char block[kBytes];
  block[5] = 'a';
  block[WatchedFileSystem::kPieceBytes + 7] = 'b';
  auto file = files.NewBlockFile(path, kDirectAlignment + kBytes);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Write(kDirectAlignment, block, kBytes).ok());
  EXPECT_EQ(questions, 3);  // made, two pieces
  ASSERT_TRUE((*file)->Sync().ok());
  ASSERT_TRUE((*file)->Close().ok());
  std::string expected(kDirectAlignment + kBytes, '\0');
  expected[kDirectAlignment + 5] = 'a';
  expected[kDirectAlignment + WatchedFileSystem::kPieceBytes + 7] = 'b';
  const auto content = ReadWholeFile(&files, path, kDirectAlignment + kBytes);
  ASSERT_TRUE(content.ok()) << content.status();
  EXPECT_TRUE(*content == expected);
  EXPECT_TRUE(files.RemoveFile(path).ok());
}

// Whatever writes a file syncs it.
TEST(WatchedFileSystemTest, WritersOfWholeFilesSyncThem) {
  int questions = 0;
  WatchedFileSystem files(PosixFileSystem(), [&] {
    ++questions;
    return absl::OkStatus();
  });
  const std::string path = ::testing::TempDir() + "/watched_whole";
  ASSERT_TRUE(WriteFileSynced(&files, path, "text").ok());
  EXPECT_EQ(std::exchange(questions, 0), 3);  // made, written, synced
  ASSERT_TRUE(CopyFileSynced(&files, path, path + "_copy").ok());
  EXPECT_EQ(std::exchange(questions, 0), 4);  // made, read, written, synced
  auto writer = FileWriter::Create(&files, path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->Append("text").ok());
  ASSERT_TRUE((*writer)->SyncAndClose().ok());
  EXPECT_EQ(questions, 3);  // made, written, synced
}

TEST(WatchedFileSystemTest, AsksBeforeEveryBlockOfAFileThatIsThere) {
  int questions = 0, allowed = 3;
  WatchedFileSystem files(PosixFileSystem(), [&] {
    return ++questions > allowed ? absl::CancelledError("abandoned") : absl::OkStatus();
  });
  const std::string path = ::testing::TempDir() + "/watched_again";
  alignas(kDirectAlignment) static char block[kDirectAlignment];
  auto file = files.OpenBlockFile(path, 2 * kDirectAlignment);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Write(0, block, kDirectAlignment).ok());
  ASSERT_TRUE((*file)->Sync().ok());
  EXPECT_EQ(questions, 3);
  EXPECT_EQ((*file)->Write(0, block, kDirectAlignment).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ((*file)->Sync().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(files.OpenBlockFile(path, 1).status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE((*file)->Close().ok());
}

}  // namespace
}  // namespace megatrain
