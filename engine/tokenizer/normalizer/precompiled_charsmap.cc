#include "engine/tokenizer/normalizer/precompiled_charsmap.h"

#include <unicode/uchar.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

// The fields of a unit of the double array (darts-clone's format).
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) == 1; }
uint32_t Value(uint32_t unit) { return unit & 0x7fffffffu; }
uint32_t Label(uint32_t unit) { return unit & 0x800000ffu; }
uint32_t Offset(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

// `tokenizers` looks a cluster up as a whole only if it is shorter than this.
constexpr size_t kClusterBytes = 6;
// A character's replacement has at most 18 characters in Unicode's compatibility forms.
constexpr size_t kReplacementBytesMax = 255;

int Break(char32_t c) {
  return u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_GRAPHEME_CLUSTER_BREAK);
}

bool IsPictograph(char32_t c) {
  return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_EXTENDED_PICTOGRAPHIC) != 0;
}

bool IsControl(int type) { return type == U_GCB_CONTROL || type == U_GCB_CR || type == U_GCB_LF; }

// Rules GB3 to GB9b; `before` and `after` are grapheme cluster breaks.
bool Joins(int before, int after) {
  if (before == U_GCB_CR) return after == U_GCB_LF;
  if (IsControl(before) || IsControl(after)) return false;
  if (after == U_GCB_EXTEND || after == U_GCB_ZWJ || after == U_GCB_SPACING_MARK) return true;
  if (before == U_GCB_PREPEND) return true;
  if (before == U_GCB_L) {
    return after == U_GCB_L || after == U_GCB_V || after == U_GCB_LV || after == U_GCB_LVT;
  }
  if (before == U_GCB_LV || before == U_GCB_V) return after == U_GCB_V || after == U_GCB_T;
  return (before == U_GCB_LVT || before == U_GCB_T) && after == U_GCB_T;
}

}  // namespace

size_t GraphemeEnd(std::string_view text, size_t offset) {
  char32_t c = Utf8At(text, offset);
  size_t end = offset + Utf8Length(static_cast<unsigned char>(text[offset]));
  // Between two ASCII characters only CR LF joins.
  if (c < 0x80 && c != '\r' &&
      (end == text.size() || static_cast<unsigned char>(text[end]) < 0x80)) {
    return end;
  }
  int before = Break(c);
  bool pictograph = IsPictograph(c);  // a pictograph, and extending characters behind it
  int indicators = before == U_GCB_REGIONAL_INDICATOR ? 1 : 0;
  while (end < text.size()) {
    c = Utf8At(text, end);
    const int after = Break(c);
    bool joins = Joins(before, after);
    if (before == U_GCB_ZWJ && pictograph && IsPictograph(c)) joins = true;
    if (after == U_GCB_REGIONAL_INDICATOR && before == after) joins = indicators++ % 2 == 1;
    if (!joins) break;
    if (after != U_GCB_EXTEND && after != U_GCB_ZWJ) pictograph = IsPictograph(c);
    before = after;
    end += Utf8Length(static_cast<unsigned char>(text[end]));
  }
  return end;
}

bool ClusterEndsBetween(char32_t before, char32_t after) {
  if (before == '\r' && after == '\n') return false;
  for (const char32_t c : {before, after}) {
    const int type = Break(c);
    if ((type != U_GCB_OTHER && !IsControl(type)) ||
        u_charType(static_cast<UChar32>(c)) == U_UNASSIGNED) {
      return false;
    }
  }
  return true;
}

absl::StatusOr<PrecompiledCharsmap> PrecompiledCharsmap::Parse(std::string_view blob) {
  uint32_t bytes = 0;
  if (blob.size() < sizeof(bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("precompiled_charsmap has ", blob.size(), " bytes, fewer than 4"));
  }
  std::memcpy(&bytes, blob.data(), sizeof(bytes));
  blob.remove_prefix(sizeof(bytes));
  if (bytes > blob.size() || bytes % sizeof(uint32_t) != 0 || bytes == 0) {
    return absl::InvalidArgumentError(absl::StrCat("precompiled_charsmap gives its trie ", bytes,
                                                   " bytes; ", blob.size(), " bytes follow"));
  }
  PrecompiledCharsmap out;
  out.units_.resize(bytes / sizeof(uint32_t));
  std::memcpy(out.units_.data(), blob.data(), bytes);
  out.replacements_ = blob.substr(bytes);
  if (const absl::Status status = CheckUtf8(out.replacements_); !status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("precompiled_charsmap: replacements: ", status.message()));
  }
  for (const absl::string_view replacement : absl::StrSplit(out.replacements_, '\0')) {
    if (replacement.size() > kReplacementBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat("precompiled_charsmap has a replacement of ",
                                                     replacement.size(), " bytes; at most ",
                                                     kReplacementBytesMax, " are accepted"));
    }
  }
  return out;
}

std::optional<std::string_view> PrecompiledCharsmap::Find(std::string_view text) const {
  size_t node = Offset(units_[0]);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0) return std::nullopt;
    node ^= byte;
    if (node >= units_.size() || Label(units_[node]) != byte) return std::nullopt;
    const uint32_t unit = units_[node];
    node ^= Offset(unit);
    if (!HasLeaf(unit)) continue;
    if (node >= units_.size()) return std::nullopt;
    const size_t begin = Value(units_[node]);
    if (begin >= replacements_.size()) return std::string_view();
    // A place within a character, which no table has, gives nothing.
    if ((static_cast<unsigned char>(replacements_[begin]) & 0xc0) == 0x80) return std::nullopt;
    const std::string_view from = std::string_view(replacements_).substr(begin);
    return from.substr(0, from.find('\0'));
  }
  return std::nullopt;
}

void PrecompiledCharsmap::Apply(std::string_view text, RunWriter* out) const {
  size_t kept = 0;  // text from here on is copied
  const auto replace = [&](size_t begin, size_t end, std::string_view replacement) {
    out->Keep(text, kept, begin);
    out->Put(replacement, begin);
    kept = end;
  };
  for (size_t at = 0; at < text.size();) {
    const size_t end = GraphemeEnd(text, at);
    if (end - at < kClusterBytes) {
      if (const auto found = Find(text.substr(at, end - at)); found.has_value()) {
        replace(at, end, *found);
        at = end;
        continue;
      }
    }
    while (at < end) {
      const size_t next = at + Utf8Length(static_cast<unsigned char>(text[at]));
      if (const auto found = Find(text.substr(at, next - at)); found.has_value()) {
        replace(at, next, *found);
      }
      at = next;
    }
  }
  out->Keep(text, kept, text.size());
}

}  // namespace megatrain
