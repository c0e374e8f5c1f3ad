// Attributes, items and slices, of operators.h.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/jinja/builtins.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/python/unicode_text.h"
#include "engine/chat/jinja/value_text.h"
#include "engine/tokenizer/text/text_map.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain::jinja {
namespace {

using Kind = JinjaValue::Kind;

Result MissingOf(Runtime& runtime, const JinjaValue& object, const JinjaValue& key) {
  const std::string type = object.is_none() ? "None" : TypeName(object) + " object";
  if (key.is_string()) {
    return runtime.MakeUndefined(
        absl::StrCat("'", type, "' has no attribute ",
                     python::Quote(python::SubPoints(key.as_string(), 0, 100))));
  }
  const std::optional<int64_t> index = IntegerOf(key);
  return runtime.MakeUndefined(absl::StrCat(
      type, " has no element ", index.has_value() ? absl::StrCat(*index) : TypeName(key)));
}

// Methods that change a list or a dict are attributes that the sandbox hides.
bool IsHidden(const JinjaValue& object, std::string_view name) {
  constexpr std::string_view kOfLists[] = {"append", "clear", "pop",    "reverse",
                                           "insert", "sort",  "extend", "remove"};
  constexpr std::string_view kOfDicts[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (object.is_list()) return std::count(std::begin(kOfLists), std::end(kOfLists), name) != 0;
  if (object.is_dict()) return std::count(std::begin(kOfDicts), std::end(kOfDicts), name) != 0;
  return false;
}

// The item of a sequence or text at Python's index, or nullopt.
absl::StatusOr<std::optional<JinjaValue>> ItemAt(Runtime& runtime, const JinjaValue& object,
                                                 int64_t index) {
  std::optional<JinjaValue> item;
  if (object.is_string()) {
    const std::string_view text = object.as_string();
    if (!runtime.StepBytes(text.size())) return runtime.CheckBudget();
    const auto points = static_cast<int64_t>(python::CountPoints(text));
    if (index < 0) index += points;
    if (index < 0 || index >= points) return item;
    MT_ASSIGN_OR_RETURN(
        item,
        runtime.MakeText(std::string(python::SubPoints(text, index, index + 1)), IsMarkup(object)));
    return item;
  }
  const Sequence& sequence = SequenceOf(object);
  const auto size = static_cast<int64_t>(sequence.items.size());
  if (sequence.kind >= SequenceKind::kKeys) return item;
  if (index < 0) index += size;
  if (index >= 0 && index < size) item = sequence.items[index];
  return item;
}

struct SliceRange {
  int64_t start, stop, step, count;
};

// Python's slice.indices: the parts are int or none.
SliceRange RangeOf(std::optional<int64_t> start, std::optional<int64_t> stop, int64_t step,
                   int64_t size) {
  const auto clamp = [&](int64_t index, int64_t low, int64_t high) {
    if (index < 0) index = index < -size ? -1 : index + size;
    return std::clamp(index, low, high);
  };
  SliceRange range{0, 0, step, 0};
  if (step > 0) {
    range.start = start.has_value() ? clamp(*start, 0, size) : 0;
    range.stop = stop.has_value() ? clamp(*stop, 0, size) : size;
    if (range.stop > range.start) range.count = (range.stop - range.start - 1) / step + 1;
  } else {
    range.start = start.has_value() ? clamp(*start, -1, size - 1) : size - 1;
    range.stop = stop.has_value() ? clamp(*stop, -1, size - 1) : -1;
    if (range.start > range.stop) {
      range.count = (range.start - range.stop - 1) / -std::max<int64_t>(step, -size - 1) + 1;
    }
  }
  return range;
}

Result SliceText(Runtime& runtime, const JinjaValue& object, std::optional<int64_t> start,
                 std::optional<int64_t> stop, int64_t step) {
  const std::string_view text = object.as_string();
  if (!runtime.StepBytes(text.size())) return runtime.CheckBudget();
  const SliceRange range =
      RangeOf(start, stop, step, static_cast<int64_t>(python::CountPoints(text)));
  if (range.count == 0) return runtime.MakeText("", IsMarkup(object));
  if (step == 1) {
    return runtime.MakeText(std::string(python::SubPoints(text, range.start, range.stop)),
                            IsMarkup(object));
  }
  MT_RETURN_IF_ERROR(runtime.Charge(sizeof(size_t) * python::CountPoints(text)));
  std::vector<size_t> offsets;
  for (size_t at = 0; at < text.size(); at += Utf8Length(text[at])) offsets.push_back(at);
  std::string result;
  for (int64_t i = 0, at = range.start; i < range.count; ++i, at += i < range.count ? step : 0) {
    result.append(text.substr(offsets[at], Utf8Length(text[offsets[at]])));
  }
  return runtime.MakeText(std::move(result), IsMarkup(object));
}

}  // namespace

absl::Status UndefinedError(const JinjaValue& value) {
  const auto& missing = std::get<std::shared_ptr<const Missing>>(value.data());
  return Error(missing == nullptr ? "an undefined value was used" : missing->message);
}

absl::StatusOr<std::optional<JinjaValue>> FindAttribute(Runtime& runtime, const JinjaValue& object,
                                                        std::string_view name) {
  std::optional<JinjaValue> found;
  if (object.is_undefined()) return UndefinedError(object);
  if (object.kind() == Kind::kObject) return ObjectOf(object).Attribute(runtime, name);
  if (object.kind() == Kind::kSequence && SequenceOf(object).is_group) {
    if (name == "grouper") found = SequenceOf(object).items[0];
    if (name == "list") found = SequenceOf(object).items[1];
    if (found.has_value()) return found;
  }
  const bool is_private =
      name.size() > 4 && name.substr(0, 2) == "__" && name.substr(name.size() - 2) == "__";
  if (is_private || IsHidden(object, name)) {
    MT_ASSIGN_OR_RETURN(found, runtime.MakeUndefined(absl::StrCat(
                                   "access to attribute '", ToAbsl(name.substr(0, 100)), "' of '",
                                   TypeName(object), "' object is unsafe.")));
    return found;
  }
  const Builtin* const method = FindMethod(object, name);
  if (method == nullptr) return found;
  MT_ASSIGN_OR_RETURN(found, MakeMethod(runtime, method, object));
  return found;
}

Result GetAttribute(Runtime& runtime, const JinjaValue& object, std::string_view name) {
  MT_ASSIGN_OR_RETURN(std::optional<JinjaValue> found, FindAttribute(runtime, object, name));
  if (found.has_value()) return *std::move(found);
  if (object.is_dict()) {
    runtime.StepBytes(name.size());
    const JinjaValue* const value = DictOf(object).Find(name);
    if (value != nullptr) return *value;
  }
  return MissingOf(runtime, object, JinjaValue::String(std::string(name)));
}

Result GetItem(Runtime& runtime, const JinjaValue& object, const JinjaValue& key) {
  if (object.is_undefined()) return UndefinedError(object);
  if (object.is_dict()) {
    if (IsHashable(key)) {
      MT_ASSIGN_OR_RETURN(const JinjaValue* const value, runtime.FindEntry(DictOf(object), key));
      if (value != nullptr) return *value;
    }
  } else if (object.is_string() || object.kind() == Kind::kSequence) {
    if (const std::optional<int64_t> index = IntegerOf(key); index.has_value()) {
      MT_ASSIGN_OR_RETURN(std::optional<JinjaValue> item, ItemAt(runtime, object, *index));
      if (item.has_value()) return *std::move(item);
    }
  }
  if (key.is_string()) {
    MT_ASSIGN_OR_RETURN(std::optional<JinjaValue> found,
                        FindAttribute(runtime, object, key.as_string()));
    if (found.has_value()) return *std::move(found);
  }
  return MissingOf(runtime, object, key);
}

Result GetSlice(Runtime& runtime, const JinjaValue& object, const JinjaValue& start,
                const JinjaValue& stop, const JinjaValue& step) {
  if (object.is_undefined()) return UndefinedError(object);
  for (const JinjaValue* const part : {&start, &stop, &step}) {
    if (!part->is_none() && !IntegerOf(*part).has_value()) {
      return Error("slice indices must be integers or None");
    }
  }
  const bool sliceable = object.is_string() || (object.kind() == Kind::kSequence &&
                                                SequenceOf(object).kind < SequenceKind::kKeys);
  if (!sliceable) return Error(absl::StrCat("'", TypeName(object), "' object cannot be sliced"));
  const int64_t by = IntegerOf(step).value_or(1);
  if (by == 0) return Error("slice step cannot be zero");
  if (object.is_string()) {
    return SliceText(runtime, object, IntegerOf(start), IntegerOf(stop), by);
  }
  const Sequence& sequence = SequenceOf(object);
  const SliceRange range =
      RangeOf(IntegerOf(start), IntegerOf(stop), by, static_cast<int64_t>(sequence.items.size()));
  if (sequence.kind == SequenceKind::kRange) {
    // As Python does: the slice's bounds are places, and those of the result the values there.
    Range result;
    const auto value_at = [&](int64_t place, int64_t* value) {
      return !__builtin_mul_overflow(place, sequence.range.step, value) &&
             !__builtin_add_overflow(sequence.range.start, *value, value);
    };
    if (!value_at(range.start, &result.start) || !value_at(range.stop, &result.stop) ||
        __builtin_mul_overflow(by, sequence.range.step, &result.step)) {
      return Error("an integer does not fit in 64 bits");
    }
    return MakeRange(runtime, result.start, result.stop, result.step);
  }
  std::vector<JinjaValue> items;
  for (int64_t i = 0, at = range.start; i < range.count; ++i, at += i < range.count ? by : 0) {
    items.push_back(sequence.items[at]);
  }
  return runtime.MakeSequence(sequence.kind, std::move(items));
}

absl::StatusOr<int64_t> LengthOf(Runtime& runtime, const JinjaValue& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      if (!runtime.StepBytes(value.as_string().size())) return runtime.CheckBudget();
      return static_cast<int64_t>(python::CountPoints(value.as_string()));
    case Kind::kSequence:
      return static_cast<int64_t>(SequenceOf(value).items.size());
    case Kind::kDict:
      return static_cast<int64_t>(DictOf(value).entries.size());
    case Kind::kObject: {
      MT_ASSIGN_OR_RETURN(const std::optional<int64_t> length, ObjectOf(value).Length(runtime));
      if (length.has_value()) return *length;
      break;
    }
    default:
      break;
  }
  return Error(absl::StrCat("object of type '", TypeName(value), "' has no len()"));
}

}  // namespace megatrain::jinja
