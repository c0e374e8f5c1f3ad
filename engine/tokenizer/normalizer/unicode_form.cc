#include "engine/tokenizer/normalizer/unicode_form.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uniset.h>

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

const icu::Normalizer2* Make(UnicodeForm form) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* out = nullptr;
  switch (form) {
    case UnicodeForm::kNfc:
      out = icu::Normalizer2::getNFCInstance(error);
      break;
    case UnicodeForm::kNfd:
      out = icu::Normalizer2::getNFDInstance(error);
      break;
    case UnicodeForm::kNfkc:
      out = icu::Normalizer2::getNFKCInstance(error);
      break;
    case UnicodeForm::kNfkd:
      out = icu::Normalizer2::getNFKDInstance(error);
      break;
  }
  if (U_FAILURE(error) || form == UnicodeForm::kNfc) return U_FAILURE(error) ? nullptr : out;
  // `tokenizers` knows the decompositions of Unicode 9. (Those of NFC have not changed since.)
  const auto* const known = new icu::UnicodeSet(u"[:age=9.0:]", error);
  return U_FAILURE(error) ? nullptr : new icu::FilteredNormalizer2(*out, *known);
}

// Returns null if ICU has no data. The result lives as long as the program.
const icu::Normalizer2* Instance(UnicodeForm form) {
  static const icu::Normalizer2* const kInstances[] = {
      Make(UnicodeForm::kNfc), Make(UnicodeForm::kNfd), Make(UnicodeForm::kNfkc),
      Make(UnicodeForm::kNfkd)};
  return kInstances[static_cast<int>(form)];
}

icu::StringPiece Piece(std::string_view text) {
  return {text.data(), static_cast<int32_t>(text.size())};
}

// Returns true if every byte of `text` is below `limit`: the text is then in the form. This is the
// common case and is checked at memory speed.
bool AllBelow(std::string_view text, unsigned char limit) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= limit) return false;
  }
  return true;
}

// ICU counts in int32.
absl::Status CheckSize(size_t bytes) {
  if (bytes <= size_t{1} << 30) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a text of ", bytes, " bytes is more than a Unicode form takes (1 GiB): split it"));
}

// ICU puts each mark that is out of order in its place by stepping back over those before it. From
// this many bytes on between two boundaries it is given marks in order.
constexpr size_t kLongBytes = 512;

// The character at `offset` goes with what is before it.
bool GoesOn(const icu::Normalizer2& instance, std::string_view text, size_t offset) {
  return static_cast<unsigned char>(text[offset]) >= 0x80 &&
         !instance.hasBoundaryBefore(static_cast<UChar32>(Utf8At(text, offset)));
}

// Returns true if 2 * kLongBytes are without a boundary anywhere, and false if kLongBytes nowhere
// are.
bool HasLongPart(const icu::Normalizer2& instance, std::string_view text) {
  for (size_t end = kLongBytes; end < text.size(); end += kLongBytes) {
    size_t at = Utf8Before(text, end);
    while (at > 0 && end - at < kLongBytes && GoesOn(instance, text, at)) at = Utf8Before(text, at);
    if (end - at >= kLongBytes) return true;
  }
  return false;
}

// Returns the decomposition of `text`, its marks in canonical order. Its form is that of `text`.
std::string Decomposed(const icu::Normalizer2& instance, std::string_view text) {
  std::string result;
  std::map<uint8_t, std::string> marks;  // by combining class
  const auto add = [&](UChar32 c) {
    const uint8_t combining = instance.getCombiningClass(c);
    if (combining == 0) {
      for (const auto& [unused, run] : marks) result += run;
      marks.clear();
    }
    AppendUtf8(static_cast<char32_t>(c), combining == 0 ? &result : &marks[combining]);
  };
  icu::UnicodeString parts;
  for (size_t at = 0; at < text.size(); at += Utf8Length(static_cast<unsigned char>(text[at]))) {
    const auto c = static_cast<UChar32>(Utf8At(text, at));
    if (!instance.getDecomposition(c, parts)) {
      add(c);
      continue;
    }
    for (int32_t i = 0; i < parts.length(); i = parts.moveIndex32(i, 1)) add(parts.char32At(i));
  }
  for (const auto& [unused, run] : marks) result += run;
  return result;
}

}  // namespace

absl::Status ApplyForm(UnicodeForm form, std::string_view text, RunWriter* out, bool* changed) {
  *changed = false;
  // Characters below U+0300, which is CC 80, are NFC; ASCII is in every form.
  if (AllBelow(text, form == UnicodeForm::kNfc ? 0xcc : 0x80)) return absl::OkStatus();
  MT_RETURN_IF_ERROR(CheckSize(text.size()));
  const icu::Normalizer2* const instance = Instance(form);
  if (instance == nullptr) return absl::InternalError("ICU has no normalization data");
  UErrorCode error = U_ZERO_ERROR;
  if (!HasLongPart(*instance, text) && instance->isNormalizedUTF8(Piece(text), error) &&
      U_SUCCESS(error)) {
    return absl::OkStatus();
  }
  // Text between two boundaries is normalized by itself. Stretches of ASCII are copied.
  std::string normalized;
  size_t kept = 0;
  for (size_t begin = 0; begin < text.size() && U_SUCCESS(error);) {
    size_t end = begin + Utf8Length(static_cast<unsigned char>(text[begin]));
    while (end < text.size() && GoesOn(*instance, text, end)) {
      end += Utf8Length(static_cast<unsigned char>(text[end]));
    }
    if (end > begin + 1) {  // more than a character of ASCII, which is in every form
      const std::string_view part = text.substr(begin, end - begin);
      normalized.clear();
      icu::StringByteSink<std::string> sink(&normalized);
      const std::string in_order =
          part.size() < kLongBytes ? std::string() : Decomposed(*instance, part);
      MT_RETURN_IF_ERROR(CheckSize(in_order.size()));
      instance->normalizeUTF8(0, Piece(in_order.empty() ? part : in_order), sink, nullptr, error);
      if (normalized != part) {
        *changed = true;
        out->Keep(text, kept, begin);
        out->Put(normalized, begin);
        kept = end;
      }
    }
    begin = end;
  }
  if (*changed) out->Keep(text, kept, text.size());
  if (U_FAILURE(error)) {
    return absl::InternalError(absl::StrCat("normalization failed: ", u_errorName(error)));
  }
  return absl::OkStatus();
}

bool FormBeginsAt(UnicodeForm form, char32_t c) {
  if (c < 0x300) return true;
  const icu::Normalizer2* const instance = Instance(form);
  return instance != nullptr && instance->hasBoundaryBefore(static_cast<UChar32>(c)) != 0;
}

}  // namespace megatrain
