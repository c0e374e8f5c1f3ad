// Texts that are encoded on several threads have the ids of the whole.
#include "engine/tokenizer/parallel_encode.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/tokenizer/bytes_tokenizer.h"
#include "engine/tokenizer/hf_tokenizer.h"

namespace megatrain {
namespace {

std::string Read(const std::string& path) {
  std::ifstream file("tests/golden/tokenizers/" + path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

std::shared_ptr<const Tokenizer> Open(const std::string& name) {
  if (name == "bytes") return MakeBytesTokenizer();
  const auto tokenizer =
      name.starts_with("spm_")
          ? MakeHfTokenizer({.tokenizer_model = Read(name + "/tokenizer.model"),
                             .tokenizer_config = Read(name + "/tokenizer_config.json"),
                             .model_config = Read(name + "/config.json")})
          : MakeHfTokenizer({.tokenizer_json = Read(name + "/tokenizer.json")});
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

// Texts that make the places hard to find: without white space, without ASCII, with CRLF, with a
// full stop at the end of each line, and in which one word goes on and on.
std::vector<std::string> Texts() {
  std::mt19937 random(7);
  const auto words = [&](std::vector<std::string> from, const std::string& between, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += from[random() % from.size()] + between;
    return text;
  };
  const std::vector<std::string> chinese = {"我们", "语言", "模型", "，", "。", "训练", "记忆"};
  const std::vector<std::string> russian = {"Слово", "и", "дело,", "Ёлка", "12", "конец."};
  const std::vector<std::string> english = {"The", "model", "isn't", "(yet)", "3.14", "trained."};
  return {words(chinese, "", 3000),
          words(russian, " ", 3000),
          words(english, "\r\n", 3000),
          words({"A line that ends.", "Another one."}, "\n", 1500),
          words({"🙂", "e\xcc\x81", "<|endoftext|>", "\t", "<s>", "</s>", "  "}, "", 4000),
          std::string(30000, 'a'),
          std::string(30000, ' '),
          words({"ab"}, "", 10000) + " end"};
}

class ParallelEncodeTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Kinds, ParallelEncodeTest,
                         testing::Values("bytes", "gpt2", "llama3", "qwen", "llama2", "gemma",
                                         "spm_bpe", "metaspace_always", "mistral_metaspace",
                                         "unigram_t5", "spm_unigram", "unigram_whole", "wordpiece",
                                         "splits"));

TEST_P(ParallelEncodeTest, ThreadsGiveTheIdsOfTheWhole) {
  const auto tokenizer = Open(GetParam());
  ASSERT_NE(tokenizer, nullptr);
  for (const std::string& text : Texts()) {
    std::vector<int32_t> whole;
    ASSERT_TRUE(tokenizer->Encode(text, &whole).ok());
    for (const int threads : {2, 3, 7}) {
      ThreadPool pool(threads);
      std::vector<int32_t> ids;
      PieceState state;
      std::string_view rest = text;
      for (size_t take = 20000; !rest.empty();) {
        const bool last = take >= rest.size();
        const auto size = EncodePieceInParallel(*tokenizer, pool, rest.substr(0, take), last,
                                                &state, &ids, /*piece_bytes_min=*/1000);
        ASSERT_TRUE(size.ok()) << size.status();
        rest.remove_prefix(*size);
        take = *size == 0 ? 2 * take : 20000;
      }
      EXPECT_TRUE(ids == whole) << threads << " threads: " << text.substr(0, 20) << ": "
                                << ids.size() << " and " << whole.size() << " ids";
    }
  }
}

TEST(ParallelEncodeErrorTest, InvalidTextIsRefused) {
  ThreadPool pool(2);
  std::vector<int32_t> ids;
  PieceState state;
  const std::string text = std::string(1500, 'a') + "\xff" + std::string(1500, 'b');
  EXPECT_FALSE(
      EncodePieceInParallel(*MakeBytesTokenizer(), pool, text, true, &state, &ids, 1000).ok());
  EXPECT_EQ(state, PieceState()) << "though the first piece was encoded";
}

}  // namespace
}  // namespace megatrain
