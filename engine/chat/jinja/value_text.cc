#include "engine/chat/jinja/value_text.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/python/number_text.h"
#include "engine/chat/jinja/python/unicode_text.h"
#include "engine/tokenizer/text/text_map.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain::jinja {
namespace {

using Kind = JinjaValue::Kind;

// Python's limit of recursion. Containers without namespaces cannot be nested so deeply.
constexpr int kPrintedDepthMax = 1000;
static_assert(kPrintedDepthMax > JinjaValue::kDepthMax);

// Stops a text that grows beyond what may be made of values.
absl::Status CheckSize(Runtime& runtime, const std::string& text) {
  if (text.size() > runtime.bytes_left()) return runtime.Charge(text.size());
  return runtime.CheckBudget();
}

absl::Status AppendRepr(Runtime& runtime, const JinjaValue& value, std::string* out);

absl::Status AppendItems(Runtime& runtime, const std::vector<JinjaValue>& items, std::string* out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) *out += ", ";
    MT_RETURN_IF_ERROR(AppendRepr(runtime, items[i], out));
  }
  return absl::OkStatus();
}

absl::Status AppendSequence(Runtime& runtime, const Sequence& sequence, std::string* out) {
  switch (sequence.kind) {
    case SequenceKind::kRange:
      absl::StrAppend(out, "range(", sequence.range.start, ", ", sequence.range.stop);
      if (sequence.range.step != 1) absl::StrAppend(out, ", ", sequence.range.step);
      *out += ')';
      return absl::OkStatus();
    case SequenceKind::kTuple:
      *out += '(';
      MT_RETURN_IF_ERROR(AppendItems(runtime, sequence.items, out));
      *out += sequence.items.size() == 1 ? ",)" : ")";
      return absl::OkStatus();
    case SequenceKind::kList:
      *out += '[';
      MT_RETURN_IF_ERROR(AppendItems(runtime, sequence.items, out));
      *out += ']';
      return absl::OkStatus();
    default: {
      const char* const name = sequence.kind == SequenceKind::kKeys     ? "dict_keys(["
                               : sequence.kind == SequenceKind::kValues ? "dict_values(["
                                                                        : "dict_items([";
      *out += name;
      MT_RETURN_IF_ERROR(AppendItems(runtime, sequence.items, out));
      *out += "])";
      return absl::OkStatus();
    }
  }
}

absl::Status AppendRepr(Runtime& runtime, const JinjaValue& value, std::string* out) {
  runtime.Step();
  if (runtime.printed_depth >= kPrintedDepthMax) {
    return Error("maximum recursion depth exceeded while a value is printed");
  }
  ++runtime.printed_depth;
  const absl::Cleanup printed = [&runtime] { --runtime.printed_depth; };
  MT_RETURN_IF_ERROR(CheckSize(runtime, *out));
  switch (value.kind()) {
    case Kind::kUndefined:
      *out += "Undefined";
      return absl::OkStatus();
    case Kind::kString:
      runtime.StepBytes(value.as_string().size());
      *out += IsMarkup(value) ? absl::StrCat("Markup(", python::Quote(value.as_string()), ")")
                              : python::Quote(value.as_string());
      return absl::OkStatus();
    case Kind::kSequence:
      return AppendSequence(runtime, SequenceOf(value), out);
    case Kind::kDict: {
      *out += '{';
      bool first = true;
      for (const auto& [key, item] : DictOf(value).entries) {
        if (!first) *out += ", ";
        first = false;
        MT_RETURN_IF_ERROR(AppendRepr(runtime, key, out));
        *out += ": ";
        MT_RETURN_IF_ERROR(AppendRepr(runtime, item, out));
      }
      *out += '}';
      return absl::OkStatus();
    }
    default: {
      MT_ASSIGN_OR_RETURN(const std::string text, ToText(runtime, value));
      *out += text;
      return absl::OkStatus();
    }
  }
}

// Appends a JSON string.
void AppendJsonText(std::string_view text, bool ensure_ascii, std::string* out) {
  *out += '"';
  for (size_t at = 0; at < text.size(); at += Utf8Length(text[at])) {
    const char32_t point = Utf8At(text, at);
    switch (point) {
      case '"':
        *out += "\\\"";
        break;
      case '\\':
        *out += "\\\\";
        break;
      case '\n':
        *out += "\\n";
        break;
      case '\r':
        *out += "\\r";
        break;
      case '\t':
        *out += "\\t";
        break;
      case '\f':
        *out += "\\f";
        break;
      case '\b':
        *out += "\\b";
        break;
      default:
        if (point >= 0x20 && (!ensure_ascii || point < 0x7f)) {
          out->append(text.substr(at, Utf8Length(text[at])));
        } else if (point < 0x10000) {
          absl::StrAppendFormat(out, "\\u%04x", static_cast<uint32_t>(point));
        } else {
          absl::StrAppendFormat(out, "\\u%04x\\u%04x",
                                static_cast<uint32_t>(0xd7c0 + (point >> 10)),
                                static_cast<uint32_t>(0xdc00 + (point & 0x3ff)));
        }
    }
  }
  *out += '"';
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  absl::Status Append(const JinjaValue& value, int level) {
    runtime_.Step();
    MT_RETURN_IF_ERROR(CheckSize(runtime_, out));
    switch (value.kind()) {
      case Kind::kString:
        runtime_.StepBytes(value.as_string().size());
        AppendJsonText(value.as_string(), style_.ensure_ascii, &out);
        return absl::OkStatus();
      case Kind::kDict:
        return AppendDict(DictOf(value), level);
      case Kind::kSequence:
        if (SequenceOf(value).kind <= SequenceKind::kTuple) {
          return AppendList(SequenceOf(value).items, level);
        }
        break;
      case Kind::kUndefined:
      case Kind::kObject:
        break;
      default:
        out += ScalarText(value);
        return absl::OkStatus();
    }
    return Error(absl::StrCat("Object of type ", TypeName(value), " is not JSON serializable"));
  }

  std::string out;

 private:
  static std::string ScalarText(const JinjaValue& value) {
    switch (value.kind()) {
      case Kind::kBool:
        return value.as_bool() ? "true" : "false";
      case Kind::kInt:
        return absl::StrCat(value.as_int());
      case Kind::kFloat: {
        const std::string text = python::FloatRepr(value.as_float());
        if (text == "nan") return "NaN";
        return text == "inf" ? "Infinity" : text == "-inf" ? "-Infinity" : text;
      }
      default:
        return "null";
    }
  }

  void NewLine(int level) {
    if (!style_.indented) return;
    out += '\n';
    for (int i = 0; i < level; ++i) out += style_.indent;
  }

  absl::Status AppendList(const std::vector<JinjaValue>& items, int level) {
    if (items.empty()) {
      out += "[]";
      return absl::OkStatus();
    }
    out += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += style_.item_separator;
      NewLine(level + 1);
      MT_RETURN_IF_ERROR(Append(items[i], level + 1));
    }
    NewLine(level);
    out += ']';
    return absl::OkStatus();
  }

  absl::Status AppendDict(const Dict& dict, int level) {
    std::vector<const std::pair<JinjaValue, JinjaValue>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) MT_RETURN_IF_ERROR(SortByKey(&entries));
    if (entries.empty()) {
      out += "{}";
      return absl::OkStatus();
    }
    out += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      const auto& [key, value] = *entries[i];
      if (i > 0) out += style_.item_separator;
      NewLine(level + 1);
      if (key.is_string()) {
        AppendJsonText(key.as_string(), style_.ensure_ascii, &out);
      } else if (key.kind() == Kind::kSequence || key.kind() == Kind::kObject ||
                 key.is_undefined()) {
        return Error(
            absl::StrCat("keys must be str, int, float, bool or None, not ", TypeName(key)));
      } else {
        absl::StrAppend(&out, "\"", ScalarText(key), "\"");
      }
      out += style_.key_separator;
      MT_RETURN_IF_ERROR(Append(value, level + 1));
    }
    NewLine(level);
    out += '}';
    return absl::OkStatus();
  }

  absl::Status SortByKey(std::vector<const std::pair<JinjaValue, JinjaValue>*>* entries) {
    absl::Status status;
    std::stable_sort(entries->begin(), entries->end(), [&](const auto* a, const auto* b) {
      const absl::StatusOr<bool> less = Compare(runtime_, Operator::kLess, a->first, b->first);
      if (!less.ok()) status.Update(less.status());
      return less.ok() && *less;
    });
    return status;
  }

  Runtime& runtime_;
  const JsonStyle& style_;
};

}  // namespace

absl::StatusOr<std::string> ToText(Runtime& runtime, const JinjaValue& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return std::string();
    case Kind::kNone:
      return std::string("None");
    case Kind::kBool:
      return std::string(value.as_bool() ? "True" : "False");
    case Kind::kInt:
      return absl::StrCat(value.as_int());
    case Kind::kFloat:
      return python::FloatRepr(value.as_float());
    case Kind::kString:
      runtime.StepBytes(value.as_string().size());
      return std::string(value.as_string());
    case Kind::kObject: {
      MT_ASSIGN_OR_RETURN(std::optional<std::string> text, ObjectOf(value).Repr(runtime));
      if (text.has_value()) return *std::move(text);
      return Error(absl::StrCat(
          "a '", TypeName(value), "' object has no text of its own",
          TypeName(value) == "generator" ? "; the filter list makes a list of it" : ""));
    }
    default: {
      std::string out;
      MT_RETURN_IF_ERROR(AppendRepr(runtime, value, &out));
      return out;
    }
  }
}

absl::StatusOr<std::string> Repr(Runtime& runtime, const JinjaValue& value) {
  std::string out;
  MT_RETURN_IF_ERROR(AppendRepr(runtime, value, &out));
  return out;
}

absl::StatusOr<std::string> ToJson(Runtime& runtime, const JinjaValue& value,
                                   const JsonStyle& style) {
  JsonWriter writer(runtime, style);
  MT_RETURN_IF_ERROR(writer.Append(value, 0));
  return std::move(writer.out);
}

}  // namespace megatrain::jinja
