// The automaton's matches beside those of PCRE2, on published patterns and on random ones.
#include "engine/tokenizer/text/match_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "engine/tokenizer/text/split_regex.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

using Matches = std::vector<std::pair<size_t, size_t>>;
using ::testing::ElementsAre;
using ::testing::Pair;

constexpr const char* kPatterns[] = {
    // cl100k, o200k, GPT-2, DeepSeek-V3's second, Llama 4's digits
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"(\p{N}{1,3}(?=\p{N})|\p{N})",
    R"([一-龥぀-ゟ゠-ヿ]+)",
    R"( {2,}|(?:ab|a)(?:c|bcd)*?d?|[^a]{2,4}?\n)",
    R"((?:a+)+b|(?:aa|a)*c|a++b?+)",
};

std::string RandomText(std::mt19937& random, size_t characters) {
  static const std::vector<std::string> kParts = {
      "a", "b",  "c",  "d",    "A",  "Z", "'s", "'RE", "ſ", "é",          "é",      "ß",
      "ǅ", "ʰ",  "中", "文",   "ぁ", "1", "2",  "٣",   "½", "\U0001D7D8", " ",      "  ",
      " ", "　", "\n", "\r\n", "\t", "!", "/",  "-",   "“", "\U0001F600", "\u200d", "\u0301"};
  std::string text;
  for (size_t i = 0; i < characters; ++i) {
    // Runs of one part are frequent.
    const std::string& part = kParts[random() % kParts.size()];
    for (size_t n = random() % 4 == 0 ? random() % 6 : 1; n > 0; --n) text += part;
  }
  return text;
}

// Nothing if PCRE2 gives up.
std::optional<Matches> TryPcre(const PcrePattern& pattern, std::string_view text) {
  Matches matches;
  const absl::Status status = pattern.ForEachMatch(
      text, 0,
      [&](size_t begin, size_t end) {
        matches.push_back({begin, end});
      },
      nullptr);
  if (!status.ok()) return std::nullopt;
  return matches;
}

Matches ByPcre(const PcrePattern& pattern, std::string_view text) {
  return TryPcre(pattern, text).value();
}

Matches ByRegex(const SplitRegex& regex, std::string_view text) {
  Matches matches;
  const absl::Status status = regex.ForEachMatch(text, [&](size_t begin, size_t end) {
    matches.push_back({begin, end});
  });
  EXPECT_TRUE(status.ok()) << status;
  return matches;
}

TEST(MatchProgram, FindsWhatPcreFinds) {
  std::mt19937 random(1);
  for (const char* pattern : kPatterns) {
    SCOPED_TRACE(pattern);
    const auto regex = SplitRegex::CompilePcre(pattern);
    ASSERT_NE(regex->program(), nullptr);
    const auto pcre = PcrePattern::Compile(pattern, pattern);
    for (int i = 0; i < 300; ++i) {
      const std::string text = RandomText(random, random() % 40);
      ASSERT_EQ(ByRegex(*regex, text), ByPcre(**pcre, text)) << testing::PrintToString(text);
    }
  }
}

TEST(MatchProgram, SettledMatchesDoNotDependOnWhatFollows) {
  std::mt19937 random(2);
  size_t settled = 0, bytes = 0;
  for (const char* pattern : kPatterns) {
    SCOPED_TRACE(pattern);
    const auto regex = SplitRegex::CompilePcre(pattern);
    for (int i = 0; i < 200; ++i) {
      const std::string text = RandomText(random, random() % 20);
      Matches matches;
      size_t known = 0;
      ASSERT_TRUE(regex
                      ->ForEachSettledMatch(
                          text,
                          [&](size_t begin, size_t end) {
                            matches.push_back({begin, end});
                          },
                          &known)
                      .ok());
      settled += known;
      bytes += text.size();
      for (int more = 0; more < 5; ++more) {
        Matches whole = ByRegex(*regex, text + RandomText(random, random() % 4));
        std::erase_if(whole, [known](const auto& match) { return match.first >= known; });
        ASSERT_EQ(matches, whole) << testing::PrintToString(text) << ", known " << known;
      }
    }
  }
  EXPECT_GT(settled, bytes / 2);
}

// A random pattern; `depth` bounds its groups.
std::string RandomPattern(std::mt19937& random, int depth) {
  static const std::vector<std::string> kAtoms = {
      "a", "b", "A", "[ab]", "[^a]", "\\p{L}", "\\p{Lu}", "\\s", "\\S", ".", "'", " ", "1", "中"};
  static const std::vector<std::string> kQuantifiers = {"",   "",   "",    "?",     "*",    "+",
                                                        "+?", "*?", "{2}", "{1,3}", "{2,}", "++"};
  std::string pattern;
  for (size_t n = 1 + random() % 3; n > 0; --n) {
    const bool group = depth > 0 && random() % 3 == 0;
    if (group) {
      pattern += random() % 4 == 0 ? "(?i:" : "(?:";
      pattern += RandomPattern(random, depth - 1) + ")";
      pattern += kQuantifiers[random() % (kQuantifiers.size() - 1)];
    } else {
      pattern += kAtoms[random() % kAtoms.size()] + kQuantifiers[random() % kQuantifiers.size()];
    }
    if (random() % 6 == 0) pattern += random() % 2 == 0 ? "(?!a)" : "(?=\\S)";
    if (n > 1 && random() % 3 == 0) pattern += "|";
  }
  return pattern;
}

TEST(MatchProgram, RandomPatternsMatchAsInPcre) {
  std::mt19937 random(3);
  int followed = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::string pattern = RandomPattern(random, 2);
    SCOPED_TRACE(pattern);
    const auto pcre = PcrePattern::Compile(pattern, pattern);
    ASSERT_TRUE(pcre.ok()) << pcre.status();
    const auto regex = SplitRegex::CompilePcre(pattern);
    if (regex->program() == nullptr) continue;
    ++followed;
    for (int text = 0; text < 5; ++text) {
      const std::string subject = RandomText(random, random() % 12);
      const auto expected = TryPcre(**pcre, subject);
      if (expected.has_value()) {
        ASSERT_EQ(ByRegex(*regex, subject), *expected) << testing::PrintToString(subject);
      }
    }
  }
  EXPECT_GT(followed, 1000);
}

// The lists of ways double with every place that is remembered, beyond what an automaton keeps.
TEST(MatchProgram, TooManyStatesAreLeftToPcre) {
  const std::string pattern = "[ab]*a[ab]{12}c|[abc]";
  const auto regex = SplitRegex::CompilePcre(pattern);
  ASSERT_NE(regex->program(), nullptr);
  const auto pcre = PcrePattern::Compile(pattern, pattern);
  std::mt19937 random(4);
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "abc"[random() % (i % 5000 == 0 ? 3 : 2)];
  EXPECT_EQ(ByRegex(*regex, text), ByPcre(**pcre, text));
  EXPECT_EQ(regex->program()->Follow(text, 0).state, MatchProgram::kGaveUp);
}

TEST(MatchProgram, ManyWaysThroughOneWordTakeNoLonger) {
  const std::string pattern = "(?:a+)+b|c";
  const std::string text = std::string(2000, 'a') + "c";
  EXPECT_FALSE((*PcrePattern::Compile(pattern, pattern))
                   ->ForEachMatch(
                       text, 0, [](size_t, size_t) {}, nullptr)
                   .ok());  // it gives up
  EXPECT_THAT(ByRegex(*SplitRegex::CompilePcre(pattern), text), ElementsAre(Pair(2000, 2001)));
}

TEST(MatchProgram, LookingAtTheSameTextAgainAndAgainIsGivenUp) {
  const std::string text(200000, 'a');
  // Without a match, and with matches far shorter than what is looked at.
  for (const char* pattern : {"a+b", "a+b|a"}) {
    const auto regex = SplitRegex::CompilePcre(pattern);
    ASSERT_NE(regex->program(), nullptr);
    const auto none = [](size_t, size_t) {};
    EXPECT_EQ(regex->ForEachMatch(text, none).code(), absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(regex->ForEachMatch(text.substr(0, 5000), none).ok());
  }
  EXPECT_THAT(ByRegex(*SplitRegex::CompilePcre("a+b?"), text), ElementsAre(Pair(0, 200000)));
}

TEST(MatchProgram, ThreadsShareOne) {
  std::mt19937 random(5);
  const std::string text = RandomText(random, 20000);
  for (const char* pattern : kPatterns) {
    const Matches expected = ByPcre(**PcrePattern::Compile(pattern, pattern), text);
    const auto regex = SplitRegex::CompilePcre(pattern);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] { EXPECT_EQ(ByRegex(*regex, text), expected) << pattern; });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

Matches ByOniguruma(const std::string& pattern, std::string_view text) {
  const auto regex = SplitRegex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status();
  return regex.ok() ? ByRegex(**regex, text) : Matches();
}

TEST(SplitRegexTest, PatternsAreReadAsOnigurumaDoes) {
  // One or more intervals; for PCRE2 this would be a possessive one.
  EXPECT_THAT(ByOniguruma("a{2}+", "aaaaa"), ElementsAre(Pair(0, 4)));
  EXPECT_THAT(ByOniguruma(R"([\S_]+)", "ab cd"), ElementsAre(Pair(0, 2), Pair(3, 5)));
  EXPECT_THAT(ByOniguruma(R"(\d+)", "12\u00bd3"), ElementsAre(Pair(0, 2), Pair(4, 5)));
  EXPECT_THAT(ByOniguruma(R"(\D+)", "12ab3"), ElementsAre(Pair(2, 4)));
  EXPECT_THAT(ByOniguruma(R"(\P{L}+)", "ab12c"), ElementsAre(Pair(2, 4)));
  EXPECT_THAT(ByOniguruma(R"(\p{^L}+)", "ab12c"), ElementsAre(Pair(2, 4)));
  // ^ and $ are those of a line.
  EXPECT_THAT(ByOniguruma("^a", "a\naa"), ElementsAre(Pair(0, 1), Pair(2, 3)));
  EXPECT_THAT(ByOniguruma("a$", "aa\nab"), ElementsAre(Pair(1, 2)));
}

TEST(SplitRegexTest, WhiteSpaceIsUnicodes) {
  std::set<char32_t> spaces = {0x20, 0x85, 0xa0, 0x1680, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000};
  for (char32_t c = 0x9; c <= 0xd; ++c) spaces.insert(c);
  for (char32_t c = 0x2000; c <= 0x200a; ++c) spaces.insert(c);
  std::string text;
  Matches expected, others;
  for (char32_t c = 1; c < 0x3100; ++c) {
    const size_t begin = text.size();
    AppendUtf8(c, &text);
    (spaces.count(c) > 0 ? expected : others).push_back({begin, text.size()});
    EXPECT_EQ(IsWhiteSpace(c), spaces.count(c) > 0) << static_cast<uint32_t>(c);
  }
  for (const char* pattern : {R"(\s)", R"([\s])"}) {
    EXPECT_TRUE(ByOniguruma(pattern, text) == expected) << pattern;
  }
  for (const char* pattern : {R"(\S)", R"([\S])"}) {
    EXPECT_TRUE(ByOniguruma(pattern, text) == others) << pattern;
  }
}

TEST(SplitRegexTest, WhatThereIsNoTranslationOfIsRefused) {
  for (const char* pattern :
       {"[a&&b]",    "a{2}?",   "[[a]b]",  R"(\b)",      R"(\w)",      "(?<name>a)", "a{2",
        "(",         "a)",      "a**",     "a???",       "a+{2}",      "a{2}*",      "a{2}{3}",
        "a{,}",      "a{x}",    "a{1,x}",  "a{12345}",   "[]a]",       "[a",         "[^]",
        R"([\d-z])", R"([\D])", R"([\A])", R"([\P{L}])", R"(\p{Foo})", R"(\pL)",     R"(\p{L)",
        R"(\x80)",   R"(\x7)",  R"(\x{})", R"(\x{41)",   "\\\u00e9",   "\\"}) {
    EXPECT_EQ(SplitRegex::Compile(pattern).status().code(), absl::StatusCode::kUnimplemented)
        << pattern;
  }
  EXPECT_EQ(TranslateRegex(std::string_view("a\0b", 3)).status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(TranslateRegex("a\xff").status().code(), absl::StatusCode::kInvalidArgument);
  const auto groups = [](size_t depth) {
    return TranslateRegex(std::string(depth, '(') + "a" + std::string(depth, ')')).ok();
  };
  EXPECT_TRUE(groups(64));
  EXPECT_FALSE(groups(65));
  EXPECT_TRUE(TranslateRegex(std::string(16384, 'a')).ok());
  EXPECT_FALSE(TranslateRegex(std::string(16385, 'a')).ok());
}

TEST(SplitRegexTest, WhatBothReadAlikeStaysAsItIs) {
  for (const std::string pattern :
       {"a*?b++c??", "a{2,}b{3}c{4,5}?", "(a|b)(?:c)(?=d)(?!e)(?<=f)(?<!g)(?>h)(?i:i)(?-i:j)",
        R"(\n\r\t\f\.\A\z)", R"([^a\]b-][a-])", R"(\x41\x{1F600})", R"([\P{Lt}])"}) {
    EXPECT_EQ(TranslateRegex(pattern).value_or("refused"), pattern);
  }
  const std::vector<std::pair<std::string, std::string>> translated = {
      {"a{,3}", "a{0,3}"},
      {"a{2}+", "(?:a{2})+"},
      {"b(ac){2}+", "b(?:(ac){2})+"},
      {"b[ac]{1,2}+", "b(?:[ac]{1,2})+"},
      {R"(\P{Lt})", R"([^\p{Lt}])"},
      {R"(\p{^Lt})", R"([^\p{Lt}])"},
      {R"(\P{^Lt})", R"([\p{Lt}])"}};
  for (const auto& [pattern, expected] : translated) {
    EXPECT_EQ(TranslateRegex(pattern).value_or("refused"), expected);
  }
  EXPECT_EQ(EscapeRegex("a.b*\u00e9 [1]"), "a\\.b\\*\u00e9 \\[1\\]");
}

TEST(SplitRegexTest, EmptyMatchesAndWhatIsBeforeAMatchAreLeftToPcre) {
  EXPECT_THAT(ByOniguruma("b*", "abc"), ElementsAre(Pair(0, 0), Pair(1, 2), Pair(3, 3)));
  EXPECT_THAT(ByOniguruma("b*", "\u00e9b"), ElementsAre(Pair(0, 0), Pair(2, 3)));
  EXPECT_THAT(ByOniguruma("(?<=a)b", "bab"), ElementsAre(Pair(2, 3)));
  for (const char* pattern : {"b*", "(?<=a)b", "^b", "a|(?:^b)"}) {
    const auto regex = SplitRegex::Compile(pattern);
    ASSERT_TRUE(regex.ok()) << regex.status();
    EXPECT_EQ((*regex)->program(), nullptr) << pattern;
    size_t known = 1;
    int matches = 0;
    const auto count = [&](size_t, size_t) { ++matches; };
    EXPECT_TRUE((*regex)->ForEachSettledMatch("ab ab", count, &known).ok());
    EXPECT_EQ(known, 0u) << pattern << ": any text before might matter";
    EXPECT_EQ(matches, 0) << pattern;
  }
  for (const char* pattern : {"[^a]b", R"(\^b)", R"([\]^]b)"}) {
    const auto regex = SplitRegex::Compile(pattern);
    ASSERT_TRUE(regex.ok()) << regex.status();
    EXPECT_NE((*regex)->program(), nullptr) << pattern << ": no beginning of a line";
  }
}

}  // namespace
}  // namespace megatrain
