#include "engine/chat/jinja/builtins.h"

#include <initializer_list>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/jinja/operators.h"
#include "engine/tokenizer/text/text_map.h"

namespace megatrain::jinja {
namespace {

using Table = TextMap<const Builtin*>;

Table MakeTable(std::initializer_list<absl::Span<const Builtin>> parts) {
  Table table;
  for (const absl::Span<const Builtin> part : parts) {
    for (const Builtin& builtin : part) table.emplace(builtin.name, &builtin);
  }
  return table;
}

const Builtin* Find(const Table& table, std::string_view name) {
  const auto at = table.find(name);
  return at == table.end() ? nullptr : at->second;
}

// One parameter of Builtin::parameters.
struct Parameter {
  std::string_view name;
  bool optional = false;
  bool by_name = true;
};

// Takes the first parameter off a list of them.
Parameter TakeParameter(std::string_view* parameters) {
  Parameter parameter;
  const size_t end = std::min(parameters->find(' '), parameters->size());
  parameter.name = parameters->substr(0, end);
  parameters->remove_prefix(std::min(end + 1, parameters->size()));
  if (parameter.name.front() == '_') {
    parameter.by_name = false;
    parameter.name.remove_prefix(1);
  }
  if (parameter.name.back() == '?') {
    parameter.optional = true;
    parameter.name.remove_suffix(1);
  }
  return parameter;
}

absl::Status Bind(const Builtin& builtin, CallValues values, Call* call) {
  const auto wrong = [&](std::string_view problem) {
    return Error(absl::StrCat(builtin.name, "(): ", ToAbsl(problem)));
  };
  size_t positional = 0;
  std::string_view parameters = builtin.parameters;
  while (!parameters.empty()) {
    if (parameters == "*") {
      values.positional.erase(values.positional.begin(), values.positional.begin() + positional);
      call->rest = std::move(values);
      return absl::OkStatus();
    }
    const Parameter parameter = TakeParameter(&parameters);
    std::optional<JinjaValue> argument;
    if (positional < values.positional.size()) {
      argument = std::move(values.positional[positional++]);
    }
    for (size_t i = 0; parameter.by_name && i < values.named.size(); ++i) {
      if (values.named[i].first != parameter.name) continue;
      if (argument.has_value()) {
        return wrong(absl::StrCat("the argument ", ToAbsl(parameter.name), " is given twice"));
      }
      argument = std::move(values.named[i].second);
      values.named.erase(values.named.begin() + i);
      break;
    }
    if (!argument.has_value() && !parameter.optional) {
      return wrong(absl::StrCat("the argument ", ToAbsl(parameter.name), " is missing"));
    }
    call->arguments.push_back(std::move(argument));
  }
  if (positional < values.positional.size()) return wrong("too many arguments");
  if (!values.named.empty()) {
    return wrong(absl::StrCat("unexpected argument ", values.named[0].first));
  }
  return absl::OkStatus();
}

class BoundMethod : public Object {
 public:
  BoundMethod(const Builtin* method, JinjaValue self)
      : Object(DepthOf(self) + 1), method_(method), self_(std::move(self)) {}
  std::string type_name() const override { return "builtin_function_or_method"; }
  bool is_callable() const override { return true; }
  Result Call(Runtime& runtime, CallValues values) override {
    return CallBuiltin(runtime, *method_, self_, std::move(values));
  }

 private:
  const Builtin* const method_;
  const JinjaValue self_;
};

}  // namespace

Result MakeMethod(Runtime& runtime, const Builtin* method, JinjaValue self) {
  return runtime.MakeObject(std::make_shared<BoundMethod>(method, std::move(self)));
}

bool Call::TrueOr(size_t i, bool otherwise) const {
  return has(i) ? IsTrue(*arguments[i]) : otherwise;
}

absl::StatusOr<int64_t> Call::IntOr(size_t i, int64_t otherwise) const {
  if (!has(i) || arguments[i]->is_none()) return otherwise;
  const std::optional<int64_t> value = IntegerOf(*arguments[i]);
  if (value.has_value()) return *value;
  return Error(absl::StrCat("expected an int, got '", TypeName(*arguments[i]), "'"));
}

absl::StatusOr<std::string_view> Call::TextAt(size_t i) const {
  if (arguments[i]->is_string()) return arguments[i]->as_string();
  return Error(absl::StrCat("expected a str, got '", TypeName(*arguments[i]), "'"));
}

absl::StatusOr<std::optional<std::string_view>> Call::TextOr(size_t i) const {
  if (!has(i) || arguments[i]->is_none()) return std::optional<std::string_view>();
  MT_ASSIGN_OR_RETURN(const std::string_view text, TextAt(i));
  return std::optional<std::string_view>(text);
}

Result CallBuiltin(Runtime& runtime, const Builtin& builtin, const JinjaValue& self,
                   CallValues values) {
  Call call{.runtime = runtime, .self = self, .arguments = {}, .rest = {}};
  MT_RETURN_IF_ERROR(Bind(builtin, std::move(values), &call));
  MT_ASSIGN_OR_RETURN(JinjaValue result, builtin.function(call));
  MT_RETURN_IF_ERROR(runtime.CheckBudget());
  return result;
}

const Builtin* FindFilter(std::string_view name) {
  static const auto* const table =
      new Table(MakeTable({ScalarFilters(), SequenceFilters(), SelectionFilters()}));
  return Find(*table, name);
}

const Builtin* FindTest(std::string_view name) {
  static const auto* const table = new Table(MakeTable({ValueTests()}));
  return Find(*table, name);
}

const Builtin* FindMethod(const JinjaValue& self, std::string_view name) {
  static const auto* const of_text = new Table(MakeTable({TextMethods()}));
  static const auto* const of_containers = new Table(MakeTable({ContainerMethods()}));
  if (self.is_string()) return Find(*of_text, name);
  if (self.is_dict()) return Find(*of_containers, absl::StrCat("dict.", ToAbsl(name)));
  if (self.kind() == JinjaValue::Kind::kSequence && SequenceOf(self).kind < SequenceKind::kKeys) {
    // Tuples and ranges have the methods index and count, lists also copy.
    if (!self.is_list() && name == "copy") return nullptr;
    return Find(*of_containers, absl::StrCat("list.", ToAbsl(name)));
  }
  if (self.kind() == JinjaValue::Kind::kFloat && name == "is_integer") {
    return Find(*of_containers, "float.is_integer");
  }
  return nullptr;
}

}  // namespace megatrain::jinja
