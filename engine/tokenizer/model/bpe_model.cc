#include "engine/tokenizer/model/bpe_model.h"

#include "engine/tokenizer/model/byte_token.h"
#include "engine/tokenizer/model/byte_unicode.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

// Words of bytes from this length on are merged between seams: shorter ones are merged faster
// whole.
constexpr size_t kLongWord = 1024;

}  // namespace

BpeModel::BpeModel(TextMap<int32_t> vocabulary, BpeMerges merges, BpeSeams seams,
                   BpeSettings settings)
    : TokenModel(std::move(vocabulary)),
      merges_(std::move(merges)),
      seams_(std::move(seams)),
      settings_(std::move(settings)),
      plain_(settings_.continuing_prefix.empty() && settings_.end_suffix.empty()) {
  for (int byte = 0; byte < 256; ++byte) {
    std::string token = ByteToken(static_cast<uint8_t>(byte));
    if (settings_.byte_level) {
      token.clear();
      AppendUtf8(ByteToUnicode(static_cast<uint8_t>(byte)), &token);
    }
    const auto found = this->vocabulary().find(token);
    byte_ids_[byte] = found == this->vocabulary().end() ? -1 : found->second;
    all_bytes_ = all_bytes_ && byte_ids_[byte] >= 0;
  }
  for (int32_t& id : ascii_ids_) id = -1;
  std::string bytes;
  for (const auto& [token, id] : this->vocabulary()) {
    if (settings_.byte_level) {
      if (settings_.ignore_merges && TokenToBytes(token, &bytes)) words_.emplace(bytes, id);
      continue;
    }
    if (token.empty() || Utf8Length(static_cast<unsigned char>(token[0])) != token.size()) continue;
    const char32_t c = Utf8At(token, 0);
    if (c < 128) {
      ascii_ids_[c] = id;
    } else {
      character_ids_.emplace(c, id);
    }
  }
}

int32_t BpeModel::PlainId(char32_t c) const {
  if (c < 128) return ascii_ids_[c];
  const auto found = character_ids_.find(c);
  return found == character_ids_.end() ? -1 : found->second;
}

int32_t BpeModel::CharacterId(std::string_view word, size_t at, size_t length,
                              std::string* text) const {
  if (plain_) return PlainId(Utf8At(word, at));
  text->clear();
  if (at > 0) *text = settings_.continuing_prefix;
  *text += word.substr(at, length);
  if (at + length == word.size()) *text += settings_.end_suffix;
  const auto found = vocabulary().find(*text);
  return found == vocabulary().end() ? -1 : found->second;
}

bool BpeModel::FallBack(std::string_view text, uint32_t begin,
                        std::vector<TokenAt>* symbols) const {
  const size_t size = symbols->size();
  for (const char c : text) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    if (id < 0) {
      symbols->resize(size);
      return false;
    }
    symbols->push_back({id, begin});
  }
  return true;
}

bool BpeModel::SeamBetween(char32_t before, char32_t after) const {
  if (!plain_ || !seams_.Between(before, after)) return false;
  if (settings_.byte_fallback && all_bytes_) return true;
  // Unknown characters may be left out or fused, and bytes may pass an unknown token.
  return !settings_.byte_fallback && PlainId(before) >= 0 && PlainId(after) >= 0;
}

bool BpeModel::ByteSeam(uint8_t before, uint8_t after) const {
  return byte_ids_[before] >= 0 && byte_ids_[after] >= 0 &&
         seams_.Between(ByteToUnicode(before), ByteToUnicode(after));
}

void BpeModel::Flush(ModelBuffers* buffers) const {
  merges_.Apply(&buffers->symbols);
  buffers->tokens.insert(buffers->tokens.end(), buffers->symbols.begin(), buffers->symbols.end());
  buffers->symbols.clear();
}

void BpeModel::EncodeBytes(std::string_view word, ModelBuffers* buffers) const {
  // A short word is merged where the result belongs.
  const bool cut = word.size() >= kLongWord;
  std::vector<TokenAt>& symbols = cut ? buffers->symbols : buffers->tokens;
  bool open_unknown = false;  // the symbol before is an unknown one that may be fused
  for (size_t i = 0; i < word.size(); ++i) {
    const auto byte = static_cast<uint8_t>(word[i]);
    const int32_t id = byte_ids_[byte];
    if (cut && i > 0 && ByteSeam(static_cast<uint8_t>(word[i - 1]), byte)) Flush(buffers);
    if (id >= 0) {
      symbols.push_back({id, static_cast<uint32_t>(i)});
      open_unknown = false;
    } else if (settings_.unknown_id.has_value()) {
      if (!(open_unknown && settings_.fuse_unknown)) {
        symbols.push_back({*settings_.unknown_id, static_cast<uint32_t>(i)});
      }
      open_unknown = true;
    }  // else the byte is dropped, as `tokenizers` does
  }
  if (cut) {
    Flush(buffers);
  } else {
    merges_.Apply(&symbols);
  }
}

void BpeModel::EncodeCharacters(std::string_view word, ModelBuffers* buffers) const {
  std::vector<TokenAt>& symbols = buffers->symbols;
  char32_t before = 0;
  bool open_unknown = false;  // an unknown token is not yet written, which begins at `unknown`
  uint32_t unknown = 0;
  const auto write_unknown = [&] {
    if (open_unknown) symbols.push_back({*settings_.unknown_id, unknown});
    open_unknown = false;
  };
  std::string affixed;
  for (size_t at = 0; at < word.size();) {
    const char32_t c = Utf8At(word, at);
    const size_t length = Utf8Length(static_cast<unsigned char>(word[at]));
    const auto begin = static_cast<uint32_t>(at);
    if (at > 0 && SeamBetween(before, c)) {
      write_unknown();
      Flush(buffers);
    }
    const int32_t id = CharacterId(word, at, length, &affixed);
    if (id >= 0) {
      write_unknown();
      symbols.push_back({id, begin});
    } else if (settings_.byte_fallback &&
               FallBack(plain_ ? word.substr(at, length) : std::string_view(affixed), begin,
                        &symbols)) {
      // As in `tokenizers`, an unknown token before these bytes is written behind them.
    } else if (settings_.unknown_id.has_value()) {
      if (!settings_.fuse_unknown) write_unknown();
      if (!open_unknown) unknown = begin;
      open_unknown = true;
    }
    before = c;
    at += length;
  }
  write_unknown();
  Flush(buffers);
}

absl::Status BpeModel::Encode(std::string_view word, double score, ModelBuffers* buffers) const {
  buffers->tokens.clear();
  buffers->symbols.clear();
  if (settings_.ignore_merges) {
    const TextMap<int32_t>& words = settings_.byte_level ? words_ : vocabulary();
    const auto found = words.find(word);
    if (found != words.end()) {
      buffers->tokens.push_back({found->second, 0});
      return absl::OkStatus();
    }
  }
  if (settings_.byte_level) {
    EncodeBytes(word, buffers);
  } else {
    EncodeCharacters(word, buffers);
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> BpeModel::EncodeOpen(std::string_view word,
                                            absl::FunctionRef<bool(size_t)> may_cut, double* score,
                                            ModelBuffers* buffers) const {
  // The whole word, or the rest of it, might be a token.
  if (settings_.ignore_merges || !plain_) return 0;
  for (size_t at = word.size(); at > 0;) {
    const size_t before = settings_.byte_level ? at - 1 : Utf8Before(word, at);
    bool seam = false;
    if (at < word.size() && settings_.byte_level) {
      const auto byte = static_cast<uint8_t>(word[at]);
      seam = (byte & 0xc0) != 0x80 && ByteSeam(static_cast<uint8_t>(word[before]), byte);
    } else if (at < word.size()) {
      seam = SeamBetween(Utf8At(word, before), Utf8At(word, at));
    }
    if (seam && may_cut(at)) {
      const absl::Status status = Encode(word.substr(0, at), 0, buffers);
      if (!status.ok()) return status;
      return at;
    }
    at = before;
  }
  return 0;
}

}  // namespace megatrain
