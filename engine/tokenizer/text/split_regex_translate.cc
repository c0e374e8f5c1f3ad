// Translates Oniguruma's syntax to PCRE2's. They differ in these constructs, which are translated:
//   \s          Oniguruma: Unicode's White_Space. PCRE2 also takes U+180E.
//   \p{..}      Oniguruma knows Unicode 16, PCRE2 possibly only Unicode 14: newer characters are
//               added.
//   {n,m}+      Oniguruma: one or more of the interval. PCRE2: possessive.
//   ^ and $     Oniguruma: of a line. PCRE2: with the MULTILINE option.
//   .           Neither takes a newline; PCRE2 is told that a newline is \n alone.
// Everything else that could differ is refused.
#include <cctype>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/tokenizer/text/split_regex.h"
#include "engine/tokenizer/text/text_map.h"
#include "engine/tokenizer/text/unicode_16.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

constexpr char kSpaceRanges[] =
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"
    "\\x{3000}";
// The complement of kSpaceRanges.
constexpr char kNotSpaceRanges[] =
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-"
    "\\x{10ffff}";
// Patterns are short (the longest known is 300 bytes); groups nest at most this deep.
constexpr size_t kPatternBytesMax = 16384;
constexpr int kGroupDepthMax = 64;

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<std::string> Run() {
    if (pattern_.size() > kPatternBytesMax) {
      return absl::UnimplementedError(absl::StrFormat("the expression has %d bytes, more than %d",
                                                      pattern_.size(), kPatternBytesMax));
    }
    MT_RETURN_IF_ERROR(CheckUtf8(pattern_));
    if (pattern_.find('\0') != std::string_view::npos) return Refuse("a zero byte");
    while (at_ < pattern_.size()) MT_RETURN_IF_ERROR(Item());
    if (depth_ != 0) return Refuse("a group that is not closed");
    return std::move(out_);
  }

 private:
  absl::Status Refuse(std::string_view what) const {
    return absl::UnimplementedError(absl::StrCat("the regular expression \"", ToAbsl(pattern_),
                                                 "\" uses ", ToAbsl(what), " at byte ", at_,
                                                 ", which is not supported"));
  }

  char Peek(size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }

  absl::Status Item() {
    const char c = Peek();
    switch (c) {
      case '\\':
        atom_begin_ = out_.size();
        return Escape(/*in_class=*/false);
      case '[':
        atom_begin_ = out_.size();
        return Class();
      case '(':
        return Group();
      case ')':
        if (depth_ == 0) return Refuse("an unmatched )");
        --depth_;
        atom_begin_ = group_begins_[depth_];
        return Copy(1);
      case '*':
      case '+':
      case '?':
        return Quantifier();
      case '{':
        return Interval();
      default:
        atom_begin_ = out_.size();
        return Copy(Utf8Length(static_cast<unsigned char>(c)));
    }
  }

  absl::Status Copy(size_t bytes) {
    out_ += pattern_.substr(at_, bytes);
    at_ += bytes;
    return absl::OkStatus();
  }

  absl::Status Group() {
    if (depth_ == kGroupDepthMax) return Refuse("groups nested too deep");
    group_begins_[depth_++] = out_.size();
    if (Peek(1) != '?') return Copy(1);
    for (const std::string_view opening :
         {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"}) {
      if (pattern_.substr(at_, opening.size()) == opening) return Copy(opening.size());
    }
    return Refuse("a (?...) group of another kind than : = ! <= <! > i: -i:");
  }

  // A quantifier that follows *, + or ? makes it lazy (?) or possessive (+) in both.
  absl::Status Quantifier() {
    MT_RETURN_IF_ERROR(Copy(1));
    if (Peek() == '?' || Peek() == '+') MT_RETURN_IF_ERROR(Copy(1));
    if (Peek() == '*' || Peek() == '+' || Peek() == '?') return Refuse("a quantifier too many");
    if (Peek() == '{') return Refuse("an interval behind a quantifier");
    return absl::OkStatus();
  }

  absl::Status Interval() {
    const size_t close = pattern_.find('}', at_);
    if (close == std::string_view::npos) return Refuse("a { that is not closed");
    const std::string_view inner = pattern_.substr(at_ + 1, close - at_ - 1);
    const size_t comma = inner.find(',');
    const std::string_view low = inner.substr(0, comma);
    const std::string_view high =
        comma == std::string_view::npos ? std::string_view("0") : inner.substr(comma + 1);
    const auto number = [](std::string_view digits) {
      if (digits.empty() || digits.size() > 4) return false;
      for (const char c : digits) {
        if (std::isdigit(static_cast<unsigned char>(c)) == 0) return false;
      }
      return true;
    };
    // {,m} is 0 to m for Oniguruma and text for PCRE2.
    if (!(low.empty() && comma != std::string_view::npos) && !number(low)) {
      return Refuse("a { that begins no interval");
    }
    if (!high.empty() && !number(high)) return Refuse("a { that begins no interval");
    if (low.empty() && high.empty()) return Refuse("an interval without a number");
    absl::StrAppend(&out_, "{", low.empty() ? "0" : ToAbsl(low),
                    comma == std::string_view::npos ? "" : absl::StrCat(",", ToAbsl(high)), "}");
    at_ = close + 1;
    if (Peek() == '+') {
      out_.insert(atom_begin_, "(?:");
      out_ += ")+";
      ++at_;
    } else if (Peek() == '?') {
      // {n}? is "n or none" for Oniguruma, lazy for PCRE2.
      if (comma == std::string_view::npos) return Refuse("{n}?");
      MT_RETURN_IF_ERROR(Copy(1));
    }
    if (Peek() == '*' || Peek() == '+' || Peek() == '?' || Peek() == '{') {
      return Refuse("a quantifier behind an interval");
    }
    return absl::OkStatus();
  }

  absl::Status Class() {
    MT_RETURN_IF_ERROR(Copy(1));
    if (Peek() == '^') MT_RETURN_IF_ERROR(Copy(1));
    if (Peek() == ']') return Refuse("an empty class");
    while (Peek() != ']') {
      if (at_ >= pattern_.size()) return Refuse("a class that is not closed");
      if (Peek() == '[') return Refuse("a class inside a class");
      if (Peek() == '&' && Peek(1) == '&') return Refuse("an intersection of classes (&&)");
      if (Peek() == '\\') {
        const bool is_set = std::string_view("sSdDpP").find(Peek(1)) != std::string_view::npos;
        MT_RETURN_IF_ERROR(Escape(/*in_class=*/true));
        if (is_set && Peek() == '-' && Peek(1) != ']') return Refuse("a range behind a set");
      } else {
        MT_RETURN_IF_ERROR(Copy(Utf8Length(static_cast<unsigned char>(Peek()))));
      }
    }
    return Copy(1);
  }

  // Writes a set given by ranges, `negated` outside of a class.
  void Set(bool in_class, bool negated, std::string_view ranges) {
    if (in_class) {
      out_ += ranges;
    } else {
      absl::StrAppend(&out_, negated ? "[^" : "[", ToAbsl(ranges), "]");
    }
  }

  absl::Status Escape(bool in_class) {
    const char c = Peek(1);
    switch (c) {
      case 's':
        Set(in_class, false, kSpaceRanges);
        break;
      case 'S':
        Set(in_class, !in_class, in_class ? kNotSpaceRanges : kSpaceRanges);
        break;
      case 'd':
        Set(in_class, false, absl::StrCat("\\p{Nd}", CharactersAfterUnicode14("Nd")));
        break;
      case 'D':
        if (in_class) return Refuse("\\D in a class");
        Set(false, true, absl::StrCat("\\p{Nd}", CharactersAfterUnicode14("Nd")));
        break;
      case 'p':
      case 'P':
        return Property(in_class);
      case 'x':
        return Hexadecimal();
      case 'n':
      case 'r':
      case 't':
      case 'f':
        absl::StrAppend(&out_, "\\", absl::string_view(&c, 1));
        break;
      case 'A':
      case 'z':
        if (in_class) return Refuse("an anchor in a class");
        return Copy(2);
      default:
        if (c == '\0' || std::isalnum(static_cast<unsigned char>(c)) != 0 ||
            static_cast<unsigned char>(c) >= 0x80) {
          return Refuse(absl::StrCat("\\", absl::string_view(&c, c == '\0' ? 0 : 1)));
        }
        return Copy(2);  // punctuation stands for itself
    }
    at_ += 2;
    return absl::OkStatus();
  }

  absl::Status Property(bool in_class) {
    bool negated = Peek(1) == 'P';
    const size_t close = Peek(2) == '{' ? pattern_.find('}', at_) : std::string_view::npos;
    if (close == std::string_view::npos) return Refuse("\\p without {}");
    std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
    if (!name.empty() && name[0] == '^') {
      negated = !negated;
      name.remove_prefix(1);
    }
    const char* added = CharactersAfterUnicode14(name);
    if (added == nullptr) return Refuse(absl::StrCat("\\p{", ToAbsl(name), "}"));
    const std::string ranges = absl::StrCat("\\p{", ToAbsl(name), "}", added);
    if (in_class && negated) {
      // The complement of a union cannot be written inside a class.
      if (added[0] != '\0') return Refuse(absl::StrCat("\\P{", ToAbsl(name), "} in a class"));
      absl::StrAppend(&out_, "\\P{", ToAbsl(name), "}");
    } else {
      Set(in_class, negated, ranges);
    }
    at_ = close + 1;
    return absl::OkStatus();
  }

  // \xHH below 0x80 and \x{H...}: the same in both. (\xHH from 0x80 on is a raw byte for
  // Oniguruma.)
  absl::Status Hexadecimal() {
    size_t length = 2;
    const auto digit = [this](size_t ahead) {
      return std::isxdigit(static_cast<unsigned char>(Peek(ahead))) != 0;
    };
    if (Peek(2) == '{') {
      length = 3;
      while (digit(length) && length < 10) ++length;
      if (Peek(length) != '}' || length == 3) return Refuse("\\x{");
      ++length;
    } else {
      if (!digit(2) || !digit(3) || Peek(2) > '7') return Refuse("\\x of a byte from 80 on");
      length = 4;
    }
    return Copy(length);
  }

  const std::string_view pattern_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_begin_ = 0;  // in out_: where the atom that a quantifier would repeat begins
  int depth_ = 0;
  size_t group_begins_[kGroupDepthMax] = {};
};

}  // namespace

absl::StatusOr<std::string> TranslateRegex(std::string_view pattern) {
  return Translator(pattern).Run();
}

std::string EscapeRegex(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (std::ispunct(static_cast<unsigned char>(c)) != 0) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

}  // namespace megatrain
