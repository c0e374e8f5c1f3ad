#include "engine/tokenizer/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace megatrain {
namespace {

using ::testing::ElementsAre;

// The pieces of a text; those that are tokens in brackets.
std::vector<std::string> Pieces(const AddedTokenMatcher& matcher, const std::string& text) {
  std::vector<std::string> pieces;
  matcher.Cut(text, [&](size_t begin, size_t end, const AddedToken* token) {
    const std::string piece = text.substr(begin, end - begin);
    pieces.push_back(token == nullptr ? piece : "[" + piece + "]");
  });
  return pieces;
}

// As the library does, which looks for tokens first and then at what stands beside them.
TEST(AddedTokensTest, WithinATokenThatIsPartOfAWordNoOtherIsFound) {
  AddedTokenMatcher matcher;
  ASSERT_TRUE(matcher.Add("food", {.id = 1, .content = "food", .single_word = true}).ok());
  ASSERT_TRUE(matcher.Add("oo", {.id = 2, .content = "oo"}).ok());
  EXPECT_THAT(Pieces(matcher, "a food oo"), ElementsAre("a ", "[food]", " ", "[oo]"));
  EXPECT_THAT(Pieces(matcher, "seafood too"), ElementsAre("seafood t", "[oo]"));
  EXPECT_THAT(Pieces(matcher, "foods"), ElementsAre("foods"));
}

TEST(AddedTokensTest, ATokenTakesTheWhiteSpaceThatItSaysAndNoneTwice) {
  AddedTokenMatcher right, left, both;
  ASSERT_TRUE(right.Add("<s>", {.id = 1, .content = "<s>", .rstrip = true}).ok());
  ASSERT_TRUE(left.Add("<s>", {.id = 1, .content = "<s>", .lstrip = true}).ok());
  ASSERT_TRUE(both.Add("<s>", {.id = 1, .content = "<s>", .lstrip = true, .rstrip = true}).ok());
  EXPECT_THAT(Pieces(right, "a<s> b"), ElementsAre("a", "[<s> ]", "b"));
  EXPECT_THAT(Pieces(right, " <s>\n\u3000"), ElementsAre(" ", "[<s>\n\u3000]"));
  EXPECT_THAT(Pieces(left, "a \u3000<s> b"), ElementsAre("a", "[ \u3000<s>]", " b"));
  EXPECT_THAT(Pieces(left, " <s>"), ElementsAre("[ <s>]"));
  EXPECT_THAT(Pieces(both, "a <s> <s> b"), ElementsAre("a", "[ <s> ]", "[<s> ]", "b"));
  EXPECT_THAT(Pieces(left, "<s> <s>"), ElementsAre("[<s>]", "[ <s>]"));
}

TEST(AddedTokensTest, ATokenMayCrossThePlacesWithinItOnly) {
  AddedTokenMatcher matcher;
  ASSERT_TRUE(matcher.Add("oo", {.id = 1, .content = "oo"}).ok());
  ASSERT_TRUE(matcher.Add("food", {.id = 2, .content = "food"}).ok());
  EXPECT_FALSE(matcher.Add("oo", {.id = 3, .content = "oo"}).ok()) << "it is there";
  EXPECT_FALSE(matcher.Add("", {.id = 3, .content = ""}).ok());
  const std::string text = "a foods";
  std::string crossed, begun;
  for (size_t at = 0; at < text.size(); ++at) {
    crossed += matcher.MayCross(text, at) ? 'x' : '-';
    begun += matcher.BeginsAt(text, at) ? 'x' : '-';
  }
  EXPECT_EQ(crossed, "---xxx-");
  EXPECT_EQ(begun, "--xx---");
  EXPECT_THAT(Pieces(matcher, "foofoodoo"), ElementsAre("f", "[oo]", "[food]", "[oo]"));
}

}  // namespace
}  // namespace megatrain
