// Long texts without white space, in windows: the ids of the whole, in bounded memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "engine/tokenizer/hf_tokenizer.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

std::string Read(const std::string& path) {
  std::ifstream file("tests/golden/tokenizers/" + path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

std::shared_ptr<const Tokenizer> Open(const std::string& name) {
  const auto tokenizer =
      name.starts_with("spm_")
          ? MakeHfTokenizer({.tokenizer_model = Read(name + "/tokenizer.model"),
                             .tokenizer_config = Read(name + "/tokenizer_config.json"),
                             .model_config = Read(name + "/config.json")})
          : MakeHfTokenizer({.tokenizer_json = Read(name + "/tokenizer.json")});
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

struct Result {
  std::vector<int32_t> ids;
  size_t largest = 0;  // window
};

// Encodes from windows of `window` bytes, which grow where nothing is settled.
Result EncodeByWindows(const Tokenizer& tokenizer, std::string_view text, size_t window) {
  Result result;
  PieceState state;
  for (size_t take = window;;) {
    result.largest = std::max(result.largest, std::min(take, text.size()));
    const bool last = take >= text.size();
    const auto size = tokenizer.EncodePiece(text.substr(0, take), last, &state, &result.ids);
    if (!size.ok()) ADD_FAILURE() << size.status();
    if (last || !size.ok()) return result;
    text.remove_prefix(*size);
    take = *size == 0 ? take + window : window;
  }
}

class Texts {
 public:
  explicit Texts(uint32_t seed) : random_(seed) {}

  std::string Of(const std::vector<std::string>& parts, size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += parts[random_() % parts.size()];
    return text;
  }
  std::string Between(char32_t first, char32_t last, size_t bytes) {
    std::string text;
    while (text.size() < bytes) AppendUtf8(first + random_() % (last - first + 1), &text);
    return text;
  }
  size_t Number(size_t below) { return random_() % below; }

 private:
  std::mt19937 random_;
};

struct Text {
  const char* name;
  std::string text;
  bool is_space = false;
};

constexpr size_t kBytes = 12000;
constexpr size_t kWindow = 700;

std::vector<Text> EndlessTexts() {
  Texts texts(11);
  const auto repeat = [](std::string_view part) {
    std::string text;
    while (text.size() < kBytes) text += part;
    return text;
  };
  return {{"one letter", repeat("a")},
          {"two letters", repeat("ab")},
          {"random letters", texts.Between('a', 'z', kBytes)},
          {"random DNA", texts.Of({"A", "C", "G", "T"}, kBytes)},
          {"words without spaces", texts.Of({"the", "of", "model", "ing", "trained", "e"}, kBytes)},
          {"Chinese", texts.Between(0x4e00, 0x9fa5, kBytes)},
          {"common Chinese", texts.Of({"我", "们", "语", "言", "模", "型", "的", "是"}, kBytes)},
          {"Cyrillic", texts.Between(0x430, 0x44f, kBytes)},
          {"digits", texts.Between('0', '9', kBytes)},
          {"spaces", repeat(" "), true},
          {"tabs", repeat("\t"), true},
          {"line feeds", repeat("\n"), true},
          {"CRLF", repeat("\r\n"), true},
          {"spaces and line feeds", texts.Of({" ", " ", "\n"}, kBytes), true},
          {"dashes", repeat("-")},
          {"punctuation", texts.Of({"-", "=", "#", "*", "/", ".", ","}, kBytes)},
          {"base64", texts.Of({"A", "b", "C", "d", "9", "+", "/", "x"}, kBytes)}};
}

// The texts that go on with something else, so that the end of the long run matters.
std::vector<Text> MixedTexts() {
  Texts texts(12);
  std::vector<Text> mixed;
  const std::vector<std::string> joints = {
      "'s", " ",  "\n", " x", "1", "'",       "!a",  "\r\n",          " 's",    "\t\tb", "中文",
      "A",  "aB", "…",  "_",  "é", "e\u0301", "<s>", "<|endoftext|>", "[MASK]", "solo"};
  std::vector<Text> runs = EndlessTexts();
  for (int i = 0; i < 12; ++i) {
    std::string text;
    for (int run = 0; run < 8; ++run) {
      const std::string& from = runs[texts.Number(runs.size())].text;
      size_t size = 1 + texts.Number(2500);
      while (size < from.size() && (from[size] & 0xc0) == 0x80) ++size;
      text += from.substr(0, size) + joints[texts.Number(joints.size())];
    }
    mixed.push_back({"mixed", text});
  }
  return mixed;
}

// The texts of which nothing shows how their tokens are: white space that a token may take which
// follows, line ends that a table of characters might replace together, and a character that a
// normalizer replaces when there are several.
bool MayBeHeld(std::string_view tokenizer, const Text& text) {
  for (const std::string_view free : {"gpt2", "llama3", "qwen", "o200k", "splits", "gemma_replace",
                                      "spm_llama", "spm_llama_legacy", "spm_gemma"}) {
    if (tokenizer == free) return false;
  }
  return text.is_space || (tokenizer == "bpe_suffix" && std::string_view("dashes") == text.name);
}

class OpenWords : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, OpenWords,
                         testing::Values("gpt2", "gpt2_prefix", "llama3", "qwen", "qwen_added",
                                         "o200k", "splits", "llama2", "mistral_metaspace",
                                         "metaspace_always", "gemma_replace", "unigram_t5",
                                         "unigram_albert", "unigram_whole", "wordpiece",
                                         "wordlevel", "bpe_suffix", "bpe_prefix", "bpe_metaspace",
                                         "scripts", "spm_llama", "spm_llama_legacy", "spm_gemma",
                                         "spm_bpe", "spm_unigram"));

TEST_P(OpenWords, WindowsOfEndlessTextsGiveTheIdsOfTheWhole) {
  const auto tokenizer = Open(GetParam());
  ASSERT_NE(tokenizer, nullptr);
  for (const Text& text : EndlessTexts()) {
    std::vector<int32_t> whole;
    ASSERT_TRUE(tokenizer->Encode(text.text, &whole).ok());
    const Result result = EncodeByWindows(*tokenizer, text.text, kWindow);
    EXPECT_TRUE(result.ids == whole) << text.name;
    if (!MayBeHeld(GetParam(), text)) {
      EXPECT_LE(result.largest, 4 * kWindow) << text.name;
    }
  }
}

TEST_P(OpenWords, WindowsOfMixedTextsGiveTheIdsOfTheWhole) {
  const auto tokenizer = Open(GetParam());
  ASSERT_NE(tokenizer, nullptr);
  Texts windows(13);
  for (const Text& text : MixedTexts()) {
    std::vector<int32_t> whole;
    ASSERT_TRUE(tokenizer->Encode(text.text, &whole).ok());
    for (int i = 0; i < 3; ++i) {
      const size_t window = 40 + windows.Number(1500);
      const Result result = EncodeByWindows(*tokenizer, text.text, window);
      EXPECT_TRUE(result.ids == whole) << text.name << " in windows of " << window;
    }
  }
}

}  // namespace
}  // namespace megatrain
