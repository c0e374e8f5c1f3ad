// Jinja's filters map, select, reject, selectattr and rejectattr, which apply other filters and
// tests, and the attribute paths of filters.
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/jinja/builtins.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/python/number_text.h"
#include "engine/chat/jinja/python/unicode_text.h"
#include "engine/tokenizer/text/text_map.h"

namespace megatrain::jinja {
namespace {

using Next = absl::StatusOr<std::optional<JinjaValue>>;

// Finds the filter or test that the first argument names, and drops that argument.
absl::StatusOr<const Builtin*> TakeBuiltin(const Builtin* (*find)(std::string_view),
                                           const char* what, CallValues* values) {
  const JinjaValue name = values->positional[0];
  const Builtin* const found = name.is_string() ? find(name.as_string()) : nullptr;
  if (found == nullptr) {
    return Error(absl::StrCat("there is no ", what, " named '",
                              name.is_string() ? ToAbsl(name.as_string().substr(0, 80)) : "", "'"));
  }
  values->positional.erase(values->positional.begin());
  return found;
}

// As a generator function of Python, the work begins when the first item is taken. A false value
// has no items. `prepare` returns the function that makes an item, or nullopt for one to leave out.
template <typename Prepare>
Result Lazily(Call& call, Prepare prepare) {
  using Function = std::function<Next(Runtime&, const JinjaValue&)>;
  struct State {
    std::optional<Cursor> cursor;
    Function function;
  };
  auto state = std::make_shared<State>();
  const JinjaValue source = call.self;
  // The values that the generator holds count as its depth.
  std::vector<JinjaValue> held = call.rest.positional;
  held.push_back(source);
  for (const auto& [name, value] : call.rest.named) held.push_back(value);
  MT_ASSIGN_OR_RETURN(const JinjaValue all, call.runtime.MakeList(std::move(held)));
  return MakeGenerator(
      call.runtime, all, [state, source, prepare, values = call.rest](Runtime& runtime) -> Next {
        if (!IsTrue(source)) return std::optional<JinjaValue>();
        if (!state->cursor.has_value()) {
          MT_ASSIGN_OR_RETURN(state->function, prepare(values));
          MT_ASSIGN_OR_RETURN(state->cursor, Cursor::Over(source));
        }
        JinjaValue item;
        while (true) {
          MT_ASSIGN_OR_RETURN(const bool more, state->cursor->Next(runtime, &item));
          if (!more) return std::optional<JinjaValue>();
          MT_ASSIGN_OR_RETURN(std::optional<JinjaValue> result, state->function(runtime, item));
          if (result.has_value()) return result;
        }
      });
}

using ItemFunction = std::function<Next(Runtime&, const JinjaValue&)>;

Result Map(Call& call) {
  return Lazily(call, [](CallValues values) -> absl::StatusOr<ItemFunction> {
    if (!values.positional.empty()) {
      MT_ASSIGN_OR_RETURN(const Builtin* const filter, TakeBuiltin(FindFilter, "filter", &values));
      return [filter, values](Runtime& runtime, const JinjaValue& item) -> Next {
        MT_ASSIGN_OR_RETURN(JinjaValue result, CallBuiltin(runtime, *filter, item, values));
        return std::optional<JinjaValue>(std::move(result));
      };
    }
    JinjaValue attribute, otherwise = JinjaValue::None();
    if (!values.TakeNamed("attribute", &attribute)) return Error("map requires a filter argument");
    values.TakeNamed("default", &otherwise);
    if (!values.named.empty()) {
      return Error(absl::StrCat("Unexpected keyword argument '", values.named[0].first, "'"));
    }
    MT_ASSIGN_OR_RETURN(const AttributePath path,
                        AttributePath::Parse(attribute, false, otherwise));
    return [path](Runtime& runtime, const JinjaValue& item) -> Next {
      MT_ASSIGN_OR_RETURN(JinjaValue result, path.Get(runtime, item));
      return std::optional<JinjaValue>(std::move(result));
    };
  });
}

template <bool keep, bool by_attribute>
Result Select(Call& call) {
  return Lazily(call, [](CallValues values) -> absl::StatusOr<ItemFunction> {
    JinjaValue attribute = JinjaValue::None();
    if (by_attribute) {
      if (values.positional.empty()) return Error("Missing parameter for attribute name");
      attribute = values.positional[0];
      values.positional.erase(values.positional.begin());
    }
    MT_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(attribute, false));
    const Builtin* test = nullptr;
    if (!values.positional.empty()) {
      MT_ASSIGN_OR_RETURN(test, TakeBuiltin(FindTest, "test", &values));
    }
    return [path, test, values](Runtime& runtime, const JinjaValue& item) -> Next {
      MT_ASSIGN_OR_RETURN(JinjaValue value, path.Get(runtime, item));
      if (test != nullptr) {
        MT_ASSIGN_OR_RETURN(value, CallBuiltin(runtime, *test, value, values));
      }
      return IsTrue(value) == keep ? std::optional<JinjaValue>(item) : std::nullopt;
    };
  });
}

constexpr Builtin kFilters[] = {
    {"map", "*", Map},
    {"reject", "*", Select<false, false>},
    {"rejectattr", "*", Select<false, true>},
    {"select", "*", Select<true, false>},
    {"selectattr", "*", Select<true, true>},
};

// A step takes more memory than its text.
constexpr std::ptrdiff_t kStepsMax = 1000;

absl::Status CheckSteps(std::string_view text, char separator) {
  if (std::count(text.begin(), text.end(), separator) < kStepsMax) return absl::OkStatus();
  return Error(absl::StrCat("a path of more than ", kStepsMax, " attributes"));
}

}  // namespace

absl::Span<const Builtin> SelectionFilters() { return kFilters; }

Result FoldKey(Runtime& runtime, const JinjaValue& value, bool fold) {
  if (!fold || !value.is_string()) return value;
  return runtime.MakeText(python::Lower(value.as_string()));
}

absl::StatusOr<AttributePath> AttributePath::Parse(const JinjaValue& attribute, bool fold,
                                                   std::optional<JinjaValue> otherwise) {
  AttributePath path;
  path.fold_ = fold;
  if (otherwise.has_value() && !otherwise->is_none()) path.otherwise_ = std::move(otherwise);
  if (attribute.is_string()) {
    constexpr std::string_view kDot = ".";
    MT_RETURN_IF_ERROR(CheckSteps(attribute.as_string(), '.'));
    for (const std::string_view step : python::Split(attribute.as_string(), &kDot, -1, false)) {
      std::optional<int64_t> index;
      if (python::IsOfClass(step, python::TextClass::kDigit)) {
        MT_ASSIGN_OR_RETURN(index, python::ParseInt(step, 10));
      }
      path.steps_.push_back(index.has_value() ? JinjaValue::Int(*index)
                                              : JinjaValue::String(std::string(step)));
    }
  } else if (!attribute.is_none()) {
    path.steps_.push_back(attribute);
  }
  return path;
}

absl::StatusOr<std::vector<AttributePath>> AttributePath::ParseList(
    const std::optional<JinjaValue>& attribute, bool fold) {
  std::vector<AttributePath> paths;
  const JinjaValue value = attribute.value_or(JinjaValue::None());
  if (!value.is_string()) {
    MT_ASSIGN_OR_RETURN(AttributePath path, Parse(value, fold));
    paths.push_back(std::move(path));
    return paths;
  }
  MT_RETURN_IF_ERROR(CheckSteps(value.as_string(), ','));
  constexpr std::string_view kComma = ",";
  for (const std::string_view part : python::Split(value.as_string(), &kComma, -1, false)) {
    MT_ASSIGN_OR_RETURN(AttributePath path, Parse(JinjaValue::String(std::string(part)), fold));
    paths.push_back(std::move(path));
  }
  return paths;
}

Result AttributePath::Get(Runtime& runtime, JinjaValue item) const {
  for (const JinjaValue& step : steps_) {
    MT_ASSIGN_OR_RETURN(item, GetItem(runtime, item, step));
    if (otherwise_.has_value() && item.is_undefined()) item = *otherwise_;
  }
  return FoldKey(runtime, item, fold_);
}

}  // namespace megatrain::jinja
