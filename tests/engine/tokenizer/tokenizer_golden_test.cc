// Ids, decoded text and pieces, equal to what the `tokenizers` library makes
// (tests/golden/make_tokenizer_references.py).
#include <fstream>
#include <sstream>

#include "engine/tokenizer/bpe_tokenizer.h"
#include "engine/tokenizer/bytes_tokenizer.h"
#include "engine/tokenizer/text/utf8.h"
#include "engine/tokenizer/tokenizer_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace megatrain {
namespace {

using Json = nlohmann::json;

std::string Read(const std::string& path) {
  std::ifstream file("tests/golden/tokenizers/" + path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

std::shared_ptr<const Tokenizer> Open(const std::string& name) {
  auto tokenizer = MakeBpeTokenizer(Read(name + "/tokenizer.json"), "", "");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

class TokenizerGolden : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerGolden, IdsAndDecodedTextAreTheLibrarys) {
  const auto tokenizer = Open(GetParam());
  ASSERT_NE(tokenizer, nullptr);
  const Json golden = Json::parse(Read(std::string(GetParam()) + "/cases.json"));
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
}

// As all_code_point_hashes of the script.
TEST_P(TokenizerGolden, EveryCodePointIsSplitAsTheLibraryDoes) {
  const Json golden = Json::parse(Read(std::string(GetParam()) + "/cases.json"));
  const auto parsed = ParseTokenizerJson(Read(std::string(GetParam()) + "/tokenizer.json"));
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
    ASSERT_TRUE(parsed->pre_tokenizer
                    .Cut(text,
                         [&](size_t begin, size_t end) {
                           const auto length = static_cast<uint32_t>(end - begin);
                           for (int shift = 0; shift < 32; shift += 8) {
                             hash = (hash ^ (length >> shift & 0xff)) * 0x100000001b3u;
                           }
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
                                         "metaspace_always", "gemma_replace"));

constexpr const char* kOfCharacters[] = {"llama2", "mistral_metaspace", "metaspace_always",
                                         "gemma_replace"};

// The tokenizer without its added tokens and with a rule more.
std::shared_ptr<const Tokenizer> WithRule(const std::string& name, const std::string& left,
                                          const std::string& right) {
  Json json = Json::parse(Read(name + "/tokenizer.json"));
  json["added_tokens"] = Json::array();
  Json& vocabulary = json["model"]["vocab"];
  for (const std::string& token : {left, right, left + right}) {
    if (!vocabulary.contains(token)) vocabulary[token] = vocabulary.size();
  }
  json["model"]["merges"].push_back(
      json["model"]["merges"][0].is_string() ? Json(left + " " + right) : Json({left, right}));
  const auto made = MakeBpeTokenizer(json.dump(), "", "");
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
    for (const Json& item : Json::parse(Read(name + "/cases.json"))["cases"]) {
      const std::string text = item["text"];
      if (text.find('\0') == std::string::npos) all += text + "\n";  // the second rule's
    }
    std::vector<int32_t> a, b;
    ASSERT_TRUE(cut->Encode(all, &a).ok());
    ASSERT_TRUE(whole->Encode(all, &b).ok());
    EXPECT_EQ(a, b) << name;
  }
}

TEST(CharacterBpe, TheRestOfACutTextHasNothingBeforeIt) {
  const std::string first = "the words of\n", rest = "solo and<s> here";
  for (const std::string name : kOfCharacters) {
    const auto tokenizer = Open(name);
    ASSERT_NE(tokenizer, nullptr);
    EXPECT_TRUE(tokenizer->cuts_at_line_feeds()) << name;
    EXPECT_FALSE(WithRule(name, "\n", "Z")->cuts_at_line_feeds()) << name;
    EXPECT_FALSE(WithRule(name, "<0x0A>", "Z")->cuts_at_line_feeds()) << name;
    std::vector<int32_t> whole, pieces;
    ASSERT_TRUE(tokenizer->Encode(first + rest, &whole).ok());
    ASSERT_TRUE(tokenizer->Encode(first, &pieces).ok());
    ASSERT_TRUE(tokenizer->EncodeContinued(rest, &pieces).ok());
    EXPECT_EQ(pieces, whole) << name;
  }
}

TEST(CharacterBpe, RefusesWhatIsNotSupportedByName) {
  const Json llama2 = Json::parse(Read("llama2/tokenizer.json"));
  const Json mistral = Json::parse(Read("mistral_metaspace/tokenizer.json"));
  const auto with = [](Json json, const std::string& pointer, const Json& value) {
    json[Json::json_pointer(pointer)] = value;
    const auto made = MakeBpeTokenizer(json.dump(), "", "");
    return made.ok() ? std::string("accepted") : std::string(made.status().message());
  };
  using testing::HasSubstr;
  EXPECT_THAT(with(llama2, "/normalizer", {{"type", "NFKC"}}), HasSubstr("NFKC"));
  EXPECT_THAT(with(llama2, "/normalizer", {{"type", "NFC"}}), HasSubstr("NFC"));
  EXPECT_THAT(with(llama2, "/normalizer/normalizers/0/prepend", "_"), HasSubstr("Prepend"));
  EXPECT_THAT(with(llama2, "/normalizer/normalizers/1/content", "_"), HasSubstr("Replace"));
  EXPECT_THAT(with(llama2, "/decoder", nullptr), HasSubstr("decoder"));
  EXPECT_THAT(with(llama2, "/decoder", {{"type", "ByteLevel"}}), HasSubstr("decoder"));
  EXPECT_THAT(with(llama2, "/decoder/decoders/3/stop", 1), HasSubstr("Strip"));
  EXPECT_THAT(with(llama2, "/pre_tokenizer", {{"type", "ByteLevel"}}), HasSubstr("ByteLevel"));
  EXPECT_THAT(with(llama2, "/pre_tokenizer", mistral["pre_tokenizer"]), HasSubstr("Metaspace"));
  EXPECT_THAT(with(mistral, "/pre_tokenizer/split", true), HasSubstr("split"));
  EXPECT_THAT(with(mistral, "/pre_tokenizer/replacement", "_"), HasSubstr("replacement"));
  EXPECT_THAT(with(mistral, "/pre_tokenizer/prepend_scheme", "last"), HasSubstr("last"));
  EXPECT_THAT(with(mistral, "/model/byte_fallback", false), HasSubstr("Metaspace"));
  Json missing = mistral;
  missing["model"]["vocab"].erase("<0x7F>");
  missing["model"]["vocab"]["<0x7f>"] = 259 - 256 + 2 + 0x7f;
  EXPECT_THAT(with(missing, "/model/unk_token", nullptr), HasSubstr("<0x7F>"));
}

TEST(BytesTokenizer, ItsTokenizerJsonGivesTheSameIds) {
  const auto bytes = MakeBytesTokenizer();
  const auto bpe = MakeBpeTokenizer(BytesTokenizerJson(), BytesTokenizerConfigJson(), "");
  ASSERT_TRUE(bpe.ok()) << bpe.status();
  EXPECT_EQ((*bpe)->vocabulary(), kBytesVocabulary);
  EXPECT_EQ((*bpe)->eos_id(), kBytesEosId);
  EXPECT_EQ((*bpe)->bos_id(), kBytesBosId);
  EXPECT_EQ((*bpe)->pad_id(), kBytesPadId);
  const Json reference = Json::parse(Read("qwen/cases.json"));
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

TEST(BpeTokenizer, RefusesBadInputByName) {
  const std::string good = BytesTokenizerJson();
  const auto error = [](const std::string& json) {
    const auto made = MakeBpeTokenizer(json, "", "");
    return made.ok() ? std::string("accepted") : std::string(made.status().message());
  };
  const auto with = [&](const std::string& pointer, const Json& value) {
    Json json = Json::parse(good);
    json[Json::json_pointer(pointer)] = value;
    return error(json.dump());
  };
  EXPECT_NE(error("{").find("not valid JSON"), std::string::npos);
  EXPECT_NE(error(std::string(100000, '[')).find("not valid JSON"), std::string::npos);
  EXPECT_NE(error("\xff").find("invalid UTF-8"), std::string::npos);
  EXPECT_NE(with("/model/type", "Unigram").find("Unigram"), std::string::npos);
  EXPECT_NE(with("/model/byte_fallback", true).find("byte_fallback"), std::string::npos);
  EXPECT_NE(with("/model/dropout", 0.1).find("dropout"), std::string::npos);
  EXPECT_NE(with("/model/merges", {"a zzz"}).find("zzz"), std::string::npos);
  EXPECT_NE(with("/model/merges", {"a"}).find("merges[0]"), std::string::npos);
  EXPECT_NE(with("/model/end_of_word_suffix", "</w>").find("end_of_word_suffix"),
            std::string::npos);
  EXPECT_NE(with("/normalizer", {{"type", "NFKC"}}).find("NFKC"), std::string::npos);
  EXPECT_NE(with("/pre_tokenizer", {{"type", "Metaspace"}}).find("Metaspace"), std::string::npos);
  EXPECT_NE(with("/pre_tokenizer", nullptr).find("ByteLevel"), std::string::npos);
  EXPECT_NE(with("/decoder", {{"type", "WordPiece"}}).find("WordPiece"), std::string::npos);
  EXPECT_NE(with("/added_tokens/0/id", 300).find("300"), std::string::npos);
  const auto tokenizer = MakeBpeTokenizer(good, "", "");
  ASSERT_TRUE(tokenizer.ok());
  std::vector<int32_t> ids;
  const absl::Status invalid = (*tokenizer)->Encode("abc\xc3(", &ids);
  EXPECT_NE(std::string(invalid.message()).find("byte 3"), std::string::npos) << invalid;
}

}  // namespace
}  // namespace megatrain
