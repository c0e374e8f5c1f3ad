// The content of a tokenizer.model, and how the tokenizer's class changes it.
#include "engine/tokenizer/sentencepiece_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sentencepiece.pb.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kUnigram = 1, kBpe = 2;

sentencepiece::Model ModelOf(const std::vector<std::string>& pieces, int type = kBpe) {
  sentencepiece::Model model;
  for (const std::string& piece : pieces) model.add_pieces()->set_piece(piece);
  model.mutable_trainer()->set_model_type(type);
  return model;
}

// The error for the model, as its code and message.
std::string Error(const sentencepiece::Model& model, const std::string& tokenizer_class = "") {
  TokenizerConfig config;
  config.tokenizer_class = tokenizer_class;
  const auto parsed = ParseSentencePieceModel(model.SerializeAsString(), &config);
  return parsed.ok() ? "accepted" : parsed.status().ToString();
}

TEST(SentencePieceModelTest, WhatIsNoModelOrNotSupportedIsRefused) {
  TokenizerConfig config;
  EXPECT_THAT(ParseSentencePieceModel("\xff", &config).status().ToString(),
              HasSubstr("not a SentencePiece model"));
  EXPECT_THAT(Error(ModelOf({})), HasSubstr("INVALID_ARGUMENT: there are no pieces"));
  EXPECT_EQ(Error(ModelOf({"a", std::string(4096, 'b')})), "accepted");
  EXPECT_THAT(Error(ModelOf({"a", std::string(4097, 'b')})), HasSubstr("pieces[1] has 4097 bytes"));
  EXPECT_THAT(Error(ModelOf({"a", "\xff"})), HasSubstr("pieces[1] is not UTF-8"));
  EXPECT_THAT(Error(ModelOf({"a", "b", "a"})), HasSubstr("pieces[2]: \"a\" is there twice"));
  EXPECT_THAT(Error(ModelOf({"a", "b", "a"}, kUnigram)), HasSubstr("is there twice"));
  EXPECT_EQ(Error(ModelOf({"a"}, kUnigram)), "accepted");
  for (const int type : {0, 3, 4}) {
    EXPECT_THAT(Error(ModelOf({"a"}, type)), HasSubstr("UNIMPLEMENTED: a SentencePiece model of"));
  }
  for (const std::string name : {"LlamaTokenizer", "GemmaTokenizer"}) {
    EXPECT_THAT(Error(ModelOf({"a"}, kUnigram), name), HasSubstr("tokenizer_class " + name));
  }
  EXPECT_THAT(Error(ModelOf({"a"}), "T5Tokenizer"), HasSubstr("tokenizer_class T5Tokenizer"));
  EXPECT_EQ(Error(ModelOf({"a"}), "PreTrainedTokenizer"), "accepted");
  EXPECT_EQ(Error(ModelOf({"a"}), "TokenizersBackend"), "accepted");
  for (const std::string type : {"qwen2", "qwen3", "qwen3_5_text"}) {
    TokenizerConfig qwen;
    qwen.model_type = type;
    EXPECT_EQ(ParseSentencePieceModel(ModelOf({"a"}).SerializeAsString(), &qwen).status().code(),
              absl::StatusCode::kUnimplemented)
        << type;
  }
  sentencepiece::Model scores = ModelOf({"a", "b"});
  scores.mutable_pieces(1)->set_score(NAN);
  EXPECT_THAT(Error(scores), HasSubstr("INVALID_ARGUMENT: pieces[1] has no finite score"));
  sentencepiece::Model suffixes = ModelOf({"a"});
  suffixes.mutable_trainer()->set_treat_whitespace_as_suffix(true);
  EXPECT_THAT(Error(suffixes), HasSubstr("UNIMPLEMENTED: treat_whitespace_as_suffix"));
}

std::vector<std::string> Specials(const sentencepiece::Model& model, TokenizerConfig config) {
  const auto parsed = ParseSentencePieceModel(model.SerializeAsString(), &config);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  std::vector<std::string> contents;
  for (const AddedToken& token : config.special_tokens) {
    EXPECT_TRUE(token.special) << token.content;
    contents.push_back(token.content);
  }
  for (const auto* text : {&config.bos_token, &config.eos_token, &config.unk_token}) {
    contents.push_back(text->value_or("none"));
  }
  return contents;
}

TEST(SentencePieceModelTest, SpecialTokensAreThoseOfTheClassOrTheModelUnlessTheyAreNamed) {
  sentencepiece::Model model = ModelOf({"u", "b", "e", "a"});
  TokenizerConfig config;
  config.model_type = "stablelm";
  EXPECT_THAT(Specials(model, config), ElementsAre("b", "e", "u", "b", "e", "u"));
  model.mutable_trainer()->set_bos_id(-1);
  model.mutable_trainer()->set_eos_id(4);  // beyond the last
  EXPECT_THAT(Specials(model, config), ElementsAre("u", "none", "none", "u"));
  config.bos_token = "named";
  EXPECT_THAT(Specials(model, config), ElementsAre("u", "named", "none", "u"));
  config.bos_token.reset();
  // These go by the model even with a class.
  for (const std::string type : {"mistral", "mixtral", "phi3"}) {
    config.model_type = type;
    config.tokenizer_class = "LlamaTokenizer";
    EXPECT_THAT(Specials(model, config), ElementsAre("u", "none", "none", "u")) << type;
  }
  config.model_type = "llama";
  EXPECT_THAT(Specials(model, config), ElementsAre("<s>", "</s>", "<unk>", "<s>", "</s>", "<unk>"));
  config.tokenizer_class.clear();
  EXPECT_THAT(Specials(model, config), ElementsAre("u", "none", "none", "u"));
  for (const std::string type : {"gemma", "gemma2", "gemma3_text", "gemma3"}) {
    config.model_type = type;
    EXPECT_THAT(Specials(model, config), ElementsAre("<bos>", "<eos>", "<unk>", "<pad>", "<mask>",
                                                     "<bos>", "<eos>", "<unk>"))
        << type;
  }
  // The class goes before the kind of model.
  config.tokenizer_class = "PreTrainedTokenizer";
  EXPECT_THAT(Specials(model, config), ElementsAre("u", "none", "none", "u"));
}

TEST(SentencePieceModelTest, RulesFollowTheScoresOfNormalPiecesUnlessAClassReadsTheModel) {
  sentencepiece::Model model = ModelOf({"a", "b", "c", "ab", "bc", "cc"});
  model.mutable_pieces(3)->set_score(-2);
  model.mutable_pieces(4)->set_score(-1);
  model.mutable_pieces(5)->set_type(5);  // unused
  const auto ids = [&](const std::string& tokenizer_class, const std::string& word) {
    TokenizerConfig config;
    config.tokenizer_class = tokenizer_class;
    const auto parts = ParseSentencePieceModel(model.SerializeAsString(), &config);
    EXPECT_TRUE(parts.ok()) << parts.status();
    ModelBuffers buffers;
    EXPECT_TRUE(parts.ok() && parts->model->Encode(word, {}, &buffers).ok());
    std::vector<int32_t> out;
    for (const TokenAt& token : buffers.tokens) out.push_back(token.id);
    return out;
  };
  EXPECT_THAT(ids("", "abc"), ElementsAre(0, 4));
  EXPECT_THAT(ids("LlamaTokenizer", "abc"), ElementsAre(3, 2));
  EXPECT_THAT(ids("", "cc"), ElementsAre(2, 2));
  EXPECT_THAT(ids("LlamaTokenizer", "cc"), ElementsAre(5));
}

TEST(SentencePieceModelTest, LlamasMarkBeforeATextIsPutAndTakenAwayAsTheConfigSays) {
  for (const bool prefix : {true, false}) {
    TokenizerConfig config;
    config.tokenizer_class = "LlamaTokenizer";
    if (!prefix) config.add_prefix_space = false;
    const auto parts =
        ParseSentencePieceModel(ModelOf({"a", "b", "\u2581"}).SerializeAsString(), &config);
    ASSERT_TRUE(parts.ok()) << parts.status();
    EXPECT_EQ(parts->decoder.Decode({"\u2581a"}), prefix ? "a" : " a");
    std::string marked;
    OffsetChain chain;
    ASSERT_TRUE(parts->pre_tokenizer
                    .Cut("a b", &chain, /*begins=*/true, /*in_word=*/false, /*open=*/false,
                         [&](const PreTokenizer::Word& word) {
                           marked += word.text;
                           return absl::OkStatus();
                         })
                    .ok());
    EXPECT_EQ(marked, prefix ? "\u2581a\u2581b" : "a\u2581b");
  }
}

}  // namespace
}  // namespace megatrain
