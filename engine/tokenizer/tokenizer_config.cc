#include "engine/tokenizer/tokenizer_config.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/tokenizer/text/text_map.h"
#include "nlohmann/json.hpp"

namespace megatrain {
namespace {

using Json = nlohmann::json;

absl::StatusOr<Json> Parse(std::string_view text, std::string_view file) {
  Json root;
  try {
    root = Json::parse(text);
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToAbsl(file), ": not valid JSON: ", error.what()));
  }
  if (!root.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(ToAbsl(file), ": not a JSON object"));
  }
  return root;
}

// A special token is written "text" or {"content": "text", ...}.
absl::StatusOr<std::optional<std::string>> SpecialToken(const Json& root, const char* key) {
  const auto found = root.find(key);
  if (found == root.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (found->is_object()) {
    const auto content = found->find("content");
    if (content != found->end() && content->is_string()) return content->get<std::string>();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("tokenizer_config.json: ", key, " is neither a string nor {\"content\": ..}"));
}

absl::Status ReadAddedTokens(const Json& root, std::vector<AddedToken>* out) {
  const auto decoder = root.find("added_tokens_decoder");
  if (decoder == root.end() || decoder->is_null()) return absl::OkStatus();
  const absl::Status bad = absl::InvalidArgumentError(
      "tokenizer_config.json: added_tokens_decoder is not {\"id\": {\"content\": ..}, ..}");
  if (!decoder->is_object()) return bad;
  for (const auto& [key, value] : decoder->items()) {
    AddedToken token;
    if (!absl::SimpleAtoi(key, &token.id) || token.id < 0 || !value.is_object()) return bad;
    const auto content = value.find("content");
    if (content == value.end() || !content->is_string()) return bad;
    token.content = content->get<std::string>();
    const auto flag = [&value = value](const char* name, bool otherwise) {
      const auto found = value.find(name);
      return found != value.end() && found->is_boolean() ? found->get<bool>() : otherwise;
    };
    token.single_word = flag("single_word", false);
    token.lstrip = flag("lstrip", false);
    token.rstrip = flag("rstrip", false);
    token.special = flag("special", false);
    token.normalized = flag("normalized", !token.special);
    out->push_back(std::move(token));
  }
  std::sort(out->begin(), out->end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerConfig> ParseTokenizerConfig(std::string_view tokenizer_config,
                                                     std::string_view model_config) {
  TokenizerConfig out;
  if (!tokenizer_config.empty()) {
    MT_ASSIGN_OR_RETURN(const Json root, Parse(tokenizer_config, "tokenizer_config.json"));
    MT_ASSIGN_OR_RETURN(out.bos_token, SpecialToken(root, "bos_token"));
    MT_ASSIGN_OR_RETURN(out.eos_token, SpecialToken(root, "eos_token"));
    MT_ASSIGN_OR_RETURN(out.pad_token, SpecialToken(root, "pad_token"));
    MT_RETURN_IF_ERROR(ReadAddedTokens(root, &out.added_tokens));
  }
  if (!model_config.empty()) {
    MT_ASSIGN_OR_RETURN(const Json root, Parse(model_config, "config.json"));
    auto id = root.find("eos_token_id");
    if (id != root.end()) {
      const Json* first = &*id;
      if (first->is_array() && !first->empty()) first = &(*first)[0];
      if (first->is_number_unsigned() && first->get<uint64_t>() <= 0x7fffffff) {
        out.eos_token_id = first->get<int32_t>();
      }
    }
  }
  return out;
}

}  // namespace megatrain
