// A BPE tokenizer from Hugging Face's files, with the ids of the `tokenizers` library.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_BPE_TOKENIZER_H_
#define MEGATRAIN_ENGINE_TOKENIZER_BPE_TOKENIZER_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/tokenizer/tokenizer.h"

namespace megatrain {

// `tokenizer_json`, `tokenizer_config` and `model_config` are the contents of tokenizer.json,
// tokenizer_config.json and config.json; the last two may be empty. Errors name the file and what
// is wrong in it.
absl::StatusOr<std::shared_ptr<const Tokenizer>> MakeBpeTokenizer(std::string_view tokenizer_json,
                                                                  std::string_view tokenizer_config,
                                                                  std::string_view model_config);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_BPE_TOKENIZER_H_
