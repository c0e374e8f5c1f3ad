#include "engine/tokenizer/bpe_tokenizer.h"

#include <xxhash.h>

#include <algorithm>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/tokenizer/byte_token.h"
#include "engine/tokenizer/byte_unicode.h"
#include "engine/tokenizer/character_bpe.h"
#include "engine/tokenizer/text/normalizer.h"
#include "engine/tokenizer/text/space_mark.h"
#include "engine/tokenizer/text/text_map.h"
#include "engine/tokenizer/text/utf8.h"
#include "engine/tokenizer/tokenizer_config.h"
#include "engine/tokenizer/tokenizer_json.h"

namespace megatrain {
namespace {

// A token's characters as the bytes that they stand for; false if one stands for none.
bool ToBytes(std::string_view token, std::string* bytes) {
  bytes->clear();
  for (size_t at = 0; at < token.size();) {
    const int byte = UnicodeToByte(Utf8At(token, at));
    if (byte < 0) return false;
    bytes->push_back(static_cast<char>(byte));
    at += Utf8Length(static_cast<unsigned char>(token[at]));
  }
  return true;
}

class BpeTokenizer : public Tokenizer {
 public:
  // `json` is taken over. `config` adds tokens and names the special ones.
  absl::Status Initialize(TokenizerJson json, const TokenizerConfig& config);

  absl::Status Encode(std::string_view text, std::vector<int32_t>* ids) const override {
    return EncodeText(text, /*continued=*/false, ids, nullptr);
  }
  absl::Status EncodeContinued(std::string_view text, std::vector<int32_t>* ids) const override {
    return EncodeText(text, /*continued=*/true, ids, nullptr);
  }
  absl::Status EncodeWithOffsets(std::string_view text, std::vector<int32_t>* ids,
                                 std::vector<size_t>* offsets) const override {
    return EncodeText(text, /*continued=*/false, ids, offsets);
  }
  bool cuts_at_line_feeds() const override { return cuts_at_line_feeds_; }
  std::string Decode(const std::vector<int32_t>& ids, bool skip_special) const override;
  std::optional<int32_t> TokenId(std::string_view token) const override;

  int64_t vocabulary() const override { return vocabulary_; }
  int32_t eos_id() const override { return eos_id_; }
  int32_t bos_id() const override { return bos_id_; }
  int32_t pad_id() const override { return pad_id_; }
  std::string fingerprint() const override { return fingerprint_; }

  void SetEos(int32_t id) { eos_id_ = id; }
  void SetFingerprint(std::string fingerprint) { fingerprint_ = std::move(fingerprint); }

 private:
  // The vectors that Encode fills, and the buffers that it reuses for every word.
  struct Output {
    std::vector<int32_t>* ids;
    std::vector<size_t>* offsets;  // may be null
    bool continued;                // the text is the rest of one: nothing is put before it
    std::vector<BpeSymbol> symbols;
    std::string prefixed;
    OffsetRuns prefixed_runs;
    std::string normalized;
    OffsetRuns runs;
  };
  struct Decoded {
    std::string bytes;
    bool special = false;
  };

  absl::Status AddTokens(const std::vector<AddedToken>& tokens, std::string_view file);
  absl::Status SetSpecials(const TokenizerConfig& config);
  absl::Status BuildMatchers();
  absl::Status BuildTables();
  // The bytes that the text of a token stands for.
  std::string DecodeToken(std::string_view token) const;

  // Normalizes `text`; `prepend` is false if nothing may be put before it. `runs` may be null, and
  // stays empty if the text stays as it is.
  absl::Status Normalize(std::string_view text, bool prepend, std::string* normalized,
                         OffsetRuns* runs) const;
  absl::Status EncodeText(std::string_view text, bool continued, std::vector<int32_t>* ids,
                          std::vector<size_t>* offsets) const;
  // A stretch of the original text between tokens that are looked for there; `origin` is its
  // offset.
  absl::Status EncodeRaw(std::string_view text, size_t origin, Output* out) const;
  // A stretch of normalized text between added tokens. `position(i)` is the offset in the original
  // of the stretch's byte i.
  template <typename Position>
  absl::Status EncodeStretch(std::string_view text, const Position& position, Output* out) const;
  template <typename Position>
  absl::Status EncodeWords(std::string_view text, const Position& position, Output* out) const;
  template <typename Position>
  void EncodeWord(std::string_view word, size_t begin, const Position& position, Output* out) const;

  TokenizerJson json_;
  absl::flat_hash_map<int32_t, AddedToken> added_;  // by id
  TextMap<int32_t> added_ids_;
  AddedTokenMatcher raw_matcher_;
  AddedTokenMatcher normalized_matcher_;
  int32_t byte_ids_[256];    // -1: the byte is no token; of a byte-level BPE
  CharacterBpe characters_;  // with byte_fallback
  TextMap<int32_t> words_;   // whole words as bytes, with ignore_merges
  bool cuts_at_line_feeds_ = true;
  absl::flat_hash_map<int32_t, Decoded> decoded_;
  int64_t vocabulary_ = 0;
  int32_t eos_id_ = -1;
  int32_t bos_id_ = -1;
  int32_t pad_id_ = -1;
  std::string fingerprint_;
};

absl::Status BpeTokenizer::Initialize(TokenizerJson json, const TokenizerConfig& config) {
  json_ = std::move(json);
  MT_RETURN_IF_ERROR(AddTokens(json_.added_tokens, "tokenizer.json: added_tokens"));
  // transformers adds the tokens that only tokenizer_config.json has.
  std::vector<AddedToken> missing;
  for (const AddedToken& token : config.added_tokens) {
    const std::optional<int32_t> id = TokenId(token.content);
    if (!id.has_value()) {
      missing.push_back(token);
    } else if (*id != token.id) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "tokenizer_config.json: added_tokens_decoder gives \"%s\" the id %d, tokenizer.json %d",
          token.content, token.id, *id));
    }
  }
  MT_RETURN_IF_ERROR(AddTokens(missing, "tokenizer_config.json: added_tokens_decoder"));
  MT_RETURN_IF_ERROR(SetSpecials(config));
  MT_RETURN_IF_ERROR(BuildMatchers());
  return BuildTables();
}

// Ids as `tokenizers` gives them: a token of the model keeps its id, others are numbered from the
// vocabulary's size on.
absl::Status BpeTokenizer::AddTokens(const std::vector<AddedToken>& tokens, std::string_view file) {
  const auto size = static_cast<int32_t>(json_.vocabulary.size());
  int32_t next = size;
  for (const auto& [id, token] : added_) next = std::max(next, id + 1);
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    const std::optional<int32_t> known = TokenId(token.content);
    const int32_t id = known.has_value() ? *known : next++;
    if (id != token.id) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s gives \"%s\" the id %d, but `tokenizers` numbers it %d", file,
                          token.content, token.id, id));
    }
    added_.insert_or_assign(id, token);
    added_ids_[token.content] = id;
  }
  return absl::OkStatus();
}

absl::Status BpeTokenizer::SetSpecials(const TokenizerConfig& config) {
  const auto set = [this](const std::optional<std::string>& text, const char* key, int32_t* id) {
    if (!text.has_value() || text->empty()) return absl::OkStatus();
    const std::optional<int32_t> found = TokenId(*text);
    if (!found.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer_config.json: ", key, " \"", *text,
                                                     "\" is not a token of tokenizer.json"));
    }
    *id = *found;
    // transformers makes it an added token if it is none.
    if (!added_.contains(*found)) {
      AddedToken token;
      token.id = *found;
      token.content = *text;
      token.special = true;
      added_.emplace(*found, token);
      added_ids_.emplace(*text, *found);
    }
    return absl::OkStatus();
  };
  MT_RETURN_IF_ERROR(set(config.bos_token, "bos_token", &bos_id_));
  MT_RETURN_IF_ERROR(set(config.eos_token, "eos_token", &eos_id_));
  MT_RETURN_IF_ERROR(set(config.pad_token, "pad_token", &pad_id_));
  return absl::OkStatus();
}

absl::Status BpeTokenizer::BuildMatchers() {
  std::vector<int32_t> order;
  for (const auto& [id, token] : added_) order.push_back(id);
  std::sort(order.begin(), order.end());
  for (const int32_t id : order) {
    const AddedToken& token = added_.at(id);
    if (!token.normalized) {
      MT_RETURN_IF_ERROR(raw_matcher_.Add(token.content, token));
      continue;
    }
    std::string text;
    MT_RETURN_IF_ERROR(Normalize(token.content, /*prepend=*/true, &text, nullptr));
    MT_RETURN_IF_ERROR(normalized_matcher_.Add(text, token));
  }
  return absl::OkStatus();
}

absl::Status BpeTokenizer::Normalize(std::string_view text, bool prepend, std::string* normalized,
                                     OffsetRuns* runs) const {
  if (json_.nfc) return NormalizeNfc(text, normalized, runs);
  if (json_.prepend_mark || json_.replace_spaces) {
    MarkSpaces(text, prepend && json_.prepend_mark, json_.replace_spaces, normalized, runs);
  } else {
    *normalized = text;
    if (runs != nullptr) runs->clear();
  }
  return absl::OkStatus();
}

std::string BpeTokenizer::DecodeToken(std::string_view token) const {
  std::string bytes;
  if (json_.byte_fallback) {
    bytes = UnmarkSpaces(token);
    const int byte = ByteOfToken(bytes);
    return byte < 0 ? bytes : std::string(1, static_cast<char>(byte));
  }
  return ToBytes(token, &bytes) ? bytes : std::string(token);
}

absl::Status BpeTokenizer::BuildTables() {
  if (json_.byte_fallback) {
    MT_RETURN_IF_ERROR(characters_.Initialize(json_.vocabulary));
    for (char letter = 'a'; letter <= 'z'; ++letter) {
      const auto capital = static_cast<char32_t>(letter - 'a' + 'A');
      cuts_at_line_feeds_ = cuts_at_line_feeds_ &&
                            json_.seams.Between('\n', static_cast<char32_t>(letter)) &&
                            json_.seams.Between('\n', capital);
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    std::string character;
    AppendUtf8(ByteToUnicode(static_cast<uint8_t>(byte)), &character);
    const auto found = json_.vocabulary.find(character);
    byte_ids_[byte] = found == json_.vocabulary.end() ? -1 : found->second;
  }
  std::string bytes;
  for (const auto& [token, id] : json_.vocabulary) {
    vocabulary_ = std::max<int64_t>(vocabulary_, int64_t{id} + 1);
    decoded_[id] = {DecodeToken(token), false};
    if (!json_.ignore_merges) continue;
    if (json_.byte_fallback) {
      words_.emplace(token, id);
    } else if (ToBytes(token, &bytes)) {
      words_.emplace(bytes, id);
    }
  }
  absl::flat_hash_set<std::string> specials;
  for (const auto& [id, token] : added_) {
    if (token.special) specials.insert(token.content);
  }
  for (const auto& [id, token] : added_) {
    vocabulary_ = std::max<int64_t>(vocabulary_, int64_t{id} + 1);
    std::string text = token.content;
    if (token.normalized) {
      MT_RETURN_IF_ERROR(Normalize(token.content, /*prepend=*/true, &text, nullptr));
    }
    decoded_[id] = {DecodeToken(text), specials.contains(token.content)};
  }
  return absl::OkStatus();
}

template <typename Position>
void BpeTokenizer::EncodeWord(std::string_view word, size_t begin, const Position& position,
                              Output* out) const {
  const auto give = [&](int32_t id, size_t at) {
    out->ids->push_back(id);
    if (out->offsets != nullptr) out->offsets->push_back(position(begin + at));
  };
  if (json_.ignore_merges) {
    const auto found = words_.find(word);
    if (found != words_.end()) {
      give(found->second, 0);
      return;
    }
  }
  if (json_.byte_fallback) {
    characters_.Encode(word, json_.merges, json_.seams, &out->symbols, give);
    return;
  }
  std::vector<BpeSymbol>& symbols = out->symbols;
  symbols.clear();
  bool open_unknown = false;  // the symbol before is an unknown one that may be fused
  for (size_t i = 0; i < word.size(); ++i) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(word[i])];
    if (id >= 0) {
      symbols.push_back({id, static_cast<uint32_t>(i)});
      open_unknown = false;
    } else if (json_.unknown_id.has_value()) {
      if (!(open_unknown && json_.fuse_unknown)) {
        symbols.push_back({*json_.unknown_id, static_cast<uint32_t>(i)});
      }
      open_unknown = true;
    }  // else the byte is dropped, as `tokenizers` does
  }
  json_.merges.Apply(&symbols);
  for (const BpeSymbol& symbol : symbols) give(symbol.id, symbol.begin);
}

template <typename Position>
absl::Status BpeTokenizer::EncodeWords(std::string_view text, const Position& position,
                                       Output* out) const {
  if (text.size() > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a text of ", text.size(), " bytes is more than 4 GiB: split it"));
  }
  return json_.pre_tokenizer.Cut(text, [&](size_t begin, size_t end) {
    EncodeWord(text.substr(begin, end - begin), begin, position, out);
  });
}

template <typename Position>
absl::Status BpeTokenizer::EncodeStretch(std::string_view text, const Position& position,
                                         Output* out) const {
  const bool first = position(0) == 0;
  const bool rest = first && out->continued;
  if (json_.metaspace.has_value()) {
    const bool prepend = !rest && text[0] != ' ' &&
                         text.substr(0, kSpaceMark.size()) != kSpaceMark &&
                         (*json_.metaspace == MarkScheme::kAlways ||
                          (*json_.metaspace == MarkScheme::kFirst && first));
    OffsetRuns& runs = out->prefixed_runs;
    MarkSpaces(text, prepend, /*replace=*/true, &out->prefixed,
               out->offsets != nullptr ? &runs : nullptr);
    const auto original = [&](size_t offset) { return position(OriginalOffset(runs, offset)); };
    return EncodeWords(out->prefixed, original, out);
  }
  if (json_.pre_tokenizer.needs_prefix_space() && text[0] != ' ' && !rest) {
    out->prefixed.assign(1, ' ');
    out->prefixed += text;
    const auto shifted = [&](size_t offset) { return position(offset == 0 ? 0 : offset - 1); };
    return EncodeWords(out->prefixed, shifted, out);
  }
  return EncodeWords(text, position, out);
}

absl::Status BpeTokenizer::EncodeRaw(std::string_view text, size_t origin, Output* out) const {
  std::string_view normalized = text;
  out->runs.clear();
  if (json_.nfc ? !IsTriviallyNfc(text) : json_.prepend_mark || json_.replace_spaces) {
    MT_RETURN_IF_ERROR(Normalize(text, /*prepend=*/!(out->continued && origin == 0),
                                 &out->normalized, out->offsets != nullptr ? &out->runs : nullptr));
    normalized = out->normalized;
  }
  absl::Status status;
  normalized_matcher_.Cut(normalized, [&](size_t begin, size_t end, const AddedToken* token) {
    const auto position = [&](size_t offset) {
      return origin + OriginalOffset(out->runs, begin + offset);
    };
    if (token == nullptr) {
      status.Update(EncodeStretch(normalized.substr(begin, end - begin), position, out));
    } else if (begin < end) {
      out->ids->push_back(token->id);
      if (out->offsets != nullptr) out->offsets->push_back(position(0));
    }
  });
  return status;
}

absl::Status BpeTokenizer::EncodeText(std::string_view text, bool continued,
                                      std::vector<int32_t>* ids,
                                      std::vector<size_t>* offsets) const {
  MT_RETURN_IF_ERROR(CheckUtf8(text));
  Output out;
  out.ids = ids;
  out.offsets = offsets;
  out.continued = continued;
  ids->reserve(ids->size() + text.size() / 4);
  absl::Status status;
  raw_matcher_.Cut(text, [&](size_t begin, size_t end, const AddedToken* token) {
    if (token == nullptr) {
      status.Update(EncodeRaw(text.substr(begin, end - begin), begin, &out));
    } else if (begin < end) {
      ids->push_back(token->id);
      if (offsets != nullptr) offsets->push_back(begin);
    }
  });
  return status;
}

std::string BpeTokenizer::Decode(const std::vector<int32_t>& ids, bool skip_special) const {
  std::string text;
  for (const int32_t id : ids) {
    const auto found = decoded_.find(id);
    if (found == decoded_.end() || (skip_special && found->second.special)) continue;
    text += found->second.bytes;
  }
  size_t spaces = 0;
  while (spaces < json_.strip_spaces && spaces < text.size() && text[spaces] == ' ') ++spaces;
  return text.erase(0, spaces);
}

std::optional<int32_t> BpeTokenizer::TokenId(std::string_view token) const {
  if (const auto found = added_ids_.find(token); found != added_ids_.end()) return found->second;
  const auto found = json_.vocabulary.find(token);
  if (found == json_.vocabulary.end()) return std::nullopt;
  return found->second;
}

std::string Fingerprint(std::string_view tokenizer_json, const Tokenizer& tokenizer,
                        const TokenizerConfig& config) {
  // The file, and what tokenizer_config.json can change beside it.
  std::string text = absl::StrCat(ToAbsl(tokenizer_json), "\n", tokenizer.eos_id(), " ",
                                  tokenizer.bos_id(), " ", tokenizer.pad_id());
  for (const AddedToken& token : config.added_tokens) {
    absl::StrAppend(&text, "\n", token.id, " ", token.content, " ", token.single_word, token.lstrip,
                    token.rstrip, token.normalized);
  }
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Tokenizer>> MakeBpeTokenizer(std::string_view tokenizer_json,
                                                                  std::string_view tokenizer_config,
                                                                  std::string_view model_config) {
  MT_ASSIGN_OR_RETURN(const TokenizerConfig config,
                      ParseTokenizerConfig(tokenizer_config, model_config));
  absl::StatusOr<TokenizerJson> json = ParseTokenizerJson(tokenizer_json);
  if (!json.ok()) {
    return absl::Status(json.status().code(),
                        absl::StrCat("tokenizer.json: ", json.status().message()));
  }
  auto tokenizer = std::make_shared<BpeTokenizer>();
  MT_RETURN_IF_ERROR(tokenizer->Initialize(*std::move(json), config));
  if (tokenizer->eos_id() < 0 && config.eos_token_id >= 0 &&
      config.eos_token_id < tokenizer->vocabulary()) {
    tokenizer->SetEos(config.eos_token_id);
  }
  tokenizer->SetFingerprint(Fingerprint(tokenizer_json, *tokenizer, config));
  return tokenizer;
}

}  // namespace megatrain
