#include "engine/tokenizer/model/word_model.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

absl::Status GiveUnknown(std::optional<int32_t> unknown_id, std::string_view word,
                         std::vector<TokenAt>* tokens) {
  if (!unknown_id.has_value()) {
    if (word.size() > 100) word = word.substr(0, Utf8Before(word, 100));
    return absl::InvalidArgumentError(absl::StrCat(
        "the text has \"", ToAbsl(word),
        "\", which has no tokens, and the unknown token (model.unk_token) is not in model.vocab"));
  }
  tokens->assign(1, {*unknown_id, 0});
  return absl::OkStatus();
}

}  // namespace

WordPieceModel::WordPieceModel(TextMap<int32_t> vocabulary, std::optional<int32_t> unknown_id,
                               std::string_view prefix, size_t characters_max)
    : TokenModel(std::move(vocabulary)), unknown_id_(unknown_id), characters_max_(characters_max) {
  std::vector<std::pair<std::string_view, int32_t>> beginnings, continuations;
  for (const auto& [token, id] : this->vocabulary()) {
    const std::string_view text = token;
    beginnings.emplace_back(text, id);
    if (text.substr(0, prefix.size()) == prefix) {
      continuations.emplace_back(text.substr(prefix.size()), id);
    }
  }
  beginnings_ = TokenTrie(std::move(beginnings));
  continuations_ = TokenTrie(std::move(continuations));
}

absl::Status WordPieceModel::Encode(std::string_view word, double score,
                                    ModelBuffers* buffers) const {
  std::vector<TokenAt>& tokens = buffers->tokens;
  tokens.clear();
  const auto characters = static_cast<size_t>(
      std::count_if(word.begin(), word.end(), [](char c) { return (c & 0xc0) != 0x80; }));
  if (characters > characters_max_) return GiveUnknown(unknown_id_, word, &tokens);
  for (size_t at = 0; at < word.size();) {
    int32_t longest = -1;
    size_t bytes = 0;
    const TokenTrie& trie = at == 0 ? beginnings_ : continuations_;
    trie.ForEachPrefix(word.substr(at), [&](int32_t id, size_t length) {
      longest = id;
      bytes = length;
    });
    if (longest < 0) return GiveUnknown(unknown_id_, word, &tokens);
    tokens.push_back({longest, static_cast<uint32_t>(at)});
    at += bytes;
  }
  return absl::OkStatus();
}

absl::Status WordLevelModel::Encode(std::string_view word, double score,
                                    ModelBuffers* buffers) const {
  const auto found = vocabulary().find(word);
  if (found == vocabulary().end()) return GiveUnknown(unknown_id_, word, &buffers->tokens);
  buffers->tokens.assign(1, {found->second, 0});
  return absl::OkStatus();
}

}  // namespace megatrain
