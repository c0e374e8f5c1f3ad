// The tokens that Unigram and WordPiece make of words, and the words that they refuse.
#include "engine/tokenizer/model/token_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/tokenizer/model/unigram_model.h"
#include "engine/tokenizer/model/word_model.h"
#include "engine/tokenizer/text/text_map.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Pieces = std::vector<std::pair<std::string, double>>;

std::vector<int32_t> Ids(const TokenModel& model, const std::string& word) {
  ModelBuffers buffers;
  const absl::Status status = model.Encode(word, {}, &buffers);
  EXPECT_TRUE(status.ok()) << status;
  std::vector<int32_t> ids;
  for (const TokenAt& token : buffers.tokens) ids.push_back(token.id);
  return ids;
}

std::vector<int32_t> UnigramIds(const Pieces& pieces, const std::string& word,
                                bool byte_fallback = false) {
  const auto model = UnigramModel::Make(pieces, /*unknown_id=*/0, byte_fallback);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? Ids(**model, word) : std::vector<int32_t>();
}

TEST(UnigramModelTest, TheMostProbableWayIsTaken) {
  const Pieces pieces = {{"<unk>", -9}, {"a", -1}, {"b", -1}, {"ab", -2}, {"bb", -1.5}};
  EXPECT_THAT(UnigramIds(pieces, "ab"), ElementsAre(3)) << "of equal ways the longest last token";
  EXPECT_THAT(UnigramIds(pieces, "abb"), ElementsAre(1, 4));
  // An unknown character scores 10 less than the least probable token. Here one, and a token of 0
  // behind it, stand against two of the least probable tokens.
  for (const double least : {-9.5, -10.5}) {
    const Pieces rare = {{"<unk>", 0}, {"xy", least}, {"zw", least}, {"yzw", 0}};
    if (least > -10) {
      EXPECT_THAT(UnigramIds(rare, "xyzw"), ElementsAre(1, 2));
    } else {
      EXPECT_THAT(UnigramIds(rare, "xyzw"), ElementsAre(0, 3));
    }
  }
}

TEST(UnigramModelTest, UnknownCharactersAreBytesIfEachByteIsAToken) {
  Pieces pieces = {{"<unk>", 0}, {"a", -1}, {"<0xC3>", -1}};
  EXPECT_THAT(UnigramIds(pieces, "a\u00e9\u00e9a", /*byte_fallback=*/true), ElementsAre(1, 0, 1));
  pieces.emplace_back("<0xA9>", -1);
  EXPECT_THAT(UnigramIds(pieces, "a\u00e9\u00e9a", /*byte_fallback=*/true),
              ElementsAre(1, 2, 3, 2, 3, 1));
  EXPECT_THAT(UnigramIds(pieces, "a\u00e9\u00e9a"), ElementsAre(1, 0, 1));
}

TEST(UnigramModelTest, PiecesAndWordsThatMakeNoSenseAreRefused) {
  const auto error = [](const Pieces& pieces, std::optional<int32_t> unknown_id) {
    const auto model = UnigramModel::Make(pieces, unknown_id, false);
    return model.ok() ? "accepted" : std::string(model.status().message());
  };
  EXPECT_THAT(error({{"a", 0}, {"b", NAN}}, 0), HasSubstr("model.vocab[1]: the score"));
  EXPECT_THAT(error({{"a", -INFINITY}}, 0), HasSubstr("model.vocab[0]: the score"));
  EXPECT_THAT(error({{"a", 0}, {"a", 0}}, 0), HasSubstr("model.vocab[1]: the token \"a\""));
  EXPECT_THAT(error({{"a", 0}}, 1), HasSubstr("model.unk_id 1"));
  EXPECT_THAT(error({{"a", 0}}, -1), HasSubstr("model.unk_id -1"));
  EXPECT_EQ(error({{"a", 0}}, std::nullopt), "accepted");
  const auto model = UnigramModel::Make({{"a", 0}}, std::nullopt, false);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Ids(**model, "aa"), ElementsAre(0, 0));
  ModelBuffers buffers;
  const absl::Status unknown = (*model)->Encode("a\u00e9", {}, &buffers);
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("the text has \"\u00e9\""));
}

TEST(WordPieceModelTest, AWordIsCutWholeOrNotAtAll) {
  const TextMap<int32_t> vocabulary = {
      {"[UNK]", 0}, {"\u00e9", 1}, {"##\u00e9", 2}, {"##\u00e9\u00e9", 3}, {"a", 4}};
  const WordPieceModel model(vocabulary, 0, "##", /*characters_max=*/4);
  EXPECT_THAT(Ids(model, "\u00e9\u00e9\u00e9\u00e9"), ElementsAre(1, 3, 2));
  EXPECT_THAT(Ids(model, "\u00e9\u00e9\u00e9\u00e9\u00e9"), ElementsAre(0)) << "too long";
  EXPECT_THAT(Ids(model, "\u00e9a"), ElementsAre(0)) << "a begins words only";
  const WordPieceModel strict(vocabulary, std::nullopt, "##", 4);
  ModelBuffers buffers;
  const absl::Status unknown = strict.Encode("\u00e9a", {}, &buffers);
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("the text has \"\u00e9a\""));
}

// A long text is encoded in pieces, and must have the tokens that it has as a whole.
TEST(WordPieceModelTest, AnOpenWordIsUnknownOnlyFromOneCharacterTooMany) {
  const TextMap<int32_t> vocabulary = {{"[UNK]", 0}, {"\u00e9", 1}, {"##\u00e9", 2}};
  const WordPieceModel model(vocabulary, 0, "##", /*characters_max=*/4);
  const auto anywhere = [](size_t) { return true; };
  for (const std::string word : {"\u00e9\u00e9\u00e9", "\u00e9\u00e9\u00e9\u00e9"}) {
    WordState state;
    ModelBuffers buffers;
    const auto taken = model.EncodeOpen(word, anywhere, &state, &buffers);
    ASSERT_TRUE(taken.ok()) << taken.status();
    EXPECT_EQ(*taken, 0u) << word << " may end here";
    EXPECT_FALSE(state.begun);
  }
  WordState state;
  ModelBuffers buffers;
  const std::string word = "\u00e9\u00e9\u00e9\u00e9\u00e9";
  const auto taken = model.EncodeOpen(word, anywhere, &state, &buffers);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(*taken, word.size() - 2) << "no more than all but the last character";
  EXPECT_TRUE(state.begun);
  ASSERT_EQ(buffers.tokens.size(), 1u);
  EXPECT_EQ(buffers.tokens[0].id, 0);
  ASSERT_TRUE(model.Encode("\u00e9", state, &buffers).ok());
  EXPECT_TRUE(buffers.tokens.empty()) << "the rest of the same word";
}

}  // namespace
}  // namespace megatrain
