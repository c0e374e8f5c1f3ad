// What tokenizers' files say and how they are read, beside the ids (tokenizer_golden_test.cc).
#include "engine/tokenizer/hf_tokenizer.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/tokenizer/bytes_tokenizer.h"
#include "engine/tokenizer/tokenizer_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/engine/tokenizer/golden_tokenizer.h"

namespace megatrain {
namespace {

using Json = nlohmann::json;

// The message of the error for the tokenizer `name` with a value changed.
std::string ErrorWith(const std::string& name, const std::string& pointer, const Json& value) {
  Json json =
      Json::parse(name.empty() ? BytesTokenizerJson() : ReadGolden(name + "/tokenizer.json"));
  json[Json::json_pointer(pointer)] = value;
  const auto made = MakeHfTokenizer({.tokenizer_json = json.dump()});
  return made.ok() ? "accepted" : std::string(made.status().message());
}

TEST(HfTokenizer, RefusesBadInputByName) {
  using testing::HasSubstr;
  const auto error = [](const std::string& json) {
    return std::string(MakeHfTokenizer({.tokenizer_json = json}).status().message());
  };
  EXPECT_THAT(error("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error(std::string(100000, '[')), HasSubstr("not valid JSON"));
  EXPECT_THAT(error("\xff"), HasSubstr("invalid UTF-8"));
  EXPECT_THAT(ErrorWith("", "/model/type", "Magic"), HasSubstr("Magic"));
  EXPECT_THAT(ErrorWith("", "/model/type", "Unigram"), HasSubstr("ByteLevel"));
  EXPECT_THAT(ErrorWith("", "/model/byte_fallback", true), HasSubstr("byte_fallback"));
  EXPECT_THAT(ErrorWith("", "/model/dropout", 0.1), HasSubstr("dropout"));
  EXPECT_THAT(ErrorWith("", "/model/merges", {"a zzz"}), HasSubstr("zzz"));
  EXPECT_THAT(ErrorWith("", "/model/merges", {"a"}), HasSubstr("merges[0]"));
  EXPECT_THAT(ErrorWith("", "/model/end_of_word_suffix", "</w>"), HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(ErrorWith("", "/model/vocab/!", 1 << 24), HasSubstr("16777215"));
  EXPECT_THAT(ErrorWith("", "/model/vocab/!", -1), HasSubstr("16777215"));
  EXPECT_THAT(ErrorWith("", "/model/vocab/!", 1), HasSubstr("two tokens have the id 1"));
  EXPECT_THAT(ErrorWith("", "/normalizer", {{"type", "ByteLevel"}}), HasSubstr("ByteLevel"));
  EXPECT_THAT(ErrorWith("", "/normalizer", {{"type", "Replace"}}), HasSubstr("content"));
  EXPECT_THAT(ErrorWith("", "/normalizer", 3), HasSubstr("normalizer"));
  EXPECT_THAT(ErrorWith("", "/pre_tokenizer", {{"type", "FixedLength"}}), HasSubstr("FixedLength"));
  EXPECT_THAT(ErrorWith("", "/decoder", {{"type", "CTC"}}), HasSubstr("CTC"));
  EXPECT_THAT(ErrorWith("", "/post_processor", {{"type", "Other"}}), HasSubstr("Other"));
  EXPECT_THAT(ErrorWith("", "/added_tokens/0/id", 300), HasSubstr("300"));
  EXPECT_THAT(ErrorWith("mistral_metaspace", "/pre_tokenizer/prepend_scheme", "last"),
              HasSubstr("last"));
  EXPECT_THAT(ErrorWith("unigram_t5", "/model/unk_id", 100000), HasSubstr("unk_id"));
  EXPECT_THAT(ErrorWith("unigram_t5", "/model/vocab/5", {"x"}), HasSubstr("vocab[5]"));
  EXPECT_THAT(ErrorWith("unigram_t5", "/normalizer/normalizers/0/precompiled_charsmap", "AAAA"),
              HasSubstr("precompiled_charsmap"));
  EXPECT_THAT(ErrorWith("unigram_t5", "/post_processor/single/0/Sequence/id", "B"),
              HasSubstr("single"));
  EXPECT_THAT(ErrorWith("unigram_t5", "/post_processor/special_tokens/<~1s>/ids/0", 99999),
              HasSubstr("99999"));
  const auto tokenizer = MakeHfTokenizer({.tokenizer_json = BytesTokenizerJson()});
  ASSERT_TRUE(tokenizer.ok());
  std::vector<int32_t> ids;
  const absl::Status invalid = (*tokenizer)->Encode("abc\xc3(", &ids);
  EXPECT_NE(std::string(invalid.message()).find("byte 3"), std::string::npos) << invalid;
  // Overlong forms, surrogates, and what is above U+10FFFF.
  for (const std::string text : {"\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xed\xbf\xbf",
                                 "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80"}) {
    EXPECT_FALSE((*tokenizer)->Encode(text, &ids).ok()) << testing::PrintToString(text);
  }
  const std::string edges =
      "\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf";
  EXPECT_TRUE((*tokenizer)->Encode(edges, &ids).ok());
}

TEST(HfTokenizer, PiecesKnowTheWordBeforeASingleWordToken) {
  for (const std::string name : {"llama2", "metaspace_always", "unigram_whole", "qwen_added"}) {
    const auto tokenizer = OpenGolden(name);
    ASSERT_NE(tokenizer, nullptr);
    for (const std::string text : {"\u0e01solo\U000d0669 home, home, home, home, home",
                                   "year no solo\U000f9d9a \u597dsolo solo, home, home, home"}) {
      std::vector<int32_t> whole;
      ASSERT_TRUE(tokenizer->Encode(text, &whole).ok());
      for (size_t window = 1; window < text.size(); ++window) {
        size_t largest = 0;
        EXPECT_EQ(EncodeByPieces(*tokenizer, text, window, &largest), whole) << name << window;
      }
    }
  }
}

// The byte-level tokenizer has ids for all white space, so that none can be lost unseen.
TEST(HfTokenizer, OnlyTheBeginningOfATextIsStrippedAtTheLeft) {
  Json json = Json::parse(BytesTokenizerJson());
  json["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}};
  const auto tokenizer = MakeHfTokenizer({.tokenizer_json = json.dump()});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::string text = " \n begins";
  for (int i = 0; i < 9; ++i) text += " word\t\n  more";
  std::vector<int32_t> whole;
  ASSERT_TRUE((*tokenizer)->Encode(text, &whole).ok());
  EXPECT_EQ(whole.size(), text.size() - 3);
  for (size_t window = 1; window < 30; ++window) {
    size_t largest = 0;
    EXPECT_EQ(EncodeByPieces(**tokenizer, text, window, &largest), whole) << window;
    EXPECT_LT(largest, text.size()) << "it is cut";
  }
}

TEST(HfTokenizer, OnlyAMarkThatIsPutBeforeATextIsNoSpaceOfIt) {
  const auto decoded = [](const std::string& options) {
    Json json = Json::parse(BytesTokenizerJson());
    json["decoder"] = Json::parse(R"({"type": "Metaspace", "replacement": "_")" + options + "}");
    const auto tokenizer = MakeHfTokenizer({.tokenizer_json = json.dump()});
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return tokenizer.ok() ? (*tokenizer)->Decode({'_', 'a', '_', 'b'}, false) : "";
  };
  EXPECT_EQ(decoded(""), "a b");
  EXPECT_EQ(decoded(R"(, "prepend_scheme": "first")"), "a b");
  EXPECT_EQ(decoded(R"(, "prepend_scheme": "never")"), " a b");
  EXPECT_EQ(decoded(R"(, "add_prefix_space": false)"), " a b");
}

TEST(HfTokenizer, FilesOfTheFirstVersionsNameNoTypeOfModel) {
  for (const std::string name : {"gpt2", "unigram_t5", "wordpiece"}) {
    const std::string file = ReadGolden(name + "/tokenizer.json");
    Json json = Json::parse(file);
    ASSERT_EQ(json["model"].erase("type"), 1u) << name;
    if (name == "gpt2") {
      Json& merges = json["model"]["merges"];
      merges.insert(merges.begin(), Json("#version: 0.2"));
    }
    const auto typed = MakeHfTokenizer({.tokenizer_json = file});
    const auto untyped = MakeHfTokenizer({.tokenizer_json = json.dump()});
    ASSERT_TRUE(typed.ok()) << typed.status();
    ASSERT_TRUE(untyped.ok()) << name << untyped.status();
    std::vector<int32_t> ids, ids_again;
    ASSERT_TRUE((*typed)->Encode("the words of that line", &ids).ok());
    ASSERT_TRUE((*untyped)->Encode("the words of that line", &ids_again).ok());
    EXPECT_EQ(ids_again, ids) << name;
  }
  EXPECT_THAT(ErrorWith("", "/model", Json::object()), testing::HasSubstr("model has no \"type\""));
}

TEST(HfTokenizer, ALaterPostProcessorIsPutAroundWhatEarlierOnesMade) {
  Json json = Json::parse(BytesTokenizerJson());
  json["post_processor"] = Json::parse(R"({"type": "Sequence", "processors": [
      {"type": "RobertaProcessing", "cls": ["a", 97], "sep": ["b", 98]},
      {"type": "BertProcessing", "cls": ["c", 99], "sep": ["d", 100]},
      {"type": "ByteLevel"}]})");
  const auto tokenizer = MakeHfTokenizer({.tokenizer_json = json.dump()});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const SpecialIds around = (*tokenizer)->special_tokens_around();
  EXPECT_THAT(around.before, testing::ElementsAre(99, 97));
  EXPECT_THAT(around.after, testing::ElementsAre(98, 100));
}

TEST(HfTokenizer, BertsNormalizerDoesWhatTheFileSays) {
  Json json = Json::parse(ReadGolden("wordpiece/tokenizer.json"));
  const auto normalized = [&json](const std::string& options) {
    json["normalizer"] = Json::parse(options);
    json["normalizer"]["type"] = "BertNormalizer";
    const auto parts = ParseTokenizerJson(json.dump());
    EXPECT_TRUE(parts.ok()) << parts.status();
    if (!parts.ok()) return std::string();
    NormalizedText out;
    EXPECT_TRUE(parts->normalizer.Normalize("\u00c9a\t\u4e2d", true, false, &out).ok());
    return std::string(out.text);
  };
  EXPECT_EQ(normalized("{}"), "ea  \u4e2d ");
  // Without lower case accents stay, if the file does not say otherwise.
  EXPECT_EQ(normalized(R"({"lowercase": false, "strip_accents": null})"), "\u00c9a  \u4e2d ");
  EXPECT_EQ(normalized(R"({"lowercase": false, "strip_accents": true})"), "Ea  \u4e2d ");
  EXPECT_EQ(normalized(R"({"strip_accents": false})"), "\u00e9a  \u4e2d ");
  EXPECT_EQ(normalized(R"({"clean_text": false, "handle_chinese_chars": false})"), "ea\t\u4e2d");
}

TEST(HfTokenizer, SpecialTokensAreResolvedAsByTransformers) {
  const std::string json = ReadGolden("llama2/tokenizer.json");
  const std::string map = R"({"eos_token": {"content": "<s>"}, "pad_token": "<unk>"})";
  const std::string config = R"({"eos_token": "</s>", "bos_token": "<s>"})";
  const auto both = MakeHfTokenizer(
      {.tokenizer_json = json, .tokenizer_config = config, .special_tokens_map = map});
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ((*both)->eos_id(), 1);  // special_tokens_map.json goes before
  EXPECT_EQ((*both)->bos_id(), 1);
  EXPECT_EQ((*both)->pad_id(), 0);
  const std::string decoder = R"({"eos_token": "</s>", "added_tokens_decoder": {}})";
  const auto only = MakeHfTokenizer({.tokenizer_json = json,
                                     .tokenizer_config = decoder,
                                     .special_tokens_map = map,
                                     .model_config = R"({"eos_token_id": [7, 8]})",
                                     .generation_config = R"({"eos_token_id": [9, 2]})"});
  ASSERT_TRUE(only.ok()) << only.status();
  EXPECT_EQ((*only)->eos_id(), 2);
  EXPECT_EQ((*only)->pad_id(), -1);
  EXPECT_THAT((*only)->end_ids(), testing::ElementsAre(2, 9));
  const auto ids =
      MakeHfTokenizer({.tokenizer_json = json, .model_config = R"({"eos_token_id": [8, 7]})"});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ((*ids)->eos_id(), 8);
  EXPECT_THAT((*ids)->end_ids(), testing::ElementsAre(7, 8));
  // Models of images and text may have it in text_config alone.
  const auto within = MakeHfTokenizer(
      {.tokenizer_json = json, .model_config = R"({"text_config": {"eos_token_id": 5}})"});
  ASSERT_TRUE(within.ok()) << within.status();
  EXPECT_EQ((*within)->eos_id(), 5);
  const auto outside = MakeHfTokenizer(
      {.tokenizer_json = json,
       .model_config = R"({"eos_token_id": 4, "text_config": {"eos_token_id": 5}})"});
  ASSERT_TRUE(outside.ok()) << outside.status();
  EXPECT_EQ((*outside)->eos_id(), 4);
}

TEST(HfTokenizer, TheFirstTokenOfAVocabularyMayBeginAndEndTexts) {
  const auto made = MakeHfTokenizer(
      {.tokenizer_model = ReadGolden("spm_llama/tokenizer.model"),
       .tokenizer_config =
           R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": true, "add_eos_token": true,
               "bos_token": "<unk>", "eos_token": "<unk>"})",
       .model_config = R"({"model_type": "llama"})"});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT((*made)->special_tokens_around().before, testing::ElementsAre(0));
  EXPECT_THAT((*made)->special_tokens_around().after, testing::ElementsAre(0));
}

TEST(HfTokenizer, TheUnknownPieceOfAModelIsSpecialWhateverItsName) {
  std::string model = ReadGolden("spm_unigram/tokenizer.model");
  const std::string name = "<unk>";
  const size_t at = model.find(name);
  ASSERT_NE(at, std::string::npos);
  model.replace(at, name.size(), "<UNK>");
  const auto tokenizer =
      MakeHfTokenizer({.tokenizer_model = model,
                       .tokenizer_config = ReadGolden("spm_unigram/tokenizer_config.json"),
                       .model_config = ReadGolden("spm_unigram/config.json")});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->Decode({0}, /*skip_special=*/false), "<UNK>");
  EXPECT_EQ((*tokenizer)->Decode({0}, /*skip_special=*/true), "");
  EXPECT_FALSE((*tokenizer)->TokenId(name).has_value()) << "a token that the model has not";
}

// The ids are those of transformers.
TEST(HfTokenizer, AModelThatNoClassReadsIsPreparedAsItSays) {
  const std::string model = ReadGolden("spm_llama/tokenizer.model");
  struct Case {
    std::string legacy, text;
    std::vector<int32_t> ids;
  };
  const std::string text = " the  <user>cat<ctl>the ";
  for (const Case& c :
       {Case{"true", text, {283, 515, 4, 533, 294, 3, 283}}, Case{"true", "\u2581the", {515, 283}},
        Case{"null", text, {519, 264, 515, 4, 533, 294, 3, 519, 264}},
        Case{"false", "\u2581the", {283}}}) {
    const auto made = MakeHfTokenizer(
        {.tokenizer_model = model,
         .tokenizer_config =
             R"({"tokenizer_class": "PreTrainedTokenizerFast", "legacy": )" + c.legacy + "}"});
    ASSERT_TRUE(made.ok()) << made.status();
    std::vector<int32_t> ids;
    ASSERT_TRUE((*made)->Encode(c.text, &ids).ok());
    EXPECT_EQ(ids, c.ids) << c.legacy << c.text;
  }
}

TEST(HfTokenizer, TokensThatOnlyTokenizerConfigHasAreNumberedOn) {
  const std::string json = BytesTokenizerJson();
  const auto error = [&](const std::string& decoder) {
    const std::string config = R"({"added_tokens_decoder": )" + decoder + "}";
    return std::string(
        MakeHfTokenizer({.tokenizer_json = json, .tokenizer_config = config}).status().message());
  };
  const auto made = MakeHfTokenizer({.tokenizer_json = json, .tokenizer_config = R"({
      "added_tokens_decoder": {"97": {"content": "a", "special": true},
                               "259": {"content": "<new>", "special": true}},
      "eos_token": "<new>", "pad_token": "<other>"})"});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ((*made)->vocabulary(), 261);
  EXPECT_EQ((*made)->eos_id(), 259);
  EXPECT_EQ((*made)->pad_id(), 260);
  std::vector<int32_t> ids;
  ASSERT_TRUE((*made)->Encode("b<other>a<new>", &ids).ok());
  EXPECT_THAT(ids, testing::ElementsAre('b', 260, 'a', 259));
  EXPECT_EQ((*made)->Decode(ids, /*skip_special=*/true), "b");
  EXPECT_THAT(error(R"({"260": {"content": "<new>"}})"),
              testing::HasSubstr("gives \"<new>\" the id 260, but `tokenizers` numbers it 259"));
  EXPECT_THAT(error(R"({"258": {"content": "<|eos|>"}})"),
              testing::HasSubstr("gives \"<|eos|>\" the id 258, tokenizer.json 257"));
  // Of the other files ids of the vocabulary count.
  const auto ends = [&](const std::string& config, const std::string& generation) {
    const auto tokenizer = MakeHfTokenizer(
        {.tokenizer_json = json, .model_config = config, .generation_config = generation});
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return tokenizer.ok() ? (*tokenizer)->end_ids() : std::vector<int32_t>{-1};
  };
  EXPECT_THAT(ends(R"({"eos_token_id": [258, 259]})", ""), testing::ElementsAre(258));
  EXPECT_THAT(ends(R"({"eos_token_id": 259})", ""), testing::IsEmpty());
  EXPECT_THAT(ends("", R"({"eos_token_id": [258, 259, 258, 0]})"), testing::ElementsAre(0, 258));
}

TEST(HfTokenizer, AnAddedTokenThatIsNormalizedIsFoundInItsNewForm) {
  Json json = Json::parse(BytesTokenizerJson());
  const auto set = [&json](size_t i, const std::string& content) {
    json["added_tokens"][i]["content"] = content;
    json["added_tokens"][i]["normalized"] = true;
  };
  json["normalizer"] = {{"type", "Lowercase"}};
  set(0, "<A>");
  set(1, "<b>");
  const auto tokenizer = MakeHfTokenizer({.tokenizer_json = json.dump()});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::vector<int32_t> ids;
  ASSERT_TRUE((*tokenizer)->Encode("x<A><B>", &ids).ok());
  EXPECT_THAT(ids, testing::ElementsAre('x', 256, 257));
  EXPECT_EQ((*tokenizer)->Decode(ids, /*skip_special=*/false), "x<a><b>");
  EXPECT_EQ((*tokenizer)->Decode(ids, /*skip_special=*/true), "x<a>") << "as `tokenizers` does";
  set(1, "<a>");
  EXPECT_THAT(std::string(MakeHfTokenizer({.tokenizer_json = json.dump()}).status().message()),
              testing::HasSubstr("\"<a>\" is empty or there twice"));
}

TEST(HfTokenizer, ATokenHasAGreatestLength) {
  const auto error = [](const std::function<void(Json*)>& change) {
    Json json = Json::parse(BytesTokenizerJson());
    change(&json);
    const auto made = MakeHfTokenizer({.tokenizer_json = json.dump()});
    return made.ok() ? "accepted" : std::string(made.status().message());
  };
  const auto added = [&](size_t bytes, size_t times) {
    return error([&](Json* json) {
      (*json)["normalizer"] = {{"type", "Replace"},
                               {"pattern", {{"String", "e"}}},
                               {"content", std::string(times, 'e')}};
      (*json)["added_tokens"][0]["content"] = std::string(bytes, 'e');
      (*json)["added_tokens"][0]["normalized"] = times > 1;
    });
  };
  EXPECT_EQ(added(4096, 1), "accepted");
  EXPECT_THAT(added(4097, 1), testing::HasSubstr("added_tokens has a token of 4097 bytes"));
  EXPECT_EQ(added(2048, 2), "accepted");
  EXPECT_THAT(added(2049, 2), testing::HasSubstr("normalized, has a token of 4098 bytes"));
  const auto of_model = [&](size_t bytes) {
    return error([&](Json* json) {
      (*json)["model"]["vocab"].erase("!");
      (*json)["model"]["vocab"][std::string(bytes, '!')] = 33;
    });
  };
  EXPECT_EQ(of_model(4096), "accepted");
  EXPECT_THAT(of_model(4097), testing::HasSubstr("the vocabulary has a token of 4097 bytes"));
}

// Prepared data is made again, and a run not resumed, where it differs.
TEST(HfTokenizer, TheFingerprintHasAllThatChangesTheIds) {
  const auto of_json = [](const std::string& json, const std::string& config,
                          const std::string& model_config = "{}") {
    const auto made = MakeHfTokenizer(
        {.tokenizer_json = json, .tokenizer_config = config, .model_config = model_config});
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? (*made)->fingerprint() : "";
  };
  const std::string llama = ReadGolden("llama2/tokenizer.json");
  EXPECT_EQ(of_json(llama, "{}"), of_json(llama, "{}"));
  const auto added = [](const std::string& flags) {
    return R"({"added_tokens_decoder": {"0": {"content": "<unk>", "special": true)" + flags + "}}}";
  };
  std::vector<std::string> prints = {
      of_json(llama, "{}"),
      of_json(llama + "\n", "{}"),
      of_json(llama, "{}", R"({"eos_token_id": 5})"),
      of_json(llama, "{}", R"({"eos_token_id": 6})"),
      of_json(llama, R"({"eos_token": "</s>"})"),
      of_json(llama, R"({"eos_token": "<s>"})"),
      of_json(llama, R"({"bos_token": "<s>"})"),
      of_json(llama, R"({"pad_token": "<unk>"})"),
      of_json(llama, R"({"eos_token": "</s>", "tokenizer_class": "LlamaTokenizer"})"),
      of_json(llama, added("")),
      of_json(llama, added(R"(, "lstrip": true)")),
      of_json(llama, added(R"(, "rstrip": true)")),
      of_json(llama, added(R"(, "single_word": true)")),
      of_json(llama, added(R"(, "normalized": true)"))};
  const std::string model = ReadGolden("spm_llama/tokenizer.model");
  for (const char* config :
       {R"({"tokenizer_class": "LlamaTokenizer"})",
        R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": true})",
        R"({"tokenizer_class": "LlamaTokenizer", "add_eos_token": true})",
        R"({"tokenizer_class": "LlamaTokenizer", "legacy": true})",
        R"({"tokenizer_class": "LlamaTokenizer", "legacy": false})",
        R"({"tokenizer_class": "LlamaTokenizer", "add_prefix_space": false})"}) {
    const auto made = MakeHfTokenizer({.tokenizer_model = model,
                                       .tokenizer_config = config,
                                       .model_config = R"({"model_type": "llama"})"});
    ASSERT_TRUE(made.ok()) << made.status();
    prints.push_back((*made)->fingerprint());
  }
  for (size_t i = 0; i < prints.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(prints[i], prints[j]) << i << " and " << j;
  }
}

// Two ways have the same score but for the last bit, which depends on how scores are read. The ids
// are those of `tokenizers`.
TEST(UnigramTest, ScoresAreReadAsTokenizersReadsThem) {
  const std::string json = R"({"added_tokens": [], "normalizer": null, "pre_tokenizer": null,
    "post_processor": null, "decoder": null, "model": {"type": "Unigram", "unk_id": 0, "vocab": [
    ["<unk>", 0.0], ["[<", -11.209655127454674], ["gi", -8.541385973167134],
    ["ới", -10.43738707522666], ["-", -5.551356496619697], ["h", -6.43274380181265],
    ["ạ", -9.904789831045143], ["n", -5.595619717277236], [">", -7.274093803999807],
    ["]", -6.829979537032289], ["]]", -10.082947912618133]]}})";
  const auto tokenizer = MakeHfTokenizer({.tokenizer_json = json});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::vector<int32_t> ids;
  ASSERT_TRUE((*tokenizer)->Encode("[<giới-hạn>]]]", &ids).ok());
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 10, 9}));
}

}  // namespace
}  // namespace megatrain
