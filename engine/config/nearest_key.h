// Which known key a misspelt one was meant to be.
#ifndef MEGATRAIN_ENGINE_CONFIG_NEAREST_KEY_H_
#define MEGATRAIN_ENGINE_CONFIG_NEAREST_KEY_H_

#include <string>
#include <string_view>
#include <vector>

namespace megatrain {

// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`.
int EditDistance(std::string_view a, std::string_view b);

// The element of `known` nearest to `key`, by edit distance, the earliest at equal distance. For
// key paths an equal last word counts as near whatever the section: `steps` finds `training.steps`.
// "" if `known` is empty.
std::string NearestKey(std::string_view key, const std::vector<std::string>& known);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CONFIG_NEAREST_KEY_H_
