// Reads what tokenizer_config.json and config.json say of special tokens.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_CONFIG_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_CONFIG_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/tokenizer/added_tokens.h"

namespace megatrain {

struct TokenizerConfig {
  std::optional<std::string> bos_token, eos_token, pad_token;
  std::vector<AddedToken> added_tokens;  // added_tokens_decoder, by ascending id
  int32_t eos_token_id = -1;             // config.json's first eos_token_id, -1 if none
  // The text of chat_template; of several the one named "default".
  std::optional<std::string> chat_template;
};

// Either text may be empty: nothing is said then. Errors name the file.
absl::StatusOr<TokenizerConfig> ParseTokenizerConfig(std::string_view tokenizer_config,
                                                     std::string_view model_config);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_CONFIG_H_
