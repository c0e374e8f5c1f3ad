#include "engine/tokenizer/text/normalizer.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

icu::StringPiece Piece(std::string_view text) {
  return {text.data(), static_cast<int32_t>(text.size())};
}

}  // namespace

size_t OriginalOffset(const OffsetRuns& runs, size_t offset) {
  if (runs.empty()) return offset;
  auto after = std::upper_bound(
      runs.begin(), runs.end(), offset,
      [](size_t value, const std::pair<size_t, size_t>& run) { return value < run.first; });
  const auto run = std::prev(after);
  const size_t original = run->second + (offset - run->first);
  // A run that grew must not reach into the next one. (The last is an empty one at the end.)
  return after == runs.end() ? original : std::min(original, after->second - 1);
}

bool IsTriviallyNfc(std::string_view text) {
  // U+0300 is CC 80; every byte from CC on begins a character of U+0300 or above.
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0xcc) return false;
  }
  return true;
}

absl::Status NormalizeNfc(std::string_view text, std::string* normalized, OffsetRuns* runs) {
  normalized->clear();
  if (runs != nullptr) runs->clear();
  // ICU counts in int32.
  if (text.size() > size_t{1} << 30) {
    return absl::InvalidArgumentError(
        absl::StrCat("a text of ", text.size(), " bytes is more than NFC takes (1 GiB): split it"));
  }
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(error);
  if (U_FAILURE(error)) {
    return absl::InternalError(absl::StrCat("ICU has no NFC data: ", u_errorName(error)));
  }
  if (nfc->isNormalizedUTF8(Piece(text), error) && U_SUCCESS(error)) {
    *normalized = text;
    return absl::OkStatus();
  }
  if (runs == nullptr) {
    icu::StringByteSink<std::string> sink(normalized);
    nfc->normalizeUTF8(0, Piece(text), sink, nullptr, error);
  } else {
    // Text between two boundaries is normalized by itself.
    for (size_t begin = 0; begin < text.size() && U_SUCCESS(error);) {
      size_t end = begin + Utf8Length(static_cast<unsigned char>(text[begin]));
      while (end < text.size() &&
             !nfc->hasBoundaryBefore(static_cast<UChar32>(Utf8At(text, end)))) {
        end += Utf8Length(static_cast<unsigned char>(text[end]));
      }
      runs->emplace_back(normalized->size(), begin);
      icu::StringByteSink<std::string> sink(normalized);
      nfc->normalizeUTF8(0, Piece(text.substr(begin, end - begin)), sink, nullptr, error);
      begin = end;
    }
    runs->emplace_back(normalized->size(), text.size());
  }
  if (U_FAILURE(error)) {
    return absl::InternalError(absl::StrCat("NFC failed: ", u_errorName(error)));
  }
  return absl::OkStatus();
}

}  // namespace megatrain
