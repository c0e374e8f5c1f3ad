// Byte-pair encoding of long and of open words, against the rules applied to the whole word. Rules
// are drawn at random: they are not ordered as training would, and make long dependencies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "engine/tokenizer/model/bpe_merge.h"
#include "engine/tokenizer/model/bpe_model.h"

namespace megatrain {
namespace {

struct Rules {
  TextMap<int32_t> vocabulary;
  std::vector<std::pair<std::string, std::string>> list;
};

Rules Draw(std::mt19937& random, const std::string& alphabet, size_t count) {
  Rules rules;
  std::vector<std::string> tokens;
  const auto add = [&](const std::string& token) {
    if (rules.vocabulary.emplace(token, static_cast<int32_t>(tokens.size())).second) {
      tokens.push_back(token);
    }
  };
  for (const char c : alphabet) add(std::string(1, c));
  while (rules.list.size() < count) {
    const std::string left = tokens[random() % tokens.size()];
    const std::string right = tokens[random() % tokens.size()];
    if (left.size() + right.size() > 9) continue;
    rules.list.emplace_back(left, right);
    add(left + right);
  }
  std::shuffle(rules.list.begin(), rules.list.end(), random);
  return rules;
}

BpeMerges Merges(const Rules& rules, BpeSeams* seams) {
  BpeMerges merges;
  int32_t rank = 0;
  for (const auto& [left, right] : rules.list) {
    merges.Add(rules.vocabulary.at(left), rules.vocabulary.at(right), rank++,
               rules.vocabulary.at(left + right));
    if (seams != nullptr) seams->AddRule(left, right);
  }
  return merges;
}

// The tokens of the whole, by the rules alone. Unknown characters are fused to `unknown`.
std::vector<int32_t> Reference(const Rules& rules, const std::string& text, int32_t unknown) {
  std::vector<TokenAt> symbols;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto found = rules.vocabulary.find(text.substr(i, 1));
    const int32_t id = found == rules.vocabulary.end() ? unknown : found->second;
    if (id == unknown && !symbols.empty() && symbols.back().id == unknown) continue;
    symbols.push_back({id, static_cast<uint32_t>(i)});
  }
  Merges(rules, nullptr).Apply(&symbols);
  std::vector<int32_t> ids;
  for (const TokenAt& symbol : symbols) ids.push_back(symbol.id);
  return ids;
}

std::string Text(std::mt19937& random, const std::string& alphabet, size_t bytes) {
  std::string text;
  while (text.size() < bytes) {
    // Runs, periods and letters at random.
    const std::string part = alphabet.substr(random() % alphabet.size(), 1 + random() % 3);
    for (size_t times = random() % 3 == 0 ? random() % 60 : 1; times > 0; --times) text += part;
  }
  return text;
}

class BpeSettledTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(WithAndWithoutUnknown, BpeSettledTest, testing::Bool());

TEST_P(BpeSettledTest, OpenWordsHaveTheTokensOfTheWhole) {
  std::mt19937 random(5);
  size_t held = 0, taken = 0;
  for (int round = 0; round < 150; ++round) {
    const std::string alphabet = round % 3 == 0 ? "ab" : round % 3 == 1 ? "abc" : "abcdef";
    const Rules rules = Draw(random, alphabet, 2 + random() % 40);
    BpeSeams seams;
    BpeMerges merges = Merges(rules, &seams);
    const auto unknown = static_cast<int32_t>(rules.vocabulary.size());
    BpeSettings settings;
    settings.unknown_id = unknown;
    settings.fuse_unknown = true;
    const BpeModel model(rules.vocabulary, std::move(merges), std::move(seams), settings);
    const std::string text = Text(random, GetParam() ? alphabet + "??" : alphabet, 3000);
    const std::vector<int32_t> whole = Reference(rules, text, unknown);
    const size_t window = 50 + random() % 500;
    std::vector<int32_t> ids;
    WordState state;
    ModelBuffers buffers;
    std::string_view rest = text;
    for (size_t take = window; take < rest.size();) {
      const auto size = model.EncodeOpen(
          rest.substr(0, take), [](size_t at) { return at % 3 != 0; }, &state, &buffers);
      ASSERT_TRUE(size.ok());
      (*size == 0 ? held : taken) += 1;
      take = *size == 0 ? take + window : window;
      if (*size == 0) continue;
      for (const TokenAt& token : buffers.tokens) ids.push_back(token.id);
      rest.remove_prefix(*size);
    }
    ASSERT_TRUE(model.Encode(rest, state, &buffers).ok());
    for (const TokenAt& token : buffers.tokens) ids.push_back(token.id);
    EXPECT_TRUE(ids == whole) << "round " << round;
  }
  EXPECT_LT(held, taken / 4);
}

TEST(BpeLongWordTest, LongWordsHaveTheTokensOfTheRulesAlone) {
  std::mt19937 random(6);
  for (int round = 0; round < 12; ++round) {
    const Rules rules = Draw(random, "abcd", 30);
    BpeSeams seams;
    BpeMerges merges = Merges(rules, &seams);
    const BpeModel model(rules.vocabulary, std::move(merges), std::move(seams), {});
    const std::string text = Text(random, "abcd", 100000);
    ModelBuffers buffers;
    ASSERT_TRUE(model.Encode(text, {}, &buffers).ok());
    std::vector<int32_t> ids;
    std::string spelled;
    for (const TokenAt& token : buffers.tokens) {
      EXPECT_EQ(token.begin, spelled.size());
      ids.push_back(token.id);
      for (const auto& [word, id] : rules.vocabulary) {
        if (id == token.id) spelled += word;
      }
    }
    EXPECT_TRUE(ids == Reference(rules, text, -1)) << "round " << round;
    EXPECT_TRUE(spelled == text);
  }
}

}  // namespace
}  // namespace megatrain
