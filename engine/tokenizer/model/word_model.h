// Models that look words up: WordPiece and WordLevel.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_MODEL_WORD_MODEL_H_
#define MEGATRAIN_ENGINE_TOKENIZER_MODEL_WORD_MODEL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/tokenizer/model/token_model.h"
#include "engine/tokenizer/model/token_trie.h"

namespace megatrain {

// WordPiece (BERT) cuts a word into tokens from left to right, each time the longest one that fits.
// Tokens that do not begin a word have a prefix in the vocabulary. A word that cannot be cut in
// this way is one unknown token, or an error without `unknown_id` (TokenModel::Encode). EncodeOpen
// takes a part of a word only if the word is already so long that it is unknown whatever follows.
class WordPieceModel : public TokenModel {
 public:
  // Words of more than `characters_max` characters are unknown. `prefix` is that of tokens which do
  // not begin a word, "##" for BERT.
  WordPieceModel(TextMap<int32_t> vocabulary, std::optional<int32_t> unknown_id,
                 std::string_view prefix, size_t characters_max);

  absl::Status Encode(std::string_view word, const WordState& state,
                      ModelBuffers* buffers) const override;
  absl::StatusOr<size_t> EncodeOpen(std::string_view word, absl::FunctionRef<bool(size_t)> may_cut,
                                    WordState* state, ModelBuffers* buffers) const override;

 private:
  const std::optional<int32_t> unknown_id_;
  const size_t characters_max_;
  TokenTrie beginnings_;
  TokenTrie continuations_;  // without their prefix
};

// WordLevel takes a word as one token, or as the unknown token if it is none; without `unknown_id`
// that is an error. EncodeOpen takes a part of a word only if the word is already longer than every
// token.
class WordLevelModel : public TokenModel {
 public:
  WordLevelModel(TextMap<int32_t> vocabulary, std::optional<int32_t> unknown_id);

  absl::Status Encode(std::string_view word, const WordState& state,
                      ModelBuffers* buffers) const override;
  absl::StatusOr<size_t> EncodeOpen(std::string_view word, absl::FunctionRef<bool(size_t)> may_cut,
                                    WordState* state, ModelBuffers* buffers) const override;

 private:
  const std::optional<int32_t> unknown_id_;
  size_t longest_ = 0;  // bytes of the longest token
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_MODEL_WORD_MODEL_H_
