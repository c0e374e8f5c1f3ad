// The components of tokenizer.json behind the model: decoder and post_processor.
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/tokenizer/text/text_map.h"
#include "engine/tokenizer/tokenizer_json_parts.h"

namespace megatrain {
namespace {

using Json = nlohmann::json;

// ---- decoder

constexpr char kDecoder[] = "decoder";

absl::Status ReadDecoderItem(const Json& item, Decoder* out) {
  MT_ASSIGN_OR_RETURN(const std::string_view type, GetType(item, kDecoder));
  if (type == "ByteLevel")
    out->AddByteLevel();
  else if (type == "ByteFallback")
    out->AddByteFallback();
  else if (type == "Fuse")
    out->AddFuse();
  else if (type == "Replace") {
    MT_ASSIGN_OR_RETURN(const std::string_view content, GetString(item, "content", "Replace"));
    MT_ASSIGN_OR_RETURN(auto pattern, GetPattern(item, "decoder: Replace"));
    out->AddReplace(std::move(pattern), content);
  } else if (type == "Strip") {
    MT_ASSIGN_OR_RETURN(const std::string_view content,
                        GetCharacter(item, "content", "decoder: Strip"));
    MT_ASSIGN_OR_RETURN(const uint64_t start, GetUnsigned(item, "start", UINT32_MAX, "Strip"));
    MT_ASSIGN_OR_RETURN(const uint64_t stop, GetUnsigned(item, "stop", UINT32_MAX, "Strip"));
    out->AddStrip(content, start, stop);
  } else if (type == "Metaspace") {
    MT_ASSIGN_OR_RETURN(const std::string_view mark,
                        GetCharacter(item, "replacement", "decoder: Metaspace"));
    MT_ASSIGN_OR_RETURN(const bool prefix_space, GetBool(item, "add_prefix_space", true));
    out->AddMetaspace(mark, prefix_space && Get(item, "prepend_scheme") != "never");
  } else if (type == "WordPiece") {
    MT_ASSIGN_OR_RETURN(const std::string_view prefix, GetString(item, "prefix", "WordPiece"));
    MT_ASSIGN_OR_RETURN(const bool cleanup, GetBool(item, "cleanup", true));
    out->AddWordPiece(prefix, cleanup);
  } else if (type == "BPEDecoder") {
    MT_ASSIGN_OR_RETURN(const std::string_view suffix, GetString(item, "suffix", "BPEDecoder"));
    out->AddSuffix(suffix);
  } else {
    return Unsupported(kDecoder, type);
  }
  return absl::OkStatus();
}

// ---- post-processor

constexpr char kPostProcessor[] = "post_processor";

// ["<s>", 0]
absl::StatusOr<int32_t> ReadPair(const Json& processor, const char* key) {
  const Json& pair = Get(processor, key);
  if (!pair.is_array() || pair.size() != 2 || !pair[1].is_number_unsigned() ||
      pair[1].get<uint64_t>() >= static_cast<uint64_t>(kTokenIdMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("post_processor: \"", key, "\" is not [token, id]"));
  }
  return pair[1].get<int32_t>();
}

// Appends the ids of a special token of a template.
absl::Status AppendTemplateToken(const Json& processor, const Json& token,
                                 std::vector<int32_t>* out) {
  MT_ASSIGN_OR_RETURN(const std::string_view name,
                      GetString(token, "id", "post_processor: SpecialToken"));
  const Json& ids = Get(Get(Get(processor, "special_tokens"), std::string(name).c_str()), "ids");
  if (!ids.is_array()) {
    return absl::InvalidArgumentError(
        absl::StrCat("post_processor: special_tokens has no \"ids\" for \"", ToAbsl(name),
                     "\", which \"single\" names"));
  }
  for (const Json& id : ids) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(kTokenIdMax)) {
      return absl::InvalidArgumentError(absl::StrCat("post_processor: an id of \"", ToAbsl(name),
                                                     "\" is not an integer from 0 to ",
                                                     kTokenIdMax - 1));
    }
    out->push_back(id.get<int32_t>());
  }
  return absl::OkStatus();
}

absl::Status ReadTemplate(const Json& processor, SpecialIds* out) {
  const Json& single = Get(processor, "single");
  if (!single.is_array()) {
    return absl::InvalidArgumentError(
        "post_processor: TemplateProcessing without a list \"single\"");
  }
  bool text_seen = false;
  for (const Json& piece : single) {
    if (const Json& token = Get(piece, "SpecialToken"); token.is_object()) {
      MT_RETURN_IF_ERROR(
          AppendTemplateToken(processor, token, text_seen ? &out->after : &out->before));
    } else if (Get(Get(piece, "Sequence"), "id") == "A" && !text_seen) {
      text_seen = true;
    } else {
      return absl::UnimplementedError(absl::StrCat(
          "post_processor: TemplateProcessing whose \"single\" has ", piece.dump(-1, ' ', true),
          " beside special tokens and one sequence A is not supported"));
    }
  }
  if (!text_seen) {
    return absl::UnimplementedError(
        "post_processor: TemplateProcessing whose \"single\" has no sequence A is not supported");
  }
  return absl::OkStatus();
}

absl::Status ReadPostProcessorItem(const Json& item, SpecialIds* out) {
  MT_ASSIGN_OR_RETURN(const std::string_view type, GetType(item, kPostProcessor));
  SpecialIds inner = std::move(*out);
  *out = {};
  if (type == "TemplateProcessing") {
    MT_RETURN_IF_ERROR(ReadTemplate(item, out));
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    MT_ASSIGN_OR_RETURN(const int32_t first, ReadPair(item, "cls"));
    MT_ASSIGN_OR_RETURN(const int32_t last, ReadPair(item, "sep"));
    out->before = {first};
    out->after = {last};
  } else if (type != "ByteLevel") {  // ByteLevel changes offsets alone
    return Unsupported(kPostProcessor, type);
  }
  // In a Sequence a later component is put around what the earlier ones made.
  out->before.insert(out->before.end(), inner.before.begin(), inner.before.end());
  out->after.insert(out->after.begin(), inner.after.begin(), inner.after.end());
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadDecoder(const Json& root, TokenizerJson* out) {
  const Json& decoder = Get(root, kDecoder);
  if (!decoder.is_null()) out->decoder.JoinWithoutSpaces();
  return ForEachComponent(decoder, kDecoder, "decoders",
                          [&](const Json& item) { return ReadDecoderItem(item, &out->decoder); });
}

absl::Status ReadPostProcessor(const Json& root, TokenizerJson* out) {
  return ForEachComponent(
      Get(root, kPostProcessor), kPostProcessor, "processors",
      [&](const Json& item) { return ReadPostProcessorItem(item, &out->special_ids); });
}

}  // namespace megatrain
