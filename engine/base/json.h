// A strict JSON parser for files that come from outside. It accepts one value with nothing after
// it, in valid UTF-8, without duplicate keys in an object, nested at most kJsonDepthMax deep, with
// numbers that a double can hold. It does not throw.
#ifndef MEGATRAIN_ENGINE_BASE_JSON_H_
#define MEGATRAIN_ENGINE_BASE_JSON_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace megatrain {

inline constexpr int kJsonDepthMax = 64;

// Returns InvalidArgument for text that breaks a rule above. Messages begin with `name`, usually
// the path, and give the byte offset of a syntax error.
absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, const std::string& name);

// Does as ParseJson and keeps the order of keys, so that a file can be written back as it was.
absl::StatusOr<nlohmann::ordered_json> ParseOrderedJson(std::string_view text,
                                                        const std::string& name);

// Describes a value for messages about a wrong type: "an object", "the number 7", "a list", ...
std::string DescribeJson(const nlohmann::json& value);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_JSON_H_
