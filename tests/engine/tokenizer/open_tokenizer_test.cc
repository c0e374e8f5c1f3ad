// The files of a model's directory that make its tokenizer, and the tokenizer that needs no file.
#include "engine/tokenizer/open_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/tokenizer/bytes_tokenizer.h"
#include "tests/engine/tokenizer/golden_tokenizer.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(OpenTokenizerTest, EachFileOfTheDirectoryCounts) {
  const TestDirectory directory;
  directory.Write("tokenizer.json", BytesTokenizerJson());
  directory.Write("tokenizer_config.json", R"({"bos_token": "<|bos|>"})");
  directory.Write("special_tokens_map.json", R"({"pad_token": "<|pad|>"})");
  directory.Write("config.json", R"({"eos_token_id": 7})");
  directory.Write("generation_config.json", R"({"eos_token_id": 8})");
  // It is not read beside tokenizer.json.
  ASSERT_TRUE(std::filesystem::create_directory(directory / "tokenizer.model"));
  const auto opened = OpenTokenizer(directory.path(), "auto");
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->bos_id(), kBytesBosId);
  EXPECT_EQ((*opened)->pad_id(), kBytesPadId);
  EXPECT_EQ((*opened)->eos_id(), 7);
  EXPECT_THAT((*opened)->end_ids(), ElementsAre(7, 8));
  const auto bytes = OpenTokenizer(directory.path(), "bytes");
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ((*bytes)->eos_id(), kBytesEosId);
  const absl::Status other = OpenTokenizer(directory.path(), "byte").status();
  EXPECT_EQ(other.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(other.message()), HasSubstr("\"byte\""));
  directory.Write("tokenizer.json", "{");
  const absl::Status broken = OpenTokenizer(directory.path(), "auto").status();
  EXPECT_EQ(broken.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(broken.message()), StartsWith(directory.path() + ": tokenizer.json: "));
}

TEST(OpenTokenizerTest, AnOlderFileAddsTheTokensThatTokenizerJsonLacks) {
  const TestDirectory directory;
  directory.Write("tokenizer.json", BytesTokenizerJson());
  const auto before = OpenTokenizer(directory.path(), "auto");
  ASSERT_TRUE(before.ok()) << before.status();
  const std::string known = "\"<|eos|>\": " + std::to_string(kBytesEosId);
  directory.Write("added_tokens.json", "{" + known + "}");
  const auto same = OpenTokenizer(directory.path(), "auto");
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ((*same)->fingerprint(), (*before)->fingerprint());
  directory.Write("added_tokens.json", "{" + known + R"(, "<new>": 259})");
  const auto more = OpenTokenizer(directory.path(), "auto");
  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_EQ((*more)->TokenId("<new>").value_or(-1), 259);
  EXPECT_NE((*more)->fingerprint(), (*before)->fingerprint());
  directory.Write("added_tokens.json", R"({"<new>": 300})");
  EXPECT_THAT(std::string(OpenTokenizer(directory.path(), "auto").status().message()),
              HasSubstr("added_tokens.json gives \"<new>\" the id 300"));
}

TEST(OpenTokenizerTest, ATokenizerModelServesWithoutATokenizerJson) {
  const TestDirectory directory;
  for (const std::string name : {"tokenizer.model", "tokenizer_config.json", "config.json"}) {
    directory.Write(name, ReadGolden("spm_llama/" + name));
  }
  const auto opened = OpenTokenizer(directory.path(), "auto");
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto golden = OpenGolden("spm_llama");
  ASSERT_NE(golden, nullptr);
  EXPECT_EQ((*opened)->fingerprint(), golden->fingerprint());
}

TEST(OpenTokenizerTest, ADirectoryWithoutOneIsToldWhatItHasInstead) {
  const TestDirectory directory;
  const auto error = [&] { return OpenTokenizer(directory.path(), "auto").status(); };
  EXPECT_EQ(error().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(error().message()), HasSubstr("there is no tokenizer.json"));
  // Files that are written later are named first.
  for (const std::string name : {"vocab.json", "vocab.txt", "spiece.model"}) {
    directory.Write(name, "x");
    EXPECT_EQ(error().code(), absl::StatusCode::kUnimplemented) << name;
    EXPECT_THAT(std::string(error().message()), StartsWith(directory / name));
  }
}

TEST(BytesTokenizerTest, IdsStandForBytesAndThreeSpecialTokens) {
  const auto bytes = MakeBytesTokenizer();
  std::vector<int32_t> ids;
  std::vector<size_t> offsets;
  ASSERT_TRUE(bytes->EncodeWithOffsets("a<|eos|>\u00e9<|x", &ids, &offsets).ok());
  EXPECT_THAT(ids, ElementsAre('a', kBytesEosId, 0xc3, 0xa9, '<', '|', 'x'));
  EXPECT_THAT(offsets, ElementsAre(0, 1, 8, 9, 10, 11, 12));
  const std::vector<int32_t> all = {-1, 0, 'A', 255, 256, 257, 258, 259};
  EXPECT_EQ(bytes->Decode(all, /*skip_special=*/false),
            std::string("\0A\xff", 3) + "<|bos|><|eos|><|pad|>");
  EXPECT_EQ(bytes->Decode(all, /*skip_special=*/true), std::string("\0A\xff", 3));
  EXPECT_EQ(bytes->TokenId("<|bos|>").value_or(-1), kBytesBosId);
  EXPECT_EQ(bytes->TokenId("<|pad|>").value_or(-1), kBytesPadId);
  EXPECT_EQ(bytes->TokenId("\xff").value_or(-1), 255);
  EXPECT_EQ(bytes->TokenText(kBytesPadId) + bytes->TokenText('a') + bytes->TokenText(259),
            "<|pad|>a");
  EXPECT_FALSE(bytes->TokenId("ab").has_value());
  EXPECT_FALSE(bytes->TokenId("").has_value());
  EXPECT_THAT(bytes->end_ids(), ElementsAre(kBytesEosId));
  // Tokens whole, begun, and one begun within another.
  const std::string text = "<|eos|<|eos|>\u00e9\U0001f600<|bos|><|pa<|pad|>x<|eos|>";
  std::vector<int32_t> whole;
  ASSERT_TRUE(bytes->Encode(text, &whole).ok());
  for (size_t window = 1; window <= text.size(); ++window) {
    size_t largest = 0;
    EXPECT_EQ(EncodeByPieces(*bytes, text, window, &largest), whole) << window;
  }
}

}  // namespace
}  // namespace megatrain
