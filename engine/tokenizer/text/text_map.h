// A hash map from text that can be searched by std::string_view. (Debian's Abseil has its own
// string_view, to which neither its hash maps nor StrCat convert std's.)
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TEXT_TEXT_MAP_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TEXT_TEXT_MAP_H_

#include <functional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace megatrain {

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

template <typename Value>
using TextMap = absl::flat_hash_map<std::string, Value, TextHash, std::equal_to<>>;

// Converts a text for StrCat and StrAppend.
inline absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TEXT_TEXT_MAP_H_
