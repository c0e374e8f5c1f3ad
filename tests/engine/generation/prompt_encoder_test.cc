// The ids of prompts, and what their records say beside the text.
#include "engine/generation/prompt_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/tokenizer/bytes_tokenizer.h"
#include "engine/tokenizer/hf_tokenizer.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class PromptEncoderTest : public testing::Test {
 protected:
  PromptEncoderTest() {
    options_.vocabulary = kBytesVocabulary;
    options_.max_tokens = 100;
    options_.limit = "the test's limit";
  }
  EncodedPrompt Encoded(const Prompt& prompt) {
    options_.tokenizer = tokenizer_.get();
    PromptEncoder encoder(options_);
    const auto encoded = encoder.Encode(prompt, "here");
    EXPECT_TRUE(encoded.ok()) << encoded.status();
    return encoded.ok() ? *encoded : EncodedPrompt();
  }
  EncodedPrompt OfRecord(const std::string& record) { return Encoded({"", record}); }
  // The message of a refusal, which begins with the place.
  std::string Refused(const Prompt& prompt) {
    options_.tokenizer = tokenizer_.get();
    PromptEncoder encoder(options_);
    const absl::Status status = encoder.Encode(prompt, "here").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), StartsWith("here: "));
    return std::string(status.message());
  }

  std::shared_ptr<const Tokenizer> tokenizer_ = MakeBytesTokenizer();
  PromptEncoderOptions options_;
};

TEST_F(PromptEncoderTest, AnEmptyTextIsABosIfThereIsOne) {
  for (const AddBos add_bos : {AddBos::kAuto, AddBos::kFalse, AddBos::kTrue}) {
    options_.add_bos = add_bos;
    EXPECT_THAT(Encoded({"", ""}).ids, ElementsAre(kBytesBosId));
  }
  options_.add_bos = AddBos::kAuto;
  EXPECT_THAT(Encoded({"a", ""}).ids, ElementsAre('a'));
  const auto without_bos = MakeHfTokenizer({.tokenizer_json = BytesTokenizerJson()});
  ASSERT_TRUE(without_bos.ok()) << without_bos.status();
  tokenizer_ = *without_bos;
  EXPECT_THAT(Encoded({"a", ""}).ids, ElementsAre('a'));
  EXPECT_THAT(Refused({"", ""}), HasSubstr("at least one token"));
}

TEST_F(PromptEncoderTest, ARecordHasAPromptAndPerhapsASeed) {
  const EncodedPrompt largest =
      OfRecord(R"({"id": 3, "seed": 18446744073709551615, "prompt": "ab"})");
  EXPECT_THAT(largest.ids, ElementsAre('a', 'b'));
  EXPECT_EQ(largest.seed.value_or(0), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(OfRecord(R"({"prompt": "a", "seed": 0})").seed.value_or(1), 0u);
  EXPECT_FALSE(OfRecord(R"({"prompt": "a"})").seed.has_value());
  EXPECT_THAT(OfRecord(R"({"prompt": ""})").ids, ElementsAre(kBytesBosId));
  EXPECT_THAT(Refused({"", R"({"prompt": "a", "seed": 0.5})"}), HasSubstr("seed: "));
  // A prompt is the user's turn like any text, and the seed of messages counts too.
  options_.chat_template = "chatml";
  const EncodedPrompt messages =
      OfRecord(R"({"messages": [{"role": "user", "content": "a"}], "seed": 5})");
  EXPECT_EQ(messages.seed.value_or(0), 5u);
  EXPECT_NE(OfRecord(R"({"prompt": "a"})").ids, messages.ids);
  options_.chat = true;
  EXPECT_EQ(OfRecord(R"({"prompt": "a"})").ids, messages.ids);
}

TEST_F(PromptEncoderTest, ATemplateIsToldTheDay) {
  const TestDirectory directory;
  options_.chat = true;
  options_.chat_template = directory.Write("day.jinja", "{{ strftime_now('%Y-%m-%d') }}");
  options_.template_date = "2026-01-31";
  std::vector<int32_t> day;
  for (const char c : std::string("2026-01-31")) day.push_back(c);
  EXPECT_EQ(Encoded({"a", ""}).ids, day);
  options_.template_date = "31 January";
  EXPECT_THAT(Refused({"a", ""}), HasSubstr("template_date"));
}

}  // namespace
}  // namespace megatrain
