#include "engine/tokenizer/tokenizer_json.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/tokenizer/byte_token.h"
#include "engine/tokenizer/text/text_map.h"
#include "engine/tokenizer/text/utf8.h"
#include "engine/tokenizer/tokenizer_json_parts.h"

namespace megatrain {
namespace {

using Json = nlohmann::json;

// ---- model

absl::Status CheckModelKind(const Json& model) {
  const Json& type = Get(model, "type");
  // Files of the first versions have no type.
  const std::string name = type.is_string()                  ? type.get<std::string>()
                           : Get(model, "merges").is_array() ? "BPE"
                                                             : "unknown";
  if (name != "BPE") return Unsupported("model", name);
  const Json& dropout = Get(model, "dropout");
  if (!dropout.is_null() && !(dropout.is_number() && dropout.get<double>() == 0.0)) {
    return absl::UnimplementedError("model.dropout other than 0 is not supported");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json& value = Get(model, key);
    if (!value.is_null() && value != "") {
      return absl::UnimplementedError(absl::StrCat("model.", key, " ", value.dump(-1, ' ', true),
                                                   " is not supported", kInstead));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadVocabulary(const Json& model, TokenizerJson* out) {
  const Json& vocabulary = Get(model, "vocab");
  if (!vocabulary.is_object()) return absl::InvalidArgumentError("model.vocab is not an object");
  out->vocabulary.reserve(vocabulary.size());
  absl::flat_hash_set<int32_t> seen;
  seen.reserve(vocabulary.size());
  for (const auto& [token, id] : vocabulary.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(kTokenIdMax)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "model.vocab: the id of \"%s\" is not an integer from 0 to %d", token, kTokenIdMax - 1));
    }
    const auto value = id.get<int32_t>();
    if (!seen.insert(value).second) {
      return absl::InvalidArgumentError(
          absl::StrFormat("model.vocab: two tokens have the id %d (one is \"%s\")", value, token));
    }
    out->vocabulary.emplace(token, value);
  }
  return absl::OkStatus();
}

// A rule with an empty token never applies.
void AddToSeams(std::string_view left, std::string_view right, BpeSeams* seams) {
  if (left.empty() || right.empty()) return;
  if (ByteOfToken(left) >= 0 || ByteOfToken(right) >= 0) seams->SetNone();
  seams->AddRule(left, right);
}

absl::Status ReadMerges(const Json& model, TokenizerJson* out) {
  const Json& merges = Get(model, "merges");
  if (!merges.is_array()) return absl::InvalidArgumentError("model.merges is not a list");
  int32_t rank = 0;
  std::string joined;
  for (size_t i = 0; i < merges.size(); ++i) {
    const Json& rule = merges[i];
    std::string_view left, right;
    if (rule.is_string()) {  // "left right"
      const std::string_view text = rule.get_ref<const std::string&>();
      if (text.substr(0, 8) == "#version") continue;
      const size_t space = text.find(' ');
      if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "model.merges[%d] \"%s\" is not two tokens with a space between", i, text));
      }
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else if (rule.is_array() && rule.size() == 2 && rule[0].is_string() && rule[1].is_string()) {
      left = rule[0].get_ref<const std::string&>();
      right = rule[1].get_ref<const std::string&>();
    } else {
      return absl::InvalidArgumentError(
          absl::StrFormat("model.merges[%d] is neither \"left right\" nor [left, right]", i));
    }
    joined.assign(left);
    joined += right;
    int32_t ids[3];
    int at = 0;
    for (const std::string_view token : {left, right, std::string_view(joined)}) {
      const auto found = out->vocabulary.find(token);
      if (found == out->vocabulary.end()) {
        return absl::InvalidArgumentError(
            absl::StrFormat("model.merges[%d]: the token \"%s\" is not in model.vocab", i, token));
      }
      ids[at++] = found->second;
    }
    out->merges.Add(ids[0], ids[1], rank++, ids[2]);
    if (out->byte_fallback) AddToSeams(left, right, &out->seams);
  }
  return absl::OkStatus();
}

absl::Status ReadModel(const Json& model, TokenizerJson* out) {
  if (!model.is_object()) return absl::InvalidArgumentError("\"model\" is missing");
  MT_RETURN_IF_ERROR(CheckModelKind(model));
  MT_ASSIGN_OR_RETURN(out->byte_fallback, GetBool(model, "byte_fallback", false));
  MT_RETURN_IF_ERROR(ReadVocabulary(model, out));
  MT_RETURN_IF_ERROR(ReadMerges(model, out));
  MT_ASSIGN_OR_RETURN(out->ignore_merges, GetBool(model, "ignore_merges", false));
  MT_ASSIGN_OR_RETURN(out->fuse_unknown, GetBool(model, "fuse_unk", false));
  const Json& unknown = Get(model, "unk_token");
  if (unknown.is_string()) {
    const auto found = out->vocabulary.find(unknown.get_ref<const std::string&>());
    if (found == out->vocabulary.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "model.unk_token \"", unknown.get_ref<const std::string&>(), "\" is not in model.vocab"));
    }
    out->unknown_id = found->second;
  } else if (!unknown.is_null()) {
    return absl::InvalidArgumentError("model.unk_token is not a string");
  }
  return absl::OkStatus();
}

// ---- added tokens

absl::Status ReadAddedTokens(const Json& list, std::vector<AddedToken>* out) {
  if (list.is_null()) return absl::OkStatus();
  if (!list.is_array()) return absl::InvalidArgumentError("\"added_tokens\" is not a list");
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& item = list[i];
    const std::string where = absl::StrCat("added_tokens[", i, "]");
    if (!item.is_object()) return absl::InvalidArgumentError(where + " is not an object");
    const Json& id = Get(item, "id");
    const Json& content = Get(item, "content");
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(kTokenIdMax) ||
        !content.is_string()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s needs a \"content\" and an \"id\" from 0 to %d", where, kTokenIdMax - 1));
    }
    AddedToken token;
    token.id = id.get<int32_t>();
    token.content = content.get<std::string>();
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

absl::StatusOr<TokenizerJson> ParseTokenizerJson(std::string_view text) {
  if (text.size() > kTokenizerJsonBytesMax) {
    return absl::InvalidArgumentError(absl::StrFormat("the file has %d bytes, more than %d",
                                                      text.size(), kTokenizerJsonBytesMax));
  }
  MT_RETURN_IF_ERROR(CheckUtf8(text));
  Json root;
  try {
    root = Json::parse(text);
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("not valid JSON: ", error.what()));
  }
  if (!root.is_object()) return absl::InvalidArgumentError("not a JSON object");
  TokenizerJson out;
  MT_RETURN_IF_ERROR(ReadModel(Get(root, "model"), &out));
  MT_RETURN_IF_ERROR(ReadTextParts(root, &out));
  MT_RETURN_IF_ERROR(ReadAddedTokens(Get(root, "added_tokens"), &out.added_tokens));
  return out;
}

}  // namespace megatrain
