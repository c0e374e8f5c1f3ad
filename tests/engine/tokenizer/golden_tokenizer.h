// The tokenizers' files of tests/golden/tokenizers.
#ifndef MEGATRAIN_TESTS_ENGINE_TOKENIZER_GOLDEN_TOKENIZER_H_
#define MEGATRAIN_TESTS_ENGINE_TOKENIZER_GOLDEN_TOKENIZER_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer/hf_tokenizer.h"

namespace megatrain {

inline std::string ReadGolden(const std::string& path) {
  std::ifstream file("tests/golden/tokenizers/" + path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

inline std::shared_ptr<const Tokenizer> OpenGolden(const std::string& name) {
  const bool is_model = name.substr(0, 4) == "spm_";
  auto tokenizer =
      is_model ? MakeHfTokenizer({.tokenizer_model = ReadGolden(name + "/tokenizer.model"),
                                  .tokenizer_config = ReadGolden(name + "/tokenizer_config.json"),
                                  .model_config = ReadGolden(name + "/config.json")})
               : MakeHfTokenizer({.tokenizer_json = ReadGolden(name + "/tokenizer.json")});
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

// Encodes `text` from windows of `window` bytes, which grow where nothing is settled. Sets
// `largest` to the size of the largest one.
inline std::vector<int32_t> EncodeByPieces(const Tokenizer& tokenizer, std::string_view text,
                                           size_t window, size_t* largest) {
  std::vector<int32_t> ids;
  PieceState state;
  *largest = 0;
  for (size_t take = window;;) {
    *largest = std::max(*largest, std::min(take, text.size()));
    const bool last = take >= text.size();
    const auto size = tokenizer.EncodePiece(text.substr(0, take), last, &state, &ids);
    if (!size.ok()) ADD_FAILURE() << size.status();
    if (last || !size.ok()) return ids;
    text.remove_prefix(*size);
    take = *size == 0 ? take + window : window;
  }
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_TOKENIZER_GOLDEN_TOKENIZER_H_
