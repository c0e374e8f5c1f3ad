#include "engine/data/sequences/document_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/sequences/packing.h"
#include "engine/tokenizer/bytes_tokenizer.h"
#include "tests/engine/data/sequences/special_ids_tokenizer.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

DocumentEncoderOptions Options(const Tokenizer* tokenizer) {
  DocumentEncoderOptions options;
  options.tokenizer = tokenizer;
  options.eos_id = kBytesEosId;
  options.vocabulary = kBytesVocabulary;
  return options;
}

TEST(DocumentEncoderTest, TextIsAllTargetAndClosedByEndOfText) {
  const auto tokenizer = MakeBytesTokenizer();
  DocumentEncoder encoder(Options(tokenizer.get()));
  std::vector<uint32_t> words;
  Example example;
  example.text = "ab";
  ASSERT_TRUE(encoder.Encode(example, &words).ok());
  example.text = "";
  ASSERT_TRUE(encoder.Encode(example, &words).ok());
  EXPECT_THAT(words,
              ElementsAre('a' | kTargetBit | kDocumentBit, 'b' | kTargetBit,
                          kBytesEosId | kTargetBit, kBytesEosId | kTargetBit | kDocumentBit));
}

TEST(DocumentEncoderTest, PiecesGiveTheSameWordsAsTheWhole) {
  const auto tokenizer = MakeBytesTokenizer();
  Example example;
  for (int i = 0; i < 200; ++i) example.text += "line\nof " + std::to_string(i) + "\ntext\n\n";
  std::vector<uint32_t> whole;
  ASSERT_TRUE(DocumentEncoder(Options(tokenizer.get())).Encode(example, &whole).ok());
  for (const size_t piece : {1, 2, 7, 100, 1000}) {
    DocumentEncoderOptions options = Options(tokenizer.get());
    options.text_piece_bytes = piece;
    std::vector<uint32_t> words;
    ASSERT_TRUE(DocumentEncoder(options).Encode(example, &words).ok());
    EXPECT_EQ(words, whole) << piece;
  }
}

TEST(DocumentEncoderTest, IdsGoAroundTextsAndNoEndIsThereTwice) {
  const auto tokenizer = MakeBytesTokenizer();
  DocumentEncoderOptions options = Options(tokenizer.get());
  options.around = {{kBytesBosId}, {kBytesEosId}};
  DocumentEncoder encoder(options);
  std::vector<uint32_t> words;
  Example example;
  example.text = "a";
  ASSERT_TRUE(encoder.Encode(example, &words).ok());
  EXPECT_THAT(words, ElementsAre(kBytesBosId | kTargetBit | kDocumentBit, 'a' | kTargetBit,
                                 kBytesEosId | kTargetBit));
  words.clear();
  example.text = "";
  ASSERT_TRUE(encoder.Encode(example, &words).ok());
  EXPECT_THAT(words,
              ElementsAre(kBytesBosId | kTargetBit | kDocumentBit, kBytesEosId | kTargetBit));
  // A text in pieces has one beginning.
  options.text_piece_bytes = 2;
  words.clear();
  example.text = "a\nb\nc";
  ASSERT_TRUE(DocumentEncoder(options).Encode(example, &words).ok());
  EXPECT_EQ(std::count(words.begin(), words.end(), kBytesBosId | kTargetBit), 0);
  EXPECT_EQ(words.front(), kBytesBosId | kTargetBit | kDocumentBit);
  EXPECT_EQ(words.size(), 7u);
  // Other ids behind a text come before its end.
  options.around = {{}, {'x'}};
  words.clear();
  example.text = "";
  ASSERT_TRUE(DocumentEncoder(options).Encode(example, &words).ok());
  EXPECT_THAT(words, ElementsAre('x' | kTargetBit | kDocumentBit, kBytesEosId | kTargetBit));
}

TEST(IdsAroundTextTest, AreTheTokenizersUnlessTheJobSays) {
  const SpecialIdsTokenizer with({{kBytesBosId, 'p'}, {'q'}}, kBytesBosId);
  EXPECT_THAT(IdsAroundText(with, AddBos::kAuto)->before, ElementsAre(kBytesBosId, 'p'));
  EXPECT_THAT(IdsAroundText(with, AddBos::kTrue)->before, ElementsAre(kBytesBosId, 'p'));
  EXPECT_THAT(IdsAroundText(with, AddBos::kFalse)->before, ElementsAre('p'));
  EXPECT_THAT(IdsAroundText(with, AddBos::kFalse)->after, ElementsAre('q'));
  const SpecialIdsTokenizer without({}, kBytesBosId);
  EXPECT_THAT(IdsAroundText(without, AddBos::kAuto)->before, ElementsAre());
  EXPECT_THAT(IdsAroundText(without, AddBos::kTrue)->before, ElementsAre(kBytesBosId));
  const SpecialIdsTokenizer none({}, -1);
  EXPECT_TRUE(IdsAroundText(none, AddBos::kFalse).ok());
  EXPECT_THAT(std::string(IdsAroundText(none, AddBos::kTrue).status().message()),
              HasSubstr("data.add_bos: true, but the tokenizer names no beginning-of-text token"));
}

// Settles a text up to its last space.
class SettlingTokenizer : public SpecialIdsTokenizer {
 public:
  SettlingTokenizer() : SpecialIdsTokenizer({{kBytesBosId}, {}}, kBytesBosId) {}
  absl::StatusOr<size_t> EncodePiece(std::string_view text, bool last, PieceState* state,
                                     std::vector<int32_t>* ids) const override {
    const size_t settled = last ? text.size() : text.rfind(' ') + 1;  // npos + 1 is 0
    state->continued = state->continued || settled > 0;
    const absl::Status status = Encode(text.substr(0, settled), ids);
    if (!status.ok()) return status;
    return settled;
  }
};

TEST(DocumentEncoderTest, PiecesOfATextHaveOneBeginningAndOneEnd) {
  const SettlingTokenizer tokenizer;
  DocumentEncoderOptions options = Options(&tokenizer);
  options.around = {{kBytesBosId}, {}};
  DocumentEncoder encoder(options);
  std::vector<uint32_t> words;
  EXPECT_EQ(*encoder.TextPiece("ab", false, &words), 0u);
  EXPECT_TRUE(words.empty());
  EXPECT_EQ(*encoder.TextPiece("ab c", false, &words), 3u);
  EXPECT_EQ(*encoder.TextPiece("c", true, &words), 1u);
  encoder.EndText(&words);
  EXPECT_THAT(words, ElementsAre(kBytesBosId | kTargetBit | kDocumentBit, 'a' | kTargetBit,
                                 'b' | kTargetBit, ' ' | kTargetBit, 'c' | kTargetBit,
                                 kBytesEosId | kTargetBit));
}

TEST(DocumentEncoderTest, NothingOfATextThatWasGivenUpIsInTheNext) {
  const SettlingTokenizer tokenizer;
  DocumentEncoderOptions options = Options(&tokenizer);
  options.around = {{kBytesBosId}, {}};
  options.text_piece_bytes = 2;
  DocumentEncoder encoder(options);
  std::vector<uint32_t> words;
  EXPECT_EQ(*encoder.TextPiece("a b", false, &words), 2u);
  encoder.Restart();
  EXPECT_EQ(encoder.largest_id(), -1);
  Example example;
  for (const bool bad : {true, false}) {
    words.clear();
    example.text = bad ? "a \xff b" : "d";
    EXPECT_EQ(encoder.Encode(example, &words).ok(), !bad);
  }
  EXPECT_THAT(words, ElementsAre(kBytesBosId | kTargetBit | kDocumentBit, 'd' | kTargetBit,
                                 kBytesEosId | kTargetBit));
}

// The prompt and what goes before it are not learnt; what ends the answer is.
TEST(DocumentEncoderTest, OfAPairOfTextsTheAnswersAreLearnt) {
  constexpr uint32_t kP = 'p', kQ = 'q';
  const auto tokenizer = MakeBytesTokenizer();
  DocumentEncoderOptions options = Options(tokenizer.get());
  options.around = {{kBytesBosId}, {'x'}};
  Example example;
  PreferencePair& pair = example.pair.emplace();
  pair.prompt = "pq";
  pair.chosen = "ab";
  pair.rejected = "c";
  std::vector<uint32_t> words;
  ASSERT_TRUE(DocumentEncoder(options).Encode(example, &words).ok());
  EXPECT_THAT(words, ElementsAre(kBytesBosId | kDocumentBit | kWholeBit, kP, kQ, 'a' | kTargetBit,
                                 'b' | kTargetBit, 'x' | kTargetBit, kBytesEosId | kTargetBit,
                                 kBytesBosId | kDocumentBit | kWholeBit, kP, kQ, 'c' | kTargetBit,
                                 'x' | kTargetBit, kBytesEosId | kTargetBit));
  // Without an id before, the prompt's first token begins the document.
  options.around = {{}, {kBytesEosId}};
  words.clear();
  ASSERT_TRUE(DocumentEncoder(options).Encode(example, &words).ok());
  EXPECT_THAT(words,
              ElementsAre(kP | kDocumentBit | kWholeBit, kQ, 'a' | kTargetBit, 'b' | kTargetBit,
                          kBytesEosId | kTargetBit, kP | kDocumentBit | kWholeBit, kQ,
                          'c' | kTargetBit, kBytesEosId | kTargetBit));
  options.eos_id = -1;
  EXPECT_THAT(std::string(DocumentEncoder(options).Encode(example, &words).message()),
              HasSubstr("which token ends a text"));
  pair.is_chat = true;
  EXPECT_THAT(std::string(DocumentEncoder(options).Encode(example, &words).message()),
              HasSubstr("the model's directory has no chat template"));
}

TEST(DocumentEncoderTest, RefusesIdsOutsideTheVocabulary) {
  const auto tokenizer = MakeBytesTokenizer();
  DocumentEncoderOptions options = Options(tokenizer.get());
  options.vocabulary = 'c';
  DocumentEncoder encoder(options);
  std::vector<uint32_t> words;
  Example example;
  example.text = "abc";
  EXPECT_THAT(std::string(encoder.Encode(example, &words).message()),
              HasSubstr("the tokenizer gives token 99, which is not below the model's vocabulary "
                        "of 99"));
}

}  // namespace
}  // namespace megatrain
