// The tokenizer of a model directory.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_OPEN_TOKENIZER_H_
#define MEGATRAIN_ENGINE_TOKENIZER_OPEN_TOKENIZER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/tokenizer/tokenizer.h"

namespace megatrain {

// `choice` is the job file's `data.tokenizer`: "bytes", or "auto" for the directory's
// tokenizer.json (with tokenizer_config.json's bos_token, eos_token and pad_token; an eos_token it
// does not name is config.json's first eos_token_id). A tokenizer that is not BPE is
// refused by name, with what works instead.
absl::StatusOr<std::shared_ptr<const Tokenizer>> OpenTokenizer(
    const std::string& model_directory, const std::string& choice,
    FileSystem* files = PosixFileSystem());

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_OPEN_TOKENIZER_H_
