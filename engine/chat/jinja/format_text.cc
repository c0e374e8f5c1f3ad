// The two kinds of format strings, of value_text.h.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/python/number_text.h"
#include "engine/chat/jinja/python/unicode_text.h"
#include "engine/chat/jinja/value_text.h"
#include "engine/tokenizer/text/text_map.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain::jinja {
namespace {

using Kind = JinjaValue::Kind;
using python::FormatSpec;

// ascii(value): repr with all but ASCII escaped.
std::string ToAscii(const std::string& repr) {
  std::string result;
  for (size_t at = 0; at < repr.size(); at += Utf8Length(repr[at])) {
    const uint32_t point = Utf8At(repr, at);
    if (point < 0x80) {
      result += repr[at];
    } else {
      char buffer[16];
      const char* const form = point < 0x100 ? "\\x%02x" : point < 0x10000 ? "\\u%04x" : "\\U%08x";
      result.append(buffer, std::snprintf(buffer, sizeof buffer, form, point));
    }
  }
  return result;
}

absl::StatusOr<int64_t> WholeOf(double value) {
  if (!(std::fabs(value) < 9.2e18)) return Error("a float that does not fit in 64 bits");
  return static_cast<int64_t>(value);
}

// A position in the arguments of a printf format.
class PrintfArguments {
 public:
  explicit PrintfArguments(const JinjaValue& values) : values_(values) {
    is_tuple_ = IsSequence(values, SequenceKind::kTuple);
  }
  absl::StatusOr<JinjaValue> Next() {
    const size_t count = is_tuple_ ? SequenceOf(values_).items.size() : 1;
    if (used_ >= count) return Error("not enough arguments for format string");
    return is_tuple_ ? SequenceOf(values_).items[used_++] : (++used_, values_);
  }
  absl::StatusOr<JinjaValue> Named(Runtime& runtime, std::string_view name) {
    if (!values_.is_dict()) return Error("format requires a mapping");
    by_name_ = true;
    const JinjaValue* const found = DictOf(values_).Find(name);
    if (found == nullptr)
      return Error(absl::StrCat("the format names '", ToAbsl(name), "', which is not there"));
    return *found;
  }
  absl::Status CheckAllUsed() const {
    const bool mapping = values_.is_dict() || values_.is_list();
    const size_t count = is_tuple_ ? SequenceOf(values_).items.size() : 1;
    if (mapping || by_name_ || used_ >= count) return absl::OkStatus();
    return Error("not all arguments converted during string formatting");
  }

 private:
  const JinjaValue& values_;
  bool is_tuple_ = false;
  bool by_name_ = false;
  size_t used_ = 0;
};

// A width or precision: digits, or "*" for an argument. -1 if there is none.
absl::StatusOr<int64_t> TakeCount(std::string_view* text, PrintfArguments* arguments) {
  if (!text->empty() && (*text)[0] == '*') {
    text->remove_prefix(1);
    MT_ASSIGN_OR_RETURN(const JinjaValue value, arguments->Next());
    const std::optional<int64_t> count = IntegerOf(value);
    if (!count.has_value() || *count < -FormatSpec::kWidthMax || *count > FormatSpec::kWidthMax) {
      return Error("* wants int");
    }
    return *count;
  }
  int64_t count = -1;
  while (!text->empty() && (*text)[0] >= '0' && (*text)[0] <= '9') {
    count = std::max<int64_t>(count, 0) * 10 + (*text)[0] - '0';
    if (count > FormatSpec::kWidthMax) return Error("width too big");
    text->remove_prefix(1);
  }
  return count;
}

absl::StatusOr<std::string> FormatPrintfNumber(const JinjaValue& value, FormatSpec spec) {
  const bool whole = std::string_view("diu").find(spec.type) != std::string_view::npos;
  const bool integer = whole || std::string_view("xXo").find(spec.type) != std::string_view::npos;
  if (!integer) {
    const std::optional<double> number = NumberOf(value);
    if (!number.has_value())
      return Error(absl::StrCat("must be real number, not ", TypeName(value)));
    return python::FormatFloat(*number, spec);
  }
  std::optional<int64_t> number = IntegerOf(value);
  if (!number.has_value() && whole && value.kind() == Kind::kFloat) {
    MT_ASSIGN_OR_RETURN(number, WholeOf(value.as_float()));
  }
  if (!number.has_value()) {
    return Error(absl::StrCat("%", std::string(1, spec.type), " format: a number is required, not ",
                              TypeName(value)));
  }
  if (whole) spec.type = 'd';
  if (spec.precision < 0) return python::FormatInt(*number, spec);
  // A precision is the least number of digits.
  FormatSpec digits = spec;
  digits.width = spec.precision + (*number < 0 || spec.sign != '-') + (spec.alternate ? 2 : 0);
  digits.fill = "0";
  digits.align = '=';
  digits.precision = -1;
  MT_ASSIGN_OR_RETURN(const std::string text, python::FormatInt(*number, digits));
  FormatSpec field;
  field.width = spec.width;
  field.align = spec.align == '<' ? '<' : '>';
  return python::FormatText(text, field);
}

absl::StatusOr<std::string> FormatPrintfField(Runtime& runtime, const JinjaValue& value,
                                              FormatSpec spec, bool markup) {
  switch (spec.type) {
    case 's':
    case 'r':
    case 'a': {
      MT_ASSIGN_OR_RETURN(std::string text,
                          spec.type == 's' ? ToText(runtime, value) : Repr(runtime, value));
      if (spec.type == 'a') text = ToAscii(text);
      if (markup && !IsMarkup(value)) text = python::EscapeHtml(text);
      FormatSpec field;
      field.width = spec.width;
      field.precision = spec.precision;
      field.align = spec.align == '<' ? '<' : '>';
      return python::FormatText(text, field);
    }
    case 'c': {
      std::string text;
      if (value.is_string() && python::CountPoints(value.as_string()) == 1) {
        text = value.as_string();
      } else if (const std::optional<int64_t> point = IntegerOf(value); point.has_value()) {
        FormatSpec character;
        character.type = 'c';
        MT_ASSIGN_OR_RETURN(text, python::FormatInt(*point, character));
      } else {
        return Error("%c requires int or char");
      }
      FormatSpec field;
      field.width = spec.width;
      field.align = spec.align == '<' ? '<' : '>';
      return python::FormatText(text, field);
    }
    default:
      if (std::string_view("diuxXoeEfFgG").find(spec.type) == std::string_view::npos) {
        return Error(
            absl::StrCat("unsupported format character '", std::string(1, spec.type), "'"));
      }
      return FormatPrintfNumber(value, std::move(spec));
  }
}

// Takes a conversion after its "%": [(name)][flags][width][.precision][length]type.
absl::Status TakeConversion(Runtime& runtime, std::string_view* text, bool markup,
                            PrintfArguments* arguments, std::string* out) {
  std::optional<JinjaValue> value;
  if (!text->empty() && (*text)[0] == '(') {
    int depth = 1;
    size_t end = 1;
    for (; end < text->size() && depth > 0; ++end) {
      depth += (*text)[end] == '(' ? 1 : (*text)[end] == ')' ? -1 : 0;
    }
    if (depth > 0) return Error("incomplete format key");
    MT_ASSIGN_OR_RETURN(value, arguments->Named(runtime, text->substr(1, end - 2)));
    text->remove_prefix(end);
  }
  FormatSpec spec;
  bool left = false, zero = false;
  for (; !text->empty() && std::string_view("#0- +").find((*text)[0]) != std::string_view::npos;
       text->remove_prefix(1)) {
    const char flag = (*text)[0];
    spec.alternate |= flag == '#';
    zero |= flag == '0';
    left |= flag == '-';
    if (flag == '+' || (flag == ' ' && spec.sign != '+')) spec.sign = flag;
  }
  MT_ASSIGN_OR_RETURN(int64_t width, TakeCount(text, arguments));
  if (width < -1) {
    left = true;
    width = -width;
  }
  spec.width = std::max<int64_t>(width, 0);
  if (!text->empty() && (*text)[0] == '.') {
    text->remove_prefix(1);
    MT_ASSIGN_OR_RETURN(spec.precision, TakeCount(text, arguments));
    spec.precision = std::max<int64_t>(spec.precision, 0);
  }
  if (!text->empty() && std::string_view("hlL").find((*text)[0]) != std::string_view::npos) {
    text->remove_prefix(1);
  }
  if (text->empty()) return Error("incomplete format");
  spec.type = (*text)[0];
  text->remove_prefix(1);
  if (spec.type == '%') {
    *out += '%';
    return absl::OkStatus();
  }
  if (left) {
    spec.align = '<';
  } else if (zero) {
    spec.fill = "0";
    spec.align = '=';
  }
  if (!value.has_value()) {
    MT_ASSIGN_OR_RETURN(value, arguments->Next());
  }
  MT_ASSIGN_OR_RETURN(const std::string field,
                      FormatPrintfField(runtime, *value, std::move(spec), markup));
  *out += field;
  if (out->size() > runtime.bytes_left()) return runtime.Charge(out->size());
  return absl::OkStatus();
}

// format(value, spec).
absl::StatusOr<std::string> FormatValue(Runtime& runtime, const JinjaValue& value,
                                        std::string_view spec_text) {
  if (spec_text.empty()) return ToText(runtime, value);
  MT_ASSIGN_OR_RETURN(const FormatSpec spec, python::ParseFormatSpec(spec_text));
  if (value.is_string()) return python::FormatText(value.as_string(), spec);
  if (value.kind() == Kind::kBool && spec.type == 0) {
    // bool.__format__ is int's.
    return python::FormatInt(value.as_bool(), spec);
  }
  if (const std::optional<int64_t> integer = IntegerOf(value); integer.has_value()) {
    return python::FormatInt(*integer, spec);
  }
  if (value.kind() == Kind::kFloat) return python::FormatFloat(value.as_float(), spec);
  return Error(
      absl::StrCat("unsupported format string passed to ", TypeName(value), ".__format__"));
}

// Expands a format of {} fields.
class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const CallValues& values, bool markup)
      : runtime_(runtime), values_(values), markup_(markup) {}

  absl::StatusOr<std::string> Expand(std::string_view text, int levels) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const char byte = text[at];
      const bool doubled = at + 1 < text.size() && text[at + 1] == byte;
      if ((byte == '{' || byte == '}') && doubled) {
        out += byte;
        at += 2;
      } else if (byte == '}') {
        return Error("Single '}' encountered in format string");
      } else if (byte == '{') {
        if (levels == 0) return Error("Max string recursion exceeded");
        size_t end = at + 1;
        for (int depth = 1; end < text.size(); ++end) {
          depth += text[end] == '{' ? 1 : text[end] == '}' ? -1 : 0;
          if (depth == 0) break;
        }
        if (end == text.size()) return Error("expected '}' before end of string");
        MT_ASSIGN_OR_RETURN(const std::string field,
                            ExpandField(text.substr(at + 1, end - at - 1), levels - 1));
        out += field;
        at = end + 1;
      } else {
        out += byte;
        ++at;
      }
      if (out.size() > runtime_.bytes_left()) return runtime_.Charge(out.size());
    }
    return out;
  }

 private:
  // name[!conversion][:spec]
  absl::StatusOr<std::string> ExpandField(std::string_view field, int levels) {
    size_t end = 0;
    for (bool in_index = false; end < field.size(); ++end) {
      if (field[end] == '[') in_index = true;
      if (field[end] == ']') in_index = false;
      if (!in_index && (field[end] == '!' || field[end] == ':')) break;
    }
    MT_ASSIGN_OR_RETURN(JinjaValue value, FindField(field.substr(0, end)));
    std::string_view rest = field.substr(end);
    if (!rest.empty() && rest[0] == '!') {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':')) {
        return Error("expected ':' after conversion specifier");
      }
      MT_ASSIGN_OR_RETURN(value, Convert(value, rest[1]));
      rest.remove_prefix(2);
    }
    if (!rest.empty()) rest.remove_prefix(1);
    MT_ASSIGN_OR_RETURN(const std::string spec, Expand(rest, levels));
    MT_ASSIGN_OR_RETURN(std::string text, FormatValue(runtime_, value, spec));
    return markup_ && !IsMarkup(value) ? python::EscapeHtml(text) : text;
  }

  Result Convert(const JinjaValue& value, char conversion) {
    if (conversion != 's' && conversion != 'r' && conversion != 'a') {
      return Error("Unknown conversion specifier");
    }
    MT_ASSIGN_OR_RETURN(std::string text,
                        conversion == 's' ? ToText(runtime_, value) : Repr(runtime_, value));
    return runtime_.MakeText(conversion == 'a' ? ToAscii(text) : std::move(text));
  }

  // argument ("." name | "[" key "]")*
  Result FindField(std::string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    MT_ASSIGN_OR_RETURN(JinjaValue value, FindArgument(path.substr(0, end)));
    path.remove_prefix(end);
    while (!path.empty()) {
      const bool attribute = path[0] == '.';
      path.remove_prefix(1);
      const size_t stop =
          attribute ? std::min(path.find_first_of(".["), path.size()) : path.find(']');
      if (stop == std::string_view::npos) return Error("Missing ']' in format string");
      const std::string_view name = path.substr(0, stop);
      if (name.empty()) return Error("Empty attribute in format string");
      if (attribute) {
        MT_ASSIGN_OR_RETURN(value, GetAttribute(runtime_, value, name));
      } else {
        MT_ASSIGN_OR_RETURN(value, GetItem(runtime_, value, KeyOf(name)));
      }
      path.remove_prefix(attribute ? stop : stop + 1);
      if (!attribute && !path.empty() && path[0] != '.' && path[0] != '[') {
        return Error("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  static JinjaValue KeyOf(std::string_view name) {
    const absl::StatusOr<std::optional<int64_t>> index = python::ParseInt(name, 10);
    if (name[0] >= '0' && name[0] <= '9' && index.ok() && index->has_value()) {
      return JinjaValue::Int(**index);
    }
    return JinjaValue::String(std::string(name));
  }

  Result FindArgument(std::string_view name) {
    if (name.empty()) {
      if (next_ < 0) return Error("cannot switch from manual field specification to automatic");
      return PositionalAt(next_++);
    }
    const JinjaValue key = KeyOf(name);
    if (key.kind() == Kind::kInt) {
      if (next_ > 0) return Error("cannot switch from automatic field numbering to manual");
      next_ = -1;
      return PositionalAt(key.as_int());
    }
    for (const auto& [other, value] : values_.named) {
      if (other == name) return value;
    }
    return Error(absl::StrCat("the format names '", ToAbsl(name), "', which is not there"));
  }
  Result PositionalAt(int64_t index) {
    if (index < 0 || index >= static_cast<int64_t>(values_.positional.size())) {
      return Error(absl::StrCat("the format names argument ", index, ", which is not there"));
    }
    return values_.positional[index];
  }

  Runtime& runtime_;
  const CallValues& values_;
  const bool markup_;
  int64_t next_ = 0;  // of automatic numbering; -1 after a number was given
};

}  // namespace

Result FormatPrintf(Runtime& runtime, const JinjaValue& format, const JinjaValue& values) {
  std::string_view text = format.as_string();
  const bool markup = IsMarkup(format);
  if (!runtime.StepBytes(text.size())) return runtime.CheckBudget();
  PrintfArguments arguments(values);
  std::string out;
  while (!text.empty()) {
    const size_t plain = std::min(text.find('%'), text.size());
    out.append(text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.empty()) break;
    text.remove_prefix(1);
    if (!runtime.Step()) return runtime.CheckBudget();
    MT_RETURN_IF_ERROR(TakeConversion(runtime, &text, markup, &arguments, &out));
  }
  MT_RETURN_IF_ERROR(arguments.CheckAllUsed());
  return runtime.MakeText(std::move(out), markup);
}

Result FormatBraces(Runtime& runtime, const JinjaValue& format, const CallValues& values) {
  if (!runtime.StepBytes(format.as_string().size())) return runtime.CheckBudget();
  BraceFormatter formatter(runtime, values, IsMarkup(format));
  MT_ASSIGN_OR_RETURN(std::string text, formatter.Expand(format.as_string(), 2));
  return runtime.MakeText(std::move(text), IsMarkup(format));
}

}  // namespace megatrain::jinja
