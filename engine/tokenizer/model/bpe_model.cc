#include "engine/tokenizer/model/bpe_model.h"

#include <algorithm>

#include "engine/base/status.h"
#include "engine/tokenizer/model/byte_token.h"
#include "engine/tokenizer/model/byte_unicode.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

constexpr size_t kStretches = 16;  // found at a time

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
  for (size_t i = 0; settings_.byte_level && i < byte_seams_.size(); ++i) {
    const auto before = static_cast<uint8_t>(i / 256);
    const auto after = static_cast<uint8_t>(i % 256);
    byte_seams_[i] = byte_ids_[before] >= 0 && byte_ids_[after] >= 0 &&
                     seams_.Between(ByteToUnicode(before), ByteToUnicode(after));
  }
  for (int32_t& id : ascii_ids_) id = -1;
  std::string bytes;
  for (const auto& [token, id] : this->vocabulary()) {
    longest_ = std::max(longest_, token.size());
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

int32_t BpeModel::CharacterId(const Word& word, size_t at, size_t length, std::string* text) const {
  if (plain_) return PlainId(Utf8At(word.text, at));
  text->clear();
  if (at > 0 || word.begun) *text = settings_.continuing_prefix;
  *text += word.text.substr(at, length);
  if (at + length == word.text.size() && !word.open) *text += settings_.end_suffix;
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

char32_t BpeModel::SymbolAt(std::string_view word, size_t at) const {
  return settings_.byte_level ? static_cast<uint8_t>(word[at]) : Utf8At(word, at);
}

bool BpeModel::IsSeam(char32_t before, char32_t after) const {
  if (settings_.byte_level) return byte_seams_[before * 256 + after];
  if (!plain_ || !seams_.Between(before, after)) return false;
  if (settings_.byte_fallback && all_bytes_) return true;
  // Unknown characters may be left out or fused, and bytes may pass an unknown token.
  return !settings_.byte_fallback && PlainId(before) >= 0 && PlainId(after) >= 0;
}

bool BpeModel::IsToken(std::string_view word, int32_t* id) const {
  if (!settings_.ignore_merges) return false;
  const TextMap<int32_t>& words = settings_.byte_level ? words_ : vocabulary();
  const auto found = words.find(word);
  if (found == words.end()) return false;
  *id = found->second;
  return true;
}

void BpeModel::AddBytes(std::string_view word, size_t begin, size_t end,
                        std::vector<TokenAt>* symbols) const {
  bool open_unknown = false;  // the symbol before is an unknown one that may be fused
  for (size_t i = begin; i < end; ++i) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(word[i])];
    if (id >= 0) {
      symbols->push_back({id, static_cast<uint32_t>(i)});
      open_unknown = false;
    } else if (settings_.unknown_id.has_value()) {
      if (!(open_unknown && settings_.fuse_unknown)) {
        symbols->push_back({*settings_.unknown_id, static_cast<uint32_t>(i)});
      }
      open_unknown = true;
    }  // else the byte is dropped, as `tokenizers` does
  }
}

void BpeModel::AddCharacters(const Word& word, size_t begin, size_t end,
                             std::vector<TokenAt>* symbols) const {
  bool open_unknown = false;  // an unknown token is not yet written, which begins at `unknown`
  uint32_t unknown = 0;
  const auto write_unknown = [&] {
    if (open_unknown) symbols->push_back({*settings_.unknown_id, unknown});
    open_unknown = false;
  };
  std::string affixed;
  for (size_t at = begin; at < end;) {
    const size_t length = Utf8Length(static_cast<unsigned char>(word.text[at]));
    const auto place = static_cast<uint32_t>(at);
    const int32_t id = CharacterId(word, at, length, &affixed);
    if (id >= 0) {
      write_unknown();
      symbols->push_back({id, place});
    } else if (settings_.byte_fallback &&
               FallBack(plain_ ? word.text.substr(at, length) : std::string_view(affixed), place,
                        symbols)) {
      // As in `tokenizers`, an unknown token before these bytes is written behind them.
    } else if (settings_.unknown_id.has_value()) {
      if (!settings_.fuse_unknown) write_unknown();
      if (!open_unknown) unknown = place;
      open_unknown = true;
    }
    at += length;
  }
  write_unknown();
}

void BpeModel::MergePart(const Word& word, size_t begin, size_t end,
                         std::vector<TokenAt>* symbols) const {
  symbols->clear();
  if (settings_.byte_level) {
    AddBytes(word.text, begin, end, symbols);
  } else {
    AddCharacters(word, begin, end, symbols);
  }
  merges_.Apply(symbols);
}

void BpeModel::Cut(const Word& word, ModelBuffers* buffers) const {
  const std::string_view text = word.text;
  const auto next = [&](size_t at) {
    return settings_.byte_level ? at + 1 : at + Utf8Length(static_cast<unsigned char>(text[at]));
  };
  // A stretch that is remembered is not the whole word, which may be a token of its own.
  const auto encode = [&](size_t begin, size_t end) {
    buffers->words.Remember(text.substr(begin, end - begin), /*whole=*/false, begin,
                            &buffers->tokens, [&] { Merge(word, begin, end, buffers); });
  };
  // Some stretches are found before the first of them is looked up, so that the cache's memory is
  // there by then.
  size_t ends[kStretches];
  size_t found = 0;
  size_t done = 0;   // the stretches up to here are encoded
  size_t begin = 0;  // the next stretch begins here
  const auto encode_found = [&] {
    for (size_t i = 0; i < found; ++i) {
      encode(done, ends[i]);
      done = ends[i];
    }
    found = 0;
  };
  char32_t before = SymbolAt(text, 0);
  for (size_t at = next(0); at < text.size(); at = next(at)) {
    const char32_t here = SymbolAt(text, at);
    if (IsSeam(before, here)) {
      buffers->words.Prefetch(text.substr(begin, at - begin), /*whole=*/false);
      ends[found++] = begin = at;
      if (found == kStretches) encode_found();
    }
    before = here;
  }
  if (begin == 0) {
    Merge(word, 0, text.size(), buffers);
  } else {
    encode_found();
    encode(begin, text.size());
  }
}

absl::Status BpeModel::Encode(std::string_view word, const WordState& state,
                              ModelBuffers* buffers) const {
  const Word part = {word, state.begun, /*open=*/false};
  buffers->tokens.clear();
  if (state.unknown) {  // the token of the run that it begins with was given
    const size_t run = UnknownEnd(part);
    if (run == word.size()) return absl::OkStatus();
    MT_RETURN_IF_ERROR(Encode(word.substr(run), {/*begun=*/true}, buffers));
    for (TokenAt& token : buffers->tokens) token.begin += static_cast<uint32_t>(run);
    return absl::OkStatus();
  }
  int32_t id = -1;
  if (!state.begun && IsToken(word, &id)) {
    buffers->tokens.push_back({id, 0});
  } else if (plain_) {
    Cut(part, buffers);
  } else {
    Merge(part, 0, word.size(), buffers);
  }
  return absl::OkStatus();
}

}  // namespace megatrain
