// Parses tokenizer_config.json and the special tokens of config.json.
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
  std::vector<AddedToken> added_tokens;  // added_tokens_decoder, with ascending ids
  int32_t eos_token_id = -1;             // the first one of config.json; -1 if there is none
};

// Parses the contents of the two files. Either may be empty, which leaves its fields unset. Returns
// InvalidArgument, naming the file, if one is malformed.
absl::StatusOr<TokenizerConfig> ParseTokenizerConfig(std::string_view tokenizer_config,
                                                     std::string_view model_config);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_CONFIG_H_
