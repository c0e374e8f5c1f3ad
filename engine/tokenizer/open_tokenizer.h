// Opens the tokenizer of a model directory.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_OPEN_TOKENIZER_H_
#define MEGATRAIN_ENGINE_TOKENIZER_OPEN_TOKENIZER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/tokenizer/tokenizer.h"

namespace megatrain {

// Opens the tokenizer that `choice`, the job file's `data.tokenizer`, names: "bytes" is the bytes
// tokenizer, which reads no file; "auto" is the directory's tokenizer.json, or its tokenizer.model
// if there is no tokenizer.json or it is empty. `files` is used during the call only.
//
// Other files of the directory complete it:
// - Special and added tokens come also from tokenizer_config.json, special_tokens_map.json and
//   added_tokens.json (tokenizer_config.h says which takes precedence).
// - With tokenizer.model, a token that they do not name is the default of the tokenizer's class, or
//   the model's own.
// - Tokenizer::eos_id is the eos_token, or the first eos_token_id of config.json if the tokenizer
//   knows no such token.
// - Tokenizer::end_ids are eos_id and the eos_token_id of generation_config.json, or of config.json
//   if the former has none.
// If config.json has no eos_token_id, that of its text_config is used. Only ids below
// Tokenizer::vocabulary() count.
//
// Returns NotFound if there is no tokenizer, InvalidArgument for a broken file or another `choice`,
// and the errors of reading. Returns Unimplemented for a tokenizer that is not supported, and the
// other errors of MakeHfTokenizer (hf_tokenizer.h).
absl::StatusOr<std::shared_ptr<const Tokenizer>> OpenTokenizer(
    const std::string& model_directory, const std::string& choice,
    FileSystem* files = PosixFileSystem());

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_OPEN_TOKENIZER_H_
