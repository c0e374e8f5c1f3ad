// Reads values of a JSON record, for the readers of training examples. Names in errors are the
// paths of values within their record: messages[1].content.
#ifndef MEGATRAIN_ENGINE_CHAT_RECORD_JSON_H_
#define MEGATRAIN_ENGINE_CHAT_RECORD_JSON_H_

#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/chat/jinja/jinja_value.h"

namespace megatrain {

// Returns "a list", "a string" and so on.
const char* JsonTypeName(simdjson::dom::element_type type);

// Returns the first eight keys of `object` in quotes, with "..." if there are more, or "no keys".
std::string JsonKeys(simdjson::dom::object object);

// Returns true for null, and for a text, list or object without content.
bool IsJsonEmpty(simdjson::dom::element value);

// Returns the string, or InvalidArgument if the value is not one.
absl::StatusOr<std::string> JsonString(simdjson::dom::element value, const std::string& name);

// Sets `*target` to the string. Returns InvalidArgument if the value is not a string. Returns it
// also if `*target` is set already, because readers differ in which of two fields of the same name
// counts.
absl::Status SetJsonString(simdjson::dom::element value, const std::string& name,
                           std::optional<std::string>* target);

// Returns a copy of the value as a Jinja program sees it. If two fields have the same name, the
// last one counts. Returns InvalidArgument for a whole number beyond int64 and for a value within
// more than 191 lists and objects.
absl::StatusOr<JinjaValue> JsonToJinja(simdjson::dom::element value, const std::string& name);

// Parses JSON that a record holds as a text, and calls `use` with it; the value is valid during the
// call. Returns InvalidArgument if the text is not JSON, and the error of `use`.
absl::Status WithEmbeddedJson(std::string_view text, const std::string& name,
                              absl::FunctionRef<absl::Status(simdjson::dom::element value)> use);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHAT_RECORD_JSON_H_
