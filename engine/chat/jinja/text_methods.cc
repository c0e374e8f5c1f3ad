// The methods of str.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/jinja/builtins.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/python/number_text.h"
#include "engine/chat/jinja/python/unicode_text.h"
#include "engine/chat/jinja/value_text.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain::jinja {
namespace {

using python::TextClass;

std::string_view SelfOf(const Call& call) { return call.self.as_string(); }

Result Make(Call& call, std::string text) {
  return call.runtime.MakeText(std::move(text), IsMarkup(call.self));
}
Result Make(Call& call, std::string_view text) { return Make(call, std::string(text)); }

template <std::string (*function)(std::string_view)>
Result Mapped(Call& call) {
  return Make(call, function(SelfOf(call)));
}

template <TextClass text_class>
Result IsOf(Call& call) {
  call.runtime.StepBytes(SelfOf(call).size());
  return JinjaValue::Bool(python::IsOfClass(SelfOf(call), text_class));
}

template <bool left, bool right>
Result Strip(Call& call) {
  MT_ASSIGN_OR_RETURN(const std::optional<std::string_view> chars, call.TextOr(0));
  call.runtime.StepBytes(SelfOf(call).size());
  return Make(call,
              python::Strip(SelfOf(call), chars.has_value() ? &*chars : nullptr, left, right));
}

// Counts the memory of a list of the parts of self, which is made before their own is counted.
absl::Status ChargeParts(Call& call, std::optional<std::string_view> separator) {
  const std::string_view self = SelfOf(call);
  // White space is in ASCII, or begins with one of four bytes (U+0085 to U+3000).
  const auto ends = std::count_if(self.begin(), self.end(), [&](char c) {
    if (separator.has_value()) return c == separator->front();
    return (c >= '\t' && c <= ' ') || c == '\xc2' || (c >= '\xe1' && c <= '\xe3');
  });
  const size_t most = self.size() / (separator.has_value() ? separator->size() : 1);
  return call.runtime.Charge(std::min(static_cast<size_t>(ends), most) * sizeof(std::string_view));
}

template <bool from_right>
Result Split(Call& call) {
  MT_ASSIGN_OR_RETURN(const std::optional<std::string_view> separator, call.TextOr(0));
  if (separator.has_value() && separator->empty()) return Error("empty separator");
  MT_ASSIGN_OR_RETURN(const int64_t splits_max, call.IntOr(1, -1));
  call.runtime.StepBytes(SelfOf(call).size());
  MT_RETURN_IF_ERROR(ChargeParts(call, separator));
  return call.runtime.MakeTexts(
      python::Split(SelfOf(call), separator.has_value() ? &*separator : nullptr, splits_max,
                    from_right),
      IsMarkup(call.self));
}

Result SplitLines(Call& call) {
  call.runtime.StepBytes(SelfOf(call).size());
  MT_RETURN_IF_ERROR(call.runtime.ChargeLines(SelfOf(call)));
  return call.runtime.MakeTexts(python::SplitLines(SelfOf(call), call.TrueOr(0, false)),
                                IsMarkup(call.self));
}

// self[start:stop] for the arguments `first` and `first + 1`, and the byte where it begins. Nullopt
// if start is beyond the end.
struct Window {
  std::string_view text;
  size_t begin;
};
absl::StatusOr<std::optional<Window>> WindowOf(Call& call, size_t first) {
  const std::string_view self = SelfOf(call);
  call.runtime.StepBytes(self.size());
  const auto points = static_cast<int64_t>(python::CountPoints(self));
  MT_ASSIGN_OR_RETURN(int64_t start, call.IntOr(first, 0));
  MT_ASSIGN_OR_RETURN(int64_t stop, call.IntOr(first + 1, points));
  if (start < 0) start = std::max<int64_t>(start + points, 0);
  if (stop < 0) stop = std::max<int64_t>(stop + points, 0);
  stop = std::min(stop, points);
  if (start > stop) return std::optional<Window>();
  const size_t begin = python::OffsetOfPoint(self, start);
  return std::optional<Window>({python::SubPoints(self, start, stop), begin});
}

template <bool ends>
Result StartsOrEndsWith(Call& call) {
  std::vector<JinjaValue> affixes = {call[0]};
  if (IsSequence(call[0], SequenceKind::kTuple)) affixes = SequenceOf(call[0]).items;
  MT_ASSIGN_OR_RETURN(const std::optional<Window> window, WindowOf(call, 1));
  for (const JinjaValue& affix : affixes) {
    if (!affix.is_string()) {
      return Error(absl::StrCat("first arg must be str or a tuple of str, not ", TypeName(affix)));
    }
    if (!window.has_value()) continue;
    const std::string_view part = affix.as_string();
    if (ends ? window->text.ends_with(part) : window->text.starts_with(part)) {
      return JinjaValue::Bool(true);
    }
  }
  return JinjaValue::Bool(false);
}

// find, rfind, index and rindex.
template <bool from_right, bool or_fail>
Result FindText(Call& call) {
  MT_ASSIGN_OR_RETURN(const std::string_view part, call.TextAt(0));
  MT_ASSIGN_OR_RETURN(const std::optional<Window> window, WindowOf(call, 1));
  size_t at = std::string_view::npos;
  if (window.has_value()) {
    at = from_right ? python::FindLast(window->text, part) : python::FindFirst(window->text, part);
  }
  if (at == std::string_view::npos) {
    if (or_fail) return Error("substring not found");
    return JinjaValue::Int(-1);
  }
  return JinjaValue::Int(
      static_cast<int64_t>(python::CountPoints(SelfOf(call).substr(0, window->begin + at))));
}

Result Count(Call& call) {
  MT_ASSIGN_OR_RETURN(const std::string_view part, call.TextAt(0));
  MT_ASSIGN_OR_RETURN(const std::optional<Window> window, WindowOf(call, 1));
  if (!window.has_value()) return JinjaValue::Int(0);
  if (part.empty()) {
    return JinjaValue::Int(static_cast<int64_t>(python::CountPoints(window->text)) + 1);
  }
  int64_t count = 0;
  for (std::string_view rest = window->text;; ++count) {
    const size_t at = python::FindFirst(rest, part);
    if (at == std::string_view::npos) break;
    rest.remove_prefix(at + part.size());
  }
  return JinjaValue::Int(count);
}

Result Replace(Call& call) {
  MT_ASSIGN_OR_RETURN(const std::string_view from, call.TextAt(0));
  MT_ASSIGN_OR_RETURN(const std::string_view to, call.TextAt(1));
  MT_ASSIGN_OR_RETURN(const int64_t count, call.IntOr(2, -1));
  call.runtime.StepBytes(SelfOf(call).size());
  std::string result;
  const std::string escaped =
      IsMarkup(call.self) && !IsMarkup(call[1]) ? python::EscapeHtml(to) : std::string(to);
  if (!python::Replace(SelfOf(call), from, escaped, count, call.runtime.bytes_left(), &result)) {
    return call.runtime.Charge(call.runtime.bytes_left() + 1);
  }
  return Make(call, std::move(result));
}

Result Join(Call& call) {
  MT_ASSIGN_OR_RETURN(const std::vector<JinjaValue> items, ToItems(call.runtime, call[0]));
  std::string result;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string()) {
      return Error(absl::StrCat("sequence item ", i, ": expected str instance, ",
                                TypeName(items[i]), " found"));
    }
    if (i > 0) result += SelfOf(call);
    result += IsMarkup(call.self) && !IsMarkup(items[i]) ? python::EscapeHtml(items[i].as_string())
                                                         : std::string(items[i].as_string());
    if (result.size() > call.runtime.bytes_left()) return call.runtime.Charge(result.size());
  }
  return Make(call, std::move(result));
}

template <bool prefix>
Result RemoveAffix(Call& call) {
  MT_ASSIGN_OR_RETURN(const std::string_view affix, call.TextAt(0));
  std::string_view self = SelfOf(call);
  if (prefix && self.starts_with(affix)) self.remove_prefix(affix.size());
  if (!prefix && self.ends_with(affix)) self.remove_suffix(affix.size());
  return Make(call, self);
}

template <bool from_right>
Result Partition(Call& call) {
  MT_ASSIGN_OR_RETURN(const std::string_view separator, call.TextAt(0));
  if (separator.empty()) return Error("empty separator");
  const std::string_view self = SelfOf(call);
  call.runtime.StepBytes(self.size());
  const size_t at =
      from_right ? python::FindLast(self, separator) : python::FindFirst(self, separator);
  std::vector<JinjaValue> parts;
  const auto add = [&](std::string_view part) -> absl::Status {
    MT_ASSIGN_OR_RETURN(JinjaValue value, Make(call, part));
    parts.push_back(std::move(value));
    return absl::OkStatus();
  };
  const bool found = at != std::string_view::npos;
  MT_RETURN_IF_ERROR(add(found ? self.substr(0, at) : from_right ? "" : self));
  MT_RETURN_IF_ERROR(add(found ? separator : ""));
  MT_RETURN_IF_ERROR(add(found ? self.substr(at + separator.size()) : from_right ? self : ""));
  return call.runtime.MakeSequence(SequenceKind::kTuple, std::move(parts));
}

// ljust, rjust and center. Python's center puts the odd character left if the width is odd too.
template <char align>
Result Justify(Call& call) {
  MT_ASSIGN_OR_RETURN(const int64_t width, call.IntOr(0, 0));
  std::string_view fill = " ";
  if (call.has(1)) {
    MT_ASSIGN_OR_RETURN(fill, call.TextAt(1));
    if (python::CountPoints(fill) != 1) {
      return Error("The fill character must be exactly one character long");
    }
  }
  const int64_t room = width - static_cast<int64_t>(python::CountPoints(SelfOf(call)));
  if (room <= 0) return Make(call, SelfOf(call));
  if (static_cast<size_t>(room) > call.runtime.bytes_left() / fill.size()) {
    return call.runtime.Charge(call.runtime.bytes_left() + 1);
  }
  const int64_t left = align == '<' ? 0 : align == '>' ? room : room / 2 + (room & width & 1);
  std::string result;
  for (int64_t i = 0; i < left; ++i) result += fill;
  result += SelfOf(call);
  for (int64_t i = left; i < room; ++i) result += fill;
  return Make(call, std::move(result));
}

Result ZeroFill(Call& call) {
  MT_ASSIGN_OR_RETURN(const int64_t width, call.IntOr(0, 0));
  const std::string_view self = SelfOf(call);
  const int64_t room = width - static_cast<int64_t>(python::CountPoints(self));
  if (room <= 0) return Make(call, self);
  if (static_cast<size_t>(room) > call.runtime.bytes_left()) return call.runtime.Charge(room);
  const bool sign = !self.empty() && (self[0] == '-' || self[0] == '+');
  return Make(call, std::string(self.substr(0, sign)) + std::string(room, '0') +
                        std::string(self.substr(sign)));
}

Result ExpandTabs(Call& call) {
  MT_ASSIGN_OR_RETURN(const int64_t size, call.IntOr(0, 8));
  std::string result;
  int64_t column = 0;
  for (const char byte : SelfOf(call)) {
    if (byte == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      if (static_cast<size_t>(spaces) + result.size() > call.runtime.bytes_left()) {
        return call.runtime.Charge(call.runtime.bytes_left() + 1);
      }
      result.append(spaces, ' ');
      column += spaces;
      continue;
    }
    result += byte;
    if (byte == '\n' || byte == '\r') {
      column = 0;
    } else if ((static_cast<unsigned char>(byte) & 0xc0) != 0x80) {
      ++column;
    }
  }
  return Make(call, std::move(result));
}

Result Format(Call& call) { return FormatBraces(call.runtime, call.self, call.rest); }

Result FormatMap(Call& call) {
  CallValues values;
  if (!call[0].is_dict()) return Error("format_map() expects a dict");
  for (const auto& [key, value] : DictOf(call[0]).entries) {
    if (key.is_string()) values.named.emplace_back(std::string(key.as_string()), value);
  }
  return FormatBraces(call.runtime, call.self, values);
}

constexpr Builtin kMethods[] = {
    {"capitalize", "", Mapped<python::Capitalize>},
    {"casefold", "", Mapped<python::Casefold>},
    {"center", "_width _fill?", Justify<'^'>},
    {"count", "_part _start? _stop?", Count},
    {"endswith", "_affix _start? _stop?", StartsOrEndsWith<true>},
    {"expandtabs", "tabsize?", ExpandTabs},
    {"find", "_part _start? _stop?", FindText<false, false>},
    {"format", "*", Format},
    {"format_map", "_mapping", FormatMap},
    {"index", "_part _start? _stop?", FindText<false, true>},
    {"isalnum", "", IsOf<TextClass::kAlnum>},
    {"isalpha", "", IsOf<TextClass::kAlpha>},
    {"isascii", "", IsOf<TextClass::kAscii>},
    {"isdecimal", "", IsOf<TextClass::kDecimal>},
    {"isdigit", "", IsOf<TextClass::kDigit>},
    {"isidentifier", "", IsOf<TextClass::kIdentifier>},
    {"islower", "", IsOf<TextClass::kLower>},
    {"isnumeric", "", IsOf<TextClass::kNumeric>},
    {"isprintable", "", IsOf<TextClass::kPrintable>},
    {"isspace", "", IsOf<TextClass::kSpace>},
    {"istitle", "", IsOf<TextClass::kTitle>},
    {"isupper", "", IsOf<TextClass::kUpper>},
    {"join", "_items", Join},
    {"ljust", "_width _fill?", Justify<'<'>},
    {"lower", "", Mapped<python::Lower>},
    {"lstrip", "_chars?", Strip<true, false>},
    {"partition", "_separator", Partition<false>},
    {"removeprefix", "_prefix", RemoveAffix<true>},
    {"removesuffix", "_suffix", RemoveAffix<false>},
    {"replace", "_from _to _count?", Replace},
    {"rfind", "_part _start? _stop?", FindText<true, false>},
    {"rindex", "_part _start? _stop?", FindText<true, true>},
    {"rjust", "_width _fill?", Justify<'>'>},
    {"rpartition", "_separator", Partition<true>},
    {"rsplit", "sep? maxsplit?", Split<true>},
    {"rstrip", "_chars?", Strip<false, true>},
    {"split", "sep? maxsplit?", Split<false>},
    {"splitlines", "keepends?", SplitLines},
    {"startswith", "_affix _start? _stop?", StartsOrEndsWith<false>},
    {"strip", "_chars?", Strip<true, true>},
    {"swapcase", "", Mapped<python::Swapcase>},
    {"title", "", Mapped<python::Title>},
    {"upper", "", Mapped<python::Upper>},
    {"zfill", "_width", ZeroFill},
};

}  // namespace

absl::Span<const Builtin> TextMethods() { return kMethods; }

}  // namespace megatrain::jinja
