// Jinja's filters of texts and numbers.
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/chat/jinja/builtins.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/python/number_text.h"
#include "engine/chat/jinja/python/unicode_text.h"
#include "engine/chat/jinja/value_text.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain::jinja {
namespace {

using Kind = JinjaValue::Kind;

// str(self), with its markup kept.
Result SelfText(Call& call) {
  if (call.self.is_string()) return call.self;
  MT_ASSIGN_OR_RETURN(std::string text, ToText(call.runtime, call.self));
  return call.runtime.MakeText(std::move(text));
}

// Calls the method of str of that name with the filter's own arguments.
Result CallMethod(Call& call, std::string_view name) {
  MT_ASSIGN_OR_RETURN(const JinjaValue text, SelfText(call));
  CallValues values;
  for (const std::optional<JinjaValue>& argument : call.arguments) {
    if (argument.has_value()) values.positional.push_back(*argument);
  }
  return CallBuiltin(call.runtime, *FindMethod(text, name), text, std::move(values));
}
Result Upper(Call& call) { return CallMethod(call, "upper"); }
Result Lower(Call& call) { return CallMethod(call, "lower"); }
Result Capitalize(Call& call) { return CallMethod(call, "capitalize"); }
Result Trim(Call& call) { return CallMethod(call, "strip"); }
Result Center(Call& call) {
  if (!call.has(0)) call.arguments[0] = JinjaValue::Int(80);
  return CallMethod(call, "center");
}

// Unlike str.title, words end at white space and at - ( { [ < only.
Result Title(Call& call) {
  MT_ASSIGN_OR_RETURN(const JinjaValue self, SelfText(call));
  const std::string_view text = self.as_string();
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const auto separates = [&](size_t i) {
      return text.substr(i, 1).find_first_of("-({[<") == 0 || python::IsSpace(Utf8At(text, i));
    };
    const bool separator = separates(at);
    size_t end = at;
    while (end < text.size() && separates(end) == separator) end += Utf8Length(text[end]);
    const size_t first = separator ? end - at : Utf8Length(text[at]);
    const std::string_view head = text.substr(at, first);
    result += separator ? std::string(head) : python::Upper(head);
    result += python::Lower(text.substr(at + first, end - at - first));
    at = end;
  }
  return call.runtime.MakeText(std::move(result), IsMarkup(self));
}

Result Replace(Call& call) {
  MT_ASSIGN_OR_RETURN(const std::string text, ToText(call.runtime, call.self));
  MT_ASSIGN_OR_RETURN(const std::string from, ToText(call.runtime, call[0]));
  MT_ASSIGN_OR_RETURN(const std::string to, ToText(call.runtime, call[1]));
  MT_ASSIGN_OR_RETURN(const int64_t count, call.IntOr(2, -1));
  std::string result;
  if (!python::Replace(text, from, to, count, call.runtime.bytes_left(), &result)) {
    return call.runtime.Charge(call.runtime.bytes_left() + 1);
  }
  return call.runtime.MakeText(std::move(result));
}

Result Format(Call& call) {
  MT_ASSIGN_OR_RETURN(const JinjaValue text, SelfText(call));
  if (!call.rest.named.empty() && !call.rest.positional.empty()) {
    return Error("can't handle positional and keyword arguments at the same time");
  }
  if (call.rest.named.empty()) {
    MT_ASSIGN_OR_RETURN(const JinjaValue values,
                        call.runtime.MakeSequence(SequenceKind::kTuple, call.rest.positional));
    return FormatPrintf(call.runtime, text, values);
  }
  return FormatPrintf(call.runtime, text, JinjaValue::MakeDict(call.rest.named));
}

Result Indent(Call& call) {
  if (call.self.is_undefined()) return UndefinedError(call.self);
  if (!call.self.is_string()) return Error("indent() takes a str");
  std::string indention;
  if (call.has(0) && call[0].is_string()) {
    indention = call[0].as_string();
  } else {
    MT_ASSIGN_OR_RETURN(const int64_t width, call.IntOr(0, 4));
    if (width > static_cast<int64_t>(call.runtime.bytes_left())) return call.runtime.Charge(width);
    indention.assign(std::max<int64_t>(width, 0), ' ');
  }
  const bool first = call.TrueOr(1, false), blank = call.TrueOr(2, false);
  const std::string text = std::string(call.self.as_string()) + "\n";
  MT_RETURN_IF_ERROR(call.runtime.ChargeLines(text));
  std::string result;
  bool is_first = true;
  for (const std::string_view line : python::SplitLines(text, false)) {
    if (!is_first) result += '\n';
    if (is_first ? first : blank || !line.empty()) result += indention;
    result += line;
    is_first = false;
    if (result.size() > call.runtime.bytes_left()) return call.runtime.Charge(result.size());
  }
  return call.runtime.MakeText(std::move(result), IsMarkup(call.self));
}

Result Truncate(Call& call) {
  if (!call.self.is_string()) return Error("truncate() takes a str");
  MT_ASSIGN_OR_RETURN(const int64_t length, call.IntOr(0, 255));
  MT_ASSIGN_OR_RETURN(const int64_t leeway, call.IntOr(3, 5));
  std::string_view end = "...";
  if (call.has(2)) {
    MT_ASSIGN_OR_RETURN(end, call.TextAt(2));
  }
  const auto end_points = static_cast<int64_t>(python::CountPoints(end));
  if (length < end_points) return Error(absl::StrCat("expected length >= ", end_points));
  if (leeway < 0) return Error("expected leeway >= 0");
  const std::string_view text = call.self.as_string();
  const auto points = static_cast<int64_t>(python::CountPoints(text));
  if (points <= length || points - length <= leeway) return call.self;
  std::string_view kept = python::SubPoints(text, 0, length - end_points);
  if (!call.TrueOr(1, false)) kept = kept.substr(0, kept.rfind(' '));
  return call.runtime.MakeText(std::string(kept) + std::string(end), IsMarkup(call.self));
}

Result WordCount(Call& call) {
  MT_ASSIGN_OR_RETURN(const JinjaValue self, SelfText(call));
  const std::string_view text = self.as_string();
  int64_t words = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size(); at += Utf8Length(text[at])) {
    const std::string_view character = text.substr(at, Utf8Length(text[at]));
    const bool word = character == "_" || python::IsOfClass(character, python::TextClass::kAlnum);
    words += word && !in_word;
    in_word = word;
  }
  return JinjaValue::Int(words);
}

Result UrlEncode(Call& call) {
  if (call.self.is_dict() || call.self.kind() == Kind::kSequence) {
    return Error("urlencode() takes a str here");
  }
  MT_ASSIGN_OR_RETURN(const std::string text, ToText(call.runtime, call.self));
  std::string result;
  for (const char byte : text) {
    if (absl::ascii_isalnum(byte) ||
        std::string_view("_.-~/").find(byte) != std::string_view::npos) {
      result += byte;
    } else {
      absl::StrAppendFormat(&result, "%%%02X", static_cast<unsigned char>(byte));
    }
  }
  return call.runtime.MakeText(std::move(result));
}

Result Safe(Call& call) {
  MT_ASSIGN_OR_RETURN(std::string text, ToText(call.runtime, call.self));
  return call.runtime.MakeText(std::move(text), true);
}

template <bool force>
Result Escape(Call& call) {
  if (IsMarkup(call.self) && !force) return call.self;
  MT_ASSIGN_OR_RETURN(const std::string text, ToText(call.runtime, call.self));
  return call.runtime.MakeText(python::EscapeHtml(text), true);
}

Result ToJsonFilter(Call& call) {
  JsonStyle style;
  style.ensure_ascii = call.TrueOr(0, false);
  style.sort_keys = call.TrueOr(3, false);
  if (call.has(1) && !call[1].is_none()) {
    style.indented = true;
    style.item_separator = ",";
    if (call[1].is_string()) {
      style.indent = call[1].as_string();
    } else {
      MT_ASSIGN_OR_RETURN(const int64_t indent, call.IntOr(1, 0));
      if (indent > 1000) return Error("an indent of more than 1000");
      style.indent.assign(std::max<int64_t>(indent, 0), ' ');
    }
  }
  if (call.has(2) && !call[2].is_none()) {
    MT_ASSIGN_OR_RETURN(const std::vector<JinjaValue> both, ToItems(call.runtime, call[2]));
    if (both.size() != 2 || !both[0].is_string() || !both[1].is_string()) {
      return Error("separators must be a pair of str");
    }
    style.item_separator = both[0].as_string();
    style.key_separator = both[1].as_string();
  }
  MT_ASSIGN_OR_RETURN(std::string text, ToJson(call.runtime, call.self, style));
  return call.runtime.MakeText(std::move(text));
}

Result Default(Call& call) {
  const bool replace = call.self.is_undefined() || (call.TrueOr(1, false) && !IsTrue(call.self));
  return replace ? call.Or(0, JinjaValue::String("")) : call.self;
}

// int(value) of a float.
Result Whole(double value) {
  if (!(std::fabs(value) < 9223372036854775808.0)) return Error("a float beyond 64 bits");
  return JinjaValue::Int(static_cast<int64_t>(value));
}

Result Int(Call& call) {
  const JinjaValue otherwise = call.Or(0, JinjaValue::Int(0));
  MT_ASSIGN_OR_RETURN(const int64_t base, call.IntOr(1, 10));
  if (call.self.is_undefined()) return UndefinedError(call.self);
  if (const std::optional<int64_t> value = IntegerOf(call.self); value.has_value()) {
    return JinjaValue::Int(*value);
  }
  if (call.self.kind() == Kind::kFloat) {
    return std::isnan(call.self.as_float()) ? otherwise : Whole(call.self.as_float());
  }
  if (!call.self.is_string()) return otherwise;
  if (base == 0 || (base >= 2 && base <= 36)) {
    const auto value = python::ParseInt(call.self.as_string(), static_cast<int>(base));
    if (!value.ok()) return Error("an integer beyond 64 bits");
    if (value->has_value()) return JinjaValue::Int(**value);
  }
  const std::optional<double> value = python::ParseFloat(call.self.as_string());
  if (!value.has_value() || !std::isfinite(*value)) return otherwise;
  return Whole(*value);
}

Result Float(Call& call) {
  if (call.self.is_undefined()) return UndefinedError(call.self);
  std::optional<double> value = NumberOf(call.self);
  if (call.self.is_string()) value = python::ParseFloat(call.self.as_string());
  return value.has_value() ? JinjaValue::Float(*value) : call.Or(0, JinjaValue::Float(0));
}

Result Abs(Call& call) {
  if (call.self.kind() == Kind::kFloat) return JinjaValue::Float(std::fabs(call.self.as_float()));
  const std::optional<int64_t> value = IntegerOf(call.self);
  if (!value.has_value()) {
    return Error(absl::StrCat("bad operand type for abs(): '", TypeName(call.self), "'"));
  }
  return Negate(call.self, *value < 0);
}

Result Round(Call& call) {
  MT_ASSIGN_OR_RETURN(const int64_t precision, call.IntOr(0, 0));
  std::string_view method = "common";
  if (call.has(1)) {
    MT_ASSIGN_OR_RETURN(method, call.TextAt(1));
  }
  if (call.self.is_undefined()) return UndefinedError(call.self);
  const std::optional<double> value = NumberOf(call.self);
  if (!value.has_value()) return Error(absl::StrCat("cannot round a '", TypeName(call.self), "'"));
  if (method == "common") {
    if (call.self.kind() == Kind::kFloat) {
      return JinjaValue::Float(python::RoundFloat(*value, precision));
    }
    if (precision >= 0) return JinjaValue::Int(*IntegerOf(call.self));
    return Whole(python::RoundFloat(*value, precision));
  }
  if (method != "ceil" && method != "floor") return Error("method must be common, ceil or floor");
  const double power = std::pow(10.0, static_cast<double>(precision));
  const double scaled = *value * power;
  if (!std::isfinite(scaled) || power == 0) return Error("cannot round to so many digits");
  return JinjaValue::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / power);
}

Result FileSizeFormat(Call& call) {
  if (call.self.is_undefined()) return UndefinedError(call.self);
  std::optional<double> number = NumberOf(call.self);
  if (call.self.is_string()) number = python::ParseFloat(call.self.as_string());
  if (!number.has_value()) return Error("filesizeformat() takes a number");
  const double bytes = *number;
  const bool binary = call.has(0) && IsTrue(call[0]);
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return call.runtime.MakeText("1 Byte");
  if (bytes < base)
    return call.runtime.MakeText(absl::StrFormat("%d Bytes", static_cast<int64_t>(bytes)));
  double unit = base;
  std::string_view prefixes = binary ? "KMGTPEZY" : "kMGTPEZY";
  while (prefixes.size() > 1 && bytes >= unit * base) {
    unit *= base;
    prefixes.remove_prefix(1);
  }
  return call.runtime.MakeText(
      absl::StrFormat("%.1f %c%s", bytes / unit, prefixes[0], binary ? "iB" : "B"));
}

constexpr Builtin kFilters[] = {
    {"abs", "", Abs},
    {"capitalize", "", Capitalize},
    {"center", "width?", Center},
    {"d", "default_value? boolean?", Default},
    {"default", "default_value? boolean?", Default},
    {"e", "", Escape<false>},
    {"escape", "", Escape<false>},
    {"filesizeformat", "binary?", FileSizeFormat},
    {"float", "default?", Float},
    {"forceescape", "", Escape<true>},
    {"format", "*", Format},
    {"indent", "width? first? blank?", Indent},
    {"int", "default? base?", Int},
    {"lower", "", Lower},
    {"replace", "old new count?", Replace},
    {"round", "precision? method?", Round},
    {"safe", "", Safe},
    {"string", "", SelfText},
    {"title", "", Title},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", ToJsonFilter},
    {"trim", "chars?", Trim},
    {"truncate", "length? killwords? end? leeway?", Truncate},
    {"upper", "", Upper},
    {"urlencode", "", UrlEncode},
    {"wordcount", "", WordCount},
};

}  // namespace

absl::Span<const Builtin> ScalarFilters() { return kFilters; }

}  // namespace megatrain::jinja
