#include "engine/chat/target_tokens.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace megatrain {
namespace {

// The marks of the tokens, as digits, behind one that was there before.
std::string Marks(const std::vector<size_t>& offsets, size_t text_bytes,
                  const std::vector<TextRange>& ranges) {
  std::vector<uint8_t> target = {1};
  AppendTargets(offsets, text_bytes, ranges, &target);
  std::string marks;
  for (const uint8_t mark : target) marks += std::to_string(mark);
  return marks;
}

TEST(TargetTokens, ATokenThatARangeTouchesIsMarked) {
  const std::vector<size_t> offsets = {0, 2, 4, 6};
  EXPECT_EQ(Marks(offsets, 8, {}), "10000");
  EXPECT_EQ(Marks(offsets, 8, {{0, 8}}), "11111");
  EXPECT_EQ(Marks(offsets, 8, {{2, 4}}), "10100");
  EXPECT_EQ(Marks(offsets, 8, {{3, 5}}), "10110");
  EXPECT_EQ(Marks(offsets, 8, {{7, 8}}), "10001");
  EXPECT_EQ(Marks(offsets, 8, {{0, 1}, {5, 6}}), "11010");
  EXPECT_EQ(Marks(offsets, 8, {{0, 2}, {2, 3}}), "11100");
  EXPECT_EQ(Marks({}, 0, {}), "1");
}

// The second token has no bytes: it is the beginning of a character that the third one completes.
TEST(TargetTokens, ATokenWithoutBytesBelongsWhereItBegins) {
  const std::vector<size_t> offsets = {0, 1, 1, 3};
  EXPECT_EQ(Marks(offsets, 4, {{0, 1}}), "11000");
  EXPECT_EQ(Marks(offsets, 4, {{1, 3}}), "10110");
  EXPECT_EQ(Marks(offsets, 4, {{3, 4}}), "10001");
}

}  // namespace
}  // namespace megatrain
