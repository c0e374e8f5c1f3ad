// Makes a BPE tokenizer from Hugging Face files. It gives the same ids as the `tokenizers` library.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_BPE_TOKENIZER_H_
#define MEGATRAIN_ENGINE_TOKENIZER_BPE_TOKENIZER_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/tokenizer/tokenizer.h"

namespace megatrain {

// The arguments are the contents of tokenizer.json, tokenizer_config.json and config.json. The last
// two may be empty. All are used during the call only. Returns the errors of ParseTokenizerJson and
// ParseTokenizerConfig, and InvalidArgument if the files contradict each other. Messages name the
// file.
absl::StatusOr<std::shared_ptr<const Tokenizer>> MakeBpeTokenizer(std::string_view tokenizer_json,
                                                                  std::string_view tokenizer_config,
                                                                  std::string_view model_config);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_BPE_TOKENIZER_H_
