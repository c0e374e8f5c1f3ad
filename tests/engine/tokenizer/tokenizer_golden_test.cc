// Ids, decoded text and pieces, equal to what the `tokenizers` library makes
// (tests/golden/make_tokenizer_references.py).
#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tokenizer/bytes_tokenizer.h"
#include "engine/tokenizer/hf_tokenizer.h"
#include "engine/tokenizer/text/utf8.h"
#include "engine/tokenizer/tokenizer_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/engine/tokenizer/golden_tokenizer.h"

namespace megatrain {
namespace {

using Json = nlohmann::json;

class TokenizerGolden : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerGolden, IdsAndDecodedTextAreTheLibrarys) {
  const auto tokenizer = OpenGolden(GetParam());
  ASSERT_NE(tokenizer, nullptr);
  const Json golden = Json::parse(ReadGolden(std::string(GetParam()) + "/cases.json"));
  ASSERT_GT(golden["cases"].size(), 300u);
  for (const Json& item : golden["cases"]) {
    const std::string text = item["text"];
    std::vector<int32_t> ids, ids_again;
    std::vector<size_t> offsets;
    ASSERT_TRUE(tokenizer->Encode(text, &ids).ok());
    EXPECT_EQ(ids, item["ids"].get<std::vector<int32_t>>()) << Json(text).dump(-1, ' ', true);
    // (The library replaces what is not UTF-8, as an added token outside of ASCII decodes to.)
    const std::string decoded = tokenizer->Decode(ids, false);
    if (CheckUtf8(decoded).ok()) {
      EXPECT_EQ(decoded, item["decoded"].get<std::string>()) << Json(text).dump(-1, ' ', true);
    }
    ASSERT_TRUE(tokenizer->EncodeWithOffsets(text, &ids_again, &offsets).ok());
    EXPECT_EQ(ids_again, ids);
    ASSERT_EQ(offsets.size(), ids.size());
    for (size_t i = 0; i < offsets.size(); ++i) {
      EXPECT_LT(offsets[i], text.size());
      if (i > 0) {
        EXPECT_LE(offsets[i - 1], offsets[i]);
      }
    }
    if (item.contains("offsets")) {
      EXPECT_EQ(offsets, item["offsets"].get<std::vector<size_t>>())
          << Json(text).dump(-1, ' ', true);
    }
    for (const int32_t id : ids) EXPECT_LT(id, tokenizer->vocabulary());
  }
  if (!golden.contains("before")) return;
  const SpecialIds around = tokenizer->special_tokens_around();
  EXPECT_EQ(around.before, golden["before"].get<std::vector<int32_t>>());
  EXPECT_EQ(around.after, golden["after"].get<std::vector<int32_t>>());
}

TEST_P(TokenizerGolden, PiecesOfATextGiveTheIdsOfTheWhole) {
  const auto tokenizer = OpenGolden(GetParam());
  ASSERT_NE(tokenizer, nullptr);
  const Json golden = Json::parse(ReadGolden(std::string(GetParam()) + "/cases.json"));
  std::string all;
  size_t largest = 0;
  for (const Json& item : golden["cases"]) {
    const std::string text = item["text"];
    all += text;
    const auto ids = item["ids"].get<std::vector<int32_t>>();
    for (const size_t window : {1, 13, 64}) {
      EXPECT_EQ(EncodeByPieces(*tokenizer, text, window, &largest), ids)
          << window << " " << Json(text).dump(-1, ' ', true);
    }
  }
  std::vector<int32_t> whole;
  ASSERT_TRUE(tokenizer->Encode(all, &whole).ok());
  EXPECT_EQ(EncodeByPieces(*tokenizer, all, 1024, &largest), whole);
  EXPECT_LT(largest, 8192u) << "of " << all.size();
}

// As all_code_point_hashes of the script.
TEST_P(TokenizerGolden, EveryCodePointIsSplitAsTheLibraryDoes) {
  const Json golden = Json::parse(ReadGolden(std::string(GetParam()) + "/cases.json"));
  if (golden["code_point_hashes"].empty()) return;
  const auto parsed = ParseTokenizerJson(ReadGolden(std::string(GetParam()) + "/tokenizer.json"));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  for (size_t block = 0; block < golden["code_point_hashes"].size(); ++block) {
    std::string text;
    for (char32_t c = block * 4096; c < block * 4096 + 4096; ++c) {
      if (c >= 0xd800 && c <= 0xdfff) continue;
      std::string character;
      AppendUtf8(c, &character);
      text += "a" + character + "1" + character + "." + character + " " + character + "'" +
              character + character + "\n";
    }
    uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
    OffsetChain chain;
    ASSERT_TRUE(parsed->pre_tokenizer
                    .Cut(text, &chain, /*begins=*/true, /*in_word=*/false, /*open=*/false,
                         [&](const PreTokenizer::Word& word) {
                           const auto length = static_cast<uint32_t>(word.text.size());
                           for (int shift = 0; shift < 32; shift += 8) {
                             hash = (hash ^ (length >> shift & 0xff)) * 0x100000001b3u;
                           }
                           return absl::OkStatus();
                         })
                    .ok());
    char hex[17];
    snprintf(hex, sizeof(hex), "%016llx", static_cast<unsigned long long>(hash));
    EXPECT_EQ(hex, golden["code_point_hashes"][block].get<std::string>()) << "block " << block;
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerGolden,
                         testing::Values("gpt2", "gpt2_prefix", "llama3", "qwen", "qwen_added",
                                         "o200k", "splits", "llama2", "mistral_metaspace",
                                         "metaspace_always", "gemma_replace", "unigram_t5",
                                         "unigram_albert", "unigram_whole", "wordpiece",
                                         "wordlevel", "bpe_suffix", "bpe_prefix", "bpe_metaspace",
                                         "scripts", "spm_llama", "spm_llama_legacy", "spm_gemma",
                                         "spm_bpe", "spm_unigram"));

constexpr const char* kOfCharacters[] = {"llama2", "mistral_metaspace", "metaspace_always",
                                         "gemma_replace"};

// The tokenizer without its added tokens and with a rule more.
std::shared_ptr<const Tokenizer> WithRule(const std::string& name, const std::string& left,
                                          const std::string& right) {
  Json json = Json::parse(ReadGolden(name + "/tokenizer.json"));
  json["added_tokens"] = Json::array();
  Json& vocabulary = json["model"]["vocab"];
  for (const std::string& token : {left, right, left + right}) {
    if (!vocabulary.contains(token)) vocabulary[token] = vocabulary.size();
  }
  json["model"]["merges"].push_back(
      json["model"]["merges"][0].is_string() ? Json(left + " " + right) : Json({left, right}));
  const auto made = MakeHfTokenizer({.tokenizer_json = json.dump()});
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *made : nullptr;
}

TEST(CharacterBpe, SeamsChangeNothing) {
  for (const std::string name : kOfCharacters) {
    const auto cut = WithRule(name, "\ue000", "\ue001");
    // A rule of tokens that do not stand for their characters: there are no seams.
    const auto whole = WithRule(name, "<0x00>", "<0x01>");
    ASSERT_TRUE(cut != nullptr && whole != nullptr);
    std::string all;
    const Json golden = Json::parse(ReadGolden(name + "/cases.json"));
    for (const Json& item : golden["cases"]) {
      const std::string text = item["text"];
      if (text.find('\0') == std::string::npos) all += text + "\n";  // the second rule's
    }
    std::vector<int32_t> a, b;
    ASSERT_TRUE(cut->Encode(all, &a).ok());
    ASSERT_TRUE(whole->Encode(all, &b).ok());
    EXPECT_EQ(a, b) << name;
  }
}

// A rule may join the last byte of a character without a token to the first byte of the next.
TEST(CharacterBpe, BytesAreJoinedAcrossCharacters) {
  for (const std::string name : kOfCharacters) {
    const auto tokenizer = WithRule(name, "<0x80>", "<0xEE>");
    ASSERT_NE(tokenizer, nullptr);
    const auto joined = tokenizer->TokenId("<0x80><0xEE>");
    ASSERT_TRUE(joined.has_value()) << name;
    std::vector<int32_t> ids;
    ASSERT_TRUE(tokenizer->Encode("\ue000\ue000\ue000", &ids).ok());  // each is EE 80 80
    EXPECT_EQ(std::count(ids.begin(), ids.end(), *joined), 2) << name;
  }
}

TEST(CharacterBpe, TheRestOfACutTextHasNothingBeforeIt) {
  std::string first;
  for (int i = 0; i < 9; ++i) first += "the words of that line.\n";
  const std::string rest = "solo and<s> here";
  for (const std::string name : kOfCharacters) {
    const auto tokenizer = OpenGolden(name);
    ASSERT_NE(tokenizer, nullptr);
    std::vector<int32_t> whole, pieces;
    ASSERT_TRUE(tokenizer->Encode(first + rest, &whole).ok());
    PieceState state;
    const auto size = tokenizer->EncodePiece(first + "solo and", false, &state, &pieces);
    ASSERT_TRUE(size.ok());
    EXPECT_GT(*size, 0u) << name;
    const std::string left = (first + rest).substr(*size);
    ASSERT_TRUE(tokenizer->EncodePiece(left, true, &state, &pieces).ok());
    EXPECT_EQ(pieces, whole) << name;
  }
}

// Encodes `text`, of which `step` more bytes are known each time.
std::vector<int32_t> EncodeAsItComes(const Tokenizer& tokenizer, std::string_view text,
                                     size_t step) {
  std::vector<int32_t> ids;
  PieceState state;
  for (size_t done = 0, known = 0; known < text.size();) {
    known = std::min(text.size(), known + step);
    const auto size =
        tokenizer.EncodePiece(text.substr(done, known - done), known == text.size(), &state, &ids);
    EXPECT_TRUE(size.ok()) << size.status();
    done += size.value_or(0);
  }
  return ids;
}

// Spaces that are put before a piece, and characters that a normalizer changes into others.
TEST(MadeTokenizer, PiecesBeginWhereTheWholeTextHasThem) {
  const std::vector<std::string> parts = {
      "a",      "b",      " ",  "'",      "²",  "ー", "\u1100", "\u00a0", "\u0e33", "\u200d",
      "\u1e9b", "\u0323", "カ", "\u00ad", "가", "\n", "中",     "1",      "."};
  std::mt19937 random(5);
  Json json = Json::parse(BytesTokenizerJson());
  for (const auto& [normalizer, split] :
       {std::pair{"null", R"({"type": "CharDelimiterSplit", "delimiter": "a"})"},
        std::pair{R"({"type": "NFKD"})", R"({"type": "UnicodeScripts"})"},
        std::pair{R"({"type": "Nmt"})", R"({"type": "UnicodeScripts"})"}}) {
    json["normalizer"] = Json::parse(normalizer);
    json["pre_tokenizer"] =
        Json::parse(std::string(R"({"type": "Sequence", "pretokenizers": [)") + split +
                    R"(, {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false,
                         "use_regex": true}]})");
    const auto tokenizer = MakeHfTokenizer({.tokenizer_json = json.dump()});
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (int i = 0; i < 20; ++i) {
      std::string text;
      for (int k = 0; k < 60; ++k) text += parts[random() % parts.size()];
      std::vector<int32_t> whole;
      ASSERT_TRUE((*tokenizer)->Encode(text, &whole).ok());
      for (const size_t step : {1, 7, 40}) {
        EXPECT_EQ(EncodeAsItComes(**tokenizer, text, step), whole) << normalizer << step << text;
      }
    }
  }
}

// Of a text that is replaced the last character counts, as in the library, so that nothing of what
// replaces two is first.
TEST(MadeTokenizer, APairThatIsReplacedIsNotWhereATextBegins) {
  const auto tokenizer = MakeHfTokenizer({.tokenizer_json = R"({"added_tokens": [],
    "normalizer": {"type": "Replace", "pattern": {"String": "``"}, "content": "\""},
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first",
                      "split": true},
    "post_processor": null, "decoder": null, "model": {"type": "Unigram", "unk_id": 0, "vocab": [
      ["<unk>", 0.0], ["▁", -2.0], ["a", -2.0], ["\"", -2.0], ["`", -2.0], ["▁a", -2.0]]}})"});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  struct Case {
    const char* text;
    std::vector<int32_t> ids;
    std::vector<size_t> offsets;
  };
  for (const Case& c : {Case{"``a", {3, 2}, {1, 2}}, Case{"`a", {1, 4, 2}, {0, 0, 1}},
                        Case{"a``", {5, 3}, {0, 2}}, Case{"a ``", {5, 1, 3}, {0, 1, 3}}}) {
    std::vector<int32_t> ids;
    std::vector<size_t> offsets;
    ASSERT_TRUE((*tokenizer)->EncodeWithOffsets(c.text, &ids, &offsets).ok()) << c.text;
    EXPECT_EQ(ids, c.ids) << c.text;
    EXPECT_EQ(offsets, c.offsets) << c.text;
  }
}

TEST(BytesTokenizer, ItsTokenizerJsonGivesTheSameIds) {
  const auto bytes = MakeBytesTokenizer();
  const auto bpe = MakeHfTokenizer(
      {.tokenizer_json = BytesTokenizerJson(), .tokenizer_config = BytesTokenizerConfigJson()});
  ASSERT_TRUE(bpe.ok()) << bpe.status();
  EXPECT_EQ((*bpe)->vocabulary(), kBytesVocabulary);
  EXPECT_EQ((*bpe)->eos_id(), kBytesEosId);
  EXPECT_EQ((*bpe)->bos_id(), kBytesBosId);
  EXPECT_EQ((*bpe)->pad_id(), kBytesPadId);
  const Json reference = Json::parse(ReadGolden("qwen/cases.json"));
  for (const Json& item : reference["cases"]) {
    const std::string text = item["text"].get<std::string>() + "<|eos|>x<|bos|><|pad|";
    std::vector<int32_t> a, b;
    ASSERT_TRUE(bytes->Encode(text, &a).ok());
    ASSERT_TRUE((*bpe)->Encode(text, &b).ok());
    EXPECT_EQ(a, b);
    EXPECT_EQ(bytes->Decode(a, false), text);
    EXPECT_EQ(bytes->Decode(a, true), (*bpe)->Decode(b, true));
  }
}

}  // namespace
}  // namespace megatrain
