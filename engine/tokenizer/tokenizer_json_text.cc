#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/tokenizer/text/space_mark.h"
#include "engine/tokenizer/text/text_map.h"
#include "engine/tokenizer/tokenizer_json_parts.h"

namespace megatrain {

using Json = nlohmann::json;

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

absl::StatusOr<std::string_view> GetType(const Json& component, std::string_view where) {
  if (component.is_object()) {
    const Json& type = Get(component, "type");
    if (type.is_string()) return std::string_view(type.get_ref<const std::string&>());
  }
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(where), " has no \"type\""));
}

absl::Status Unsupported(std::string_view where, std::string_view type) {
  return absl::UnimplementedError(
      absl::StrCat(ToAbsl(where), " of type ", ToAbsl(type), " is not supported", kInstead));
}

namespace {

// Sequences of components nest no deeper than this (known files: 1).
constexpr int kDepthMax = 8;
constexpr size_t kStepsMax = 32;

// ---- normalizer

// {"pattern": {"String": from}, "content": to}
bool IsReplace(const Json& replace, std::string_view from, std::string_view to) {
  return Get(replace, "pattern") == Json{{"String", from}} && Get(replace, "content") == to;
}

absl::Status ReadNormalizer(const Json& normalizer, int depth, TokenizerJson* out) {
  if (normalizer.is_null()) return absl::OkStatus();
  MT_ASSIGN_OR_RETURN(const std::string_view type, GetType(normalizer, "normalizer"));
  if (type == "NFC" && !out->byte_fallback) {
    out->nfc = true;
    return absl::OkStatus();
  }
  if (type == "Prepend" && out->byte_fallback) {
    if (out->prepend_mark || Get(normalizer, "prepend") != kSpaceMark) {
      return Unsupported("normalizer", "Prepend with other than one ▁");
    }
    out->prepend_mark = true;
    return absl::OkStatus();
  }
  if (type == "Replace" && out->byte_fallback) {
    if (!IsReplace(normalizer, " ", kSpaceMark)) {
      return Unsupported("normalizer", "Replace of other than a space by ▁");
    }
    out->replace_spaces = true;
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
  bool metaspace = false;
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

absl::StatusOr<MarkScheme> ReadMetaspace(const Json& metaspace) {
  if (Get(metaspace, "replacement") != kSpaceMark) {
    return Unsupported("pre_tokenizer", "Metaspace with a replacement other than ▁");
  }
  MT_ASSIGN_OR_RETURN(const bool split, GetBool(metaspace, "split", true));
  if (split) return Unsupported("pre_tokenizer", "Metaspace with split");
  const Json& scheme = Get(metaspace, "prepend_scheme");
  if (scheme == "first") return MarkScheme::kFirst;
  if (scheme == "always") return MarkScheme::kAlways;
  if (scheme == "never") return MarkScheme::kNever;
  return absl::UnimplementedError(absl::StrCat("pre_tokenizer: Metaspace with the prepend_scheme ",
                                               scheme.dump(-1, ' ', true),
                                               " is not supported: first, always or never"));
}

absl::Status ReadPreTokenizer(const Json& pre_tokenizer, int depth, PreTokenizerState* state,
                              TokenizerJson* out) {
  MT_ASSIGN_OR_RETURN(const std::string_view type, GetType(pre_tokenizer, "pre_tokenizer"));
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
  if (state->metaspace || (type == "Metaspace" && state->steps > 0)) {
    return absl::UnimplementedError(
        "pre_tokenizer: Metaspace with another step beside it is not supported");
  }
  if (state->byte_level) {
    return absl::UnimplementedError(
        absl::StrCat("pre_tokenizer: ", ToAbsl(type), " behind ByteLevel is not supported"));
  }
  if (state->steps >= kStepsMax) return Unsupported("pre_tokenizer", "Sequence too long");
  if (type == "ByteLevel") {
    if (out->byte_fallback) {
      return absl::UnimplementedError(absl::StrCat(
          "model.byte_fallback with a pre_tokenizer of type ByteLevel is not supported", kInstead));
    }
    MT_RETURN_IF_ERROR(ReadByteLevel(pre_tokenizer, state, &out->pre_tokenizer));
  } else if (type == "Metaspace" && out->byte_fallback) {
    MT_ASSIGN_OR_RETURN(out->metaspace, ReadMetaspace(pre_tokenizer));
    state->metaspace = true;
  } else if (type == "Split") {
    MT_RETURN_IF_ERROR(ReadSplit(pre_tokenizer, &out->pre_tokenizer));
  } else if (type == "Digits") {
    MT_ASSIGN_OR_RETURN(const bool individual, GetBool(pre_tokenizer, "individual_digits", false));
    MT_RETURN_IF_ERROR(out->pre_tokenizer.AddSplit(
        kNumericRegex, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, false));
  } else {
    return Unsupported("pre_tokenizer", type);
  }
  ++state->steps;
  return absl::OkStatus();
}

// ---- decoder

// Decoding is ByteLevel's; a Sequence may hold nothing else.
absl::Status CheckByteLevelDecoder(const Json& decoder, int depth) {
  if (decoder.is_null()) return absl::OkStatus();
  MT_ASSIGN_OR_RETURN(const std::string_view type, GetType(decoder, "decoder"));
  if (type == "ByteLevel") return absl::OkStatus();
  const Json& list = Get(decoder, "decoders");
  if (type != "Sequence" || !list.is_array() || depth == kDepthMax) {
    return Unsupported("decoder", type);
  }
  for (const Json& item : list) MT_RETURN_IF_ERROR(CheckByteLevelDecoder(item, depth + 1));
  return absl::OkStatus();
}

// A Sequence of Replace, ByteFallback and Fuse, and perhaps a Strip of spaces from the beginning.
absl::Status ReadByteFallbackDecoder(const Json& decoder, TokenizerJson* out) {
  const absl::Status unsupported = absl::UnimplementedError(
      absl::StrCat("with model.byte_fallback, a decoder other than a Sequence of Replace (▁ by a "
                   "space), ByteFallback, Fuse and perhaps Strip (spaces, from the beginning) is "
                   "not supported",
                   kInstead));
  if (!decoder.is_object() || Get(decoder, "type") != "Sequence") return unsupported;
  const Json& list = Get(decoder, "decoders");
  if (!list.is_array() || list.size() < 3 || list.size() > 4) return unsupported;
  const char* const types[] = {"Replace", "ByteFallback", "Fuse", "Strip"};
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_object() || Get(list[i], "type") != types[i]) return unsupported;
  }
  if (!IsReplace(list[0], kSpaceMark, " ")) return unsupported;
  if (list.size() == 4) {
    const Json& start = Get(list[3], "start");
    if (Get(list[3], "content") != " " || !start.is_number_unsigned() ||
        Get(list[3], "stop") != 0) {
      return unsupported;
    }
    out->strip_spaces = start.get<size_t>();
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadTextParts(const Json& root, TokenizerJson* out) {
  MT_RETURN_IF_ERROR(ReadNormalizer(Get(root, "normalizer"), 0, out));
  PreTokenizerState state;
  const Json& pre_tokenizer = Get(root, "pre_tokenizer");
  if (!pre_tokenizer.is_null()) {
    MT_RETURN_IF_ERROR(ReadPreTokenizer(pre_tokenizer, 0, &state, out));
  }
  if (out->byte_fallback) {
    if (state.metaspace && (out->prepend_mark || out->replace_spaces)) {
      return absl::UnimplementedError(
          "a pre_tokenizer of type Metaspace with a normalizer is not supported");
    }
    return ReadByteFallbackDecoder(Get(root, "decoder"), out);
  }
  if (!state.byte_level) {
    return absl::UnimplementedError(
        absl::StrCat("a BPE without byte_fallback whose pre_tokenizer is not ByteLevel is not "
                     "supported",
                     kInstead));
  }
  return CheckByteLevelDecoder(Get(root, "decoder"), 0);
}

}  // namespace megatrain
