// Helpers that the parsers of tokenizer.json's parts share. Private to
// engine/tokenizer/tokenizer_json*.cc.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_JSON_PARTS_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_JSON_PARTS_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/tokenizer/tokenizer_json.h"
#include "nlohmann/json.hpp"

namespace megatrain {

// The end of messages about an unsupported part.
inline constexpr char kInstead[] =
    "; byte-level BPE (GPT-2, Llama 3, Qwen) and SentencePiece's with byte_fallback (Llama 2, "
    "Mistral, Gemma) are supported: use `tokens` data made with this tokenizer, or "
    "`tokenizer: bytes`";

// Returns the value at `key`, valid as long as `object`, or a JSON null if there is none.
const nlohmann::json& Get(const nlohmann::json& object, const char* key);
// Returns `otherwise` if the key is missing or null, and InvalidArgument if the value is not a
// boolean.
absl::StatusOr<bool> GetBool(const nlohmann::json& object, const char* key, bool otherwise);
// Returns the component's "type", valid as long as `component`. Returns InvalidArgument if there is
// none. `where` names the component in messages.
absl::StatusOr<std::string_view> GetType(const nlohmann::json& component, std::string_view where);
// Returns the Unimplemented status for a component of type `type`.
absl::Status Unsupported(std::string_view where, std::string_view type);

// Reads "normalizer", "pre_tokenizer" and "decoder" of `root` into `out`. Returns the errors of
// ParseTokenizerJson. REQUIRES: the model has been read into `out`.
absl::Status ReadTextParts(const nlohmann::json& root, TokenizerJson* out);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_JSON_PARTS_H_
