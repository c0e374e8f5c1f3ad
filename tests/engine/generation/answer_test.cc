#include "engine/generation/answer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/tokenizer/bytes_tokenizer.h"
#include "engine/tokenizer/tokenizer.h"

namespace megatrain {
namespace {

std::vector<int32_t> Bytes(const std::string& text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

// Tokens of one word each, w1, w2, ...; 0 is special. Like many tokenizers it leaves out the space
// before a text's first word.
class WordTokenizer : public Tokenizer {
 public:
  absl::Status Encode(std::string_view, std::vector<int32_t>*) const override {
    return absl::UnimplementedError("words are not encoded");
  }
  absl::StatusOr<size_t> EncodePiece(std::string_view, bool, PieceState*,
                                     std::vector<int32_t>*) const override {
    return absl::UnimplementedError("words are not encoded");
  }
  std::string Decode(const std::vector<int32_t>& ids, bool skip_special) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id > 0 || !skip_special) text += " w" + std::to_string(id);
    }
    return text.substr(text.empty() ? 0 : 1);
  }
  std::optional<int32_t> TokenId(std::string_view) const override { return std::nullopt; }
  std::string TokenText(int32_t id) const override { return Decode({id}, false); }
  int64_t vocabulary() const override { return 10; }
  int32_t eos_id() const override { return -1; }
  int32_t bos_id() const override { return -1; }
  int32_t pad_id() const override { return -1; }
  std::string fingerprint() const override { return "words"; }
};

TEST(AnswerOfWordsTest, AWordKeepsItsSpaceBehindAPromptAndInALongAnswer) {
  const WordTokenizer tokenizer;
  const StopRules stop = {};
  Answer answer(tokenizer, stop, {1, 2}, 1000);
  std::string expected;
  for (int i = 0; i < 600; ++i) {
    expected += " w3";
    ASSERT_EQ(answer.Take(3), " w3") << i;
  }
  EXPECT_EQ(answer.text(), expected);
  // A prompt without text is not before it.
  Answer first(tokenizer, stop, {0}, 10);
  EXPECT_EQ(first.Take(3), "w3");
  EXPECT_EQ(first.Take(4), " w4");
}

class AnswerTest : public testing::Test {
 protected:
  // The pieces that come out, in brackets, while the answer takes the bytes of `text`.
  std::string Pieces(const std::string& text, int64_t tokens_max = 100) {
    answer_ = std::make_unique<Answer>(*tokenizer_, stop_, Bytes("prompt "), tokens_max);
    std::string pieces;
    for (const int32_t id : Bytes(text)) {
      if (answer_->ended()) break;
      const std::string piece = answer_->Take(id);
      if (!piece.empty()) pieces += "[" + piece + "]";
    }
    return pieces;
  }

  const std::shared_ptr<const Tokenizer> tokenizer_ = MakeBytesTokenizer();
  StopRules stop_;
  std::unique_ptr<Answer> answer_;
};

TEST_F(AnswerTest, PiecesAreWholeCharacters) {
  EXPECT_EQ(Pieces("aé€😀b"), "[a][é][€][😀][b]");
  EXPECT_EQ(answer_->text(), "aé€😀b");
  EXPECT_FALSE(answer_->ended());
  EXPECT_EQ(answer_->tokens(), 11);
}

TEST_F(AnswerTest, ALongOneIsWhole) {
  stop_.texts = {"END"};
  std::string text;
  for (int i = 0; i < 300; ++i) text += i % 7 == 3 ? "€" : i % 5 == 1 ? "EN" : "x";
  Pieces(text, 2000);
  EXPECT_EQ(answer_->text(), text);
  EXPECT_EQ(answer_->ids(), Bytes("prompt " + text));
}

TEST_F(AnswerTest, ItEndsAtItsLength) {
  EXPECT_EQ(Pieces("abcdef", 3), "[a][b][c]");
  EXPECT_TRUE(answer_->ended());
  EXPECT_FALSE(answer_->stopped());
}

TEST_F(AnswerTest, ATokenThatStopsIsNoPartOfIt) {
  stop_.ids = {';'};
  EXPECT_EQ(Pieces("ab;c"), "[a][b]");
  EXPECT_TRUE(answer_->stopped());
  EXPECT_EQ(answer_->tokens(), 2);
  EXPECT_EQ(answer_->ids(), Bytes("prompt ab"));
}

TEST_F(AnswerTest, ATextThatStopsIsHeldBackUntilItIsNone) {
  stop_.texts = {"END", "\n\n"};
  EXPECT_EQ(Pieces("a\nbEEND"), "[a][\nb][E]");
  EXPECT_TRUE(answer_->stopped());
  EXPECT_EQ(answer_->text(), "a\nbE");
  EXPECT_EQ(Pieces("EN\n.\n\nx"), "[EN][\n.]");
  EXPECT_TRUE(answer_->stopped());
}

TEST_F(AnswerTest, TheFirstOfSeveralStopsCountsAndTheLongestThatIsBegunIsHeldBack) {
  for (const bool turned : {false, true}) {
    const auto set = [&](const std::string& a, const std::string& b) {
      stop_.texts = turned ? std::vector<std::string>{b, a} : std::vector<std::string>{a, b};
    };
    set("ab", "xab");  // both are whole with the same token
    EXPECT_EQ(Pieces("-xab"), "[-]") << turned;
    EXPECT_TRUE(answer_->stopped());
    set("ab c", "b d");
    EXPECT_EQ(Pieces("ab c"), "") << turned;
    EXPECT_TRUE(answer_->stopped());
    EXPECT_EQ(Pieces("ab d"), "[a]") << turned;
    EXPECT_TRUE(answer_->stopped());
  }
}

// Whether it is decoded with a part of the prompt, with all of it or with nothing.
TEST_F(AnswerTest, NothingOfAPromptOfAnyLengthIsItsText) {
  for (const size_t length : {0, 1, 15, 16, 17, 40}) {
    Answer answer(*tokenizer_, stop_, Bytes(std::string(length, 'p')), 2);
    EXPECT_EQ(answer.Take('a'), "a") << length;
    EXPECT_EQ(answer.Take('b'), "b") << length;
    EXPECT_TRUE(answer.ended());
    EXPECT_EQ(answer.tokens(), 2) << length;
    EXPECT_EQ(answer.ids().size(), length + 2);
  }
}

TEST_F(AnswerTest, WhatWasHeldBackComesWithTheEnd) {
  stop_.texts = {"END"};
  stop_.ids = {';'};
  EXPECT_EQ(Pieces("aEN", 3), "[a][EN]");
  EXPECT_EQ(Pieces("aEN;", 9), "[a][EN]");
  EXPECT_TRUE(answer_->stopped());
}

// Not in the prompt, not in the answer, and not among the tokens that a long one is decoded with.
TEST_F(AnswerTest, SpecialTokensHaveNoText) {
  std::vector<int32_t> prompt = Bytes("prompt ");
  prompt.push_back(kBytesBosId);
  Answer answer(*tokenizer_, stop_, prompt, 2000);
  std::string expected, pieces;
  for (int i = 0; i < 300; ++i) {
    expected += "ab";
    EXPECT_EQ(answer.Take(kBytesPadId), "");
    for (const int32_t id : Bytes("ab")) pieces += answer.Take(id);
  }
  EXPECT_EQ(pieces, expected);
  EXPECT_EQ(answer.text(), expected);
  EXPECT_EQ(answer.tokens(), 900);
}

// Its bytes at the end, of a character that is not whole, are no text.
TEST_F(AnswerTest, APartOfACharacterAtTheEndIsLeftOut) {
  EXPECT_EQ(Pieces("a€", 3), "[a]");
  EXPECT_EQ(answer_->text(), "a");
}

}  // namespace
}  // namespace megatrain
