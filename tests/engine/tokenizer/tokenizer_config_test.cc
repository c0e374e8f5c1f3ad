// The special tokens of the files beside tokenizer.json.
#include "engine/tokenizer/tokenizer_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> ContentsOf(const std::vector<AddedToken>& tokens) {
  std::vector<std::string> contents;
  for (const AddedToken& token : tokens) contents.push_back(token.content);
  return contents;
}

TokenizerConfig Parsed(const std::string& tokenizer_config, const std::string& model_config = "",
                       const std::string& generation_config = "") {
  const auto config = ParseTokenizerConfig(tokenizer_config, model_config,
                                           /*special_tokens_map=*/"", generation_config);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : TokenizerConfig();
}

std::vector<std::string> Specials(const std::string& tokenizer_config) {
  const std::vector<AddedToken> tokens = Parsed(tokenizer_config).special_tokens;
  for (const AddedToken& token : tokens) EXPECT_TRUE(token.special) << token.content;
  return ContentsOf(tokens);
}

TEST(TokenizerConfigTest, SpecialTokensAreInTheOrderOfTransformers) {
  const std::string text = R"({
      "mask_token": "<m>", "cls_token": null, "pad_token": "<p>", "unk_token": "<u>",
      "sep_token": "<s>", "eos_token": {"content": "<e>", "lstrip": true, "special": false},
      "bos_token": {"content": "<b>", "normalized": true},
      "additional_special_tokens": ["<x>", null, {"content": "<y>", "rstrip": true}]})";
  EXPECT_THAT(Specials(text), ElementsAre("<b>", "<e>", "<u>", "<s>", "<p>", "<m>", "<x>", "<y>"));
  const TokenizerConfig config = Parsed(text);
  EXPECT_EQ(config.bos_token.value_or(""), "<b>");
  EXPECT_EQ(config.eos_token.value_or(""), "<e>");
  EXPECT_EQ(config.unk_token.value_or(""), "<u>");
  EXPECT_EQ(config.pad_token.value_or(""), "<p>");
  ASSERT_EQ(config.special_tokens.size(), 8u);
  for (const AddedToken& token : config.special_tokens) {
    EXPECT_EQ(token.normalized, token.content == "<b>") << token.content;
    EXPECT_EQ(token.lstrip, token.content == "<e>") << token.content;
    EXPECT_EQ(token.rstrip, token.content == "<y>") << token.content;
    EXPECT_FALSE(token.single_word) << token.content;
  }
  // The older name of the list counts only where the newer one has nothing.
  const std::string older = R"("additional_special_tokens": ["<b>"]})";
  EXPECT_THAT(Specials(R"({"extra_special_tokens": ["<a>"], )" + older), ElementsAre("<a>"));
  EXPECT_THAT(Specials(R"({"extra_special_tokens": {"x": "<i>"}, )" + older),
              ElementsAre("<i>", "<b>"))
      << "an object is no list";
  EXPECT_THAT(Specials(R"({"extra_special_tokens": {}, )" + older), ElementsAre("<b>"));
  EXPECT_THAT(Specials(R"({"extra_special_tokens": null, )" + older), ElementsAre("<b>"));
}

TEST(TokenizerConfigTest, AModelsOwnKeysNameSpecialTokensBehindTheKeysOfAll) {
  const std::string own = R"("image_token": "<img>", "video_token": {"__type": "AddedToken",
      "content": "<v>"}, "other_token": {"content": "<o>"}, "eos_token": "<e>")";
  EXPECT_THAT(Specials("{" + own + R"(, "extra_special_tokens": ["<x>"]})"),
              ElementsAre("<e>", "<img>", "<v>", "<x>"));
  const std::string named = R"("model_specific_special_tokens": {"a": "<a>"})";
  EXPECT_THAT(Specials("{" + named + "}"), ElementsAre("<a>"));
  EXPECT_THAT(Specials("{" + named + ", " + own + "}"), ElementsAre("<e>", "<img>", "<v>"));
  const auto of_map = ParseTokenizerConfig(R"({"image_token": "<img>"})", "",
                                           R"({"image_token": "<2>", "video_token": {"content":
                                           "<v>", "lstrip": true}, "pad_token": "<p>"})");
  ASSERT_TRUE(of_map.ok()) << of_map.status();
  EXPECT_THAT(ContentsOf(of_map->special_tokens), ElementsAre("<p>", "<img>", "<v>"));
  EXPECT_TRUE(of_map->special_tokens[2].lstrip);
  EXPECT_EQ(of_map->named_tokens, 1u);
  EXPECT_EQ(of_map->own_tokens, 2u);
}

TEST(TokenizerConfigTest, ListsOfBothFilesCountAsInTransformers) {
  const auto both = [](const std::string& config, const std::string& map) {
    const auto parsed = ParseTokenizerConfig(config, "", map);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return parsed.ok() ? ContentsOf(parsed->special_tokens) : std::vector<std::string>();
  };
  const std::string extra = R"({"extra_special_tokens": ["<i>"]})";
  const std::string older = R"({"additional_special_tokens": ["<j>"]})";
  EXPECT_THAT(both(extra, R"({"extra_special_tokens": ["<j>", "<i>"]})"),
              ElementsAre("<i>", "<j>"));
  EXPECT_THAT(both(extra, R"({"extra_special_tokens": {"k": "<j>"}})"), ElementsAre("<j>"));
  EXPECT_THAT(both(extra, older), ElementsAre("<i>"));
  EXPECT_THAT(both(R"({"additional_special_tokens": ["<i>"]})", older), ElementsAre("<i>"));
  EXPECT_THAT(both(older, extra), ElementsAre("<j>", "<i>"));
  EXPECT_THAT(both("{}", older), ElementsAre("<j>"));
  EXPECT_THAT(both(R"({"extra_special_tokens": []})", older), ElementsAre());
}

TEST(TokenizerConfigTest, AnOlderFileOfAddedTokensCountsWithoutADecoder) {
  const auto parsed = [](const std::string& config, const std::string& added) {
    return ParseTokenizerConfig(config, "", R"({"additional_special_tokens": ["<c>"]})", "", added);
  };
  const std::string added = R"({"<a>": 7, "<b>": 6, "<c>": 5})";
  const auto config = parsed(R"({"pad_token": "<a>"})", added);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->has_older_added_tokens);
  EXPECT_THAT(ContentsOf(config->added_tokens), ElementsAre("<c>", "<b>", "<a>"));
  for (const AddedToken& token : config->added_tokens) {
    EXPECT_EQ(token.special, token.content == "<a>") << token.content;
    EXPECT_EQ(token.normalized, token.content != "<a>") << token.content;
  }
  const auto with = parsed(R"({"added_tokens_decoder": {}})", added);
  ASSERT_TRUE(with.ok()) << with.status();
  EXPECT_THAT(with->added_tokens, ElementsAre());
  for (const char* const bad : {"[]", R"({"a": "b"})", R"({"a": -1})", R"({"a": 2147483648})"}) {
    EXPECT_EQ(parsed("{}", bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(TokenizerConfigTest, SpecialTokensThatAreSplitAreRefused) {
  const auto of = [](const std::string& value) {
    return ParseTokenizerConfig(R"({"split_special_tokens": )" + value + "}", "").status();
  };
  EXPECT_EQ(of("true").code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(of("true").message()), HasSubstr("split_special_tokens"));
  EXPECT_TRUE(of("false").ok());
}

TEST(TokenizerConfigTest, AddedTokensAreInTheOrderOfTheirIds) {
  const TokenizerConfig config = Parsed(R"({"add_bos_token": true, "add_eos_token": null,
      "legacy": false, "tokenizer_class": "LlamaTokenizerFast", "added_tokens_decoder": {
      "10": {"content": "b", "special": true}, "9": {"content": "a", "single_word": true},
      "11": {"content": "c", "special": true, "normalized": true}}})",
                                        R"({"model_type": "llama"})");
  ASSERT_EQ(config.added_tokens.size(), 3u);
  std::string contents;
  for (size_t i = 0; i < 3; ++i) {
    const AddedToken& token = config.added_tokens[i];
    contents += token.content;
    EXPECT_EQ(token.id, static_cast<int32_t>(9 + i));
    EXPECT_EQ(token.special, i > 0);
    EXPECT_EQ(token.normalized, i != 1) << "by default unless it is special";
    EXPECT_EQ(token.single_word, i == 0);
  }
  EXPECT_EQ(contents, "abc");
  EXPECT_TRUE(config.add_bos);
  EXPECT_FALSE(config.add_eos);
  EXPECT_FALSE(config.legacy.value_or(true));
  EXPECT_FALSE(config.add_prefix_space.has_value());
  EXPECT_EQ(config.tokenizer_class, "LlamaTokenizer");
  EXPECT_EQ(config.model_type, "llama");
}

TEST(TokenizerConfigTest, EosIdsAreNumbersOfATokenizer) {
  const TokenizerConfig mixed =
      Parsed("", R"({"eos_token_id": [2147483648, 2147483647, -1, 1.5, "x", 0]})");
  EXPECT_THAT(mixed.eos_token_ids, ElementsAre(2147483647, 0));
  EXPECT_EQ(mixed.eos_token_id, 2147483647);
  const std::string within = R"({"eos_token_id": null, "text_config": {"eos_token_id": 5}})";
  EXPECT_THAT(Parsed("", within, R"({"eos_token_id": []})").eos_token_ids, ElementsAre(5));
  const TokenizerConfig both = Parsed("", within, R"({"eos_token_id": 6})");
  EXPECT_THAT(both.eos_token_ids, ElementsAre(6));
  EXPECT_EQ(both.eos_token_id, 5) << "that of config.json";
  EXPECT_EQ(Parsed("", R"({"text_config": 3})").eos_token_id, -1);
}

TEST(TokenizerConfigTest, AMalformedFileIsNamed) {
  const auto expect = [](const absl::Status& status, const std::string& message) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  };
  const std::string decoder = "tokenizer_config.json: added_tokens_decoder is not ";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[]", "tokenizer_config.json: not a JSON object"},
      {R"({"eos_token": 3})", "tokenizer_config.json: eos_token is neither"},
      {R"({"mask_token": {"content": 3}})", "tokenizer_config.json: mask_token is neither"},
      {R"({"mask_token": {}})", "tokenizer_config.json: mask_token is neither"},
      {R"({"extra_special_tokens": "x"})", "extra_special_tokens is not a list"},
      {R"({"additional_special_tokens": [1]})", "additional_special_tokens is neither"},
      {R"({"add_bos_token": 1})", "add_bos_token is not true or false"},
      {R"({"legacy": "yes"})", "legacy is not true or false"},
      {R"({"added_tokens_decoder": []})", decoder},
      {R"({"added_tokens_decoder": {"-1": {"content": "a"}}})", decoder},
      {R"({"added_tokens_decoder": {"x": {"content": "a"}}})", decoder},
      {R"({"added_tokens_decoder": {"1": "a"}})", decoder},
      {R"({"added_tokens_decoder": {"1": {}}})", decoder},
      {R"({"added_tokens_decoder": {"1": {"content": 1}}})", decoder}};
  for (const auto& [text, message] : cases) {
    expect(ParseTokenizerConfig(text, "").status(), message);
  }
  expect(ParseTokenizerConfig("{}", "[]").status(), "config.json: not a JSON object");
  expect(ParseTokenizerConfig("", "", R"({"eos_token": []})").status(),
         "special_tokens_map.json: eos_token is neither");
  expect(ParseTokenizerConfig("", "", "3").status(), "special_tokens_map.json: not a JSON object");
  expect(ParseTokenizerConfig("", "", "", "3").status(),
         "generation_config.json: not a JSON object");
}

}  // namespace
}  // namespace megatrain
