// Ids, decoded text and pieces, equal to what the `tokenizers` library makes
// (tests/golden/make_tokenizer_references.py).
#include <fstream>
#include <sstream>

#include "engine/data/bpe_tokenizer.h"
#include "engine/data/bytes_tokenizer.h"
#include "engine/data/tokenizer_json.h"
#include "engine/data/utf8.h"
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
                                         "o200k", "splits"));

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
