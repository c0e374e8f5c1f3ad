// Refuses a key that is not known, and names the one that was probably meant.
#ifndef MEGATRAIN_ENGINE_CONFIG_UNKNOWN_KEY_H_
#define MEGATRAIN_ENGINE_CONFIG_UNKNOWN_KEY_H_

#include <string>
#include <string_view>
#include <vector>

namespace megatrain {

// Returns the number of insertions, deletions, substitutions and swaps of neighbors that turn `a`
// into `b` (optimal string alignment). Only their first 128 bytes are compared.
int EditDistance(std::string_view a, std::string_view b);

// Returns the element of `known` that is nearest to `key`, the earliest of several, or "" if
// `known` is empty. The distance is EditDistance of the keys or, if less, that of their last words
// plus 1: `steps` finds `training.steps`.
std::string NearestKey(std::string_view key, const std::vector<std::string>& known);

// Returns the refusal: "unknown key; did you mean NEAREST?". REQUIRES: `known` is not empty.
std::string UnknownKey(std::string_view key, const std::vector<std::string>& known);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CONFIG_UNKNOWN_KEY_H_
