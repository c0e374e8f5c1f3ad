#include "engine/tokenizer/text/character_maps.h"

#include <unicode/uchar.h>
#include <unicode/uscript.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

// Copies what map(c, &replacement) returns false for, and writes the replacement of the rest.
template <typename Map>
void Rewrite(std::string_view text, RunWriter* out, const Map& map) {
  size_t kept = 0;
  std::string replacement;
  for (size_t at = 0; at < text.size();) {
    const size_t next = at + Utf8Length(static_cast<unsigned char>(text[at]));
    replacement.clear();
    if (map(Utf8At(text, at), &replacement)) {
      out->Keep(text, kept, at);
      out->Put(replacement, at);
      kept = next;
    }
    at = next;
  }
  out->Keep(text, kept, text.size());
}

// Returns true if Unicode's version `major` had the character. `tokenizers` has tables of several
// versions: of 9 for StripAccents and the Unicode forms, of 8 for BERT.
bool IsSince(char32_t c, int major) {
  UVersionInfo version;
  u_charAge(static_cast<UChar32>(c), version);
  return version[0] > 0 && version[0] <= major;
}

uint32_t CategoryMask(char32_t c) { return U_MASK(u_charType(static_cast<UChar32>(c))); }

// Lower cases of Unicode 16 and 17, which an older ICU does not know.
char32_t NewLowercase(char32_t c) {
  if (c >= 0x10d50 && c <= 0x10d65) return c + 0x20;
  if (c >= 0x16ea0 && c <= 0x16eb8) return c + 0x1b;
  switch (c) {
    case 0x1c89:
    case 0xa7cc:
    case 0xa7ce:
    case 0xa7d2:
    case 0xa7d4:
    case 0xa7da:
      return c + 1;
    case 0xa7cb:
      return 0x264;
    case 0xa7dc:
      return 0x19b;
    default:
      return c;
  }
}

bool NmtRemoves(char32_t c) {
  return (c >= 0x1 && c <= 0x8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f ||
         c == 0x9f;
}

bool NmtMakesSpace(char32_t c) {
  return c == 0x9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
         (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xfeff ||
         c == 0xfffd;
}

}  // namespace

void MapLowercase(std::string_view text, RunWriter* out) {
  Rewrite(text, out, [](char32_t c, std::string* to) {
    if (c == 0x130) {  // the only character with a longer lower case
      *to = "i\xcc\x87";
      return true;
    }
    auto lower = static_cast<char32_t>(u_tolower(static_cast<UChar32>(c)));
    if (lower == c) lower = NewLowercase(c);
    if (lower == c) return false;
    AppendUtf8(lower, to);
    return true;
  });
}

void RemoveMarks(std::string_view text, RunWriter* out) {
  Rewrite(text, out, [](char32_t c, std::string*) {
    if (c < 0x300) return false;
    if (c == 0x1cf2 || c == 0x1cf3) return true;  // letters since Unicode 12
    if (c == 0x111c9) return false;               // punctuation until Unicode 11
    return (CategoryMask(c) & U_GC_M_MASK) != 0 && IsSince(c, 9);
  });
}

void RemoveNonspacingMarks(std::string_view text, RunWriter* out) {
  Rewrite(text, out, [](char32_t c, std::string*) {
    if (c < 0x300) return false;
    if (c == 0x1734) return true;  // a spacing mark since Unicode 14
    // These were not yet marks in Unicode 7.
    if (c == 0x1885 || c == 0x1886 || c == 0xa9bd || c == 0x111c9) return false;
    return (CategoryMask(c) & U_GC_MN_MASK) != 0 && IsSince(c, 8);
  });
}

void MapNmt(std::string_view text, RunWriter* out) {
  Rewrite(text, out, [](char32_t c, std::string* to) {
    if (NmtMakesSpace(c)) *to = " ";
    return NmtRemoves(c) || NmtMakesSpace(c);
  });
}

void CleanText(std::string_view text, RunWriter* out) {
  Rewrite(text, out, [](char32_t c, std::string* to) {
    if (c == ' ') return false;
    if (c == '\t' || c == '\n' || c == '\r') {
      *to = " ";
      return true;
    }
    if (c == 0 || c == 0xfffd) return true;
    if ((CategoryMask(c) & (U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK)) != 0 && IsSince(c, 8)) {
      return true;
    }
    if (IsWhiteSpace(c)) *to = " ";
    return IsWhiteSpace(c);
  });
}

bool IsIdeograph(char32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
         (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
         (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

void SpaceIdeographs(std::string_view text, RunWriter* out) {
  Rewrite(text, out, [](char32_t c, std::string* to) {
    if (!IsIdeograph(c)) return false;
    *to = " ";
    AppendUtf8(c, to);
    *to += ' ';
    return true;
  });
}

int ScriptOf(char32_t c) {
  switch (c) {
    case U' ':
      return kAnyScript;
    case 0x589:  // These four had another script in Unicode 9.
    case 0x61c:
      return USCRIPT_COMMON;
    case 0x953:
    case 0x954:
      return USCRIPT_DEVANAGARI;
    case 0x30fc:
      return USCRIPT_HAN;
    default:
      break;
  }
  UErrorCode error = U_ZERO_ERROR;
  const UScriptCode script = uscript_getScript(static_cast<UChar32>(c), &error);
  if (script == USCRIPT_UNKNOWN || !IsSince(c, 9)) return kAnyScript;
  return script == USCRIPT_HIRAGANA || script == USCRIPT_KATAKANA ? USCRIPT_HAN : script;
}

std::string PunctuationClass() {
  std::string out = R"([!-\/:-@\[-`{-~)";
  for (char32_t c = 0x80; c < 0x110000; ++c) {
    // U+166D and U+111C9 were punctuation in Unicode 7.
    const bool is =
        ((CategoryMask(c) & U_GC_P_MASK) != 0 && IsSince(c, 8)) || c == 0x166d || c == 0x111c9;
    if (is) absl::StrAppend(&out, "\\x{", absl::Hex(static_cast<uint32_t>(c)), "}");
  }
  return out + "]";
}

}  // namespace megatrain
