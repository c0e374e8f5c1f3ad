// Parses SentencePiece's tokenizer.model.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_SENTENCEPIECE_MODEL_H_
#define MEGATRAIN_ENGINE_TOKENIZER_SENTENCEPIECE_MODEL_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/tokenizer/tokenizer_config.h"
#include "engine/tokenizer/tokenizer_json.h"

namespace megatrain {

// Makes the parts that `transformers` makes of `model`, the file's content, for a directory without
// tokenizer.json. `model` is used during the call only. `*config` tells the tokenizer's class and
// its settings. If it lacks bos_token, eos_token and so on, they are added to it as the class or
// the model names them; its added tokens may become ones that are not normalized. Returns
// InvalidArgument if `model` is broken, larger than kTokenizerJsonBytesMax or has a piece of more
// than 4096 bytes or without a finite score. Returns Unimplemented for a model that is neither
// Unigram nor BPE or does not fit the class, for treat_whitespace_as_suffix, and for a class whose
// own conversion is not known here (T5, XGLM, Qwen2, ...). Returns the errors of
// SplitRegex::Compile for its user-defined pieces. Messages do not name the file.
absl::StatusOr<TokenizerJson> ParseSentencePieceModel(std::string_view model,
                                                      TokenizerConfig* config);

// Returns true if `transformers` prepares texts as the model itself says, not as a class does.
bool FollowsItsModel(const TokenizerConfig& config);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_SENTENCEPIECE_MODEL_H_
