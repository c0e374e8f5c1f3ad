#include "engine/tokenizer/tokenizer_config.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/tokenizer/text/text_map.h"
#include "nlohmann/json.hpp"

namespace megatrain {
namespace {

using Json = nlohmann::json;

absl::StatusOr<Json> Parse(std::string_view text, std::string_view file) {
  MT_ASSIGN_OR_RETURN(Json root, ParseJson(text, std::string(file)));
  if (!root.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(ToAbsl(file), ": not a JSON object"));
  }
  return root;
}

// An AddedToken of a file: {"content": "text", ...}.
AddedToken ReadToken(const Json& value, std::string content, bool special, bool normalized) {
  AddedToken token;
  token.content = std::move(content);
  const auto flag = [&value](const char* name, bool otherwise) {
    const auto found = value.is_object() ? value.find(name) : value.end();
    return value.is_object() && found != value.end() && found->is_boolean() ? found->get<bool>()
                                                                            : otherwise;
  };
  token.single_word = flag("single_word", false);
  token.lstrip = flag("lstrip", false);
  token.rstrip = flag("rstrip", false);
  token.special = special || flag("special", false);
  token.normalized = flag("normalized", normalized);
  return token;
}

// A special token is written "text" or {"content": "text", ...}.
absl::StatusOr<std::optional<AddedToken>> SpecialToken(const Json& value, std::string_view file,
                                                       std::string_view key) {
  if (value.is_null()) return std::nullopt;
  if (value.is_string()) return ReadToken(value, value.get<std::string>(), true, false);
  if (value.is_object()) {
    const auto content = value.find("content");
    if (content != value.end() && content->is_string()) {
      return ReadToken(value, content->get<std::string>(), true, false);
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat(ToAbsl(file), ": ", ToAbsl(key), " is neither a string nor {\"content\": ..}"));
}

constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kMap = "special_tokens_map.json";
constexpr const char* kExtra = "extra_special_tokens";
constexpr const char* kOlderExtra = "additional_special_tokens";  // the older name of the same
constexpr const char* kOwn = "model_specific_special_tokens";

// Returns the value at `key` of the object, or null if there is none.
const Json* Find(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

// Reads transformers' own special tokens, in the order of its attributes. Those of `over`, an
// object of special_tokens_map.json, go before.
absl::Status ReadNamedTokens(const Json& root, const Json& over, TokenizerConfig* out) {
  struct Key {
    const char* name;
    std::optional<std::string>* text;
  };
  const Key kKeys[] = {{"bos_token", &out->bos_token}, {"eos_token", &out->eos_token},
                       {"unk_token", &out->unk_token}, {"sep_token", nullptr},
                       {"pad_token", &out->pad_token}, {"cls_token", nullptr},
                       {"mask_token", nullptr}};
  for (const Key& key : kKeys) {
    const Json* value = Find(over, key.name);
    const char* const file = value != nullptr ? kMap : kConfig;
    if (value == nullptr) value = Find(root, key.name);
    if (value == nullptr) continue;
    MT_ASSIGN_OR_RETURN(auto token, SpecialToken(*value, file, key.name));
    if (!token.has_value()) continue;
    if (key.text != nullptr) *key.text = token->content;
    out->special_tokens.push_back(*std::move(token));
  }
  out->named_tokens = out->special_tokens.size();
  return absl::OkStatus();
}

// Returns true for the key of a token that only some models have, such as image_token.
bool IsOwnKey(std::string_view key) {
  constexpr std::string_view kNamed[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                         "pad_token", "cls_token", "mask_token"};
  return key.ends_with("_token") &&
         std::find(std::begin(kNamed), std::end(kNamed), key) == std::end(kNamed);
}

// Reads the special tokens of other keys: strings at keys of their own, and objects of them.
absl::Status ReadOwnTokens(const Json& root, const Json& over, TokenizerConfig* out) {
  std::vector<std::pair<std::string, const Json*>> found;  // in the order in which they are added
  const auto add = [&](const std::string& key, const Json* value, bool replaces) {
    const auto known = std::find_if(found.begin(), found.end(),
                                    [&](const auto& entry) { return entry.first == key; });
    if (known == found.end()) {
      found.emplace_back(key, value);
    } else if (replaces) {
      known->second = value;
    }
  };
  const auto add_object = [&](const Json* object) {
    if (object == nullptr || !object->is_object()) return;
    for (const auto& [key, value] : object->items()) add(key, &value, true);
  };
  for (const auto& [key, value] : root.items()) {
    if (IsOwnKey(key) && value.is_string()) add(key, &value, true);
  }
  const Json* const extra = Find(root, kExtra);
  add_object(extra);
  if (extra == nullptr || extra->empty()) add_object(Find(root, kOlderExtra));
  if (found.empty()) add_object(Find(root, kOwn));
  add_object(Find(over, kExtra));
  for (const auto& [key, value] : over.items()) {
    if (IsOwnKey(key) && (value.is_string() || value.is_object())) add(key, &value, false);
  }
  for (const auto& [key, value] : root.items()) {
    if (IsOwnKey(key) && value.is_object() && value.contains("__type")) add(key, &value, false);
  }
  for (const auto& [key, value] : found) {
    MT_ASSIGN_OR_RETURN(auto token, SpecialToken(*value, kConfig, key));
    if (token.has_value()) out->special_tokens.push_back(*std::move(token));
  }
  out->own_tokens = out->special_tokens.size() - out->named_tokens;
  return absl::OkStatus();
}

// Appends the tokens of `list` that `out` does not have from `first` on.
absl::Status AppendList(const Json& list, const char* file, const char* name, size_t first,
                        TokenizerConfig* out) {
  if (list.is_null() || list.is_object()) return absl::OkStatus();  // ReadOwnTokens has an object
  if (!list.is_array()) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": ", name, " is not a list"));
  }
  std::vector<AddedToken>& tokens = out->special_tokens;
  for (const Json& item : list) {
    MT_ASSIGN_OR_RETURN(auto token, SpecialToken(item, file, name));
    if (!token.has_value()) continue;
    const bool known =
        std::any_of(tokens.begin() + static_cast<ptrdiff_t>(first), tokens.end(),
                    [&](const AddedToken& other) { return other.content == token->content; });
    if (!known) tokens.push_back(*std::move(token));
  }
  return absl::OkStatus();
}

// Reads the lists of extra tokens. Returns in `*last` the older list of the map if it counts, which
// transformers reads after added_tokens.json.
absl::Status ReadExtraTokens(const Json& root, const Json& over, const Json** last,
                             TokenizerConfig* out) {
  const Json* extra = Find(root, kExtra);
  const Json* older = Find(root, kOlderExtra);
  const char* name = kExtra;
  if (older != nullptr && (extra == nullptr || extra->empty())) {
    extra = std::exchange(older, nullptr);
    name = kOlderExtra;
  }
  const bool is_object = extra != nullptr && extra->is_object();
  bool listed = extra != nullptr && !is_object;
  const size_t first = out->special_tokens.size();
  const Json* const more = Find(over, kExtra);
  if (more == nullptr || more->is_array()) {  // anything else replaces the list
    if (extra != nullptr) MT_RETURN_IF_ERROR(AppendList(*extra, kConfig, name, first, out));
  }
  if (more != nullptr) {
    listed = !more->is_object();
    MT_RETURN_IF_ERROR(AppendList(*more, kMap, kExtra, first, out));
  }
  if (const Json* const map_older = Find(over, kOlderExtra)) older = map_older;
  if (!listed) *last = older;
  return absl::OkStatus();
}

// Reads added_tokens.json: {"text": id, ..}.
absl::Status ReadOlderAddedTokens(std::string_view text, TokenizerConfig* out) {
  MT_ASSIGN_OR_RETURN(const Json root, Parse(text, "added_tokens.json"));
  for (const auto& [content, id] : root.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > 0x7fffffff) {
      return absl::InvalidArgumentError("added_tokens.json: not {\"token\": id, ..}");
    }
    AddedToken token;
    token.content = content;
    token.id = id.get<int32_t>();
    for (size_t i = 0; i < out->special_tokens.size(); ++i) {
      const bool own = i >= out->named_tokens && i - out->named_tokens < out->own_tokens;
      token.special = token.special || (!own && out->special_tokens[i].content == content);
    }
    token.normalized = !token.special;
    out->added_tokens.push_back(std::move(token));
  }
  std::sort(out->added_tokens.begin(), out->added_tokens.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  out->has_older_added_tokens = true;
  return absl::OkStatus();
}

// Reads the special tokens of both files, and `added_tokens`, the content of added_tokens.json.
absl::Status ReadSpecialTokens(const Json& root, const Json& over, std::string_view added_tokens,
                               TokenizerConfig* out) {
  MT_RETURN_IF_ERROR(ReadNamedTokens(root, over, out));
  MT_RETURN_IF_ERROR(ReadOwnTokens(root, over, out));
  const size_t first = out->special_tokens.size();
  const Json* last = nullptr;
  MT_RETURN_IF_ERROR(ReadExtraTokens(root, over, &last, out));
  if (!added_tokens.empty()) MT_RETURN_IF_ERROR(ReadOlderAddedTokens(added_tokens, out));
  if (last == nullptr) return absl::OkStatus();
  return AppendList(*last, over.contains(kOlderExtra) ? kMap : kConfig, kOlderExtra, first, out);
}

absl::Status ReadAddedTokens(const Json& root, std::vector<AddedToken>* out) {
  const auto decoder = root.find("added_tokens_decoder");
  if (decoder == root.end() || decoder->is_null()) return absl::OkStatus();
  const absl::Status bad = absl::InvalidArgumentError(
      "tokenizer_config.json: added_tokens_decoder is not {\"id\": {\"content\": ..}, ..}");
  if (!decoder->is_object()) return bad;
  for (const auto& [key, value] : decoder->items()) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(key, &id) || id < 0 || !value.is_object()) return bad;
    const auto content = value.find("content");
    if (content == value.end() || !content->is_string()) return bad;
    AddedToken token = ReadToken(value, content->get<std::string>(), false, true);
    // AddedToken's own default.
    if (!value.contains("normalized")) token.normalized = !token.special;
    token.id = id;
    out->push_back(std::move(token));
  }
  std::sort(out->begin(), out->end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return absl::OkStatus();
}

// eos_token_id: an id or a list of ids.
std::vector<int32_t> ReadEosIds(const Json& root) {
  std::vector<int32_t> out;
  const auto id = root.find("eos_token_id");
  if (id == root.end()) return out;
  for (const Json& item : id->is_array() ? *id : Json::array({*id})) {
    if (item.is_number_unsigned() && item.get<uint64_t>() <= 0x7fffffff) {
      out.push_back(item.get<int32_t>());
    }
  }
  return out;
}

std::string Text(const Json& root, const char* key) {
  const auto found = root.find(key);
  return found != root.end() && found->is_string() ? found->get<std::string>() : "";
}

absl::Status ReadFlags(const Json& root, TokenizerConfig* out) {
  std::optional<bool> add_bos, add_eos;
  for (const auto& [key, value] : {std::pair{"add_bos_token", &add_bos},
                                   {"add_eos_token", &add_eos},
                                   {"legacy", &out->legacy},
                                   {"add_prefix_space", &out->add_prefix_space}}) {
    const auto found = root.find(key);
    if (found == root.end()) continue;
    if (found->is_null()) {
      if (value == &out->legacy) out->null_legacy = true;
      continue;
    }
    if (!found->is_boolean()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer_config.json: ", key, " is not true or false"));
    }
    *value = found->get<bool>();
  }
  if (const auto split = root.find("split_special_tokens"); split != root.end() && *split == true) {
    return absl::UnimplementedError(
        "tokenizer_config.json: split_special_tokens: true is not supported");
  }
  out->add_bos = add_bos.value_or(false);
  out->add_eos = add_eos.value_or(false);
  out->tokenizer_class = Text(root, "tokenizer_class");
  if (absl::EndsWith(out->tokenizer_class, "Fast")) {
    out->tokenizer_class.resize(out->tokenizer_class.size() - 4);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerConfig> ParseTokenizerConfig(std::string_view tokenizer_config,
                                                     std::string_view model_config,
                                                     std::string_view special_tokens_map,
                                                     std::string_view generation_config,
                                                     std::string_view added_tokens) {
  TokenizerConfig out;
  Json root = Json::object();
  if (!tokenizer_config.empty()) {
    MT_ASSIGN_OR_RETURN(root, Parse(tokenizer_config, "tokenizer_config.json"));
    MT_RETURN_IF_ERROR(ReadAddedTokens(root, &out.added_tokens));
    MT_RETURN_IF_ERROR(ReadFlags(root, &out));
  }
  // Older files count only where there is no added_tokens_decoder.
  if (root.contains("added_tokens_decoder")) special_tokens_map = added_tokens = {};
  Json over = Json::object();
  if (!special_tokens_map.empty()) {
    MT_ASSIGN_OR_RETURN(over, Parse(special_tokens_map, kMap));
  }
  MT_RETURN_IF_ERROR(ReadSpecialTokens(root, over, added_tokens, &out));
  if (!model_config.empty()) {
    MT_ASSIGN_OR_RETURN(const Json config, Parse(model_config, "config.json"));
    out.eos_token_ids = ReadEosIds(config);
    // Models of images and text may have it with the text model's settings alone.
    const auto text_config = config.find("text_config");
    if (out.eos_token_ids.empty() && text_config != config.end() && text_config->is_object()) {
      out.eos_token_ids = ReadEosIds(*text_config);
    }
    if (!out.eos_token_ids.empty()) out.eos_token_id = out.eos_token_ids[0];
    out.model_type = Text(config, "model_type");
  }
  if (!generation_config.empty()) {
    MT_ASSIGN_OR_RETURN(const Json config, Parse(generation_config, "generation_config.json"));
    std::vector<int32_t> ids = ReadEosIds(config);
    if (!ids.empty()) out.eos_token_ids = std::move(ids);
  }
  return out;
}

}  // namespace megatrain
