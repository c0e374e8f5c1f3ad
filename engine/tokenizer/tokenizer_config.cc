#include "engine/tokenizer/tokenizer_config.h"

#include <algorithm>

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

// Reads the special tokens of `root` in the order of transformers' attributes. Those of `over`, an
// object of `over_file`, go before.
absl::Status ReadSpecialTokens(const Json& root, const Json& over, TokenizerConfig* out) {
  struct Key {
    const char* name;
    std::optional<std::string>* text;
  };
  const Key kKeys[] = {{"bos_token", &out->bos_token}, {"eos_token", &out->eos_token},
                       {"unk_token", &out->unk_token}, {"sep_token", nullptr},
                       {"pad_token", &out->pad_token}, {"cls_token", nullptr},
                       {"mask_token", nullptr}};
  const auto find = [&](const char* name, std::string_view* file) -> const Json* {
    *file = "special_tokens_map.json";
    if (const auto found = over.find(name); found != over.end()) return &*found;
    *file = "tokenizer_config.json";
    const auto found = root.find(name);
    return found == root.end() ? nullptr : &*found;
  };
  std::string_view file;
  for (const Key& key : kKeys) {
    const Json* const value = find(key.name, &file);
    if (value == nullptr) continue;
    MT_ASSIGN_OR_RETURN(auto token, SpecialToken(*value, file, key.name));
    if (!token.has_value()) continue;
    if (key.text != nullptr) *key.text = token->content;
    out->special_tokens.push_back(*std::move(token));
  }
  for (const char* name : {"extra_special_tokens", "additional_special_tokens"}) {
    const Json* const list = find(name, &file);
    if (list == nullptr || list->is_null()) continue;
    if (!list->is_array() && !list->is_object()) {
      return absl::InvalidArgumentError(absl::StrCat(ToAbsl(file), ": ", name, " is not a list"));
    }
    for (const Json& item : *list) {
      MT_ASSIGN_OR_RETURN(auto token, SpecialToken(item, file, name));
      if (token.has_value()) out->special_tokens.push_back(*std::move(token));
    }
    if (!list->empty()) break;  // the second is the older name of the first
  }
  return absl::OkStatus();
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
    if (found == root.end() || found->is_null()) continue;
    if (!found->is_boolean()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer_config.json: ", key, " is not true or false"));
    }
    *value = found->get<bool>();
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
                                                     std::string_view generation_config) {
  TokenizerConfig out;
  Json root = Json::object();
  if (!tokenizer_config.empty()) {
    MT_ASSIGN_OR_RETURN(root, Parse(tokenizer_config, "tokenizer_config.json"));
    MT_RETURN_IF_ERROR(ReadAddedTokens(root, &out.added_tokens));
    MT_RETURN_IF_ERROR(ReadFlags(root, &out));
  }
  Json over = Json::object();
  if (!special_tokens_map.empty() && !root.contains("added_tokens_decoder")) {
    MT_ASSIGN_OR_RETURN(over, Parse(special_tokens_map, "special_tokens_map.json"));
  }
  MT_RETURN_IF_ERROR(ReadSpecialTokens(root, over, &out));
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
