// Maps from text, looked up by std::string_view. (Debian's Abseil has a string_view of its own,
// which neither its hash maps nor StrCat convert from std's.)
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

// For StrCat and StrAppend.
inline absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TEXT_TEXT_MAP_H_
