// Tokens that are found in text as they are, before it is split and merged.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_ADDED_TOKENS_H_
#define MEGATRAIN_ENGINE_TOKENIZER_ADDED_TOKENS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace megatrain {

// As in tokenizer.json's added_tokens.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // only where no word character is beside it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and behind it
  bool normalized = false;   // is looked for in the normalized text
  bool special = false;      // left out of decoded text
};

// Finds any of a set of tokens: leftmost, then longest. Thread safety: const methods may be called
// from several threads.
class AddedTokenMatcher {
 public:
  // `text` is what to look for (the token's content, or its normalized form); the token is copied.
  // InvalidArgument if `text` was added before.
  absl::Status Add(std::string_view text, const AddedToken& token);

  bool empty() const { return tokens_.empty(); }

  // Cuts `text` into pieces from left to right: piece(begin, end, token), with token null for what
  // lies between tokens. Pieces between tokens are not empty.
  void Cut(std::string_view text,
           absl::FunctionRef<void(size_t begin, size_t end, const AddedToken* token)> piece) const;

 private:
  struct Node {
    std::vector<std::pair<uint8_t, int32_t>> children;  // (byte, node)
    int32_t token = -1;                                 // ends here
  };
  int32_t Child(int32_t node, uint8_t byte) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_ = std::vector<Node>(1);
  bool begins_[256] = {};  // bytes that a token begins with
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_ADDED_TOKENS_H_
