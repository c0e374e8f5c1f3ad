#include "engine/tokenizer/decoder.h"

#include <gtest/gtest.h>

namespace megatrain {
namespace {

// As the library does: there is no word that the first token could go on.
TEST(DecoderTest, WordPieceLeavesTheFirstTokenAsItIs) {
  Decoder decoder;
  decoder.AddWordPiece("##", /*cleanup=*/false);
  EXPECT_EQ(decoder.Decode({"play", "##ing", "the", "##re"}), "playing there");
  EXPECT_EQ(decoder.Decode({"##ing", "the", "##re"}), "##ing there");
}

// An empty Sequence of decoders is one.
TEST(DecoderTest, WithoutAnyStepSpacesAreBetweenTokens) {
  Decoder decoder;
  EXPECT_EQ(decoder.Decode({"a", "b", "c"}), "a b c");
  decoder.JoinWithoutSpaces();
  EXPECT_EQ(decoder.Decode({"a", "b", "c"}), "abc");
}

TEST(DecoderTest, ReplacingEndsWhereATextGrowsTooLong) {
  auto from = SplitRegex::Compile("a");
  ASSERT_TRUE(from.ok()) << from.status();
  Decoder decoder;
  decoder.AddReplace(*std::move(from), std::string(1000, 'b'));
  EXPECT_EQ(decoder.Decode({"-a-"}), "-" + std::string(1000, 'b') + "-");
  const std::string text = decoder.Decode({std::string(3000, 'a')});
  EXPECT_LE(text.size(), (size_t{1} << 20) + 3000);
  EXPECT_EQ(text.front(), 'b');
  EXPECT_EQ(text.back(), 'a') << "the rest stays as it is";
}

TEST(DecoderTest, WordPiecesCleanUpJoinsContractions) {
  Decoder decoder;
  decoder.AddWordPiece("##", /*cleanup=*/true);
  EXPECT_EQ(decoder.Decode({"we", "'ve", "do", "n't", "we", "'re", "."}), "we've don't we're.");
  EXPECT_EQ(decoder.Decode({"it", "'s", "do not", "i", "'m", "?"}), "it's don't i'm?");
}

TEST(DecoderTest, StripTakesAsOftenAsItSaysFromEachEnd) {
  Decoder decoder;
  decoder.AddStrip("-", /*start=*/1, /*stop=*/2);
  EXPECT_EQ(decoder.Decode({"--a---", "-", "b-"}), "-a-b");
  Decoder beginning;
  beginning.AddStrip("-", /*start=*/1, /*stop=*/0);
  EXPECT_EQ(beginning.Decode({"-a-"}), "a-");
}

// Steps behind ByteFallback meet parts of characters.
TEST(DecoderTest, PartsOfCharactersStayAsTheyAre) {
  auto from = SplitRegex::Compile("a.");
  ASSERT_TRUE(from.ok()) << from.status();
  Decoder decoder;
  decoder.AddByteFallback();
  decoder.AddReplace(*std::move(from), "x");
  decoder.AddByteLevel();
  EXPECT_EQ(decoder.Decode({"ab", "<0xF0>"}), "x\xF0");
  EXPECT_EQ(decoder.Decode({"<0x61>", "<0xE2>", "<0x82>", "b"}),
            "a\xE2\x82"
            "b");
}

}  // namespace
}  // namespace megatrain
