#include "engine/tokenizer/hf_tokenizer.h"

#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/tokenizer/sentencepiece_model.h"
#include "engine/tokenizer/text/utf8.h"
#include "engine/tokenizer/token_table.h"
#include "engine/tokenizer/tokenizer_config.h"
#include "engine/tokenizer/tokenizer_json.h"

namespace megatrain {
namespace {

class HfTokenizer : public Tokenizer {
 public:
  // `parts` is taken over; `file` names where they are from. `config` adds tokens and names the
  // special ones.
  absl::Status Initialize(TokenizerJson parts, std::string_view file,
                          const TokenizerConfig& config);

  absl::Status Encode(std::string_view text, std::vector<int32_t>* ids) const override {
    return EncodeText(text, PieceState(), ids, nullptr);
  }
  absl::Status EncodeWithOffsets(std::string_view text, std::vector<int32_t>* ids,
                                 std::vector<size_t>* offsets) const override {
    return EncodeText(text, PieceState(), ids, offsets);
  }
  absl::StatusOr<size_t> EncodePiece(std::string_view text, bool last, PieceState* state,
                                     std::vector<int32_t>* ids) const override;
  std::string Decode(const std::vector<int32_t>& ids, bool skip_special) const override;
  std::optional<int32_t> TokenId(std::string_view token) const override {
    return table_.TokenId(token);
  }
  std::string TokenText(int32_t id) const override {
    const auto added = table_.added().find(id);
    if (added != table_.added().end()) return added->second.content;
    const TokenTable::Decoded* const token = table_.Find(id);
    return token == nullptr ? "" : token->text;
  }

  int64_t vocabulary() const override { return table_.vocabulary(); }
  int32_t eos_id() const override { return table_.eos_id(); }
  std::vector<int32_t> end_ids() const override { return table_.end_ids(); }
  SpecialIds special_tokens_around() const override { return table_.special_ids(); }
  int32_t bos_id() const override { return table_.bos_id(); }
  int32_t pad_id() const override { return table_.pad_id(); }
  std::string fingerprint() const override { return fingerprint_; }
  bool flags_replaced() const { return table_.flags_replaced(); }
  void SetFingerprint(std::string fingerprint) { fingerprint_ = std::move(fingerprint); }

 private:
  // A place up to which a text is encoded that goes on.
  struct Cut {
    size_t offset = 0;  // in the text
    size_t ids = 0;     // the number of ids of the text before it
    WordState word;     // of the word that is cut
  };
  // The vectors that Encode fills, and buffers that are reused for every word.
  struct Output {
    explicit Output(const HfTokenizer& tokenizer) : tokenizer(tokenizer) {
      MutexLock lock(&tokenizer.mutex_);
      if (tokenizer.words_.empty()) return;
      buffers.words = std::move(tokenizer.words_.back());
      tokenizer.words_.pop_back();
    }
    ~Output() {
      MutexLock lock(&tokenizer.mutex_);
      tokenizer.words_.push_back(std::move(buffers.words));
    }
    Output(const Output&) = delete;
    Output& operator=(const Output&) = delete;

    const HfTokenizer& tokenizer;
    std::vector<int32_t>* ids = nullptr;
    std::vector<size_t>* offsets = nullptr;
    PieceState state;
    std::string_view text;
    bool open = false;  // the text goes on; `cut` is kept
    Cut cut;
    size_t section = 0;      // where the stretch between added tokens begins that is being encoded
    size_t section_end = 0;  // and where it ends
    size_t stretch = 0;      // where the stretch of it begins that is free of normalized tokens
    size_t normalized_end = 0;  // and where it ends in the normalized text
    // White space that was looked at last, in the text and in the normalized one.
    TextPiece raw_spaces = {1, 0}, spaces = {1, 0};
    ModelBuffers buffers;
    NormalizedText normalized;
  };

  absl::Status EncodeText(std::string_view text, const PieceState& state, std::vector<int32_t>* ids,
                          std::vector<size_t>* offsets) const;
  // Encodes the stretch [begin, end) of the text, between tokens that are looked for there. If
  // `open`, it goes on.
  absl::Status EncodeSection(size_t begin, size_t end, bool open, Output* out) const;
  absl::Status EncodeWord(const PreTokenizer::Word& word, Output* out) const;
  // Does as TokenModel::Encode, and looks short words up among those before.
  absl::Status EncodeWhole(std::string_view word, const WordState& state,
                           ModelBuffers* buffers) const;
  void GiveToken(const AddedToken& token, size_t offset, Output* out) const;
  // Sets out->cut to the place `offset` of `word` if the text can be cut there. Returns whether it
  // can.
  bool CutAt(const PreTokenizer::Word& word, size_t offset, Output* out) const;
  // Returns true if the same added tokens are found behind `at`, in the text, and `place`, in the
  // normalized text, when what is before it is cut off.
  bool TokensStay(size_t at, size_t place, Output* out) const;

  TokenizerJson parts_;
  TokenTable table_;
  AddedTokenMatcher raw_matcher_;
  AddedTokenMatcher normalized_matcher_;
  size_t raw_bytes_max_ = 0;  // of the longest token that each looks for
  size_t normalized_bytes_max_ = 0;
  bool any_lstrip_ = false;
  bool any_single_word_ = false;
  std::string fingerprint_;
  // Caches that no call uses at the moment; there are as many as there were calls at a time.
  mutable Mutex mutex_;
  mutable std::vector<WordCache> words_ ABSL_GUARDED_BY(mutex_);
};

absl::Status HfTokenizer::Initialize(TokenizerJson parts, std::string_view file,
                                     const TokenizerConfig& config) {
  parts_ = std::move(parts);
  parts_.normalizer.Tabulate();
  MT_RETURN_IF_ERROR(table_.Initialize(parts_, file, config));
  for (const auto& [id, token] : table_.added()) {
    const std::string& text = table_.Find(id)->text;
    any_lstrip_ = any_lstrip_ || token.lstrip;
    any_single_word_ = any_single_word_ || token.single_word;
    MT_RETURN_IF_ERROR((token.normalized ? normalized_matcher_ : raw_matcher_).Add(text, token));
    size_t& bytes_max = token.normalized ? normalized_bytes_max_ : raw_bytes_max_;
    bytes_max = std::max(bytes_max, text.size());
  }
  return absl::OkStatus();
}

bool HfTokenizer::CutAt(const PreTokenizer::Word& word, size_t offset, Output* out) const {
  const size_t place = word.begin + offset;
  const size_t at = word.chain->Original(place);
  if (at <= out->stretch || at >= out->section_end) return false;
  // Within what stands for one character there is no such place in the text.
  if (place > 0 && word.chain->Original(place - 1) == at) return false;
  const size_t normalized = word.chain->InNormalized(place);
  size_t hint = 0;
  if (normalized > 0 &&
      out->section + OriginalOffset(out->normalized.runs, normalized - 1, &hint) == at) {
    return false;
  }
  if (!word.CutsAt(offset) || !TokensStay(at, normalized, out)) return false;
  for (const char32_t here : {Utf8At(out->text, at), Utf8At(out->normalized.text, normalized)}) {
    if (!parts_.pre_tokenizer.MayBegin(IsWhiteSpace(here) ? U' ' : here)) return false;
  }
  const std::string_view section = out->text.substr(out->section, out->section_end - out->section);
  if (!parts_.normalizer.CutsAt(section, at - out->section)) return false;
  out->cut = {at, out->ids->size(), {}};
  return true;
}

bool HfTokenizer::TokensStay(size_t at, size_t place, Output* out) const {
  // A token may follow that takes the white space before it, or that is none behind a word. Up to
  // the ends there are no others.
  struct Where {
    const AddedTokenMatcher& matcher;
    std::string_view text;
    size_t end;
    size_t at;
    TextPiece& spaces;
  };
  for (const Where& where : {Where{raw_matcher_, out->text, out->section_end, at, out->raw_spaces},
                             Where{normalized_matcher_, out->normalized.text, out->normalized_end,
                                   place, out->spaces}}) {
    if (where.matcher.empty() || where.at == 0 || where.at >= where.end) continue;
    const char32_t before = Utf8At(where.text, Utf8Before(where.text, where.at));
    if (any_lstrip_ && IsWhiteSpace(before)) {
      if (where.at < where.spaces.first || where.at > where.spaces.second) {
        where.spaces = {where.at, SpaceAfter(where.text.substr(0, where.end), where.at)};
      }
      if (where.spaces.second == where.end) return false;
    }
    // A match that is no word of its own is passed over as a whole, so that no token is looked for
    // within it.
    if (any_single_word_ &&
        ((IsWordCharacter(before) && where.matcher.BeginsAt(where.text, where.at)) ||
         where.matcher.MayCross(where.text, where.at))) {
      return false;
    }
  }
  return true;
}

absl::Status HfTokenizer::EncodeWhole(std::string_view word, const WordState& state,
                                      ModelBuffers* buffers) const {
  // The rest of a word that was cut may have other tokens than a word.
  if (state != WordState{}) return parts_.model->Encode(word, state, buffers);
  absl::Status status;
  buffers->tokens.clear();
  buffers->words.Remember(word, /*whole=*/true, 0, &buffers->tokens, [&] {
    status = parts_.model->Encode(word, {}, buffers);
    if (!status.ok()) buffers->tokens.clear();
  });
  return status;
}

absl::Status HfTokenizer::EncodeWord(const PreTokenizer::Word& word, Output* out) const {
  WordState state = std::exchange(out->state.word, {});
  const std::vector<TokenAt>& tokens = out->buffers.tokens;
  if (out->open && word.may_begin) CutAt(word, 0, out);
  if (word.open) {
    if (word.text.empty()) return absl::OkStatus();
    const Cut before = out->cut;
    const auto may_cut = [&](size_t offset) { return CutAt(word, offset, out); };
    MT_ASSIGN_OR_RETURN(const size_t size,
                        parts_.model->EncodeOpen(word.text, may_cut, &state, &out->buffers));
    if (size == 0) {
      out->cut = before;
      return absl::OkStatus();
    }
    for (const TokenAt& token : tokens) out->ids->push_back(token.id);
    out->cut.ids = out->ids->size();
    out->cut.word = state;
    return absl::OkStatus();
  }
  MT_RETURN_IF_ERROR(EncodeWhole(word.text, state, &out->buffers));
  for (const TokenAt& token : tokens) {
    out->ids->push_back(token.id);
    if (out->offsets != nullptr) {
      out->offsets->push_back(word.chain->Original(word.begin + token.begin));
    }
  }
  return absl::OkStatus();
}

void HfTokenizer::GiveToken(const AddedToken& token, size_t offset, Output* out) const {
  out->state.word = {};
  out->ids->push_back(token.id);
  if (out->offsets != nullptr) out->offsets->push_back(offset);
}

absl::Status HfTokenizer::EncodeSection(size_t begin, size_t end, bool open, Output* out) const {
  out->section = begin;
  out->section_end = end;
  const bool begins = !(out->state.continued && begin == 0);
  NormalizedText& normalized = out->normalized;
  const bool with_runs =
      out->offsets != nullptr || out->open || parts_.pre_tokenizer.needs_offsets();
  MT_RETURN_IF_ERROR(parts_.normalizer.Normalize(out->text.substr(begin, end - begin), begins,
                                                 with_runs, &normalized));
  if (normalized.text.size() > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a text of ", normalized.text.size(), " bytes is more than 4 GiB: split it"));
  }
  OffsetChain original = {begin, nullptr, nullptr, 0};
  absl::Status status;
  // An added token that begins behind this may be a longer one once there is more text.
  size_t known = normalized.text.size();
  if (open && normalized_bytes_max_ > 0) {
    known -= std::min(known, normalized_bytes_max_ + 4);
    while (known > 0 && (normalized.text[known] & 0xc0) == 0x80) --known;
  }
  normalized_matcher_.Cut(normalized.text, [&](size_t from, size_t to, const AddedToken* token) {
    if (!status.ok() || from >= known || from == to) return;
    OffsetChain chain = {from, normalized.runs.empty() ? nullptr : &normalized.runs, &original, 0};
    if (token != nullptr) {
      GiveToken(*token, chain.Original(0), out);
      return;
    }
    out->stretch = chain.Original(0);
    out->normalized_end = std::min(to, known);
    out->raw_spaces = out->spaces = {1, 0};
    const bool goes_on = open && to >= known;
    status = parts_.pre_tokenizer.Cut(
        normalized.text.substr(from, out->normalized_end - from), &chain, !out->state.continued,
        out->state.word.begun, goes_on,
        [&](const PreTokenizer::Word& word) { return EncodeWord(word, out); });
  });
  return status;
}

absl::Status HfTokenizer::EncodeText(std::string_view text, const PieceState& state,
                                     std::vector<int32_t>* ids,
                                     std::vector<size_t>* offsets) const {
  MT_RETURN_IF_ERROR(CheckUtf8(text));
  Output out(*this);
  out.ids = ids;
  out.offsets = offsets;
  out.state = state;
  out.text = text;
  ids->reserve(ids->size() + text.size() / 4);
  absl::Status status;
  raw_matcher_.Cut(text, [&](size_t begin, size_t end, const AddedToken* token) {
    if (!status.ok() || begin == end) return;
    if (token == nullptr) {
      status = EncodeSection(begin, end, /*open=*/false, &out);
    } else {
      GiveToken(*token, begin, &out);
    }
  });
  return status;
}

absl::StatusOr<size_t> HfTokenizer::EncodePiece(std::string_view text, bool last, PieceState* state,
                                                std::vector<int32_t>* ids) const {
  if (last) {
    MT_RETURN_IF_ERROR(EncodeText(text, *state, ids, nullptr));
    return text.size();
  }
  // The last character may not be whole.
  for (int bytes = 0; bytes < 4 && !text.empty(); ++bytes) {
    const auto byte = static_cast<unsigned char>(text.back());
    text.remove_suffix(1);
    if ((byte & 0xc0) != 0x80) break;
  }
  MT_RETURN_IF_ERROR(CheckUtf8(text));
  // An added token that begins behind this may be a longer one once there is more text, and what it
  // looks at behind itself is not there.
  size_t known = text.size() - std::min(text.size(), raw_bytes_max_ + 4);
  while (known > 0 && known < text.size() && (text[known] & 0xc0) == 0x80) --known;
  Output out(*this);
  out.ids = ids;
  out.state = *state;
  out.text = text;
  out.open = true;
  const size_t ids_before = ids->size();
  absl::Status status;
  raw_matcher_.Cut(text, [&](size_t begin, size_t end, const AddedToken* token) {
    if (!status.ok() || begin >= known || begin == end) return;
    if (token != nullptr) {
      GiveToken(*token, begin, &out);
      return;
    }
    const bool open = end >= known;
    if (open) {  // up to where it is normalized as it will be with more text
      end = known;
      const std::string_view section = text.substr(begin);
      while (end > begin && !parts_.normalizer.CutsAt(section, end - begin)) {
        end = Utf8Before(text, end);
      }
      if (end <= begin) return;
    }
    status = EncodeSection(begin, end, open, &out);
  });
  MT_RETURN_IF_ERROR(status);
  ids->resize(out.cut.offset == 0 ? ids_before : out.cut.ids);
  if (out.cut.offset > 0) *state = {true, out.cut.word};
  return out.cut.offset;
}

std::string HfTokenizer::Decode(const std::vector<int32_t>& ids, bool skip_special) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    const TokenTable::Decoded* const token = table_.Find(id);
    if (token == nullptr || (skip_special && token->special)) continue;
    tokens.push_back(token->text);
  }
  return parts_.decoder.Decode(std::move(tokens));
}

std::string Fingerprint(std::string_view file, bool is_json, const HfTokenizer& tokenizer,
                        const TokenizerConfig& config) {
  // The file, and what the others can change beside it.
  std::string text = absl::StrCat(ToAbsl(file), "\n", tokenizer.eos_id(), " ", tokenizer.bos_id(),
                                  " ", tokenizer.pad_id(), " ", config.tokenizer_class);
  if (!is_json) {  // tokenizer.model does not say how its text is prepared
    const auto word = [](const std::optional<bool>& value) {
      return !value.has_value() ? "unset" : *value ? "yes" : "no";
    };
    absl::StrAppend(&text, "\n", config.model_type, " ", word(config.legacy), " ",
                    word(config.add_prefix_space));
  }
  // These models were once given other ids.
  if (!is_json && FollowsItsModel(config)) {
    absl::StrAppend(&text, "\nas the model says", config.null_legacy ? " null" : "");
  }
  if (tokenizer.flags_replaced()) text += "\nflags replaced";
  for (const auto* tokens : {&config.added_tokens, &config.special_tokens}) {
    for (const AddedToken& token : *tokens) {
      absl::StrAppend(&text, "\n", token.id, " ", token.content, " ", token.single_word,
                      token.lstrip, token.rstrip, token.normalized);
    }
  }
  const SpecialIds around = tokenizer.special_tokens_around();
  for (const int32_t id : around.before) absl::StrAppend(&text, "\nbefore ", id);
  for (const int32_t id : around.after) absl::StrAppend(&text, "\nafter ", id);
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Tokenizer>> MakeHfTokenizer(const TokenizerFiles& files) {
  MT_ASSIGN_OR_RETURN(
      TokenizerConfig config,
      ParseTokenizerConfig(files.tokenizer_config, files.model_config, files.special_tokens_map,
                           files.generation_config, files.added_tokens));
  const bool is_json = !files.tokenizer_json.empty();
  const std::string_view file = is_json ? "tokenizer.json" : "tokenizer.model";
  // transformers lets tokenizer.json's post_processor decide alone.
  if (is_json) config.add_bos = config.add_eos = false;
  absl::StatusOr<TokenizerJson> parts =
      is_json ? ParseTokenizerJson(files.tokenizer_json)
              : ParseSentencePieceModel(files.tokenizer_model, &config);
  if (!parts.ok()) {
    return absl::Status(parts.status().code(),
                        absl::StrCat(ToAbsl(file), ": ", parts.status().message()));
  }
  RemoveKnownTokens(*parts, is_json, &config);
  auto tokenizer = std::make_shared<HfTokenizer>();
  MT_RETURN_IF_ERROR(tokenizer->Initialize(*std::move(parts), file, config));
  tokenizer->SetFingerprint(Fingerprint(is_json ? files.tokenizer_json : files.tokenizer_model,
                                        is_json, *tokenizer, config));
  return tokenizer;
}

}  // namespace megatrain
