#include "engine/data/sequences/encoder_setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tokenizer/bytes_tokenizer.h"
#include "tests/engine/data/sequences/special_ids_tokenizer.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

TEST(PadIdTest, IsTheFirstOfTheTokenizersIdsThatTheModelHas) {
  SpecialIdsTokenizer tokenizer;
  EXPECT_EQ(PadId(nullptr, 100), 0);
  EXPECT_EQ(PadId(&tokenizer, 100), 0);
  tokenizer.eos = 7;
  EXPECT_EQ(PadId(&tokenizer, 100), 7);
  tokenizer.pad = 99;
  EXPECT_EQ(PadId(&tokenizer, 100), 99);
  EXPECT_EQ(PadId(&tokenizer, 99), 7);
  EXPECT_EQ(PadId(&tokenizer, 7), 0);
  tokenizer.pad = 0;
  EXPECT_EQ(PadId(&tokenizer, 100), 0);
}

class PrepareEncoderTest : public ::testing::Test {
 protected:
  // Prepares for a model of 100 tokens.
  absl::Status Prepare(const std::vector<DataFile>& train, const Tokenizer* tokenizer) {
    JobSpec::Data data;
    data.train = train;
    data.eval = eval_;
    data.chat_template = template_;
    encoder_ = DocumentEncoderOptions();
    encoder_.vocabulary = 100;
    chat_template_ = nullptr;
    return PrepareEncoder(data, tokenizer, directory_.path(), PosixFileSystem(), encoder_,
                          chat_template_);
  }
  std::string Refusal(const std::vector<DataFile>& train, const Tokenizer* tokenizer) {
    const absl::Status status = Prepare(train, tokenizer);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }

  const std::vector<DataFile> text_ = {{"a.txt", DataFormat::kText, ""}};
  std::vector<DataFile> eval_;
  std::string template_ = "auto";
  const std::vector<DataFile> tokens_ = {{"t.npy", DataFormat::kTokens, ""}};
  const TestDirectory directory_;
  DocumentEncoderOptions encoder_;
  std::unique_ptr<ChatTemplate> chat_template_;
};

TEST_F(PrepareEncoderTest, TheEndOfATextIsTheTokenizersOrElseTheConfigurations) {
  SpecialIdsTokenizer tokenizer;
  for (const auto& [config, eos] :
       {std::pair{R"({"eos_token_id": 7})", 7}, std::pair{R"({"eos_token_id": [5, 6]})", 5},
        std::pair{R"({"eos_token_id": 0})", 0}, std::pair{R"({"eos_token_id": 99})", 99}}) {
    directory_.Write("config.json", config);
    const absl::Status status = Prepare(text_, &tokenizer);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(encoder_.eos_id, eos) << config;
  }
  for (const char* config : {"{}", "[]", R"({"eos_token_id": []})", R"({"eos_token_id": "7"})",
                             R"({"eos_token_id": -1})", R"({"eos_token_id": 4294967297})"}) {
    directory_.Write("config.json", config);
    EXPECT_THAT(Refusal(text_, &tokenizer), HasSubstr("which token ends a text")) << config;
  }
  directory_.Write("config.json", R"({"eos_token_id": 100})");
  EXPECT_THAT(Refusal(text_, &tokenizer),
              HasSubstr("the end-of-text token 100 is not below the model's vocabulary of 100"));
  tokenizer.eos = 3;
  ASSERT_TRUE(Prepare(text_, &tokenizer).ok());
  EXPECT_EQ(encoder_.eos_id, 3);
}

TEST_F(PrepareEncoderTest, ATokenizerIsNeededForAllButTokens) {
  EXPECT_TRUE(Prepare(tokens_, nullptr).ok());
  SpecialIdsTokenizer tokenizer;
  tokenizer.eos = 3;
  std::vector<DataFile> both = tokens_;
  both.push_back(text_[0]);
  EXPECT_THAT(Refusal(both, nullptr), HasSubstr("a.txt: format text needs a tokenizer"));
  ASSERT_TRUE(Prepare(both, &tokenizer).ok());
  EXPECT_EQ(encoder_.tokenizer, &tokenizer);
  EXPECT_EQ(encoder_.eos_id, 3);
}

// Preference data may need neither, which shows when its records are read.
TEST_F(PrepareEncoderTest, PreferenceDataMayLackTheEndOfATextAndATemplate) {
  SpecialIdsTokenizer tokenizer;
  const absl::Status status = Prepare({{"p.jsonl", DataFormat::kPreference, ""}}, &tokenizer);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(encoder_.eos_id, -1);
  EXPECT_EQ(encoder_.chat_template, nullptr);
  EXPECT_EQ(Prepare({{"c.jsonl", DataFormat::kMessages, ""}}, &tokenizer).code(),
            absl::StatusCode::kNotFound);
  // A text beside it needs its end all the same.
  EXPECT_THAT(Refusal({{"p.jsonl", DataFormat::kPreference, ""}, text_[0]}, &tokenizer),
              HasSubstr("which token ends a text"));
}

TEST_F(PrepareEncoderTest, ATemplateThatIsNamedOrBrokenIsNotLackingInPreferenceData) {
  SpecialIdsTokenizer tokenizer;
  const std::vector<DataFile> preference = {{"p.jsonl", DataFormat::kPreference, ""}};
  template_ = directory_ / "none.jinja";
  EXPECT_EQ(Prepare(preference, &tokenizer).code(), absl::StatusCode::kNotFound);
  template_ = "auto";
  directory_.Write("chat_template.jinja", "{% if %}");
  EXPECT_THAT(Refusal(preference, &tokenizer), HasSubstr("is not a chat template"));
  directory_.Write("chat_template.jinja", "{{ messages[0].content }}");
  const absl::Status good = Prepare(preference, &tokenizer);
  EXPECT_TRUE(good.ok()) << good;
  ASSERT_NE(chat_template_, nullptr);
  EXPECT_EQ(encoder_.chat_template, chat_template_.get());
}

TEST_F(PrepareEncoderTest, DataForEvaluationCountsToo) {
  SpecialIdsTokenizer tokenizer;
  eval_ = text_;
  EXPECT_THAT(Refusal(tokens_, nullptr), HasSubstr("a.txt: format text needs a tokenizer"));
  tokenizer.eos = 3;
  ASSERT_TRUE(Prepare(tokens_, &tokenizer).ok());
  EXPECT_EQ(encoder_.eos_id, 3);
}

TEST_F(PrepareEncoderTest, IdsAroundATextAreTheModels) {
  SpecialIdsTokenizer tokenizer;
  tokenizer.eos = 3;
  tokenizer.around = {{0, 99}, {98}};
  ASSERT_TRUE(Prepare(text_, &tokenizer).ok());
  EXPECT_EQ(encoder_.around.before, (std::vector<int32_t>{0, 99}));
  EXPECT_EQ(encoder_.around.after, (std::vector<int32_t>{98}));
  for (const int32_t id : {-1, 100}) {
    const std::string refusal =
        "the tokenizer puts token " + std::to_string(id) + " around a text, which is not below";
    tokenizer.around = {{0, id}, {}};
    EXPECT_THAT(Refusal(text_, &tokenizer), HasSubstr(refusal));
    tokenizer.around = {{}, {id}};
    EXPECT_THAT(Refusal(text_, &tokenizer), HasSubstr(refusal));
  }
}

}  // namespace
}  // namespace megatrain
