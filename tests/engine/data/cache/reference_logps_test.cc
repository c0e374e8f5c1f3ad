#include "engine/data/cache/reference_logps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

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
