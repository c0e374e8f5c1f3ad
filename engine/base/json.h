// Strict JSON from files that somebody else wrote: one value and nothing after it, valid UTF-8, no
// key twice in an object, nesting of at most kJsonDepthMax, numbers that a double holds. No
// exceptions leave.
#ifndef MEGATRAIN_ENGINE_BASE_JSON_H_
#define MEGATRAIN_ENGINE_BASE_JSON_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace megatrain {

inline constexpr int kJsonDepthMax = 64;

// `name` (a path) begins every error message: InvalidArgument, with the byte offset.
absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, const std::string& name);

// Keeps the order of keys, to write a file back as it was.
absl::StatusOr<nlohmann::ordered_json> ParseOrderedJson(std::string_view text,
                                                        const std::string& name);

// "an object", "a string", "the number 7", ...: for messages about a value of the wrong type.
std::string DescribeJson(const nlohmann::json& value);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_JSON_H_
