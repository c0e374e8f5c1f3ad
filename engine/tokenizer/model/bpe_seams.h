// Finds the places in a text across which no merge rule can join. A long text is cut there, and
// merging its pieces separately gives the same result.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_MODEL_BPE_SEAMS_H_
#define MEGATRAIN_ENGINE_TOKENIZER_MODEL_BPE_SEAMS_H_

#include <bitset>
#include <cstdint>
#include <string_view>

#include "absl/container/flat_hash_set.h"

namespace megatrain {

// A tokenizer without a pre-tokenizer merges a whole document as one word. But its rules join few
// pairs of neighbouring characters. For example, suppose that no rule has a left token that ends in
// "e" and a right token that begins with a space. Then a token ends between every "e" and a space
// after it. Cutting the text at such places is exact, and pieces become as short as words.
//
// Thread safety: const methods may be called from several threads.
class BpeSeams {
 public:
  // Adds the rule that merges the tokens `left` and `right`: text can no longer be cut between the
  // last character of `left` and the first of `right`. REQUIRES: neither is empty, and both are
  // well-formed UTF-8.
  void AddRule(std::string_view left, std::string_view right);
  // Declares that there are no seams: Between is then false for all characters. Call it if a rule
  // has a token that does not stand for its own characters, such as "<0x41>" for a byte or the
  // unknown token.
  void SetNone() {
    none_ = true;
    ascii_joined_.set();
  }

  // Returns true after SetNone.
  bool none() const { return none_; }

  // Returns true if text can be cut between the neighbouring characters `before` and `after`: no
  // rule joins a token that ends with `before` to one that begins with `after`.
  bool Between(char32_t before, char32_t after) const {
    if (before < 128 && after < 128) return !ascii_joined_[before * 128 + after];
    return !none_ && !joined_.contains(Pair(before, after));
  }

 private:
  static uint64_t Pair(char32_t before, char32_t after) {
    return uint64_t{before} << 32 | uint64_t{after};
  }

  std::bitset<128 * 128> ascii_joined_;   // for pairs in ASCII
  absl::flat_hash_set<uint64_t> joined_;  // for others
  bool none_ = false;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_MODEL_BPE_SEAMS_H_
