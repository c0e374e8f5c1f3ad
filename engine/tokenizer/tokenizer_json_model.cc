// The "model" of tokenizer.json.
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/tokenizer/model/bpe_model.h"
#include "engine/tokenizer/model/byte_token.h"
#include "engine/tokenizer/model/unigram_model.h"
#include "engine/tokenizer/model/word_model.h"
#include "engine/tokenizer/text/text_map.h"
#include "engine/tokenizer/tokenizer_json_parts.h"

namespace megatrain {
namespace {

// Returns the score as serde_json reads it, with which `tokenizers` reads the file: the number of
// all digits, multiplied or divided by a power of ten. That may miss the nearest double by a bit,
// and a bit decides between ways of equal scores. `score` is the nearest double of the text, whose
// digits are the shortest that give it.
double AsSerdeReads(double score) {
  char text[32];
  const std::to_chars_result end =
      std::to_chars(text, text + sizeof(text), std::abs(score), std::chars_format::scientific);
  const std::string_view written(text, static_cast<size_t>(end.ptr - text));
  const size_t exponent_at = written.find('e');
  int exponent = 0;
  double power = 0;
  if (exponent_at == std::string_view::npos ||
      !absl::SimpleAtoi(ToAbsl(written.substr(exponent_at + 1)), &exponent)) {
    return score;  // not finite
  }
  uint64_t digits = 0;
  for (const char c : written.substr(0, exponent_at)) {
    if (c != '.') digits = 10 * digits + static_cast<uint64_t>(c - '0');
  }
  if (exponent_at > 1) exponent -= static_cast<int>(exponent_at) - 2;  // digits behind the point
  if (std::abs(exponent) > 308) return score;
  if (!absl::SimpleAtod(absl::StrCat("1e", std::abs(exponent)), &power)) return score;
  const double value = static_cast<double>(digits);
  return std::copysign(exponent < 0 ? value / power : value * power, score);
}

using Json = nlohmann::json;

// Files of the first versions have no type.
absl::StatusOr<std::string_view> ModelType(const Json& model) {
  const Json& type = Get(model, "type");
  if (type.is_string()) return std::string_view(type.get_ref<const std::string&>());
  if (!type.is_null()) return absl::InvalidArgumentError("model.type is not a string");
  if (Get(model, "merges").is_array()) return std::string_view("BPE");
  if (Get(model, "vocab").is_array()) return std::string_view("Unigram");
  if (!Get(model, "max_input_chars_per_word").is_null()) return std::string_view("WordPiece");
  return absl::InvalidArgumentError("model has no \"type\"");
}

absl::StatusOr<TextMap<int32_t>> ReadVocabulary(const Json& model) {
  const Json& vocabulary = Get(model, "vocab");
  if (!vocabulary.is_object()) return absl::InvalidArgumentError("model.vocab is not an object");
  TextMap<int32_t> out;
  out.reserve(vocabulary.size());
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
    out.emplace(token, value);
  }
  return out;
}

// Returns nullopt if there is no unk_token. `must_exist` refuses one that is not a token.
absl::StatusOr<std::optional<int32_t>> ReadUnknown(const Json& model,
                                                   const TextMap<int32_t>& vocabulary,
                                                   bool must_exist) {
  const Json& unknown = Get(model, "unk_token");
  if (unknown.is_null()) return std::nullopt;
  if (!unknown.is_string()) return absl::InvalidArgumentError("model.unk_token is not a string");
  const auto& text = unknown.get_ref<const std::string&>();
  const auto found = vocabulary.find(text);
  if (found != vocabulary.end()) return found->second;
  if (!must_exist) return std::nullopt;
  return absl::InvalidArgumentError(
      absl::StrCat("model.unk_token \"", text, "\" is not in model.vocab"));
}

absl::StatusOr<std::string> OptionalText(const Json& model, const char* key) {
  const Json& value = Get(model, key);
  if (value.is_null()) return std::string();
  if (!value.is_string()) {
    return absl::InvalidArgumentError(absl::StrCat("model.", key, " is not a string"));
  }
  return value.get<std::string>();
}

// Sets `left` and `right`, valid as long as `rule`. Returns false for a line that is a comment.
absl::StatusOr<bool> SplitRule(const Json& rule, size_t i, std::string_view* left,
                               std::string_view* right) {
  if (rule.is_string()) {  // "left right"
    const std::string_view text = rule.get_ref<const std::string&>();
    if (text.substr(0, 8) == "#version") return false;
    const size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "model.merges[%d] \"%s\" is not two tokens with a space between", i, text));
    }
    *left = text.substr(0, space);
    *right = text.substr(space + 1);
    return true;
  }
  if (!rule.is_array() || rule.size() != 2 || !rule[0].is_string() || !rule[1].is_string()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("model.merges[%d] is neither \"left right\" nor [left, right]", i));
  }
  *left = rule[0].get_ref<const std::string&>();
  *right = rule[1].get_ref<const std::string&>();
  return true;
}

// `fallback` says that tokens of bytes do not stand for their characters.
void AddToSeams(std::string_view left, std::string_view right, bool fallback, BpeSeams* seams) {
  if (left.empty() || right.empty()) return;  // a rule with an empty token never applies
  if (fallback && (ByteOfToken(left) >= 0 || ByteOfToken(right) >= 0)) seams->SetNone();
  seams->AddRule(left, right);
}

absl::Status ReadMerges(const Json& model, const TextMap<int32_t>& vocabulary,
                        const BpeSettings& settings, BpeMerges* out, BpeSeams* seams) {
  const Json& merges = Get(model, "merges");
  if (!merges.is_array()) return absl::InvalidArgumentError("model.merges is not a list");
  int32_t rank = 0;
  std::string joined;
  const size_t prefix = settings.continuing_prefix.size();
  for (size_t i = 0; i < merges.size(); ++i) {
    std::string_view left, right;
    MT_ASSIGN_OR_RETURN(const bool is_rule, SplitRule(merges[i], i, &left, &right));
    if (!is_rule) continue;
    if (right.size() < prefix) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "model.merges[%d]: \"%s\" is shorter than model.continuing_subword_prefix", i, right));
    }
    joined.assign(left);
    joined += right.substr(prefix);
    int32_t ids[3];
    int at = 0;
    for (const std::string_view token : {left, right, std::string_view(joined)}) {
      const auto found = vocabulary.find(token);
      if (found == vocabulary.end()) {
        return absl::InvalidArgumentError(
            absl::StrFormat("model.merges[%d]: the token \"%s\" is not in model.vocab", i, token));
      }
      ids[at++] = found->second;
    }
    out->Add(ids[0], ids[1], rank++, ids[2]);
    AddToSeams(left, right, settings.byte_fallback, seams);
    // The unknown token does not stand for its characters either.
    if (ids[0] == settings.unknown_id || ids[1] == settings.unknown_id) seams->SetNone();
  }
  return absl::OkStatus();
}

absl::Status ReadBpe(const Json& model, const ComponentKinds& kinds, TokenizerJson* out) {
  const Json& dropout = Get(model, "dropout");
  if (!dropout.is_null() && !(dropout.is_number() && dropout.get<double>() == 0.0)) {
    return absl::UnimplementedError("model.dropout other than 0 is not supported");
  }
  BpeSettings settings;
  settings.byte_level = kinds.byte_level;
  MT_ASSIGN_OR_RETURN(settings.byte_fallback, GetBool(model, "byte_fallback", false));
  MT_ASSIGN_OR_RETURN(settings.ignore_merges, GetBool(model, "ignore_merges", false));
  MT_ASSIGN_OR_RETURN(settings.fuse_unknown, GetBool(model, "fuse_unk", false));
  MT_ASSIGN_OR_RETURN(settings.continuing_prefix, OptionalText(model, "continuing_subword_prefix"));
  MT_ASSIGN_OR_RETURN(settings.end_suffix, OptionalText(model, "end_of_word_suffix"));
  if (kinds.byte_level && (settings.byte_fallback || !settings.continuing_prefix.empty() ||
                           !settings.end_suffix.empty())) {
    return absl::UnimplementedError(absl::StrCat(
        "model.byte_fallback, model.continuing_subword_prefix or model.end_of_word_suffix with a "
        "pre_tokenizer of type ByteLevel is not supported",
        kInstead));
  }
  MT_ASSIGN_OR_RETURN(TextMap<int32_t> vocabulary, ReadVocabulary(model));
  MT_ASSIGN_OR_RETURN(settings.unknown_id, ReadUnknown(model, vocabulary, /*must_exist=*/true));
  BpeMerges merges;
  BpeSeams seams;
  MT_RETURN_IF_ERROR(ReadMerges(model, vocabulary, settings, &merges, &seams));
  out->model = std::make_unique<BpeModel>(std::move(vocabulary), std::move(merges),
                                          std::move(seams), std::move(settings));
  return absl::OkStatus();
}

absl::Status ReadUnigram(const Json& model, TokenizerJson* out) {
  const Json& list = Get(model, "vocab");
  if (!list.is_array()) return absl::InvalidArgumentError("model.vocab is not a list");
  if (list.size() > static_cast<size_t>(kTokenIdMax)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("model.vocab has %d tokens, more than %d", list.size(), kTokenIdMax));
  }
  std::vector<std::pair<std::string, double>> pieces;
  pieces.reserve(list.size());
  for (const Json& item : list) {
    if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_number()) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.vocab[", pieces.size(), "] is not [token, score]"));
    }
    pieces.emplace_back(item[0].get<std::string>(), item[1].is_number_float()
                                                        ? AsSerdeReads(item[1].get<double>())
                                                        : item[1].get<double>());
  }
  std::optional<int32_t> unknown_id;
  if (!Get(model, "unk_id").is_null()) {
    MT_ASSIGN_OR_RETURN(const uint64_t id, GetUnsigned(model, "unk_id", kTokenIdMax - 1, "model"));
    unknown_id = static_cast<int32_t>(id);
  }
  MT_ASSIGN_OR_RETURN(const bool byte_fallback, GetBool(model, "byte_fallback", false));
  MT_ASSIGN_OR_RETURN(out->model, UnigramModel::Make(pieces, unknown_id, byte_fallback));
  return absl::OkStatus();
}

absl::Status ReadWordPiece(const Json& model, TokenizerJson* out) {
  MT_ASSIGN_OR_RETURN(TextMap<int32_t> vocabulary, ReadVocabulary(model));
  MT_ASSIGN_OR_RETURN(const auto unknown_id, ReadUnknown(model, vocabulary, /*must_exist=*/false));
  MT_ASSIGN_OR_RETURN(const std::string_view prefix,
                      GetString(model, "continuing_subword_prefix", "model"));
  MT_ASSIGN_OR_RETURN(const uint64_t characters_max,
                      GetUnsigned(model, "max_input_chars_per_word", UINT32_MAX, "model"));
  out->model =
      std::make_unique<WordPieceModel>(std::move(vocabulary), unknown_id, prefix, characters_max);
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadModel(const Json& root, const ComponentKinds& kinds, TokenizerJson* out) {
  const Json& model = Get(root, "model");
  if (!model.is_object()) return absl::InvalidArgumentError("\"model\" is missing");
  MT_ASSIGN_OR_RETURN(const std::string_view type, ModelType(model));
  if (type == "BPE") return ReadBpe(model, kinds, out);
  if (kinds.byte_level) {
    return absl::UnimplementedError(
        absl::StrCat("model of type ", ToAbsl(type),
                     " with a pre_tokenizer of type ByteLevel is not supported", kInstead));
  }
  if (type == "Unigram") return ReadUnigram(model, out);
  if (type == "WordPiece") return ReadWordPiece(model, out);
  if (type != "WordLevel") return Unsupported("model", type);
  MT_ASSIGN_OR_RETURN(TextMap<int32_t> vocabulary, ReadVocabulary(model));
  MT_ASSIGN_OR_RETURN(const auto unknown_id, ReadUnknown(model, vocabulary, /*must_exist=*/false));
  out->model = std::make_unique<WordLevelModel>(std::move(vocabulary), unknown_id);
  return absl::OkStatus();
}

}  // namespace megatrain
