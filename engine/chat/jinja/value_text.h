// Values as text: str(), repr(), JSON and the two kinds of format strings. All functions also
// return ResourceExhausted beyond a limit.
#ifndef MEGATRAIN_ENGINE_CHAT_JINJA_VALUE_TEXT_H_
#define MEGATRAIN_ENGINE_CHAT_JINJA_VALUE_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "engine/chat/jinja/runtime.h"

namespace megatrain::jinja {

// str(value). Returns InvalidArgument for a value that Python prints with its address.
absl::StatusOr<std::string> ToText(Runtime& runtime, const JinjaValue& value);
// repr(value), with the same errors.
absl::StatusOr<std::string> Repr(Runtime& runtime, const JinjaValue& value);

// The arguments of transformers' tojson, which are those of json.dumps.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool indented = false;
  std::string indent;  // of one level, if `indented`
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// json.dumps(value). Returns InvalidArgument for a value that JSON does not have.
absl::StatusOr<std::string> ToJson(Runtime& runtime, const JinjaValue& value,
                                   const JsonStyle& style);

// format % values, in printf's language. `values` is a tuple of the arguments, a dict, or the only
// argument. Returns InvalidArgument where Python raises.
Result FormatPrintf(Runtime& runtime, const JinjaValue& format, const JinjaValue& values);

// format.format(*values.positional, **values.named), as the sandbox does it, with the same errors.
Result FormatBraces(Runtime& runtime, const JinjaValue& format, const CallValues& values);

}  // namespace megatrain::jinja

#endif  // MEGATRAIN_ENGINE_CHAT_JINJA_VALUE_TEXT_H_
