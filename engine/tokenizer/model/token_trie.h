// TokenTrie finds the tokens that a text begins with.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_MODEL_TOKEN_TRIE_H_
#define MEGATRAIN_ENGINE_TOKENIZER_MODEL_TOKEN_TRIE_H_

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace megatrain {

// A trie of bytes. Thread safety: const methods may be called from several threads.
class TokenTrie {
 public:
  TokenTrie() = default;
  // `tokens` are (text, id). The last of equal texts counts. Empty texts are never found. The texts
  // are used during the call only. Takes O(total bytes * log(tokens)). REQUIRES: no id is negative.
  explicit TokenTrie(std::vector<std::pair<std::string_view, int32_t>> tokens);

  // Calls found(id, bytes) for the tokens that `text` begins with, from the shortest to the
  // longest. `bytes` is the token's length.
  template <typename Found>
  void ForEachPrefix(std::string_view text, const Found& found) const {
    if (nodes_.empty()) return;
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = Child(node, static_cast<uint8_t>(text[i]));
      if (node == 0) return;
      if (nodes_[node].id >= 0) found(nodes_[node].id, i + 1);
    }
  }

 private:
  // The children of a node are neighbours, in the order of their bytes.
  struct Node {
    uint32_t first_child = 0;
    uint16_t children = 0;
    uint8_t byte = 0;
    int32_t id = -1;  // of the token that ends here; -1: none does
  };
  // Returns 0 if there is none: the root is nobody's child.
  uint32_t Child(uint32_t node, uint8_t byte) const {
    if (node == 0) return roots_[byte];
    const Node& parent = nodes_[node];
    uint32_t low = parent.first_child;
    uint32_t high = low + parent.children;
    while (high - low > 8) {
      const uint32_t middle = (low + high) / 2;
      if (nodes_[middle].byte <= byte) {
        low = middle;
      } else {
        high = middle;
      }
    }
    for (; low < high; ++low) {
      if (nodes_[low].byte == byte) return low;
    }
    return 0;
  }

  std::vector<Node> nodes_;
  uint32_t roots_[256] = {};
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_MODEL_TOKEN_TRIE_H_
