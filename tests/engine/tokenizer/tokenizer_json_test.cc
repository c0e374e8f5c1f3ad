// Parts of tokenizer.json that are refused, and how large they may be.
#include "engine/tokenizer/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/tokenizer/bytes_tokenizer.h"
#include "nlohmann/json.hpp"
#include "tests/engine/tokenizer/golden_tokenizer.h"

namespace megatrain {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

// The error for `json` with the value at `pointer` replaced.
std::string ErrorWith(Json json, const std::string& pointer, const Json& value) {
  json[Json::json_pointer(pointer)] = value;
  const auto parsed = ParseTokenizerJson(json.dump());
  return parsed.ok() ? "accepted" : std::string(parsed.status().message());
}

TEST(TokenizerJsonTest, APartThatIsNotWellFormedIsNamed) {
  struct Case {
    const char* pointer;
    const char* value;
    const char* message;
  };
  const Json bytes = Json::parse(BytesTokenizerJson());
  for (const Case& item : std::vector<Case>{
           {"/added_tokens", "3", "\"added_tokens\" is not a list"},
           {"/added_tokens/1", "3", "added_tokens[1] is not an object"},
           {"/added_tokens/1/content", "3", "added_tokens[1]: \"content\" is missing"},
           {"/added_tokens/1/id", "-1", "added_tokens[1]: \"id\" is not an integer"},
           {"/added_tokens/1/id", "16777216", "from 0 to 16777215"},
           {"/added_tokens/1/id", "16777215", "accepted"},
           {"/added_tokens/1/single_word", "1", "\"single_word\" is not true or false"},
           {"/model", "null", "\"model\" is missing"},
           {"/model/type", "3", "model.type is not a string"},
           {"/model/vocab", "[]", "model.vocab is not an object"},
           {"/model/unk_token", "3", "model.unk_token is not a string"},
           {"/model/unk_token", "\"zzz\"", "model.unk_token \"zzz\" is not in model.vocab"},
           {"/model/dropout", "0.0", "accepted"},
           {"/model/end_of_word_suffix", "3", "model.end_of_word_suffix is not a string"},
           {"/model/merges", "{}", "model.merges is not a list"},
           {"/model/merges", "[\"a b c\"]", "model.merges[0] \"a b c\" is not two tokens"},
           {"/model/merges", "[[\"a\"]]", "model.merges[0] is neither"},
           {"/model/merges", "[[\"a\", 3]]", "model.merges[0] is neither"},
           {"/model/merges", "[[3, \"a\"]]", "model.merges[0] is neither"},
           {"/model/merges", "[\"#version: 0.2\", \"a b\"]", "model.merges[1]: the token \"ab\""},
           {"/normalizer", R"({"type": "Prepend"})", "\"prepend\" is missing"},
           {"/normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "!"})", "base64"},
           {"/normalizer", R"({"type": "Replace", "content": "", "pattern": {"String": 1}})",
            "\"pattern\" is neither"},
           {"/normalizer", R"({"type": "Sequence"})", "a Sequence without \"normalizers\""},
           {"/pre_tokenizer", R"({"type": "Split", "pattern": {"String": "a"}})",
            "Split has no \"behavior\""},
           {"/pre_tokenizer", R"({"type": "Punctuation", "behavior": "Other"})",
            "the behavior \"Other\" is not known"},
           {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "__"})",
            "\"replacement\" is not one character"},
           {"/pre_tokenizer",
            R"({"type": "Metaspace", "replacement": "_", "add_prefix_space": false})",
            "needs the prepend_scheme never"},
           {"/pre_tokenizer",
            R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "Digits"}]})",
            "Digits behind ByteLevel"},
           {"/decoder", R"({"type": "Strip", "content": "a", "start": -1, "stop": 0})",
            "\"start\" is not an integer"},
           {"/decoder", R"({"type": "Strip", "content": "", "start": 0, "stop": 0})",
            "\"content\" is not one character"},
           {"/decoder", R"({"type": "WordPiece"})", "\"prefix\" is missing"},
           {"/decoder", "{}", "decoder has no \"type\""},
           {"/post_processor", R"({"type": "TemplateProcessing"})", "without a list \"single\""},
           {"/post_processor", R"({"type": "TemplateProcessing", "single": []})", "no sequence A"},
           {"/post_processor", R"({"type": "TemplateProcessing", "single": [
                {"Sequence": {"id": "A"}}, {"Sequence": {"id": "A"}}]})",
            "beside special tokens and one sequence A"},
           {"/post_processor", R"({"type": "TemplateProcessing", "single": [
                {"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]})",
            "has no \"ids\" for \"<s>\""},
           {"/post_processor", R"({"type": "TemplateProcessing", "single": [
                {"SpecialToken": {"id": "s"}}, {"Sequence": {"id": "A"}}],
                "special_tokens": {"s": {"ids": [16777216]}}})",
            "an id of \"s\" is not an integer from 0 to 16777215"},
           {"/post_processor", R"({"type": "BertProcessing", "cls": ["a"], "sep": ["b", 1]})",
            "\"cls\" is not [token, id]"},
           {"/post_processor",
            R"({"type": "BertProcessing", "cls": ["a", 1], "sep": ["b", 16777216]})",
            "\"sep\" is not [token, id]"}}) {
    EXPECT_THAT(ErrorWith(bytes, item.pointer, Json::parse(item.value)), HasSubstr(item.message))
        << item.pointer << " " << item.value;
  }
  const Json prefix = Json::parse(ReadGolden("bpe_prefix/tokenizer.json"));
  EXPECT_THAT(ErrorWith(prefix, "/model/merges/0", Json::array({"a", "b"})),
              HasSubstr("shorter than model.continuing_subword_prefix"));
  const Json unigram = Json::parse(ReadGolden("unigram_t5/tokenizer.json"));
  const size_t tokens = unigram["model"]["vocab"].size();
  EXPECT_EQ(ErrorWith(unigram, "/model/unk_id", tokens - 1), "accepted");
  EXPECT_THAT(ErrorWith(unigram, "/model/unk_id", tokens), HasSubstr("model.unk_id"));
  EXPECT_THAT(ErrorWith(unigram, "/model/vocab/5/0", unigram["model"]["vocab"][4][0]),
              HasSubstr("model.vocab[5]: the token"));
  EXPECT_THAT(ErrorWith(unigram, "/model/vocab/5/1", "x"), HasSubstr("model.vocab[5] is not"));
}

TEST(TokenizerJsonTest, SequencesHaveAGreatestDepthAndLength) {
  const Json bytes = Json::parse(BytesTokenizerJson());
  Json fuse, nested;
  fuse["type"] = "Fuse";
  nested = fuse;
  const auto sequence = [](const Json& items) {
    Json json;
    json["type"] = "Sequence";
    json["decoders"] = items;
    return json;
  };
  for (int depth = 0; depth < 8; ++depth) nested = sequence(Json(1, nested));
  EXPECT_EQ(ErrorWith(bytes, "/decoder", nested), "accepted");
  EXPECT_THAT(ErrorWith(bytes, "/decoder", sequence(Json(1, nested))),
              HasSubstr("nested too deep"));
  EXPECT_EQ(ErrorWith(bytes, "/decoder", sequence(Json(64, fuse))), "accepted");
  // However they are spread.
  Json halves = Json::array();
  halves.push_back(sequence(Json(33, fuse)));
  halves.push_back(sequence(Json(32, fuse)));
  EXPECT_THAT(ErrorWith(bytes, "/decoder", sequence(halves)), HasSubstr("Sequence too long"));
}

}  // namespace
}  // namespace megatrain
