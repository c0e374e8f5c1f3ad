// Cuts a long or an open word where its tokens are settled.
//
// Byte-pair encoding has two properties for any list of rules:
//   1. The tokens of a part of a text that begins and ends where tokens do are those of the part by
//      itself: no rule was applied across its ends, so nothing changed the order within.
//   2. Tokens are those of a text if each of them, and each two neighbours together, are encoded as
//      themselves. The first rule that is applied across a place between two tokens would be
//      applied to the two alone as well.
// By the first, the tokens of every beginning of a text are known but for the last one, and a text
// that goes on behind `end` has a token that begins at one of few places before `end` (NextBegins).
// A place is settled if tokens end there in every beginning that ends at one of these. By the
// second, that is seen from the stretch between the two, and from the tokens around the place.
#include <algorithm>

#include "engine/base/status.h"
#include "engine/tokenizer/model/bpe_model.h"
#include "engine/tokenizer/model/byte_unicode.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

// A stretch that is merged at once. Longer ones take more time for a byte.
constexpr size_t kStretchBytes = size_t{16} << 10;
// The bytes at the end of a word in which a seam is looked for first.
constexpr size_t kSeamBytes = size_t{4} << 10;
constexpr int kPlacesMax = 64;  // that are tried in a stretch
// The bytes of the longest token with which places are looked for. Published ones have up to 256.
constexpr size_t kTokenBytesMax = 1024;

bool BeginsCharacter(std::string_view text, size_t at) {
  return at >= text.size() || (text[at] & 0xc0) != 0x80;
}

}  // namespace

void BpeModel::Merge(const Word& word, size_t begin, size_t end, ModelBuffers* buffers) const {
  for (size_t stretch = kStretchBytes; end - begin > stretch;) {
    size_t stop = begin + stretch;
    while (!BeginsCharacter(word.text, stop)) --stop;
    const size_t place = MergeSettled(
        word, begin, stop, [](size_t) { return true; }, buffers);
    stretch = place > begin ? kStretchBytes : 2 * stretch;
    begin = place;
  }
  MergePart(word, begin, end, &buffers->symbols);
  buffers->tokens.insert(buffers->tokens.end(), buffers->symbols.begin(), buffers->symbols.end());
}

bool BpeModel::BeginsLongerToken(std::string_view text) const {
  std::call_once(sorted_once_, [this] {
    sorted_.reserve(vocabulary().size());
    for (const auto& [token, id] : vocabulary()) sorted_.push_back(token);
    std::sort(sorted_.begin(), sorted_.end());
  });
  const auto found = std::upper_bound(sorted_.begin(), sorted_.end(), text);
  return found != sorted_.end() && found->starts_with(text);
}

bool BpeModel::Separates(const Word& word, size_t place) const {
  if (!settings_.fuse_unknown || settings_.byte_fallback) return true;
  return IsKnown(word, SymbolBefore(word.text, place)) || IsKnown(word, place);
}

size_t BpeModel::SymbolBefore(std::string_view text, size_t at) const {
  return settings_.byte_level ? at - 1 : Utf8Before(text, at);
}

bool BpeModel::IsKnown(const Word& word, size_t at) const {
  const auto byte = static_cast<uint8_t>(word.text[at]);
  if (settings_.byte_level) return byte_ids_[byte] >= 0;
  std::string affixed;
  return CharacterId(word, at, Utf8Length(byte), &affixed) >= 0;
}

std::vector<size_t> BpeModel::NextBegins(const Word& word, size_t begin, size_t end) const {
  std::vector<size_t> next;
  const size_t first = end - std::min(end - begin, longest_);
  std::string tail;  // from `first` on, as tokens are written
  std::vector<size_t> places;
  for (size_t at = first; at < end; ++at) {
    if (!settings_.byte_level && !BeginsCharacter(word.text, at)) continue;
    if (!plain_) next.push_back(at);
    places.push_back(at);
  }
  if (plain_) {
    std::vector<size_t> offsets;
    for (size_t i = 0; i < places.size(); ++i) {
      offsets.push_back(tail.size());
      if (settings_.byte_level) {
        AppendUtf8(ByteToUnicode(static_cast<uint8_t>(word.text[places[i]])), &tail);
      } else {
        const size_t to = i + 1 < places.size() ? places[i + 1] : end;
        tail += word.text.substr(places[i], to - places[i]);
      }
    }
    for (size_t i = 0; i < places.size(); ++i) {
      if (BeginsLongerToken(std::string_view(tail).substr(offsets[i]))) next.push_back(places[i]);
    }
  }
  // A run of unknown symbols at the end may become one token with those that follow.
  size_t run = end;
  while (run > begin) {
    const size_t before = SymbolBefore(word.text, run);
    if (settings_.byte_fallback || !settings_.fuse_unknown || IsKnown(word, before)) break;
    run = before;
  }
  if (run < end) next.push_back(run);
  next.push_back(end);
  return next;
}

bool BpeModel::IsSettled(const Word& word, const std::vector<TokenAt>& tokens, size_t token,
                         std::vector<size_t>* next, std::vector<TokenAt>* symbols) const {
  const size_t place = tokens[token].begin;
  const TokenAt before = tokens[token - 1];
  for (size_t i = 0; i < next->size(); ++i) {
    const size_t end = (*next)[i];
    if (end == place) continue;
    MergePart(word, place, end, symbols);
    if (symbols->empty()) continue;
    const TokenAt after = symbols->front();
    const size_t after_end = symbols->size() > 1 ? (*symbols)[1].begin : end;
    MergePart(word, before.begin, after_end, symbols);
    const bool apart = symbols->size() == 2 && (*symbols)[0].id == before.id &&
                       (*symbols)[1].id == after.id && (*symbols)[1].begin == after.begin;
    if (apart) continue;
    std::swap(next->front(), (*next)[i]);  // it is likely to fail again
    return false;
  }
  return true;
}

size_t BpeModel::MergeSettled(const Word& word, size_t begin, size_t end,
                              absl::FunctionRef<bool(size_t)> may_cut,
                              ModelBuffers* buffers) const {
  // Each place near the end at which a token may begin is tried: a stranger's long token must not
  // make them many.
  if (longest_ > kTokenBytesMax) return begin;
  // Tokens that do not stand for their characters are not found by their texts.
  if (seams_.none() || (settings_.byte_fallback && !all_bytes_)) return begin;
  if (!settings_.unknown_id.has_value() && !settings_.byte_fallback) {
    // Nor are tokens that reach across a symbol that is left out.
    for (size_t at = end; at > begin && end - at < longest_;) {
      at = SymbolBefore(word.text, at);
      if (!IsKnown(word, at)) return begin;
    }
  }
  std::vector<TokenAt> tokens, symbols;
  MergePart(word, begin, end, &tokens);
  std::vector<size_t> next = NextBegins(word, begin, end);
  const size_t limit = *std::min_element(next.begin(), next.end());
  auto behind = std::upper_bound(tokens.begin(), tokens.end(), limit,
                                 [](size_t at, const TokenAt& token) { return at < token.begin; });
  size_t token = static_cast<size_t>(behind - tokens.begin());
  size_t step = 1;
  for (int tried = 0; tried < kPlacesMax && token > step; ++tried) {
    token -= step;
    const size_t place = tokens[token].begin;
    if (place <= begin) break;
    // Tokens of the bytes of one character are at the same place.
    if (tokens[token - 1].begin == place || !BeginsCharacter(word.text, place) ||
        !Separates(word, place)) {
      continue;
    }
    if (may_cut(place) && IsSettled(word, tokens, token, &next, &symbols)) {
      buffers->tokens.insert(buffers->tokens.end(), tokens.begin(),
                             tokens.begin() + static_cast<ptrdiff_t>(token));
      return place;
    }
    step *= 2;
  }
  return begin;
}

bool BpeModel::FusesAt(const Word& word, size_t at) const {
  return settings_.fuse_unknown && settings_.unknown_id.has_value() && !settings_.byte_fallback &&
         !seams_.none() && !IsKnown(word, at);
}

size_t BpeModel::UnknownEnd(const Word& word) const {
  size_t at = 0;
  while (at < word.text.size() && FusesAt(word, at)) {
    at += settings_.byte_level ? 1 : Utf8Length(static_cast<unsigned char>(word.text[at]));
  }
  return at;
}

// A run of unknown symbols is one token, which no rule joins. So what is before it is settled, and
// of its rest no more is needed than where it ends.
size_t BpeModel::CutUnknown(const Word& word, absl::FunctionRef<bool(size_t)> may_cut,
                            WordState* state, ModelBuffers* buffers) const {
  size_t run = word.text.size();
  size_t place = 0;
  for (int tried = 0; run > 0 && FusesAt(word, SymbolBefore(word.text, run)); ++tried) {
    if (place == 0 && tried > 0 && tried < kPlacesMax && BeginsCharacter(word.text, run) &&
        may_cut(run)) {
      place = run;
    }
    run = SymbolBefore(word.text, run);
  }
  if (place == 0) return 0;
  if (run > 0) {
    const Word before = {word.text.substr(0, run), word.begun, /*open=*/true};
    plain_ ? Cut(before, buffers) : Merge(before, 0, run, buffers);
  }
  if (run > 0 || !state->unknown) {
    buffers->tokens.push_back({*settings_.unknown_id, static_cast<uint32_t>(run)});
  }
  *state = {/*begun=*/true, /*unknown=*/true, 0};
  return place;
}

absl::StatusOr<size_t> BpeModel::EncodeOpen(std::string_view word,
                                            absl::FunctionRef<bool(size_t)> may_cut,
                                            WordState* state, ModelBuffers* buffers) const {
  // The whole word might be a token.
  if (settings_.ignore_merges && !state->begun && word.size() <= longest_) return 0;
  buffers->tokens.clear();
  const size_t run = state->unknown ? UnknownEnd({word, /*begun=*/true, /*open=*/true}) : 0;
  if (run == 0 || run == word.size()) {
    const size_t place = CutUnknown({word, state->begun, true}, may_cut, state, buffers);
    if (place > 0 || run > 0) return place;
  } else {
    WordState rest = {/*begun=*/true};
    MT_ASSIGN_OR_RETURN(
        const size_t size,
        EncodeOpen(
            word.substr(run), [&](size_t at) { return may_cut(run + at); }, &rest, buffers));
    if (size == 0) return 0;
    for (TokenAt& token : buffers->tokens) token.begin += static_cast<uint32_t>(run);
    *state = rest;
    return run + size;
  }
  size_t begin = 0;  // the last seam
  for (size_t at = word.size(); plain_ && at > 0;) {
    const size_t before = SymbolBefore(word, at);
    if (at < word.size() && BeginsCharacter(word, at) &&
        IsSeam(SymbolAt(word, before), SymbolAt(word, at))) {
      begin = std::max(begin, at);
      if (may_cut(at)) {
        Cut({word.substr(0, at), state->begun, /*open=*/true}, buffers);
        state->begun = true;
        return at;
      }
    }
    at = before;
    // Behind this, the settled places come first, but for models that have none.
    if (word.size() - at > kSeamBytes && !seams_.none() && begin > 0) break;
  }
  const Word open = {word, state->begun, /*open=*/true};
  if (begin > 0) Cut({word.substr(0, begin), state->begun, true}, buffers);
  for (size_t stretch = kStretchBytes;;) {
    size_t end = word.size();
    if (end - begin > stretch) {
      end = begin + stretch;
      while (!BeginsCharacter(word, end)) --end;
    }
    const bool is_last = end == word.size();
    const size_t place = MergeSettled(
        open, begin, end, [&](size_t at) { return !is_last || may_cut(at); }, buffers);
    stretch = place > begin ? kStretchBytes : 2 * stretch;
    if (is_last && place == begin && (begin == 0 || !may_cut(begin))) return 0;
    begin = place;
    if (!is_last) continue;
    state->begun = true;
    return begin;
  }
}

}  // namespace megatrain
