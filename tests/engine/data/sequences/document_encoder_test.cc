#include "engine/data/sequences/document_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/data/sequences/packing.h"
#include "engine/tokenizer/bytes_tokenizer.h"

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
