#include "engine/hf/placed_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBlock = PlacedWriter::kBlockBytes;

std::string RandomText(int64_t bytes) {
  std::mt19937_64 random(7);
  std::string text(static_cast<size_t>(bytes), '\0');
  for (char& byte : text) byte = static_cast<char>(random());
  return text;
}

// Writes `content` in the pieces that begin at `begins`, in a random order, and returns the file.
std::string WriteInPieces(const std::string& content, std::vector<int64_t> begins) {
  const std::string path = FreshDirectory("placed") + "/file";
  auto writer = PlacedWriter::Create(PosixFileSystem(), path, std::ssize(content));
  EXPECT_TRUE(writer.ok()) << writer.status();
  begins.push_back(std::ssize(content));
  std::vector<std::pair<int64_t, int64_t>> pieces;
  for (size_t i = 0; i + 1 < begins.size(); ++i) pieces.push_back({begins[i], begins[i + 1]});
  std::shuffle(pieces.begin(), pieces.end(), std::mt19937(3));
  for (const auto& [begin, end] : pieces) {
    EXPECT_GT((*writer)->missing(), 0);
    const absl::Status status = (*writer)->Write(begin, content.data() + begin, end - begin);
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ((*writer)->missing(), 0);
  EXPECT_TRUE((*writer)->Finish().ok());
  return *ReadWholeFile(PosixFileSystem(), path, 8 * kBlock);
}

TEST(PlacedWriterTest, PiecesComeInAnyOrder) {
  for (const int64_t bytes : {int64_t{1}, int64_t{4097}, kBlock, 2 * kBlock + 5}) {
    const std::string content = RandomText(bytes);
    EXPECT_TRUE(WriteInPieces(content, {0}) == content) << bytes;
    std::vector<int64_t> begins = {0};
    for (const int64_t begin : {int64_t{3}, kBlock - 1, kBlock, kBlock + 1, 2 * kBlock + 1}) {
      if (begin < bytes) begins.push_back(begin);
    }
    EXPECT_TRUE(WriteInPieces(content, begins) == content) << bytes;
  }
}

TEST(PlacedWriterTest, AFileWithAHoleIsNotFinished) {
  const std::string path = FreshDirectory("placed") + "/file";
  auto writer = PlacedWriter::Create(PosixFileSystem(), path, 100);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->Write(50, std::string(50, 'x').data(), 50).ok());
  const absl::Status status = (*writer)->Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("50 bytes were written, 100"));
}

}  // namespace
}  // namespace megatrain
