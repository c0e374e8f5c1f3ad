#include "engine/tokenizer/tokenizer_json.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/tokenizer/text/text_map.h"
#include "engine/tokenizer/text/utf8.h"
#include "engine/tokenizer/tokenizer_json_parts.h"

namespace megatrain {

using Json = nlohmann::json;

namespace {

// Sequences of components nest no deeper than this, and have no more components (known files: 1
// and 8).
constexpr int kDepthMax = 8;
constexpr int kComponentsMax = 64;

absl::Status ForEachBelow(const Json& component, std::string_view where, const char* list,
                          int depth, int* count,
                          absl::FunctionRef<absl::Status(const Json&)> read) {
  MT_ASSIGN_OR_RETURN(const std::string_view type, GetType(component, where));
  if (type != "Sequence") {
    if (++*count > kComponentsMax) return Unsupported(where, "Sequence too long");
    return read(component);
  }
  const Json& items = Get(component, list);
  if (!items.is_array()) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToAbsl(where), ": a Sequence without \"", list, "\""));
  }
  if (depth == kDepthMax) return Unsupported(where, "Sequence nested too deep");
  for (const Json& item : items) {
    MT_RETURN_IF_ERROR(ForEachBelow(item, where, list, depth + 1, count, read));
  }
  return absl::OkStatus();
}

absl::Status ReadAddedTokens(const Json& list, std::vector<AddedToken>* out) {
  if (list.is_null()) return absl::OkStatus();
  if (!list.is_array()) return absl::InvalidArgumentError("\"added_tokens\" is not a list");
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& item = list[i];
    const std::string where = absl::StrCat("added_tokens[", i, "]");
    if (!item.is_object()) return absl::InvalidArgumentError(where + " is not an object");
    AddedToken token;
    MT_ASSIGN_OR_RETURN(const uint64_t id, GetUnsigned(item, "id", kTokenIdMax - 1, where));
    MT_ASSIGN_OR_RETURN(token.content, GetString(item, "content", where));
    token.id = static_cast<int32_t>(id);
    MT_ASSIGN_OR_RETURN(token.single_word, GetBool(item, "single_word", false));
    MT_ASSIGN_OR_RETURN(token.lstrip, GetBool(item, "lstrip", false));
    MT_ASSIGN_OR_RETURN(token.rstrip, GetBool(item, "rstrip", false));
    MT_ASSIGN_OR_RETURN(token.special, GetBool(item, "special", false));
    MT_ASSIGN_OR_RETURN(token.normalized, GetBool(item, "normalized", !token.special));
    out->push_back(std::move(token));
  }
  return absl::OkStatus();
}

}  // namespace

const Json& Get(const Json& object, const char* key) {
  static const Json* const kNull = new Json(nullptr);
  if (!object.is_object()) return *kNull;
  const auto found = object.find(key);
  return found == object.end() ? *kNull : *found;
}

absl::StatusOr<bool> GetBool(const Json& object, const char* key, bool otherwise) {
  const Json& value = Get(object, key);
  if (value.is_null()) return otherwise;
  if (!value.is_boolean()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", key, "\" is not true or false"));
  }
  return value.get<bool>();
}

absl::StatusOr<std::string_view> GetString(const Json& object, const char* key,
                                           std::string_view where) {
  const Json& value = Get(object, key);
  if (!value.is_string()) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToAbsl(where), ": \"", key, "\" is missing or not a string"));
  }
  return std::string_view(value.get_ref<const std::string&>());
}

absl::StatusOr<std::string_view> GetCharacter(const Json& object, const char* key,
                                              std::string_view where) {
  MT_ASSIGN_OR_RETURN(const std::string_view text, GetString(object, key, where));
  if (text.empty() || Utf8Length(static_cast<unsigned char>(text[0])) != text.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToAbsl(where), ": \"", key, "\" is not one character"));
  }
  return text;
}

absl::StatusOr<uint64_t> GetUnsigned(const Json& object, const char* key, uint64_t max,
                                     std::string_view where) {
  const Json& value = Get(object, key);
  if (!value.is_number_unsigned() || value.get<uint64_t>() > max) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: \"%s\" is not an integer from 0 to %d", where, key, max));
  }
  return value.get<uint64_t>();
}

absl::StatusOr<std::string_view> GetType(const Json& component, std::string_view where) {
  const Json& type = Get(component, "type");
  if (type.is_string()) return std::string_view(type.get_ref<const std::string&>());
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(where), " has no \"type\""));
}

absl::Status Unsupported(std::string_view where, std::string_view type) {
  return absl::UnimplementedError(
      absl::StrCat(ToAbsl(where), " of type ", ToAbsl(type), " is not supported", kInstead));
}

absl::StatusOr<std::unique_ptr<SplitRegex>> GetPattern(const Json& component,
                                                       std::string_view where) {
  const Json& pattern = Get(component, "pattern");
  if (pattern.is_object() && pattern.size() == 1 && pattern.begin()->is_string()) {
    const std::string& text = pattern.begin()->get_ref<const std::string&>();
    if (pattern.begin().key() == "Regex") return SplitRegex::Compile(text);
    if (pattern.begin().key() == "String") return SplitRegex::Compile(EscapeRegex(text));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(ToAbsl(where), ": \"pattern\" is neither {\"Regex\": ..} nor {\"String\": ..}"));
}

absl::Status ForEachComponent(const Json& component, std::string_view where, const char* list,
                              absl::FunctionRef<absl::Status(const Json&)> read) {
  if (component.is_null()) return absl::OkStatus();
  int count = 0;
  return ForEachBelow(component, where, list, 0, &count, read);
}

absl::StatusOr<TokenizerJson> ParseTokenizerJson(std::string_view text) {
  if (text.size() > kTokenizerJsonBytesMax) {
    return absl::InvalidArgumentError(absl::StrFormat("the file has %d bytes, more than %d",
                                                      text.size(), kTokenizerJsonBytesMax));
  }
  MT_RETURN_IF_ERROR(CheckUtf8(text));
  MT_ASSIGN_OR_RETURN(const Json root, ParseJson(text, "its content"));
  if (!root.is_object()) return absl::InvalidArgumentError("not a JSON object");
  TokenizerJson out;
  ComponentKinds kinds;
  MT_RETURN_IF_ERROR(ReadNormalizer(root, &out));
  MT_RETURN_IF_ERROR(ReadPreTokenizer(root, &kinds, &out));
  MT_RETURN_IF_ERROR(ReadModel(root, kinds, &out));
  MT_RETURN_IF_ERROR(ReadDecoder(root, &out));
  MT_RETURN_IF_ERROR(ReadPostProcessor(root, &out));
  MT_RETURN_IF_ERROR(ReadAddedTokens(Get(root, "added_tokens"), &out.added_tokens));
  return out;
}

}  // namespace megatrain
