// The symbols that byte-pair encoding begins with, and the order of its rules.
#include "engine/tokenizer/model/bpe_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/tokenizer/model/bpe_merge.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using Rules = std::vector<std::pair<std::string, std::string>>;

BpeModel ModelOf(const TextMap<int32_t>& vocabulary, const Rules& rules, BpeSettings settings) {
  BpeMerges merges;
  BpeSeams seams;
  int32_t rank = 0;
  for (const auto& [left, right] : rules) {
    merges.Add(vocabulary.at(left), vocabulary.at(right), rank++, vocabulary.at(left + right));
    seams.AddRule(left, right);
  }
  return BpeModel(vocabulary, std::move(merges), std::move(seams), std::move(settings));
}

struct Tokens {
  std::vector<int32_t> ids;
  std::vector<uint32_t> begins;
};

Tokens Encoded(const BpeModel& model, const std::string& word, const WordState& state = {}) {
  ModelBuffers buffers;
  EXPECT_TRUE(model.Encode(word, state, &buffers).ok());
  Tokens tokens;
  for (const TokenAt& token : buffers.tokens) {
    tokens.ids.push_back(token.id);
    tokens.begins.push_back(token.begin);
  }
  return tokens;
}

TEST(BpeModelTest, BytesWithoutATokenAreLeftOutOrUnknown) {
  const TextMap<int32_t> vocabulary = {{"a", 0}, {"b", 1}, {"<unk>", 2}};
  BpeSettings settings;
  settings.byte_level = true;
  EXPECT_THAT(Encoded(ModelOf(vocabulary, {}, settings), "a??b?").ids, ElementsAre(0, 1));
  settings.unknown_id = 2;
  const Tokens each = Encoded(ModelOf(vocabulary, {}, settings), "a??b?");
  EXPECT_THAT(each.ids, ElementsAre(0, 2, 2, 1, 2));
  EXPECT_THAT(each.begins, ElementsAre(0, 1, 2, 3, 4));
  settings.fuse_unknown = true;
  const Tokens fused = Encoded(ModelOf(vocabulary, {}, settings), "a??b?");
  EXPECT_THAT(fused.ids, ElementsAre(0, 2, 1, 2));
  EXPECT_THAT(fused.begins, ElementsAre(0, 1, 3, 4));
}

TEST(BpeModelTest, CharactersWithoutATokenAreLeftOutOrUnknown) {
  const TextMap<int32_t> vocabulary = {{"a", 0}, {"\u00e9", 1}, {"<unk>", 2}};
  const std::string word = "a\u00fc\u00fc\u00e9?";
  BpeSettings settings;
  EXPECT_THAT(Encoded(ModelOf(vocabulary, {}, settings), word).ids, ElementsAre(0, 1));
  settings.unknown_id = 2;
  const Tokens each = Encoded(ModelOf(vocabulary, {}, settings), word);
  EXPECT_THAT(each.ids, ElementsAre(0, 2, 2, 1, 2));
  EXPECT_THAT(each.begins, ElementsAre(0, 1, 3, 5, 7));
  settings.fuse_unknown = true;
  const Tokens fused = Encoded(ModelOf(vocabulary, {}, settings), word);
  EXPECT_THAT(fused.ids, ElementsAre(0, 2, 1, 2));
  EXPECT_THAT(fused.begins, ElementsAre(0, 1, 5, 7));
}

TEST(BpeModelTest, ACharacterFallsBackToItsBytesIfEachIsAToken) {
  const TextMap<int32_t> vocabulary = {{"a", 0}, {"<unk>", 1}, {"<0xC3>", 2}, {"<0xBC>", 3}};
  BpeSettings settings;
  settings.unknown_id = 1;
  const std::string word = "a\u00fca";  // C3 BC
  EXPECT_THAT(Encoded(ModelOf(vocabulary, {}, settings), word).ids, ElementsAre(0, 1, 0));
  settings.byte_fallback = true;
  const Tokens bytes = Encoded(ModelOf(vocabulary, {}, settings), word);
  EXPECT_THAT(bytes.ids, ElementsAre(0, 2, 3, 0));
  EXPECT_THAT(bytes.begins, ElementsAre(0, 1, 1, 3)) << "both have the place of the character";
  // Of U+00E9, C3 A9, the second byte has none: nothing of it is left.
  EXPECT_THAT(Encoded(ModelOf(vocabulary, {}, settings), "a\u00e9a").ids, ElementsAre(0, 1, 0));
}

TEST(BpeModelTest, AWordThatIsATokenIsNotMergedIfTheFileSaysSo) {
  const TextMap<int32_t> vocabulary = {{"a", 0}, {"b", 1}, {"ab", 2}, {"abba", 3}};
  for (const bool byte_level : {false, true}) {
    BpeSettings settings;
    settings.byte_level = byte_level;
    EXPECT_THAT(Encoded(ModelOf(vocabulary, {{"a", "b"}}, settings), "abba").ids,
                ElementsAre(2, 1, 0));
    settings.ignore_merges = true;
    const BpeModel model = ModelOf(vocabulary, {{"a", "b"}}, settings);
    EXPECT_THAT(Encoded(model, "abba").ids, ElementsAre(3));
    EXPECT_THAT(Encoded(model, "abbab").ids, ElementsAre(2, 1, 2));
    // The rest of a longer word is no word.
    EXPECT_THAT(Encoded(model, "abba", {.begun = true}).ids, ElementsAre(2, 1, 0));
  }
}

// The token of the unknown characters was given with the part before.
TEST(BpeModelTest, TheRestOfAWordThatIsCutInUnknownCharactersHasItsOwnPlaces) {
  const TextMap<int32_t> vocabulary = {{"a", 0}, {"b", 1}, {"<unk>", 2}};
  BpeSettings settings;
  settings.unknown_id = 2;
  settings.fuse_unknown = true;
  const BpeModel model = ModelOf(vocabulary, {}, settings);
  const WordState cut = {.begun = true, .unknown = true};
  const Tokens rest = Encoded(model, "??ab", cut);
  EXPECT_THAT(rest.ids, ElementsAre(0, 1));
  EXPECT_THAT(rest.begins, ElementsAre(2, 3));
  ModelBuffers buffers;
  WordState state = cut;
  const auto size = model.EncodeOpen(
      "??abab", [](size_t) { return true; }, &state, &buffers);
  ASSERT_TRUE(size.ok()) << size.status();
  ASSERT_GT(*size, 2u);
  ASSERT_FALSE(buffers.tokens.empty());
  EXPECT_EQ(buffers.tokens[0].begin, 2u);
}

TEST(BpeMergesTest, TheRuleOfTheLowestRankGoesFirstAndAtTheLeft) {
  const TextMap<int32_t> vocabulary = {{"a", 0}, {"b", 1}, {"aa", 2}, {"ab", 3}, {"aab", 4}};
  // Few symbols and many are merged in different ways.
  for (const size_t pairs : {size_t{3}, size_t{60}}) {
    const std::string word = std::string(2 * pairs + 1, 'a') + "b";
    std::vector<int32_t> left(pairs, 2), right(pairs, 2), further(pairs - 1, 2);
    left.insert(left.end(), {0, 1});  // no rule is left for the last "a"
    right.push_back(3);
    further.push_back(4);
    EXPECT_EQ(Encoded(ModelOf(vocabulary, {{"a", "a"}}, {}), word).ids, left);
    EXPECT_EQ(Encoded(ModelOf(vocabulary, {{"a", "b"}, {"a", "a"}}, {}), word).ids, right);
    // What was merged is merged further.
    EXPECT_EQ(Encoded(ModelOf(vocabulary, {{"a", "a"}, {"aa", "b"}}, {}), word.substr(1)).ids,
              further);
  }
}

TEST(BpeMergesTest, ALaterRuleOfAPairReplacesTheEarlierOne) {
  BpeMerges merges;
  merges.Add(0, 1, /*rank=*/0, 10);
  merges.Add(1, 2, /*rank=*/1, 11);
  merges.Add(0, 1, /*rank=*/2, 12);
  std::vector<TokenAt> symbols = {{0, 0}, {1, 1}, {2, 2}, {0, 3}, {1, 4}};
  merges.Apply(&symbols);
  std::vector<int32_t> ids;
  for (const TokenAt& symbol : symbols) ids.push_back(symbol.id);
  EXPECT_THAT(ids, ElementsAre(0, 11, 12));
}

}  // namespace
}  // namespace megatrain
