#include "engine/tokenizer/sentencepiece_model.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/tokenizer/model/bpe_model.h"
#include "engine/tokenizer/model/byte_token.h"
#include "engine/tokenizer/model/unigram_model.h"
#include "engine/tokenizer/text/utf8.h"
#include "sentencepiece.pb.h"

namespace megatrain {
namespace {

using Proto = sentencepiece::Model;

constexpr std::string_view kMark = "\xe2\x96\x81";  // "▁", which stands for a space
constexpr int kUnigram = 1, kBpe = 2;
constexpr int kControl = 3, kUserDefined = 4;
// Longer pieces make no sense, and every place in one is a possible merge rule.
constexpr size_t kPieceBytesMax = 4096;

// The classes of transformers that differ in what they make of a model.
enum class Family { kLlama, kGemma, kOther };

Family FamilyOf(const TokenizerConfig& config) {
  const std::string& name = config.tokenizer_class;
  if (name == "LlamaTokenizer") return Family::kLlama;
  if (name == "GemmaTokenizer") return Family::kGemma;
  if (!name.empty()) return Family::kOther;
  const std::string& type = config.model_type;
  if (type == "llama" || type == "mistral" || type == "mixtral") return Family::kLlama;
  return type == "gemma" || type == "gemma2" || type == "gemma3_text" || type == "gemma3"
             ? Family::kGemma
             : Family::kOther;
}

// Returns true if transformers reads a model of this class without a conversion of its own.
bool IsGeneric(const std::string& tokenizer_class) {
  return tokenizer_class.empty() || tokenizer_class == "PreTrainedTokenizer" ||
         tokenizer_class == "TokenizersBackend";
}

absl::Status CheckPieces(const Proto& proto) {
  if (proto.pieces_size() == 0) return absl::InvalidArgumentError("there are no pieces");
  if (proto.pieces_size() > kTokenIdMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", proto.pieces_size(), " pieces, more than ", kTokenIdMax));
  }
  for (int id = 0; id < proto.pieces_size(); ++id) {
    const std::string& piece = proto.pieces(id).piece();
    if (piece.size() > kPieceBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat("pieces[", id, "] has ", piece.size(),
                                                     " bytes, more than ", kPieceBytesMax));
    }
    if (!CheckUtf8(piece).ok()) {
      return absl::InvalidArgumentError(absl::StrCat("pieces[", id, "] is not UTF-8"));
    }
  }
  return absl::OkStatus();
}

// The rules of which transformers builds a BPE: every way to cut a piece into two pieces, by the
// id of the piece and then by the length of the first part.
void AddMerges(const Proto& proto, const TextMap<int32_t>& vocabulary, BpeMerges* merges,
               BpeSeams* seams) {
  int32_t rank = 0;
  for (int id = 0; id < proto.pieces_size(); ++id) {
    const std::string_view piece = proto.pieces(id).piece();
    if (piece.empty()) continue;
    for (size_t at = Utf8Length(static_cast<unsigned char>(piece[0])); at < piece.size();
         at += Utf8Length(static_cast<unsigned char>(piece[at]))) {
      const std::string_view left = piece.substr(0, at), right = piece.substr(at);
      const auto left_id = vocabulary.find(left);
      const auto right_id = vocabulary.find(right);
      if (left_id == vocabulary.end() || right_id == vocabulary.end()) continue;
      merges->Add(left_id->second, right_id->second, rank++, id);
      if (ByteOfToken(left) >= 0 || ByteOfToken(right) >= 0) seams->SetNone();
      seams->AddRule(left, right);
    }
  }
}

absl::Status MakeBpe(const Proto& proto, Family family, TokenizerJson* out) {
  TextMap<int32_t> vocabulary;
  for (int id = 0; id < proto.pieces_size(); ++id) {
    const std::string& piece = proto.pieces(id).piece();
    if (!vocabulary.emplace(piece, id).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("pieces[", id, "]: \"", piece, "\" is there twice"));
    }
  }
  BpeMerges merges;
  BpeSeams seams;
  AddMerges(proto, vocabulary, &merges, &seams);
  BpeSettings settings;
  settings.fuse_unknown = true;
  settings.byte_fallback = family != Family::kOther || proto.trainer().byte_fallback();
  const int32_t unknown = proto.trainer().unk_id();
  // Llama's class gives its model no unknown token.
  if (family != Family::kLlama && unknown >= 0 && unknown < proto.pieces_size()) {
    settings.unknown_id = unknown;
  }
  out->model = std::make_unique<BpeModel>(std::move(vocabulary), std::move(merges),
                                          std::move(seams), std::move(settings));
  return absl::OkStatus();
}

absl::Status MakeUnigram(const Proto& proto, TokenizerJson* out) {
  std::vector<std::pair<std::string, double>> pieces;
  for (const sentencepiece::Piece& piece : proto.pieces()) {
    pieces.emplace_back(piece.piece(), piece.score());
  }
  std::optional<int32_t> unknown;
  if (proto.trainer().unk_id() >= 0) unknown = proto.trainer().unk_id();
  MT_ASSIGN_OR_RETURN(out->model,
                      UnigramModel::Make(pieces, unknown, proto.trainer().byte_fallback()));
  return absl::OkStatus();
}

absl::Status AddTextParts(const Proto& proto, Family family, const TokenizerConfig& config,
                          TokenizerJson* out) {
  const bool prefix = config.add_prefix_space.value_or(true);
  if (family == Family::kLlama) {
    const MarkScheme scheme = !prefix                         ? MarkScheme::kNever
                              : config.legacy.value_or(false) ? MarkScheme::kAlways
                                                              : MarkScheme::kFirst;
    out->pre_tokenizer.AddMetaspace(kMark, scheme, /*split=*/false);
  } else {
    const std::string& charsmap = proto.normalizer().precompiled_charsmap();
    if (family == Family::kOther && !charsmap.empty()) {
      MT_ASSIGN_OR_RETURN(PrecompiledCharsmap parsed, PrecompiledCharsmap::Parse(charsmap));
      out->normalizer.AddPrecompiled(std::move(parsed));
    }
    out->normalizer.AddReplace(" ", kMark);
  }
  MT_ASSIGN_OR_RETURN(auto mark, SplitRegex::Compile(kMark));
  out->decoder.AddReplace(std::move(mark), " ");
  if (family != Family::kOther || proto.trainer().byte_fallback()) {
    out->decoder.AddByteFallback();
    out->decoder.AddFuse();
  }
  if (family == Family::kLlama && prefix) out->decoder.AddStrip(" ", 1, 0);
  return absl::OkStatus();
}

// Names the special tokens that `config` does not: those of the class, or of the model.
void SetSpecials(const Proto& proto, Family family, TokenizerConfig* config) {
  const auto piece = [&](int32_t id) {
    return id >= 0 && id < proto.pieces_size() ? proto.pieces(id).piece() : std::string();
  };
  const bool gemma = family == Family::kGemma, own = family == Family::kOther;
  const sentencepiece::Trainer& trainer = proto.trainer();
  struct Default {
    std::optional<std::string>* text;
    std::string value;
  };
  std::optional<std::string> mask;
  for (const AddedToken& token : config->special_tokens) {
    if (token.content == "<mask>") mask = token.content;
  }
  const Default kDefaults[] = {{&config->bos_token, own     ? piece(trainer.bos_id())
                                                    : gemma ? "<bos>"
                                                            : "<s>"},
                               {&config->eos_token, own     ? piece(trainer.eos_id())
                                                    : gemma ? "<eos>"
                                                            : "</s>"},
                               {&config->unk_token, own ? piece(trainer.unk_id()) : "<unk>"},
                               {&config->pad_token, gemma ? "<pad>" : ""},
                               {&mask, gemma ? "<mask>" : ""}};
  for (const Default& missing : kDefaults) {
    if (missing.text->has_value() || missing.value.empty()) continue;
    *missing.text = missing.value;
    AddedToken token;
    token.content = missing.value;
    token.special = true;
    config->special_tokens.push_back(std::move(token));
  }
}

}  // namespace

absl::StatusOr<TokenizerJson> ParseSentencePieceModel(std::string_view model,
                                                      TokenizerConfig* config) {
  Proto proto;
  if (model.size() > kTokenizerJsonBytesMax ||
      !proto.ParseFromArray(model.data(), static_cast<int>(model.size()))) {
    return absl::InvalidArgumentError("not a SentencePiece model");
  }
  MT_RETURN_IF_ERROR(CheckPieces(proto));
  const int type = proto.trainer().model_type();
  const Family family = FamilyOf(*config);
  if (family == Family::kOther && !IsGeneric(config->tokenizer_class)) {
    return absl::UnimplementedError(
        absl::StrCat("tokenizer_config.json: tokenizer_class ", config->tokenizer_class,
                     " makes of a SentencePiece model what is not known here; put the "
                     "tokenizer.json beside it that save_pretrained of transformers writes"));
  }
  if (type != kUnigram && type != kBpe) {
    return absl::UnimplementedError(absl::StrCat("a SentencePiece model of type ", type,
                                                 " (3 is word, 4 character) is not supported"));
  }
  if (family != Family::kOther && type != kBpe) {
    return absl::UnimplementedError(absl::StrCat("a Unigram model with the tokenizer_class ",
                                                 config->tokenizer_class, " of a BPE"));
  }
  if (proto.trainer().treat_whitespace_as_suffix()) {
    return absl::UnimplementedError("treat_whitespace_as_suffix is not supported");
  }
  TokenizerJson out;
  MT_RETURN_IF_ERROR(type == kBpe ? MakeBpe(proto, family, &out) : MakeUnigram(proto, &out));
  MT_RETURN_IF_ERROR(AddTextParts(proto, family, *config, &out));
  for (int id = 0; id < proto.pieces_size(); ++id) {
    const sentencepiece::Piece& piece = proto.pieces(id);
    if (piece.type() != kControl && piece.type() != kUserDefined) continue;
    AddedToken token;
    token.id = id;
    token.content = piece.piece();
    token.special = piece.type() == kControl;
    out.added_tokens.push_back(std::move(token));
  }
  SetSpecials(proto, family, config);
  return out;
}

}  // namespace megatrain
