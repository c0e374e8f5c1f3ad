#include "engine/tokenizer/normalizer/normalizer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>

#include "engine/tokenizer/text/utf8.h"

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

// As normalizers.Nmt of tokenizers does, of every character.
TEST(NormalizerTest, NmtRemovesControlsAndWritesSpaces) {
  const std::set<char32_t> spaces = {0x9,    0xa,    0xc,    0xd,    0x1680, 0x200b, 0x200c, 0x200d,
                                     0x200e, 0x200f, 0x2028, 0x2029, 0x2581, 0xfeff, 0xfffd};
  std::set<char32_t> removed = {0xb, 0x7f, 0x8f, 0x9f};
  for (char32_t c = 0x1; c <= 0x8; ++c) removed.insert(c);
  for (char32_t c = 0xe; c <= 0x1f; ++c) removed.insert(c);
  Normalizer normalizer;
  normalizer.AddNmt();
  for (char32_t c = 1; c < 0x11000; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    std::string character;
    AppendUtf8(c, &character);
    NormalizedText out;
    ASSERT_TRUE(normalizer.Normalize("a" + character + "b", true, false, &out).ok());
    const std::string expected = removed.count(c) > 0 ? "" : spaces.count(c) > 0 ? " " : character;
    ASSERT_EQ(out.text, "a" + expected + "b") << static_cast<uint32_t>(c);
  }
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
