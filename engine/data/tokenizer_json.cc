#include "engine/data/tokenizer_json.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/data/text_map.h"
#include "engine/data/utf8.h"
#include "nlohmann/json.hpp"

namespace megatrain {
namespace {

using Json = nlohmann::json;

constexpr char kInstead[] =
    "; byte-level BPE (GPT-2, Llama 3, Qwen) is supported: use `tokens` data made with this "
    "tokenizer, or `tokenizer: bytes`";
// Sequences of components nest no deeper than this (known files: 1).
constexpr int kDepthMax = 8;
constexpr size_t kStepsMax = 32;

const Json& Get(const Json& object, const char* key) {
  static const Json* const kNull = new Json(nullptr);
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

absl::StatusOr<std::string> GetType(const Json& component, std::string_view where) {
  if (component.is_object()) {
    const Json& type = Get(component, "type");
    if (type.is_string()) return type.get<std::string>();
  }
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(where), " has no \"type\""));
}

absl::Status Unsupported(std::string_view where, std::string_view type) {
  return absl::UnimplementedError(
      absl::StrCat(ToAbsl(where), " of type ", ToAbsl(type), " is not supported", kInstead));
}

// ---- model

absl::Status CheckModelKind(const Json& model) {
  const Json& type = Get(model, "type");
  // Files of the first versions have no type.
  const std::string name = type.is_string()                  ? type.get<std::string>()
                           : Get(model, "merges").is_array() ? "BPE"
                                                             : "unknown";
  if (name != "BPE") return Unsupported("model", name);
  MT_ASSIGN_OR_RETURN(const bool byte_fallback, GetBool(model, "byte_fallback", false));
  if (byte_fallback) {
    return absl::UnimplementedError(absl::StrCat(
        "model.byte_fallback (SentencePiece's BPE, as Llama 2 has it) is not supported", kInstead));
  }
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
  }
  return absl::OkStatus();
}

absl::Status ReadModel(const Json& model, TokenizerJson* out) {
  if (!model.is_object()) return absl::InvalidArgumentError("\"model\" is missing");
  MT_RETURN_IF_ERROR(CheckModelKind(model));
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

// ---- normalizer

absl::Status ReadNormalizer(const Json& normalizer, int depth, TokenizerJson* out) {
  if (normalizer.is_null()) return absl::OkStatus();
  MT_ASSIGN_OR_RETURN(const std::string type, GetType(normalizer, "normalizer"));
  if (type == "NFC") {
    out->nfc = true;
    return absl::OkStatus();
  }
  if (type != "Sequence") return Unsupported("normalizer", type);
  const Json& list = Get(normalizer, "normalizers");
  if (!list.is_array()) {
    return absl::InvalidArgumentError("normalizer: a Sequence without \"normalizers\"");
  }
  if (depth == kDepthMax) return Unsupported("normalizer", "Sequence nested too deep");
  for (const Json& item : list) MT_RETURN_IF_ERROR(ReadNormalizer(item, depth + 1, out));
  return absl::OkStatus();
}

// ---- pre-tokenizer

// GPT-2's own expression, which ByteLevel stands for with use_regex.
constexpr char kGpt2Regex[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// `tokenizers` takes Rust's char::is_numeric for Digits: N, with two blocks newer than Unicode 16.
constexpr char kNumericRegex[] = R"([\p{N}\x{11de0}-\x{11de9}\x{16ff4}-\x{16ff6}])";

struct PreTokenizerState {
  size_t steps = 0;
  bool byte_level = false;
};

absl::StatusOr<SplitBehavior> ReadBehavior(const Json& split) {
  const Json& behavior = Get(split, "behavior");
  if (behavior == "Isolated") return SplitBehavior::kIsolated;
  if (behavior == "Removed") return SplitBehavior::kRemoved;
  if (behavior == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (behavior == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (behavior == "Contiguous") return SplitBehavior::kContiguous;
  return absl::InvalidArgumentError(absl::StrCat("pre_tokenizer: Split with the behavior ",
                                                 behavior.dump(-1, ' ', true), " is not known"));
}

absl::Status ReadSplit(const Json& split, PreTokenizer* out) {
  MT_ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadBehavior(split));
  MT_ASSIGN_OR_RETURN(const bool invert, GetBool(split, "invert", false));
  const Json& pattern = Get(split, "pattern");
  if (pattern.is_object() && pattern.size() == 1 && pattern.begin()->is_string()) {
    const std::string& text = pattern.begin()->get_ref<const std::string&>();
    if (pattern.begin().key() == "Regex") return out->AddSplit(text, behavior, invert);
    if (pattern.begin().key() == "String") {
      return out->AddSplit(EscapeRegex(text), behavior, invert);
    }
  }
  return absl::InvalidArgumentError(
      "pre_tokenizer: Split's \"pattern\" is neither {\"Regex\": ..} nor {\"String\": ..}");
}

absl::Status ReadByteLevel(const Json& byte_level, PreTokenizerState* state, PreTokenizer* out) {
  MT_ASSIGN_OR_RETURN(const bool prefix_space, GetBool(byte_level, "add_prefix_space", true));
  MT_ASSIGN_OR_RETURN(const bool use_regex, GetBool(byte_level, "use_regex", true));
  if (prefix_space) {
    if (state->steps > 0) {
      return absl::UnimplementedError(
          "pre_tokenizer: ByteLevel with add_prefix_space behind another step is not supported");
    }
    out->SetPrefixSpace();
  }
  if (use_regex) MT_RETURN_IF_ERROR(out->AddSplit(kGpt2Regex, SplitBehavior::kIsolated, false));
  state->byte_level = true;
  return absl::OkStatus();
}

absl::Status ReadPreTokenizer(const Json& pre_tokenizer, int depth, PreTokenizerState* state,
                              PreTokenizer* out) {
  MT_ASSIGN_OR_RETURN(const std::string type, GetType(pre_tokenizer, "pre_tokenizer"));
  if (type == "Sequence") {
    const Json& list = Get(pre_tokenizer, "pretokenizers");
    if (!list.is_array()) {
      return absl::InvalidArgumentError("pre_tokenizer: a Sequence without \"pretokenizers\"");
    }
    if (depth == kDepthMax) return Unsupported("pre_tokenizer", "Sequence nested too deep");
    for (const Json& item : list) {
      MT_RETURN_IF_ERROR(ReadPreTokenizer(item, depth + 1, state, out));
    }
    return absl::OkStatus();
  }
  if (state->byte_level) {
    return absl::UnimplementedError(
        absl::StrCat("pre_tokenizer: ", type, " behind ByteLevel is not supported"));
  }
  if (state->steps >= kStepsMax) return Unsupported("pre_tokenizer", "Sequence too long");
  if (type == "ByteLevel") {
    MT_RETURN_IF_ERROR(ReadByteLevel(pre_tokenizer, state, out));
  } else if (type == "Split") {
    MT_RETURN_IF_ERROR(ReadSplit(pre_tokenizer, out));
  } else if (type == "Digits") {
    MT_ASSIGN_OR_RETURN(const bool individual, GetBool(pre_tokenizer, "individual_digits", false));
    MT_RETURN_IF_ERROR(out->AddSplit(
        kNumericRegex, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, false));
  } else {
    return Unsupported("pre_tokenizer", type);
  }
  ++state->steps;
  return absl::OkStatus();
}

// ---- decoder

// Decoding is ByteLevel's; a Sequence may hold nothing else.
absl::Status CheckDecoder(const Json& decoder, int depth) {
  if (decoder.is_null()) return absl::OkStatus();
  MT_ASSIGN_OR_RETURN(const std::string type, GetType(decoder, "decoder"));
  if (type == "ByteLevel") return absl::OkStatus();
  const Json& list = Get(decoder, "decoders");
  if (type != "Sequence" || !list.is_array() || depth == kDepthMax) {
    return Unsupported("decoder", type);
  }
  for (const Json& item : list) MT_RETURN_IF_ERROR(CheckDecoder(item, depth + 1));
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
  MT_RETURN_IF_ERROR(ReadNormalizer(Get(root, "normalizer"), 0, &out));
  PreTokenizerState state;
  const Json& pre_tokenizer = Get(root, "pre_tokenizer");
  if (!pre_tokenizer.is_null()) {
    MT_RETURN_IF_ERROR(ReadPreTokenizer(pre_tokenizer, 0, &state, &out.pre_tokenizer));
  }
  if (!state.byte_level) {
    return absl::UnimplementedError(
        absl::StrCat("a BPE whose pre_tokenizer is not ByteLevel is not supported", kInstead));
  }
  MT_RETURN_IF_ERROR(CheckDecoder(Get(root, "decoder"), 0));
  MT_RETURN_IF_ERROR(ReadAddedTokens(Get(root, "added_tokens"), &out.added_tokens));
  return out;
}

}  // namespace megatrain
