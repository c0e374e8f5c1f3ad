// Makes a tokenizer from Hugging Face files. It gives the same ids as Hugging Face's library
// `tokenizers`.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_HF_TOKENIZER_H_
#define MEGATRAIN_ENGINE_TOKENIZER_HF_TOKENIZER_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/tokenizer/tokenizer.h"

namespace megatrain {

// The contents of a directory's files. Those that are missing are empty.
struct TokenizerFiles {
  std::string_view tokenizer_json = {};
  std::string_view tokenizer_model = {};  // SentencePiece's; read if there is no tokenizer_json
  std::string_view tokenizer_config = {};
  std::string_view special_tokens_map = {};
  std::string_view model_config = {};  // config.json
  std::string_view generation_config = {};
  std::string_view added_tokens = {};  // added_tokens.json
};

// Makes the tokenizer. The files are used during the call only. Returns the errors of
// ParseTokenizerConfig, and those of ParseTokenizerJson and ParseSentencePieceModel with the file's
// name before the message. Returns the errors of TokenTable::Initialize, for example if the files
// contradict each other, and InvalidArgument if an added token is empty or there twice after
// normalization.
absl::StatusOr<std::shared_ptr<const Tokenizer>> MakeHfTokenizer(const TokenizerFiles& files);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_HF_TOKENIZER_H_
