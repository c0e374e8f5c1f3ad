// The tokenizers' files of tests/golden/tokenizers.
#ifndef MEGATRAIN_TESTS_ENGINE_TOKENIZER_GOLDEN_TOKENIZER_H_
#define MEGATRAIN_TESTS_ENGINE_TOKENIZER_GOLDEN_TOKENIZER_H_

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>

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

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_TOKENIZER_GOLDEN_TOKENIZER_H_
