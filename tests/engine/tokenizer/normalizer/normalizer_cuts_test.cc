// Where a normalizer says that a text can be cut, its parts give what the whole gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/tokenizer/normalizer/normalizer.h"
#include "engine/tokenizer/text/split_regex.h"

namespace megatrain {
namespace {

// Letters, spaces and what steps remove, join, divide or put spaces around.
constexpr std::string_view kCharacters[] = {
    "a",  "b",      "x",      "A",      " ",      " ",      "\n",     "\u00a0", "\u200b",
    "中", "\u0301", "\u0327", "\u00e9", "\u2581", "\u1100", "\u1161", "\u0007", "\u0131"};

std::string RandomText(std::mt19937& random, size_t characters_max) {
  std::string text;
  for (size_t i = random() % (characters_max + 1); i > 0; --i) {
    text += kCharacters[random() % std::size(kCharacters)];
  }
  return text;
}

// Adds a step and returns its name.
std::string AddStep(std::mt19937& random, Normalizer& to) {
  constexpr UnicodeForm kForms[] = {UnicodeForm::kNfc, UnicodeForm::kNfd, UnicodeForm::kNfkc,
                                    UnicodeForm::kNfkd};
  constexpr const char* kPatterns[] = {"x*", "x?", "x{0,2}", "x", " {2,}", "\\s+", "[ab]+", "ab|x"};
  constexpr const char* kTexts[] = {" ", "ab", "  ", "a "};
  const size_t which = random() % 10, choice = random() % 8;
  switch (which) {
    case 0:
      to.AddForm(kForms[choice % 4]);
      break;
    case 1:
      to.AddLowercase();
      break;
    case 2:
      to.AddStripAccents();
      break;
    case 3:
      to.AddNmt();
      break;
    case 4:
      to.AddBert({.clean_text = (choice & 1) != 0,
                  .handle_chinese_chars = true,
                  .strip_accents = (choice & 2) != 0,
                  .lowercase = (choice & 4) != 0});
      break;
    case 5:
      to.AddStrip((choice & 1) != 0, (choice & 2) != 0);
      break;
    case 6:
      to.AddPrepend("\u2581");
      break;
    case 7: {
      absl::StatusOr<std::unique_ptr<SplitRegex>> regex = SplitRegex::Compile(kPatterns[choice]);
      EXPECT_TRUE(regex.ok()) << regex.status();
      to.AddReplace(*std::move(regex), "_");
      break;
    }
    case 8: {
      const bool outer = choice % 2 == 0;
      auto regex = SplitRegex::Compile(outer ? kOuterSpaces : kFirstMark);
      EXPECT_TRUE(regex.ok()) << regex.status();
      to.AddReplace(*std::move(regex), outer ? "" : "\u2581\u2581");
      break;
    }
    default:
      to.AddReplace(kTexts[choice % 4], choice < 4 ? "" : "\u2581");
      break;
  }
  return absl::StrCat(which, ".", choice, " ");
}

std::string Normalized(const Normalizer& normalizer, std::string_view text, bool begins) {
  NormalizedText out;
  const absl::Status status = normalizer.Normalize(text, begins, /*with_runs=*/false, &out);
  EXPECT_TRUE(status.ok()) << status;
  return std::string(out.text);
}

TEST(NormalizerCutsTest, PartsGiveWhatTheWholeGives) {
  std::mt19937 random(20);
  int cuts = 0;
  for (int round = 0; round < 3000; ++round) {
    Normalizer normalizer;
    std::string steps;
    for (size_t i = 1 + random() % 3; i > 0; --i) steps += AddStep(random, normalizer);
    if (round % 2 == 0) normalizer.Tabulate();
    for (int i = 0; i < 8; ++i) {
      const std::string known = RandomText(random, 6), text = known + RandomText(random, 3);
      const std::string whole = Normalized(normalizer, text, true);
      for (size_t at = 0; at < known.size(); ++at) {
        if ((static_cast<unsigned char>(known[at]) & 0xc0) == 0x80) continue;
        if (!normalizer.CutsAt(known, at)) continue;
        ++cuts;
        const std::string_view view = text;
        EXPECT_EQ(absl::CHexEscape(Normalized(normalizer, view.substr(0, at), true) +
                                   Normalized(normalizer, view.substr(at), false)),
                  absl::CHexEscape(whole))
            << steps << " of " << absl::CHexEscape(text) << " at " << at;
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(cuts, 10000);
}

// SentencePiece's own preparation, as transformers writes it.
TEST(NormalizerCutsTest, ATextOfWordsIsCutBeforeSpaces) {
  Normalizer normalizer;
  for (const auto& [from, to] :
       {std::pair{kOuterSpaces, ""}, std::pair<std::string_view, const char*>{" {2,}", " "}}) {
    auto regex = SplitRegex::Compile(from);
    ASSERT_TRUE(regex.ok()) << regex.status();
    normalizer.AddReplace(*std::move(regex), to);
  }
  normalizer.AddReplace(" ", "\u2581");
  auto first = SplitRegex::Compile(kFirstMark);
  ASSERT_TRUE(first.ok()) << first.status();
  normalizer.AddReplace(*std::move(first), "\u2581\u2581");
  EXPECT_EQ(Normalized(normalizer, "  a  b \n ", true), "a\u2581b\u2581\n");
  EXPECT_EQ(Normalized(normalizer, " \u2581 a", true), "\u2581\u2581\u2581a");
  EXPECT_EQ(Normalized(normalizer, " \u2581 a", false), "\u2581\u2581\u2581a");
  EXPECT_TRUE(normalizer.CutsAt("ab cd", 1));
  EXPECT_TRUE(normalizer.CutsAt("ab cd", 2));
  EXPECT_TRUE(normalizer.CutsAt("ab  cd", 2));
  EXPECT_FALSE(normalizer.CutsAt("ab cd", 3)) << "the space may be the last of the text";
}

}  // namespace
}  // namespace megatrain
