#include "engine/tokenizer/model/word_model.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
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

size_t Characters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

// The most places that are tried for a cut, from the end of a word.
constexpr int kPlacesMax = 256;

// Takes an open word that is unknown whatever follows.
absl::StatusOr<size_t> TakeUnknown(std::optional<int32_t> unknown_id, std::string_view word,
                                   absl::FunctionRef<bool(size_t)> may_cut, WordState* state,
                                   std::vector<TokenAt>* tokens) {
  size_t at = word.size();
  for (int tried = 0; tried < kPlacesMax && at > 0; ++tried) {
    at = Utf8Before(word, at);
    if (at == 0 || !may_cut(at)) continue;
    tokens->clear();
    if (!state->begun) MT_RETURN_IF_ERROR(GiveUnknown(unknown_id, word, tokens));
    state->begun = true;
    return at;
  }
  return 0;
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

absl::Status WordPieceModel::Encode(std::string_view word, const WordState& state,
                                    ModelBuffers* buffers) const {
  std::vector<TokenAt>& tokens = buffers->tokens;
  tokens.clear();
  if (state.begun) return absl::OkStatus();  // the rest of an unknown word
  if (Characters(word) > characters_max_) return GiveUnknown(unknown_id_, word, &tokens);
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

absl::StatusOr<size_t> WordPieceModel::EncodeOpen(std::string_view word,
                                                  absl::FunctionRef<bool(size_t)> may_cut,
                                                  WordState* state, ModelBuffers* buffers) const {
  if (!state->begun && Characters(word) <= characters_max_) return 0;
  return TakeUnknown(unknown_id_, word, may_cut, state, &buffers->tokens);
}

WordLevelModel::WordLevelModel(TextMap<int32_t> vocabulary, std::optional<int32_t> unknown_id)
    : TokenModel(std::move(vocabulary)), unknown_id_(unknown_id) {
  for (const auto& [token, id] : this->vocabulary()) longest_ = std::max(longest_, token.size());
}

absl::StatusOr<size_t> WordLevelModel::EncodeOpen(std::string_view word,
                                                  absl::FunctionRef<bool(size_t)> may_cut,
                                                  WordState* state, ModelBuffers* buffers) const {
  if (!state->begun && word.size() <= longest_) return 0;
  return TakeUnknown(unknown_id_, word, may_cut, state, &buffers->tokens);
}

absl::Status WordLevelModel::Encode(std::string_view word, const WordState& state,
                                    ModelBuffers* buffers) const {
  buffers->tokens.clear();
  if (state.begun) return absl::OkStatus();  // the rest of an unknown word
  const auto found = vocabulary().find(word);
  if (found == vocabulary().end()) return GiveUnknown(unknown_id_, word, &buffers->tokens);
  buffers->tokens.assign(1, {found->second, 0});
  return absl::OkStatus();
}

}  // namespace megatrain
