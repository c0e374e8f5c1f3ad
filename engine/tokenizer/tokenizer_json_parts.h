// What the readers of tokenizer.json's parts share. Private to engine/data/tokenizer_json*.cc.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_JSON_PARTS_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_JSON_PARTS_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/tokenizer/tokenizer_json.h"
#include "nlohmann/json.hpp"

namespace megatrain {

// Ends the message about a part that is not supported.
inline constexpr char kInstead[] =
    "; byte-level BPE (GPT-2, Llama 3, Qwen) and SentencePiece's with byte_fallback (Llama 2, "
    "Mistral, Gemma) are supported: use `tokens` data made with this tokenizer, or "
    "`tokenizer: bytes`";

// The value at `key`, null if there is none.
const nlohmann::json& Get(const nlohmann::json& object, const char* key);
absl::StatusOr<bool> GetBool(const nlohmann::json& object, const char* key, bool otherwise);
// The component's "type"; lives as long as the component.
absl::StatusOr<std::string_view> GetType(const nlohmann::json& component, std::string_view where);
absl::Status Unsupported(std::string_view where, std::string_view type);

// Reads "normalizer", "pre_tokenizer" and "decoder" of `root`: what is done to text before it is
// merged, and to tokens when they are decoded. REQUIRES: the model was read.
absl::Status ReadTextParts(const nlohmann::json& root, TokenizerJson* out);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_JSON_PARTS_H_
