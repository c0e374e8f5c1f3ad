// Finds added tokens (special tokens and others) in a text before the text is split and merged.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_ADDED_TOKENS_H_
#define MEGATRAIN_ENGINE_TOKENIZER_ADDED_TOKENS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace megatrain {

// A token that a tokenizer's files add to the model's, such as an entry of added_tokens in
// tokenizer.json.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // matches only if no word character is next to it
  bool lstrip = false;       // also takes the white space before it
  bool rstrip = false;       // also takes the white space after it
  bool normalized = false;   // searched for in the normalized text, not in the original
  bool special = false;      // may be left out of decoded text
};

// Returns true if `c` is a word character: Unicode's \w, which AddedToken::single_word refers to.
bool IsWordCharacter(char32_t c);

// Returns the offset at which the white space that begins at `begin` ends, or `begin` if there is
// none. REQUIRES: `text` is well-formed UTF-8, and a character begins at `begin` or it is the end.
size_t SpaceAfter(std::string_view text, size_t begin);

// Finds any of a set of tokens in texts of well-formed UTF-8. The leftmost match wins; of matches
// at one place, the longest. Offsets are in bytes. Thread safety: const methods may be called from
// several threads, while none calls Add.
class AddedTokenMatcher {
 public:
  // Adds a token, which is copied. `text` is the string to find: the token's content or its
  // normalized form. Returns InvalidArgument, with no change, if `text` is empty or was added
  // before.
  absl::Status Add(std::string_view text, const AddedToken& token);

  bool empty() const { return tokens_.empty(); }

  // Returns true if the text of one of the tokens begins at `at`. Disregards single_word.
  bool BeginsAt(std::string_view text, size_t at) const;
  // Returns true if the text of one of the tokens begins before `at` and ends after it. Disregards
  // single_word.
  bool MayCross(std::string_view text, size_t at) const;

  // Cuts `text` into pieces from left to right and calls piece(begin, end, token) for each. For a
  // match, with the white space that it takes, `token` is the token, valid as long as the matcher
  // and until Add. For the text between tokens, which is never empty, `token` is null. A match that
  // its single_word rules out is text, and no token is looked for within it. For example, "a<s> b"
  // with the token "<s>" of rstrip gives [0, 1) text, [1, 5) the token, [5, 6) text.
  //
  // Pieces may overlap in one case: a token of white space lies in white space that the token
  // before it took by rstrip. Its piece and the text behind it may then overlap that token's piece,
  // and with lstrip its piece may be empty.
  void Cut(std::string_view text,
           absl::FunctionRef<void(size_t begin, size_t end, const AddedToken* token)> piece) const;

 private:
  struct Node {
    std::vector<std::pair<uint8_t, int32_t>> children;  // (byte, node)
    int32_t token = -1;                                 // the token that ends here
  };
  int32_t Child(int32_t node, uint8_t byte) const;
  // Returns the longest token at `at` and sets `*end` to where it ends; null if there is none.
  const AddedToken* Longest(std::string_view text, size_t at, size_t* end) const;

  std::vector<AddedToken> tokens_;
  size_t bytes_max_ = 0;  // of the tokens' texts
  std::vector<Node> nodes_ = std::vector<Node>(1);
  bool begins_[256] = {};  // by byte: true if a token begins with it
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_ADDED_TOKENS_H_
