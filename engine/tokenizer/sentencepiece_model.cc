#include "engine/tokenizer/sentencepiece_model.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/tokenizer/model/bpe_model.h"
#include "engine/tokenizer/model/byte_token.h"
#include "engine/tokenizer/model/unigram_model.h"
#include "engine/tokenizer/normalizer/normalizer.h"
#include "engine/tokenizer/split/pre_tokenizer.h"
#include "engine/tokenizer/text/split_regex.h"
#include "engine/tokenizer/text/utf8.h"
#include "sentencepiece.pb.h"

namespace megatrain {
namespace {

using Proto = sentencepiece::Model;

constexpr std::string_view kMark = "\xe2\x96\x81";  // "▁", which stands for a space
constexpr int kUnigram = 1, kBpe = 2;
constexpr int kNormal = 1, kControl = 3, kUserDefined = 4;
// Longer pieces make no sense, and every place in one is a possible merge rule.
constexpr size_t kPieceBytesMax = 4096;

// The way in which transformers reads a model: as one of its classes does, or as the model says.
enum class Family { kLlama, kGemma, kModel, kUnknown };

Family FamilyOf(const TokenizerConfig& config) {
  const auto is_one = [](std::string_view name, const auto& list) {
    return std::find(std::begin(list), std::end(list), name) != std::end(list);
  };
  const std::string& type = config.model_type;
  // These types go before the class.
  constexpr std::string_view kModelTypes[] = {"ernie4_5",   "glm4",    "glm4_moe", "granite",
                                              "ministral3", "mistral", "mistral3", "mixtral",
                                              "olmo2",      "olmo3",   "phi3",     "stablelm"};
  if (is_one(type, kModelTypes)) return Family::kModel;
  if (type == "qwen2" || absl::StartsWith(type, "qwen3_5")) return Family::kUnknown;
  const std::string& name = config.tokenizer_class;
  if (name == "LlamaTokenizer") return Family::kLlama;
  if (name == "GemmaTokenizer") return Family::kGemma;
  if (name == "PreTrainedTokenizer" || name == "TokenizersBackend") return Family::kModel;
  if (!name.empty() || absl::StartsWith(type, "qwen2") || absl::StartsWith(type, "qwen3")) {
    return Family::kUnknown;
  }
  constexpr std::string_view kGemmaTypes[] = {"gemma", "gemma2", "gemma3", "gemma3_text"};
  return is_one(type, kGemmaTypes) ? Family::kGemma : Family::kModel;
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
    if (!std::isfinite(proto.pieces(id).score())) {
      return absl::InvalidArgumentError(absl::StrCat("pieces[", id, "] has no finite score"));
    }
  }
  return absl::OkStatus();
}

// Returns the pieces that rules make, in the order of the rules' ranks.
std::vector<int> MergedPieces(const Proto& proto, Family family) {
  std::vector<int> ids(proto.pieces_size());
  std::iota(ids.begin(), ids.end(), 0);
  if (family != Family::kModel) return ids;
  std::erase_if(ids, [&](int id) { return proto.pieces(id).type() != kNormal; });
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int a, int b) { return proto.pieces(a).score() > proto.pieces(b).score(); });
  return ids;
}

// The rules of which transformers builds a BPE: every way to cut a piece into two pieces, by the
// order of the pieces and then by the length of the first part.
void AddMerges(const Proto& proto, Family family, const TextMap<int32_t>& vocabulary,
               BpeMerges* merges, BpeSeams* seams) {
  const auto find = [&](std::string_view text) {
    const auto found = vocabulary.find(text);
    if (found == vocabulary.end()) return -1;
    const bool merged = family != Family::kModel || proto.pieces(found->second).type() == kNormal;
    return merged ? found->second : -1;
  };
  int32_t rank = 0;
  for (const int id : MergedPieces(proto, family)) {
    const std::string_view piece = proto.pieces(id).piece();
    if (piece.empty()) continue;
    for (size_t at = Utf8Length(static_cast<unsigned char>(piece[0])); at < piece.size();
         at += Utf8Length(static_cast<unsigned char>(piece[at]))) {
      const std::string_view left = piece.substr(0, at), right = piece.substr(at);
      const int32_t left_id = find(left), right_id = find(right);
      if (left_id < 0 || right_id < 0) continue;
      merges->Add(left_id, right_id, rank++, id);
      if (ByteOfToken(left) >= 0 || ByteOfToken(right) >= 0) seams->SetNone();
      seams->AddRule(left, right);
    }
  }
}

// Returns the user-defined pieces, the longest first.
std::vector<std::string_view> UserDefined(const Proto& proto) {
  std::vector<std::string_view> out;
  for (const sentencepiece::Piece& piece : proto.pieces()) {
    if (piece.type() == kUserDefined && !piece.piece().empty()) out.push_back(piece.piece());
  }
  std::stable_sort(out.begin(), out.end(),
                   [](std::string_view a, std::string_view b) { return a.size() > b.size(); });
  return out;
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
  AddMerges(proto, family, vocabulary, &merges, &seams);
  BpeSettings settings;
  settings.fuse_unknown = true;
  settings.byte_fallback = family != Family::kModel || proto.trainer().byte_fallback();
  settings.ignore_merges = family == Family::kModel && !UserDefined(proto).empty();
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

absl::Status AddReplace(std::string_view pattern, std::string_view to, Normalizer* normalizer) {
  MT_ASSIGN_OR_RETURN(auto regex, SplitRegex::Compile(pattern));
  normalizer->AddReplace(std::move(regex), to);
  return absl::OkStatus();
}

// The parts that the model itself asks for. User-defined pieces are words of their own.
absl::Status AddModelsTextParts(const Proto& proto, bool legacy, TokenizerJson* out) {
  const sentencepiece::Normalizer& asked = proto.normalizer();
  if (!asked.precompiled_charsmap().empty()) {
    MT_ASSIGN_OR_RETURN(PrecompiledCharsmap parsed,
                        PrecompiledCharsmap::Parse(asked.precompiled_charsmap()));
    out->normalizer.AddPrecompiled(std::move(parsed));
  }
  if (asked.remove_extra_whitespaces()) {
    MT_RETURN_IF_ERROR(AddReplace(kOuterSpaces, "", &out->normalizer));
    MT_RETURN_IF_ERROR(AddReplace(" {2,}", " ", &out->normalizer));
  }
  if (asked.escape_whitespaces()) out->normalizer.AddReplace(" ", kMark);
  if (asked.add_dummy_prefix()) {
    // Metaspace puts no mark before another.
    if (legacy) MT_RETURN_IF_ERROR(AddReplace(kFirstMark, "\u2581\u2581", &out->normalizer));
    out->pre_tokenizer.AddMetaspace(kMark, legacy ? MarkScheme::kAlways : MarkScheme::kFirst,
                                    /*split=*/false);
  }
  std::string user_defined;
  for (const std::string_view piece : UserDefined(proto)) {
    absl::StrAppend(&user_defined, user_defined.empty() ? "" : "|", EscapeRegex(piece));
  }
  if (user_defined.empty()) return absl::OkStatus();
  MT_ASSIGN_OR_RETURN(auto split, SplitRegex::Compile(user_defined));
  out->pre_tokenizer.AddSplit(std::move(split), SplitBehavior::kIsolated, /*invert=*/false);
  return absl::OkStatus();
}

absl::Status AddTextParts(const Proto& proto, Family family, const TokenizerConfig& config,
                          TokenizerJson* out) {
  bool prefix = config.add_prefix_space.value_or(true) && family == Family::kLlama;
  if (family == Family::kLlama) {
    const MarkScheme scheme = !prefix                         ? MarkScheme::kNever
                              : config.legacy.value_or(false) ? MarkScheme::kAlways
                                                              : MarkScheme::kFirst;
    out->pre_tokenizer.AddMetaspace(kMark, scheme, /*split=*/false);
  } else if (family == Family::kGemma) {
    out->normalizer.AddReplace(" ", kMark);
  } else {
    prefix = proto.normalizer().add_dummy_prefix();
    MT_RETURN_IF_ERROR(AddModelsTextParts(proto, config.legacy.value_or(!config.null_legacy), out));
  }
  MT_ASSIGN_OR_RETURN(auto mark, SplitRegex::Compile(kMark));
  out->decoder.AddReplace(std::move(mark), " ");
  const bool bytes = family != Family::kModel || proto.trainer().byte_fallback();
  if (bytes) out->decoder.AddByteFallback();
  if (bytes || prefix) out->decoder.AddFuse();
  if (prefix) out->decoder.AddStrip(" ", 1, 0);
  return absl::OkStatus();
}

// Adds the control pieces and, where a class reads the model, the user-defined ones.
void AddPieces(const Proto& proto, Family family, TokenizerJson* out) {
  for (int id = 0; id < proto.pieces_size(); ++id) {
    const sentencepiece::Piece& piece = proto.pieces(id);
    if (piece.type() != kControl && (piece.type() != kUserDefined || family == Family::kModel)) {
      continue;
    }
    AddedToken token;
    token.id = id;
    token.content = piece.piece();
    token.special = piece.type() == kControl;
    out->added_tokens.push_back(std::move(token));
  }
}

// Names the special tokens that `config` does not: those of the class, or of the model.
void SetSpecials(const Proto& proto, Family family, TokenizerConfig* config) {
  const auto piece = [&](int32_t id) {
    return id >= 0 && id < proto.pieces_size() ? proto.pieces(id).piece() : std::string();
  };
  const bool gemma = family == Family::kGemma, own = family == Family::kModel;
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

bool FollowsItsModel(const TokenizerConfig& config) { return FamilyOf(config) == Family::kModel; }

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
  if (family == Family::kUnknown) {
    return absl::UnimplementedError(
        absl::StrCat("tokenizer_config.json: tokenizer_class ", config->tokenizer_class,
                     " with model_type ", config->model_type,
                     " makes of a SentencePiece model what is not known here; put the "
                     "tokenizer.json beside it that save_pretrained of transformers writes"));
  }
  if (type != kUnigram && type != kBpe) {
    return absl::UnimplementedError(absl::StrCat("a SentencePiece model of type ", type,
                                                 " (3 is word, 4 character) is not supported"));
  }
  if (family != Family::kModel && type != kBpe) {
    return absl::UnimplementedError(absl::StrCat("a Unigram model with the tokenizer_class ",
                                                 config->tokenizer_class, " of a BPE"));
  }
  if (proto.trainer().treat_whitespace_as_suffix()) {
    return absl::UnimplementedError("treat_whitespace_as_suffix is not supported");
  }
  TokenizerJson out;
  MT_RETURN_IF_ERROR(type == kBpe ? MakeBpe(proto, family, &out) : MakeUnigram(proto, &out));
  MT_RETURN_IF_ERROR(AddTextParts(proto, family, *config, &out));
  AddPieces(proto, family, &out);
  if (family == Family::kModel && proto.normalizer().add_dummy_prefix()) {
    for (AddedToken& token : config->added_tokens) token.normalized = false;
  }
  SetSpecials(proto, family, config);
  return out;
}

}  // namespace megatrain
