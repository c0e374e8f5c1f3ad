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

// Returns the value at `key`, a JSON null if there is none. Valid as long as `object`.
const nlohmann::json& Get(const nlohmann::json& object, const char* key);
// Returns `otherwise` if the key is missing or null, and InvalidArgument if the value is not a
// boolean.
absl::StatusOr<bool> GetBool(const nlohmann::json& object, const char* key, bool otherwise);
// Returns the component's "type", valid as long as `component`; InvalidArgument if there is none.
absl::StatusOr<std::string_view> GetType(const nlohmann::json& component, std::string_view where);
// Makes the Unimplemented status for a component of type `type`.
absl::Status Unsupported(std::string_view where, std::string_view type);

// Reads "normalizer", "pre_tokenizer" and "decoder" of `root` into `out`. REQUIRES: the model was
// read before.
absl::Status ReadTextParts(const nlohmann::json& root, TokenizerJson* out);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_JSON_PARTS_H_
