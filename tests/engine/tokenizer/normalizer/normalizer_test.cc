#include "engine/tokenizer/normalizer/normalizer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

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

std::string XAnd(char32_t c) {
  std::string text = "x";
  AppendUtf8(c, &text);
  return text;
}

// Returns the normalized text of "x" with the character behind it.
std::string BehindX(const Normalizer& normalizer, char32_t c) {
  NormalizedText out;
  const std::string text = XAnd(c);
  EXPECT_TRUE(normalizer.Normalize(text, /*begins=*/true, /*with_runs=*/false, &out).ok());
  return std::string(out.text);
}

TEST(NormalizerTest, BertCleansTextsAndPutsSpacesAroundIdeographs) {
  Normalizer normalizer;
  normalizer.AddBert({.clean_text = false, .strip_accents = false, .lowercase = false});
  for (const auto& [first, last] : std::vector<std::pair<char32_t, char32_t>>{
           {0x3400, 0x4dbf},
           {0x4e00, 0x9fff},
           {0xf900, 0xfaff},
           {0x20000, 0x2a6df},
           {0x2a700, 0x2b81f},
           {0x2b920, 0x2ceaf},  // from 2b820 on, by Unicode: an error of `tokenizers`
           {0x2f800, 0x2fa1f}}) {
    for (const char32_t c : {first, last}) {
      std::string ideograph;
      AppendUtf8(c, &ideograph);
      EXPECT_EQ(BehindX(normalizer, c), "x " + ideograph + " ") << static_cast<uint32_t>(c);
    }
    for (const char32_t c : {first - 1, last + 1}) {
      EXPECT_EQ(BehindX(normalizer, c), XAnd(c)) << static_cast<uint32_t>(c);
    }
  }
  Normalizer cleaner;
  cleaner.AddBert({.handle_chinese_chars = false, .strip_accents = false, .lowercase = false});
  for (const char32_t c : {0x9, 0xa, 0xd, 0x20, 0xa0, 0x2003, 0x3000}) {
    EXPECT_EQ(BehindX(cleaner, c), "x ") << static_cast<uint32_t>(c);
  }
  for (const char32_t c : {0x0, 0x1, 0x7f, 0x200d, 0xe000, 0xfffd}) {
    EXPECT_EQ(BehindX(cleaner, c), "x") << static_cast<uint32_t>(c);
  }
  // The last is a format character of Unicode 9.
  for (const char32_t c : {0x21, 0xe9, 0x301, 0x8e2}) {
    EXPECT_EQ(BehindX(cleaner, c), XAnd(c)) << static_cast<uint32_t>(c);
  }
}

// `tokenizers` knows the marks of an older Unicode, and for BERT those of one still older.
TEST(NormalizerTest, MarksAreThoseOfOldVersionsOfUnicode) {
  Normalizer all, nonspacing;
  all.AddStripAccents();
  nonspacing.AddBert({.clean_text = false, .handle_chinese_chars = false, .lowercase = false});
  struct Case {
    char32_t c;
    bool removed, removed_by_bert;
  };
  // Marks that are spacing and that enclose come second and third, then what had another category
  // once, and marks of Unicode 8, 9 and 11.
  for (const Case& item : std::vector<Case>{{0x301, true, true},
                                            {0x903, true, false},
                                            {0x20dd, true, false},
                                            {0x1734, true, true},
                                            {0x1885, true, false},
                                            {0x1886, true, false},
                                            {0x1cf2, true, false},
                                            {0x1cf3, true, false},
                                            {0xa9bd, true, false},
                                            {0x111c9, false, false},
                                            {0x8e3, true, true},
                                            {0x8d4, true, false},
                                            {0x8d3, false, false},
                                            {'a', false, false}}) {
    const auto number = static_cast<uint32_t>(item.c);
    EXPECT_EQ(BehindX(all, item.c), item.removed ? "x" : XAnd(item.c)) << number;
    EXPECT_EQ(BehindX(nonspacing, item.c), item.removed_by_bert ? "x" : XAnd(item.c)) << number;
  }
  EXPECT_EQ(BehindX(nonspacing, 0x111c9), XAnd(0x111c9));
}

TEST(NormalizerTest, LowerCasesAreThoseOfUnicode17) {
  Normalizer normalizer;
  normalizer.AddLowercase();
  EXPECT_EQ(BehindX(normalizer, 0x130), "xi\u0307");
  using Pair = std::pair<char32_t, char32_t>;
  for (const auto& [from, to] :
       {Pair('A', 'a'), Pair(0x3a3, 0x3c3), Pair(0x1c89, 0x1c8a), Pair(0xa7cb, 0x264),
        Pair(0xa7cc, 0xa7cd), Pair(0xa7ce, 0xa7cf), Pair(0xa7d2, 0xa7d3), Pair(0xa7d4, 0xa7d5),
        Pair(0xa7da, 0xa7db), Pair(0xa7dc, 0x19b), Pair(0x10d4f, 0x10d4f), Pair(0x10d50, 0x10d70),
        Pair(0x10d65, 0x10d85), Pair(0x10d66, 0x10d66), Pair(0x16e9f, 0x16e9f),
        Pair(0x16ea0, 0x16ebb), Pair(0x16eb8, 0x16ed3), Pair(0x16eb9, 0x16eb9)}) {
    EXPECT_EQ(BehindX(normalizer, from), XAnd(to)) << static_cast<uint32_t>(from);
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
