// The functions of programs (range, namespace, ...), and the methods of lists and dicts.
#include <cmath>
#include <ctime>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/chat/jinja/builtins.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/value_text.h"
#include "engine/tokenizer/text/text_map.h"

namespace megatrain::jinja {
namespace {

using Items = std::vector<JinjaValue>;

constexpr int64_t kRangeMax = 100'000;  // MAX_RANGE of Jinja's sandbox

Result Range(Call& call) {
  for (const auto& argument : call.arguments) {
    if (argument.has_value() && !IntegerOf(*argument).has_value()) {
      return Error(
          absl::StrCat("'", TypeName(*argument), "' object cannot be interpreted as an integer"));
    }
  }
  const int64_t first = *IntegerOf(call[0]);
  const int64_t step = call.has(2) ? *IntegerOf(call[2]) : 1;
  if (step == 0) return Error("range() arg 3 must not be zero");
  if (!call.has(1)) return MakeRange(call.runtime, 0, first, 1);
  return MakeRange(call.runtime, first, *IntegerOf(call[1]), step);
}

// Adds what dict(value) has: the entries of a dict, or pairs.
absl::Status AddEntries(Runtime& runtime, const JinjaValue& value, Dict* dict) {
  if (value.is_dict()) {
    for (const auto& [key, item] : DictOf(value).entries) {
      MT_RETURN_IF_ERROR(runtime.SetEntry(dict, key, item));
    }
    return absl::OkStatus();
  }
  MT_ASSIGN_OR_RETURN(const Items items, ToItems(runtime, value));
  for (const JinjaValue& item : items) {
    MT_ASSIGN_OR_RETURN(const Items pair, ToItems(runtime, item));
    if (pair.size() != 2) return Error("a dict is made of pairs");
    MT_RETURN_IF_ERROR(runtime.SetEntry(dict, pair[0], pair[1]));
  }
  return absl::OkStatus();
}

absl::StatusOr<Dict> DictFrom(Call& call) {
  if (call.rest.positional.size() > 1) return Error("expected at most 1 argument");
  Dict dict;
  if (!call.rest.positional.empty()) {
    MT_RETURN_IF_ERROR(AddEntries(call.runtime, call.rest.positional[0], &dict));
  }
  for (const auto& [name, value] : call.rest.named) {
    MT_RETURN_IF_ERROR(call.runtime.SetEntry(&dict, JinjaValue::String(name), value));
  }
  return dict;
}

Result MakeDict(Call& call) {
  MT_ASSIGN_OR_RETURN(Dict dict, DictFrom(call));
  return call.runtime.MakeDict(std::move(dict));
}

Result MakeNamespace(Call& call) {
  MT_ASSIGN_OR_RETURN(const Dict dict, DictFrom(call));
  auto space = std::make_shared<Namespace>();
  // A namespace can hold itself, so that it is emptied when the rendering ends.
  call.runtime.KeepUntilEnd([space] { space->Clear(); });
  for (const auto& [name, value] : dict.entries) {
    MT_RETURN_IF_ERROR(space->Set(call.runtime, name, value));
  }
  return call.runtime.MakeObject(std::move(space));
}

int DepthOfAll(const Items& items) {
  int depth = 1;
  for (const JinjaValue& item : items) depth = std::max(depth, DepthOf(item) + 1);
  return depth;
}

class Cycler : public Object {
 public:
  explicit Cycler(Items items) : Object(DepthOfAll(items)), items_(std::move(items)) {}
  std::string type_name() const override { return "Cycler"; }
  absl::StatusOr<std::optional<JinjaValue>> Attribute(Runtime& runtime,
                                                      std::string_view name) override;
  const JinjaValue& current() const { return items_[at_]; }
  void Advance() { at_ = (at_ + 1) % items_.size(); }
  void Reset() { at_ = 0; }

 private:
  const Items items_;
  size_t at_ = 0;
};

Result CyclerNext(Call& call) {
  auto& cycler = static_cast<Cycler&>(ObjectOf(call.self));
  JinjaValue current = cycler.current();
  cycler.Advance();
  return current;
}
Result CyclerReset(Call& call) {
  static_cast<Cycler&>(ObjectOf(call.self)).Reset();
  return JinjaValue::None();
}
constexpr Builtin kCyclerNext = {"next", "", CyclerNext};
constexpr Builtin kCyclerReset = {"reset", "", CyclerReset};

absl::StatusOr<std::optional<JinjaValue>> Cycler::Attribute(Runtime& runtime,
                                                            std::string_view name) {
  std::optional<JinjaValue> result;
  if (name == "current") {
    result = current();
  } else if (name == "next" || name == "reset") {
    MT_ASSIGN_OR_RETURN(result, MakeMethod(runtime, name == "next" ? &kCyclerNext : &kCyclerReset,
                                           JinjaValue(JinjaValue::Data(shared_from_this()))));
  }
  return result;
}

Result MakeCycler(Call& call) {
  if (call.rest.positional.empty()) return Error("at least one item has to be provided");
  if (!call.rest.named.empty()) return Error("cycler() takes no keyword arguments");
  return call.runtime.MakeObject(std::make_shared<Cycler>(std::move(call.rest.positional)));
}

// Gives "" at its first call, and then always the separator.
class Joiner : public Object {
 public:
  explicit Joiner(JinjaValue separator)
      : Object(DepthOf(separator) + 1), separator_(std::move(separator)) {}
  std::string type_name() const override { return "Joiner"; }
  bool is_callable() const override { return true; }
  Result Call(Runtime& runtime, CallValues values) override {
    if (!values.positional.empty() || !values.named.empty()) return Error("too many arguments");
    return std::exchange(used_, true) ? separator_ : JinjaValue::String("");
  }

 private:
  const JinjaValue separator_;
  bool used_ = false;
};

Result MakeJoiner(Call& call) {
  return call.runtime.MakeObject(std::make_shared<Joiner>(call.Or(0, JinjaValue::String(", "))));
}

Result RaiseException(Call& call) {
  MT_ASSIGN_OR_RETURN(const std::string message, ToText(call.runtime, call[0]));
  return absl::FailedPreconditionError(message);
}

// datetime.now().strftime(format): a civil time without a zone.
Result StrftimeNow(Call& call) {
  MT_ASSIGN_OR_RETURN(const std::string_view format, call.TextAt(0));
  const absl::TimeZone::CivilInfo now = call.runtime.options().zone.At(call.runtime.options().now);
  std::tm time{};
  time.tm_year = static_cast<int>(now.cs.year() - 1900);
  time.tm_mon = now.cs.month() - 1;
  time.tm_mday = now.cs.day();
  time.tm_hour = now.cs.hour();
  time.tm_min = now.cs.minute();
  time.tm_sec = now.cs.second();
  time.tm_yday = absl::GetYearDay(absl::CivilDay(now.cs)) - 1;
  time.tm_wday = (static_cast<int>(absl::GetWeekday(now.cs)) + 1) % 7;
  time.tm_isdst = -1;
  std::string result;
  for (size_t at = 0; at < format.size();) {
    if (format[at] != '%' || at + 1 == format.size()) {
      result += format[at++];
      continue;
    }
    size_t end = at + 2;  // a directive may have a flag: %-d
    if (std::string_view("-_0^#").find(format[at + 1]) != std::string_view::npos) ++end;
    const std::string directive(format.substr(at, end - at));
    at = end;
    if (directive == "%f") {
      absl::StrAppendFormat(&result, "%06d", absl::ToInt64Microseconds(now.subsecond));
    } else if (directive.back() == 's') {  // std::strftime would ask for the machine's zone
      absl::StrAppend(&result, absl::ToUnixSeconds(call.runtime.options().now));
    } else if (directive != "%z" && directive != "%Z") {
      char buffer[128];
      result.append(buffer, std::strftime(buffer, sizeof buffer, directive.c_str(), &time));
    }
  }
  return call.runtime.MakeText(std::move(result));
}

class Function : public Object {
 public:
  explicit Function(const Builtin* function) : function_(function) {}
  std::string type_name() const override { return "function"; }
  bool is_callable() const override { return true; }
  Result Call(Runtime& runtime, CallValues values) override {
    return CallBuiltin(runtime, *function_, JinjaValue(), std::move(values));
  }

 private:
  const Builtin* const function_;
};

constexpr Builtin kFunctions[] = {
    {"cycler", "*", MakeCycler},
    {"dict", "*", MakeDict},
    {"joiner", "sep?", MakeJoiner},
    {"namespace", "*", MakeNamespace},
    {"raise_exception", "message", RaiseException},
    {"range", "_start _stop? _step?", Range},
    {"strftime_now", "format", StrftimeNow},
};

// Methods of dict and list.

Result DictGet(Call& call) {
  MT_ASSIGN_OR_RETURN(const JinjaValue* const found,
                      call.runtime.FindEntry(DictOf(call.self), call[0]));
  return found != nullptr ? *found : call.Or(1, JinjaValue::None());
}

template <SequenceKind kind>
Result DictView(Call& call) {
  Items items;
  for (const auto& [key, value] : DictOf(call.self).entries) {
    if (kind == SequenceKind::kItems) {
      MT_ASSIGN_OR_RETURN(JinjaValue pair,
                          call.runtime.MakeSequence(SequenceKind::kTuple, {key, value}));
      items.push_back(std::move(pair));
    } else {
      items.push_back(kind == SequenceKind::kKeys ? key : value);
    }
  }
  return call.runtime.MakeSequence(kind, std::move(items));
}

// A copy is the same value, because neither can change.
Result Copy(Call& call) { return call.self; }

Result ListIndex(Call& call) {
  const Items& items = SequenceOf(call.self).items;
  const auto size = static_cast<int64_t>(items.size());
  MT_ASSIGN_OR_RETURN(int64_t start, call.IntOr(1, 0));
  MT_ASSIGN_OR_RETURN(int64_t stop, call.IntOr(2, size));
  if (start < 0) start = std::max<int64_t>(start + size, 0);
  if (stop < 0) stop += size;
  for (int64_t i = start; i < std::min(stop, size); ++i) {
    if (Equal(call.runtime, items[i], call[0])) return JinjaValue::Int(i);
  }
  MT_RETURN_IF_ERROR(call.runtime.CheckBudget());
  return Error("the value is not in the list");
}

Result ListCount(Call& call) {
  int64_t count = 0;
  for (const JinjaValue& item : SequenceOf(call.self).items) {
    count += Equal(call.runtime, item, call[0]);
  }
  return JinjaValue::Int(count);
}

Result IsWholeFloat(Call& call) {
  const double value = call.self.as_float();
  return JinjaValue::Bool(std::isfinite(value) && value == std::floor(value));
}

constexpr Builtin kMethods[] = {
    {"dict.copy", "", Copy},
    {"dict.get", "_key _default?", DictGet},
    {"dict.items", "", DictView<SequenceKind::kItems>},
    {"dict.keys", "", DictView<SequenceKind::kKeys>},
    {"dict.values", "", DictView<SequenceKind::kValues>},
    {"float.is_integer", "", IsWholeFloat},
    {"list.copy", "", Copy},
    {"list.count", "_value", ListCount},
    {"list.index", "_value _start? _stop?", ListIndex},
};

}  // namespace

absl::Span<const Builtin> ContainerMethods() { return kMethods; }

JinjaValue FindFunction(std::string_view name) {
  for (const Builtin& function : kFunctions) {
    if (function.name == name) {
      return JinjaValue(JinjaValue::Data(std::make_shared<Function>(&function)));
    }
  }
  return JinjaValue();
}

Result MakeRange(Runtime& runtime, int64_t start, int64_t stop, int64_t step) {
  // The distances are unsigned, because they may be more than an int64.
  const uint64_t distance =
      step > 0 ? (start < stop ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start) : 0)
               : (start > stop ? static_cast<uint64_t>(start) - static_cast<uint64_t>(stop) : 0);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  const uint64_t count = distance / stride + (distance % stride != 0);
  if (count > static_cast<uint64_t>(kRangeMax)) {
    return Error(absl::StrCat("Range too big. The sandbox blocks ranges larger than MAX_RANGE (",
                              kRangeMax, ")."));
  }
  MT_RETURN_IF_ERROR(runtime.Charge(count * sizeof(JinjaValue)));
  Items items;
  for (uint64_t i = 0; i < count; ++i) {
    items.push_back(JinjaValue::Int(start + static_cast<int64_t>(i) * step));
  }
  MT_ASSIGN_OR_RETURN(const JinjaValue list,
                      runtime.MakeSequence(SequenceKind::kRange, std::move(items)));
  auto range = std::make_shared<Sequence>(SequenceOf(list));
  range->range = {start, stop, step};
  return JinjaValue(JinjaValue::Data(std::shared_ptr<const Sequence>(std::move(range))));
}

absl::StatusOr<std::optional<JinjaValue>> Namespace::Attribute(Runtime& runtime,
                                                               std::string_view name) {
  const JinjaValue* const found = attributes_.Find(name);
  return found == nullptr ? std::optional<JinjaValue>() : *found;
}

absl::StatusOr<std::optional<std::string>> Namespace::Repr(Runtime& runtime) {
  if (std::exchange(printing_, true)) return std::optional<std::string>("<Namespace {...}>");
  const absl::StatusOr<JinjaValue> dict = runtime.MakeDict(attributes_);
  absl::StatusOr<std::string> text =
      dict.ok() ? megatrain::jinja::Repr(runtime, *dict) : dict.status();
  printing_ = false;
  if (!text.ok()) return text.status();
  return std::optional<std::string>(absl::StrCat("<Namespace ", *text, ">"));
}

absl::Status Namespace::Set(Runtime& runtime, JinjaValue name, JinjaValue value) {
  if (name.is_string() && name.as_string().starts_with('_')) {
    return Error(absl::StrCat(
        "Chat templates cannot store underscore-prefixed attributes on a namespace, but got '",
        ToAbsl(name.as_string().substr(0, 80)), "'"));
  }
  MT_RETURN_IF_ERROR(runtime.Charge(sizeof(JinjaValue)));
  return runtime.SetEntry(&attributes_, std::move(name), std::move(value));
}

}  // namespace megatrain::jinja
