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

}  // namespace
}  // namespace megatrain
