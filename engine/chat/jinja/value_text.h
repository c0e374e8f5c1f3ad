// Writes values as text: str(), repr(), JSON and Python's two kinds of format strings. All
// functions also return ResourceExhausted if they go beyond a limit of `runtime`, and the errors of
// an Object (containers.h) that they print. ToText, Repr and ToJson do not look at the limits once
// more at the end: what they wrote last may go beyond them.
#ifndef MEGATRAIN_ENGINE_CHAT_JINJA_VALUE_TEXT_H_
#define MEGATRAIN_ENGINE_CHAT_JINJA_VALUE_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "engine/chat/jinja/containers.h"
#include "engine/chat/jinja/runtime.h"

namespace megatrain::jinja {

// Returns str(value), or InvalidArgument for a value that Python prints with its address, and for
// namespaces that hold one another too deep.
absl::StatusOr<std::string> ToText(Runtime& runtime, const JinjaValue& value);
// Returns repr(value), or the errors of ToText.
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

// Returns json.dumps(value). Returns InvalidArgument for a value that JSON does not have, and for
// keys without an order if `style` sorts them.
absl::StatusOr<std::string> ToJson(Runtime& runtime, const JinjaValue& value,
                                   const JsonStyle& style);

// Returns format % values, or InvalidArgument where Python raises. `values` is a tuple of the
// arguments, a dict, or the only argument. REQUIRES, here and below: `format` is text.
Result FormatPrintf(Runtime& runtime, const JinjaValue& format, const JinjaValue& values);

// Returns format.format(*values.positional, **values.named) as Jinja's sandbox computes it, or
// InvalidArgument where that raises.
Result FormatBraces(Runtime& runtime, const JinjaValue& format, const CallValues& values);

}  // namespace megatrain::jinja

#endif  // MEGATRAIN_ENGINE_CHAT_JINJA_VALUE_TEXT_H_
