#include "engine/chat/jinja/runtime.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/jinja/operators.h"
#include "engine/tokenizer/text/text_map.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain::jinja {
namespace {

using Kind = JinjaValue::Kind;

absl::Status CheckDepth(int depth) {
  if (depth <= JinjaValue::kDepthMax) return absl::OkStatus();
  return Error(absl::StrCat("values nested in more than ", JinjaValue::kDepthMax, " levels"));
}

class Generator : public Object {
 public:
  using NextFunction = std::function<absl::StatusOr<std::optional<JinjaValue>>(Runtime&)>;
  Generator(int depth, NextFunction next) : Object(depth), next_(std::move(next)) {}
  std::string type_name() const override { return "generator"; }
  bool is_iterator() const override { return true; }
  absl::StatusOr<std::optional<JinjaValue>> Next(Runtime& runtime) override {
    return next_(runtime);
  }

 private:
  const NextFunction next_;
};

}  // namespace

absl::Status Error(std::string_view message) { return absl::InvalidArgumentError(ToAbsl(message)); }

absl::Status Runtime::Charge(size_t bytes) {
  const int64_t limit = options_.limits.bytes_max;
  if (static_cast<int64_t>(bytes) < 0 || static_cast<int64_t>(bytes) > limit - bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the program made more than ", limit, " bytes of values"));
  }
  bytes_ += static_cast<int64_t>(bytes);
  return absl::OkStatus();
}

absl::Status Runtime::CheckBudget() const {
  if (steps_ <= options_.limits.steps_max) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the program took more than ", options_.limits.steps_max, " steps"));
}

Result Runtime::MakeText(std::string text, bool is_markup) {
  StepBytes(text.size());
  MT_RETURN_IF_ERROR(CheckBudget());
  MT_RETURN_IF_ERROR(Charge(sizeof(Text) + text.size()));
  return JinjaValue(
      JinjaValue::Data(std::make_shared<const Text>(Text{std::move(text), is_markup})));
}

Result Runtime::MakeSequence(SequenceKind kind, std::vector<JinjaValue> items) {
  Step(static_cast<int64_t>(items.size()));
  MT_RETURN_IF_ERROR(Charge(sizeof(Sequence) + items.size() * sizeof(JinjaValue)));
  auto sequence = std::make_shared<Sequence>();
  sequence->kind = kind;
  for (const JinjaValue& item : items) {
    sequence->depth = std::max(sequence->depth, DepthOf(item) + 1);
    sequence->hashable = sequence->hashable && IsHashable(item);
  }
  MT_RETURN_IF_ERROR(CheckDepth(sequence->depth));
  sequence->items = std::move(items);
  return JinjaValue(JinjaValue::Data(std::shared_ptr<const Sequence>(std::move(sequence))));
}

absl::Status Runtime::ChargeLines(std::string_view text) {
  // The line ends of Python are in ASCII, or begin with one of two bytes (U+0085, U+2028, U+2029).
  const auto ends = std::count_if(text.begin(), text.end(), [](char c) {
    return (c >= '\n' && c <= '\x1e') || c == '\xc2' || c == '\xe2';
  });
  return Charge(static_cast<size_t>(ends) * sizeof(std::string_view));
}

Result Runtime::MakeTexts(const std::vector<std::string_view>& texts, bool is_markup) {
  std::vector<JinjaValue> items;
  items.reserve(texts.size());
  for (const std::string_view text : texts) {
    MT_ASSIGN_OR_RETURN(JinjaValue item, MakeText(std::string(text), is_markup));
    items.push_back(std::move(item));
  }
  return MakeList(std::move(items));
}

Result Runtime::MakeDict(Dict dict) {
  Step(static_cast<int64_t>(dict.entries.size()));
  MT_RETURN_IF_ERROR(CheckDepth(dict.depth));
  // An entry's place in the index takes about as much as the entry.
  MT_RETURN_IF_ERROR(Charge(sizeof(Dict) + dict.entries.size() * 4 * sizeof(JinjaValue)));
  return JinjaValue(JinjaValue::Data(std::make_shared<const Dict>(std::move(dict))));
}

Result Runtime::MakeObject(std::shared_ptr<Object> object) {
  MT_RETURN_IF_ERROR(CheckDepth(object->depth()));
  MT_RETURN_IF_ERROR(Charge(256));
  return JinjaValue(JinjaValue::Data(std::move(object)));
}

Result Runtime::MakeUndefined(std::string message) {
  MT_RETURN_IF_ERROR(Charge(sizeof(Missing) + message.size()));
  return JinjaValue(JinjaValue::Data(std::make_shared<const Missing>(Missing{std::move(message)})));
}

absl::StatusOr<const JinjaValue*> Runtime::FindEntry(const Dict& dict, const JinjaValue& key) {
  if (key.is_string()) {
    StepBytes(key.as_string().size());
    return dict.Find(key.as_string());
  }
  if (!IsHashable(key)) return Error(absl::StrCat("unhashable type: '", TypeName(key), "'"));
  for (const auto& [other, value] : dict.entries) {
    if (!Step()) return CheckBudget();
    if (!other.is_string() && Equal(*this, other, key)) return &value;
  }
  return nullptr;
}

absl::Status Runtime::SetEntry(Dict* dict, JinjaValue key, JinjaValue value) {
  if (key.is_string()) {
    StepBytes(key.as_string().size());
    dict->Set(std::move(key), std::move(value));
    return CheckBudget();
  }
  MT_ASSIGN_OR_RETURN(const JinjaValue* const found, FindEntry(*dict, key));
  if (found == nullptr) {
    dict->Append(std::move(key), std::move(value));
  } else {
    dict->depth = std::max(dict->depth, DepthOf(value) + 1);
    *const_cast<JinjaValue*>(found) = std::move(value);
  }
  return CheckBudget();
}

absl::StatusOr<Cursor> Cursor::Over(JinjaValue value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kSequence:
    case Kind::kDict:
      return Cursor(std::move(value));
    case Kind::kObject:
      if (ObjectOf(value).is_iterator()) return Cursor(std::move(value));
      break;
    default:
      break;
  }
  return Error(absl::StrCat("'", TypeName(value), "' object is not iterable"));
}

absl::StatusOr<bool> Cursor::Next(Runtime& runtime, JinjaValue* item) {
  if (!runtime.Step()) return runtime.CheckBudget();
  switch (value_.kind()) {
    case Kind::kString: {
      const std::string_view text = value_.as_string();
      if (at_ == text.size()) return false;
      const size_t bytes = Utf8Length(text[at_]);
      MT_ASSIGN_OR_RETURN(*item,
                          runtime.MakeText(std::string(text.substr(at_, bytes)), IsMarkup(value_)));
      at_ += bytes;
      return true;
    }
    case Kind::kSequence: {
      const Sequence& sequence = SequenceOf(value_);
      if (at_ == sequence.items.size()) return false;
      *item = sequence.items[at_++];
      return true;
    }
    case Kind::kDict: {
      const Dict& dict = DictOf(value_);
      if (at_ == dict.entries.size()) return false;
      *item = dict.entries[at_++].first;
      return true;
    }
    case Kind::kObject: {
      MT_ASSIGN_OR_RETURN(std::optional<JinjaValue> next, ObjectOf(value_).Next(runtime));
      if (!next.has_value()) return false;
      *item = *std::move(next);
      return true;
    }
    default:
      return false;  // undefined is empty
  }
}

absl::StatusOr<std::vector<JinjaValue>> ToItems(Runtime& runtime, const JinjaValue& value) {
  if (value.kind() == Kind::kSequence) {
    const std::vector<JinjaValue>& items = SequenceOf(value).items;
    runtime.Step(static_cast<int64_t>(items.size()));
    MT_RETURN_IF_ERROR(runtime.Charge(items.size() * sizeof(JinjaValue)));
    return items;
  }
  MT_ASSIGN_OR_RETURN(Cursor cursor, Cursor::Over(value));
  std::vector<JinjaValue> items;
  JinjaValue item;
  while (true) {
    MT_ASSIGN_OR_RETURN(const bool more, cursor.Next(runtime, &item));
    if (!more) return items;
    MT_RETURN_IF_ERROR(runtime.Charge(sizeof(JinjaValue)));
    items.push_back(item);
  }
}

std::string TypeName(const JinjaValue& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kDict:
      return "dict";
    case Kind::kSequence: {
      static constexpr const char* kNames[] = {"list",      "tuple",       "range",
                                               "dict_keys", "dict_values", "dict_items"};
      return kNames[static_cast<int>(SequenceOf(value).kind)];
    }
    case Kind::kObject:
      return ObjectOf(value).type_name();
  }
  return "";
}

Result MakeGenerator(Runtime& runtime, const JinjaValue& source, Generator::NextFunction next) {
  return runtime.MakeObject(std::make_shared<Generator>(DepthOf(source) + 1, std::move(next)));
}

}  // namespace megatrain::jinja
