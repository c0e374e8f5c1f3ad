#include "engine/data/cache/reference_logps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/data/cache/token_cache.h"
#include "tests/support/read_file.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ReferenceLogps Five(const std::string& directory, const std::string& key = "key") {
  return ReferenceLogps(directory, key, /*sequences=*/5, /*part_sequences=*/2, PosixFileSystem());
}

TEST(ReferenceLogpsTest, KeepsTheValuesOfSequencesInParts) {
  const std::string directory = FreshDirectory("parts");
  ReferenceLogps made = Five(directory);
  ASSERT_EQ(made.parts(), 3);
  EXPECT_EQ(made.part_begin(2), 4);
  EXPECT_EQ(made.part_end(2), 5);
  EXPECT_FALSE(made.OpenAll());
  ASSERT_TRUE(made.Make(0, {{-1, -2}, {-3, -4, -5, -6}}).ok());
  ASSERT_TRUE(made.Make(1, {{}, {-7, -8}}).ok());
  // As after a kill: the last part is not there.
  ReferenceLogps again = Five(directory);
  EXPECT_TRUE(again.Open(0));
  EXPECT_TRUE(again.Open(1));
  EXPECT_FALSE(again.Open(2));
  ASSERT_TRUE(again.Make(2, {{-9, -10}}).ok());
  EXPECT_THAT(*again.Read(0), ElementsAre(-1, -2));
  EXPECT_THAT(*again.Read(1), ElementsAre(-3, -4, -5, -6));
  EXPECT_THAT(*again.Read(2), IsEmpty());
  EXPECT_THAT(*again.Read(3), ElementsAre(-7, -8));
  EXPECT_THAT(*again.Read(4), ElementsAre(-9, -10));
  EXPECT_TRUE(Five(directory).OpenAll());
  EXPECT_FALSE(Five(directory, "other weights").Open(0));
}

TEST(ReferenceLogpsTest, DamageIsSeen) {
  const std::string directory = FreshDirectory("damage");
  ASSERT_TRUE(Five(directory).Make(0, {{-1, -2}, {-3, -4}}).ok());
  const std::string path = std::filesystem::directory_iterator(directory)->path();
  std::string bytes = ReadFileOrEmpty(path);
  bytes[40] ^= 1;
  std::ofstream(path, std::ios::binary) << bytes;
  ReferenceLogps logps = Five(directory);
  ASSERT_TRUE(logps.Open(0));
  EXPECT_TRUE(absl::IsDataLoss(logps.Read(1).status()));
  EXPECT_FALSE(std::filesystem::exists(path)) << "made again at the next start";
}

// Replaces the only part in the directory by one with good checksums and these elements.
void Forge(const std::string& directory, const std::vector<uint64_t>& elements) {
  const std::filesystem::path path = std::filesystem::directory_iterator(directory)->path();
  const std::string content = ReadFileOrEmpty(path);
  ASSERT_GT(content.size(), sizeof(CacheTrailer));
  CacheTrailer trailer;
  std::memcpy(&trailer, content.data() + content.size() - sizeof(trailer), sizeof(trailer));
  std::filesystem::remove(path);
  const auto writer = CacheFileWriter::Create(
      directory, path.filename(), std::string(trailer.key, sizeof(trailer.key)), sizeof(uint64_t));
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->Append(elements.data(), elements.size()).ok());
  ASSERT_TRUE((*writer)->Finish("").ok());
}

// Whoever may write the cache may have written it.
TEST(ReferenceLogpsTest, APartThatDoesNotFitItsSequencesIsRemoved) {
  const std::string directory = FreshDirectory("forged");
  // The values of the second sequence end before they begin, and behind the last.
  for (const std::vector<uint64_t>& elements :
       {std::vector<uint64_t>{3, 5, 4, 0, 0, 0, 0}, std::vector<uint64_t>{3, 5, 8, 0, 0, 0, 0}}) {
    ASSERT_TRUE(Five(directory).Make(0, {{-1, -2}, {-3, -4}}).ok());
    ASSERT_NO_FATAL_FAILURE(Forge(directory, elements));
    ReferenceLogps logps = Five(directory);
    ASSERT_TRUE(logps.Open(0));
    EXPECT_TRUE(logps.Read(0).ok());
    EXPECT_TRUE(absl::IsDataLoss(logps.Read(1).status())) << elements[2];
    EXPECT_TRUE(std::filesystem::is_empty(directory)) << "made again at the next start";
  }
  ASSERT_TRUE(Five(directory).Make(0, {{-1, -2}, {-3, -4}}).ok());
  ASSERT_NO_FATAL_FAILURE(Forge(directory, {3, 3, 3}));
  ReferenceLogps logps = Five(directory);
  ASSERT_TRUE(logps.Open(0));
  EXPECT_THAT(*logps.Read(1), IsEmpty());
  ASSERT_NO_FATAL_FAILURE(Forge(directory, {2, 2}));
  EXPECT_FALSE(Five(directory).Open(0)) << "too short for the beginnings of two sequences";
}

TEST(ReferenceLogpsTest, APartThatAnotherProcessMadeMeanwhileIsOpenedAndADamagedOneReplaced) {
  const std::string directory = FreshDirectory("twice");
  ASSERT_TRUE(Five(directory).Make(0, {{-1, -2}, {-3, -4}}).ok());
  const std::string path = std::filesystem::directory_iterator(directory)->path();
  const auto made = PosixFileSystem()->Examine(path);
  ASSERT_TRUE(made.ok());
  ReferenceLogps second = Five(directory);
  ASSERT_TRUE(second.Make(0, {{-1, -2}, {-3, -4}}).ok());
  EXPECT_THAT(*second.Read(1), ElementsAre(-3, -4));
  EXPECT_EQ(PosixFileSystem()->Examine(path)->inode, made->inode);
  std::ofstream(path, std::ios::binary) << "damaged";
  ReferenceLogps third = Five(directory);
  EXPECT_FALSE(third.Open(0));
  ASSERT_TRUE(third.Make(0, {{-1, -2}, {-3, -4}}).ok());
  EXPECT_THAT(*third.Read(1), ElementsAre(-3, -4));
}

}  // namespace
}  // namespace megatrain
