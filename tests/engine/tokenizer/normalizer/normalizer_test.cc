#include "engine/tokenizer/normalizer/normalizer.h"

#include <gtest/gtest.h>

#include <string>

namespace megatrain {
namespace {

std::string Replaced(const std::string& text, const std::string& from, const std::string& to) {
  Normalizer normalizer;
  normalizer.AddReplace(from, to);
  NormalizedText out;
  EXPECT_TRUE(normalizer.Normalize(text, /*begins=*/true, /*with_runs=*/false, &out).ok());
  return std::string(out.text);
}

TEST(NormalizerTest, ReplacesATextFromLeftToRight) {
  EXPECT_EQ(Replaced("a-a--a---", "--", "+"), "a-a+a+-");
  EXPECT_EQ(Replaced("aaaa", "aa", "a"), "aa");
  EXPECT_EQ(Replaced("abc", "abcd", ""), "abc");
  EXPECT_EQ(Replaced("abc", "c", ""), "ab");
  EXPECT_EQ(Replaced(" x y", " ", "\u2581"), "\u2581x\u2581y");
}

// By trying each place this would take minutes.
TEST(NormalizerTest, ALongTextToReplaceThatAlmostOccursEverywhereTakesNoLonger) {
  const std::string letters(4000000, 'a');
  const std::string from = std::string(2000000, 'a') + "b";
  EXPECT_TRUE(Replaced(letters, from, "c") == letters);
  EXPECT_EQ(Replaced(letters + "b", from, "c").size(), 2000001u);
}

}  // namespace
}  // namespace megatrain
