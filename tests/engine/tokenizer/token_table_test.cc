// The tokens that tokenizer_config.json adds to those of tokenizer.json, or adds again.
#include "engine/tokenizer/token_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/tokenizer/bytes_tokenizer.h"
#include "engine/tokenizer/hf_tokenizer.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;

std::shared_ptr<const Tokenizer> With(const std::string& config) {
  const auto made =
      MakeHfTokenizer({.tokenizer_json = BytesTokenizerJson(), .tokenizer_config = config});
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *made : nullptr;
}

std::string Decoder(const std::string& flags) {
  return R"("added_tokens_decoder": {"257": {"content": "<|eos|>")" + flags + "}}";
}

TEST(TokenTableTest, FlagsOfTheConfigReplaceThoseOfTheFile) {
  const auto strips = With("{" + Decoder(R"(, "special": true, "lstrip": true)") + "}");
  ASSERT_NE(strips, nullptr);
  std::vector<int32_t> ids;
  ASSERT_TRUE(strips->Encode("a <|eos|>", &ids).ok());
  EXPECT_THAT(ids, ElementsAre('a', kBytesEosId));
  const std::vector<int32_t> eos = {kBytesEosId};
  EXPECT_EQ(strips->Decode(eos, /*skip_special=*/true), "");
  const auto plain = With("{" + Decoder("") + "}");
  ASSERT_NE(plain, nullptr);
  EXPECT_EQ(plain->Decode(eos, /*skip_special=*/true), "") << "a special token stays one";
  const auto named = With("{" + Decoder("") + R"(, "eos_token": "<|eos|>"})");
  ASSERT_NE(named, nullptr);
  EXPECT_EQ(named->Decode(eos, /*skip_special=*/true), "") << "a named token is special";
}

// Prepared data stays valid.
TEST(TokenTableTest, AModelsOwnTokenThatIsThereChangesNoFingerprint) {
  const auto without = With("{}"), with = With(R"({"image_token": "<|eos|>"})"),
             more = With(R"({"image_token": "<img>"})");
  ASSERT_TRUE(without != nullptr && with != nullptr && more != nullptr);
  EXPECT_EQ(without->fingerprint(), with->fingerprint());
  EXPECT_NE(without->fingerprint(), more->fingerprint());
  EXPECT_EQ(more->TokenId("<img>").value_or(-1), 259);
}

}  // namespace
}  // namespace megatrain
