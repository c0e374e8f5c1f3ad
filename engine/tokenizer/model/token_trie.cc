#include "engine/tokenizer/model/token_trie.h"

#include <algorithm>
#include <deque>

namespace megatrain {

TokenTrie::TokenTrie(std::vector<std::pair<std::string_view, int32_t>> tokens) {
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  // The tokens [begin, end) share their first `depth` bytes, which lead to `node`.
  struct Range {
    uint32_t node;
    size_t begin, end, depth;
  };
  nodes_.emplace_back();
  std::deque<Range> queue = {{0, 0, tokens.size(), 0}};
  while (!queue.empty()) {
    Range range = queue.front();
    queue.pop_front();
    // Texts that end here are first.
    while (range.begin < range.end && tokens[range.begin].first.size() == range.depth) {
      if (range.depth > 0) nodes_[range.node].id = tokens[range.begin].second;
      ++range.begin;
    }
    nodes_[range.node].first_child = static_cast<uint32_t>(nodes_.size());
    for (size_t at = range.begin; at < range.end;) {
      const char c = tokens[at].first[range.depth];
      size_t end = at;
      while (end < range.end && tokens[end].first[range.depth] == c) ++end;
      const auto child = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
      nodes_.back().byte = static_cast<uint8_t>(c);
      ++nodes_[range.node].children;
      if (range.node == 0) roots_[static_cast<uint8_t>(c)] = child;
      queue.push_back({child, at, end, range.depth + 1});
      at = end;
    }
  }
}

}  // namespace megatrain
