// Parses the files beside tokenizer.json that name special tokens: tokenizer_config.json,
// special_tokens_map.json, added_tokens.json, and the end-of-text ids of config.json and
// generation_config.json.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_CONFIG_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_CONFIG_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/tokenizer/added_tokens.h"

namespace megatrain {

// The tokenizer's special tokens and class, as the files give them.
struct TokenizerConfig {
  // The tokens as `transformers` resolves them. special_tokens_map.json takes precedence over
  // tokenizer_config.json if the latter has no added_tokens_decoder, and is not read otherwise.
  std::optional<std::string> bos_token, eos_token, pad_token, unk_token;
  // added_tokens_decoder or, if the file has none, those of added_tokens.json; with ascending ids.
  std::vector<AddedToken> added_tokens;
  bool has_older_added_tokens = false;  // added_tokens.json was read
  // The special tokens that tokenizer_config.json and special_tokens_map.json name, as
  // `transformers` resolves them and in the order in which it adds those that are no added tokens
  // yet: `named_tokens` under its own keys, `own_tokens` under other ones (image_token), then lists
  // of extra tokens. Their ids are not set.
  std::vector<AddedToken> special_tokens;
  size_t named_tokens = 0, own_tokens = 0;
  int32_t eos_token_id = -1;  // the first one of config.json or its text_config; -1: none
  // Those of generation_config.json if it has some, else those of config.json or its text_config.
  std::vector<int32_t> eos_token_ids;
  bool add_bos = false, add_eos = false;  // add_bos_token and add_eos_token
  std::string tokenizer_class;            // without "Fast"; "" if there is none
  std::string model_type;                 // of config.json; "" if there is none
  // The keys of these names in tokenizer_config.json; unset if missing or null.
  std::optional<bool> legacy;
  bool null_legacy = false;  // `legacy` is null
  std::optional<bool> add_prefix_space;
};

// Parses the contents of the files; `model_config` is that of config.json. Each may be empty, which
// leaves its fields unset. Returns InvalidArgument, naming the file, if one is malformed, and
// Unimplemented for split_special_tokens.
absl::StatusOr<TokenizerConfig> ParseTokenizerConfig(std::string_view tokenizer_config,
                                                     std::string_view model_config,
                                                     std::string_view special_tokens_map = {},
                                                     std::string_view generation_config = {},
                                                     std::string_view added_tokens = {});

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_CONFIG_H_
