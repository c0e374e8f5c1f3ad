// Helpers that the parsers of tokenizer.json's parts share. Private to
// engine/tokenizer/tokenizer_json*.cc.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_JSON_PARTS_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_JSON_PARTS_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/tokenizer/text/split_regex.h"
#include "engine/tokenizer/tokenizer_json.h"
#include "nlohmann/json.hpp"

namespace megatrain {

// The end of messages about an unsupported part.
inline constexpr char kInstead[] =
    "; use `tokens` data made with this tokenizer, or `tokenizer: bytes`";

// Returns the value at `key`, valid as long as `object`. Returns a JSON null if there is none, or
// if `object` is no JSON object.
const nlohmann::json& Get(const nlohmann::json& object, const char* key);
// Returns the boolean at `key`, `otherwise` if it is missing or null, and InvalidArgument if it is
// anything else.
absl::StatusOr<bool> GetBool(const nlohmann::json& object, const char* key, bool otherwise);
// Returns the string at `key`, valid as long as `object`. Returns InvalidArgument, naming `where`,
// if there is none.
absl::StatusOr<std::string_view> GetString(const nlohmann::json& object, const char* key,
                                           std::string_view where);
// Does as GetString, and returns InvalidArgument if the string is not one character of UTF-8.
absl::StatusOr<std::string_view> GetCharacter(const nlohmann::json& object, const char* key,
                                              std::string_view where);
// Returns the unsigned integer at `key`. Returns InvalidArgument, naming `where`, if there is none
// or it is above `max`.
absl::StatusOr<uint64_t> GetUnsigned(const nlohmann::json& object, const char* key, uint64_t max,
                                     std::string_view where);
// Returns the component's "type", valid as long as `component`. Returns InvalidArgument if there is
// none. `where` names the component in messages.
absl::StatusOr<std::string_view> GetType(const nlohmann::json& component, std::string_view where);
// Returns the Unimplemented status for a component of `type`, which is found at `where`.
absl::Status Unsupported(std::string_view where, std::string_view type);
// Compiles the component's "pattern", which is {"String": ..} or {"Regex": ..}. Returns the errors
// of SplitRegex::Compile, and InvalidArgument for any other value.
absl::StatusOr<std::unique_ptr<SplitRegex>> GetPattern(const nlohmann::json& component,
                                                       std::string_view where);
// Calls read(item) for `component`. For a Sequence, calls it instead for every component of the
// list at the key `list`, and so on for Sequences in that. Does nothing for null. Returns
// Unimplemented for more than 64 components or more than 8 Sequences within one another,
// InvalidArgument for a component without "type" or a Sequence without a list, and the errors of
// `read`.
absl::Status ForEachComponent(const nlohmann::json& component, std::string_view where,
                              const char* list,
                              absl::FunctionRef<absl::Status(const nlohmann::json&)> read);

// The facts about the pre-tokenizer that ReadModel needs.
struct ComponentKinds {
  bool byte_level = false;  // its last component is ByteLevel: the model's symbols are bytes
};

// Each function below reads a part of `root`, the whole file, into `out`. ReadPreTokenizer also
// sets `*kinds`. The functions return the errors of ParseTokenizerJson.
absl::Status ReadNormalizer(const nlohmann::json& root, TokenizerJson* out);
absl::Status ReadPreTokenizer(const nlohmann::json& root, ComponentKinds* kinds,
                              TokenizerJson* out);
absl::Status ReadModel(const nlohmann::json& root, const ComponentKinds& kinds, TokenizerJson* out);
absl::Status ReadDecoder(const nlohmann::json& root, TokenizerJson* out);
absl::Status ReadPostProcessor(const nlohmann::json& root, TokenizerJson* out);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_JSON_PARTS_H_
