// Where no merge rule can reach across: a text is cut there and its pieces merged by themselves.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_BPE_SEAMS_H_
#define MEGATRAIN_ENGINE_TOKENIZER_BPE_SEAMS_H_

#include <cstdint>
#include <string_view>

#include "absl/container/flat_hash_set.h"

namespace megatrain {

// A tokenizer without a pre-tokenizer merges a whole document as one word. Its rules still join few
// pairs of neighbours: hardly any joins a letter to the space behind it. Between two characters
// that no rule has as its left token's last and its right token's first, there is a token's end,
// whatever else is merged: the pieces there are as short as words, and cutting is exact. Thread
// safety: const methods may be called from several threads.
class BpeSeams {
 public:
  // A merge rule of tokens whose symbols are their characters. REQUIRES: neither is empty.
  void AddRule(std::string_view left, std::string_view right);
  // There is a rule with a token that does not stand for its characters: nowhere is a seam.
  void SetNone() { none_ = true; }

  // True if no rule joins what ends with `before` to what begins with `after`.
  bool Between(char32_t before, char32_t after) const {
    return !none_ && !joined_.contains(Pair(before, after));
  }

 private:
  static uint64_t Pair(char32_t before, char32_t after) {
    return uint64_t{before} << 32 | uint64_t{after};
  }

  absl::flat_hash_set<uint64_t> joined_;
  bool none_ = false;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_BPE_SEAMS_H_
