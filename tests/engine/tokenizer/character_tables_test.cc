// Tables of characters against the normalizations and regular expressions that they stand for.
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "engine/tokenizer/normalizer/normalizer.h"
#include "engine/tokenizer/split/pre_tokenizer.h"
#include "engine/tokenizer/text/character_maps.h"
#include "engine/tokenizer/text/utf8.h"
#include "engine/tokenizer/tokenizer_json.h"

namespace megatrain {
namespace {

// Characters that take part in something: marks of several classes, what composes and decomposes,
// clusters (jamo, pictographs, joiners, flags, prepended signs), controls, several kinds of spaces.
constexpr char32_t kCharacters[] = {
    'a',     'e',     'Q',     'z',     '7',     ' ',     ' ',     '\n',    '\r',    '\t',
    0,       0x1,     0x7f,    '\'',    '`',     '.',     0x85,    0xa0,    0xad,    0xc5,
    0xe9,    0xdf,    0x130,   0x301,   0x323,   0x345,   0x1dce,  0x307,   0x391,   0x438,
    0x600,   0x6dd,   0x633,   0x651,   0x915,   0x93c,   0x94d,   0x93e,   0x953,   0xe33,
    0xe48,   0x1100,  0x1161,  0x11a8,  0xac00,  0xac01,  0x1680,  0x180e,  0x1e9b,  0x200b,
    0x200d,  0x2028,  0x212b,  0x2581,  0x2764,  0xfe0f,  0x3042,  0x3099,  0x30ab,  0xff76,
    0xff9e,  0x3400,  0x4e2d,  0xf900,  0xfb01,  0xfdfa,  0xfeff,  0xfffd,  0x1f1e9, 0x1f1ea,
    0x1f468, 0x1f3fd, 0x1d15e, 0x1d165, 0x10d50, 0x16ea0, 0x2f800, 0x20000, 0xe0001, 0x10ffff};

std::string RandomText(std::mt19937* random) {
  std::string text;
  for (size_t left = (*random)() % 40; left > 0; --left) {
    char32_t c = kCharacters[(*random)() % std::size(kCharacters)];
    if ((*random)() % 4 == 0) {
      c = (*random)() % 0x30000;
      if (c >= 0xd800 && c <= 0xdfff) c = 'x';
    }
    AppendUtf8(c, &text);
  }
  return text;
}

void ExpectTheSame(const std::string& name, const Normalizer& plain, const Normalizer& tabulated) {
  std::mt19937 random(1);
  NormalizedText expected, got;
  for (int i = 0; i < 3000; ++i) {
    const std::string text = RandomText(&random);
    const bool begins = i % 3 != 0;
    const bool with_runs = i % 2 == 0;
    ASSERT_TRUE(plain.Normalize(text, begins, with_runs, &expected).ok());
    ASSERT_TRUE(tabulated.Normalize(text, begins, with_runs, &got).ok());
    ASSERT_EQ(got.text, expected.text) << name << " " << testing::PrintToString(text);
    size_t hint = 0, other_hint = 0;
    for (size_t at = 0; with_runs && at < got.text.size(); ++at) {
      ASSERT_EQ(OriginalOffset(got.runs, at, &hint), OriginalOffset(expected.runs, at, &other_hint))
          << name << " " << testing::PrintToString(text) << " byte " << at;
    }
  }
}

TEST(NormalizerTable, GivesWhatTheStepsGive) {
  const std::vector<std::pair<std::string, std::function<void(Normalizer*)>>> chains = {
      {"BERT", [](Normalizer* out) { out->AddBert({}); }},
      {"BERT, accents kept", [](Normalizer* out) { out->AddBert({.strip_accents = false}); }},
      {"NFD", [](Normalizer* out) { out->AddForm(UnicodeForm::kNfd); }},
      {"NFC and lower case",
       [](Normalizer* out) {
         out->AddForm(UnicodeForm::kNfc);
         out->AddLowercase();
       }},
      {"forms one behind the other",
       [](Normalizer* out) {
         out->AddStripAccents();
         out->AddForm(UnicodeForm::kNfkd);
         out->AddLowercase();
         out->AddForm(UnicodeForm::kNfkc);
         out->AddNmt();
         out->AddForm(UnicodeForm::kNfd);
         out->AddStripAccents();
       }},
  };
  for (const auto& [name, add] : chains) {
    Normalizer plain, tabulated;
    add(&plain);
    add(&tabulated);
    tabulated.Tabulate();
    ExpectTheSame(name, plain, tabulated);
  }
}

TEST(NormalizerTable, GivesWhatTheStepsOfTokenizersGive) {
  for (const std::string name : {"unigram_t5", "unigram_albert", "wordlevel", "bpe_suffix"}) {
    std::ifstream file("tests/golden/tokenizers/" + name + "/tokenizer.json");
    const std::string json{std::istreambuf_iterator<char>(file), {}};
    const auto plain = ParseTokenizerJson(json);
    auto tabulated = ParseTokenizerJson(json);
    ASSERT_TRUE(plain.ok() && tabulated.ok()) << plain.status();
    tabulated->normalizer.Tabulate();
    ExpectTheSame(name, plain->normalizer, tabulated->normalizer);
  }
}

std::vector<std::string> Words(const PreTokenizer& pre_tokenizer, const std::string& text) {
  std::vector<std::string> words;
  OffsetChain chain;
  const absl::Status status = pre_tokenizer.Cut(
      text, &chain, /*begins=*/true, /*in_word=*/false, /*open=*/false,
      [&](const PreTokenizer::Word& word) {
        words.push_back(std::string(word.text) + "@" + std::to_string(word.begin));
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
  return words;
}

TEST(Normalizer, ATextThatGrowsBeyondMeasureIsRefused) {
  for (const bool tabulated : {false, true}) {
    Normalizer normalizer;
    for (int i = 0; i < 6; ++i) normalizer.AddReplace("e", std::string(50, 'e'));
    if (tabulated) normalizer.Tabulate();
    NormalizedText out;
    const absl::Status status = normalizer.Normalize(std::string(160, 'e'), true, true, &out);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "a text of 160 bytes grows to more than 1058816 bytes when the tokenizer normalizes "
              "it");
    EXPECT_LT(out.buffer.capacity() + out.other.capacity(), size_t{8} << 20);
  }
}

TEST(CharacterClasses, CutAsTheirRegularExpressions) {
  const std::string patterns[] = {R"(\s)", R"(\p{N})", "[a-z]", PunctuationClass(), "a"};
  const SplitBehavior behaviors[] = {SplitBehavior::kIsolated, SplitBehavior::kRemoved,
                                     SplitBehavior::kContiguous,
                                     SplitBehavior::kMergedWithPrevious};
  std::mt19937 random(2);
  for (int chain = 0; chain < 12; ++chain) {
    PreTokenizer by_class, by_regex;
    for (int step = 0; step < 3; ++step) {
      const std::string& pattern = patterns[random() % std::size(patterns)];
      const SplitBehavior behavior = behaviors[random() % std::size(behaviors)];
      by_class.AddSplit(SplitRegex::CompilePcre(pattern), behavior, false, /*single=*/true);
      by_regex.AddSplit(SplitRegex::CompilePcre(pattern), behavior, false, /*single=*/false);
    }
    for (int i = 0; i < 200; ++i) {
      const std::string text = RandomText(&random);
      ASSERT_EQ(Words(by_class, text), Words(by_regex, text)) << testing::PrintToString(text);
    }
  }
}

// Of those that are none, U+00D7 is a symbol, and the last two are newer than Unicode 8.
TEST(CharacterClasses, PunctuationIsThatOfTokenizers) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.AddSplit(SplitRegex::CompilePcre(PunctuationClass()), SplitBehavior::kIsolated,
                         false, /*single=*/true);
  const auto pieces = [&](char32_t c) {
    std::string text = "a";
    AppendUtf8(c, &text);
    return Words(pre_tokenizer, text + "b").size();
  };
  for (const char32_t c :
       {0x21, 0x2b, 0x2f, 0x3a, 0x40, 0x5b, 0x60, 0x7b, 0x7e, 0xa1, 0x166d, 0x2e42, 0x111c9}) {
    EXPECT_EQ(pieces(c), 3u) << static_cast<uint32_t>(c);
  }
  for (const char32_t c : {0x20, 0x30, 0x39, 0x41, 0x5a, 0x61, 0x7a, 0x7f, 0xd7, 0x2e43, 0x2e44}) {
    EXPECT_EQ(pieces(c), 1u) << static_cast<uint32_t>(c);
  }
}

TEST(CharacterClasses, ATextOfSeveralCharactersIsNoClass) {
  const auto parts = ParseTokenizerJson(R"({
      "pre_tokenizer": {"type": "Split", "pattern": {"String": "--"}, "behavior": "Isolated"},
      "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})");
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(Words(parts->pre_tokenizer, "a--b-c--"),
            (std::vector<std::string>{"a@0", "--@1", "b-c@3", "--@6"}));
}

}  // namespace
}  // namespace megatrain
