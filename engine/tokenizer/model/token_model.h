// The interface of a tokenizer's model, which turns words into tokens.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_MODEL_TOKEN_MODEL_H_
#define MEGATRAIN_ENGINE_TOKENIZER_MODEL_TOKEN_MODEL_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/tokenizer/model/word_cache.h"
#include "engine/tokenizer/model/word_state.h"
#include "engine/tokenizer/text/text_map.h"

namespace megatrain {

// The best tokens from the beginning of a word to a place in it, for Unigram.
struct BestPath {
  double score;    // the sum of the tokens' scores
  uint32_t begin;  // where the last of them begins; UINT32_MAX if there are none
  int32_t id;
};

// The memory that Encode and EncodeOpen work in, reused from word to word. Its vectors but `tokens`
// mean nothing to callers. One thread uses it at a time.
struct ModelBuffers {
  std::vector<TokenAt> tokens;  // of the word, ascending in `begin`
  std::vector<TokenAt> symbols;
  std::vector<BestPath> paths;
  WordCache words;  // for one model only
};

// Thread safety: const methods may be called from several threads, each with its own buffers.
class TokenModel {
 public:
  virtual ~TokenModel() = default;

  // Sets `buffers->tokens` to the tokens of `word`. `word` may be the rest of a word that
  // EncodeOpen has begun; `state` is then the one that EncodeOpen left, otherwise a new one.
  // Returns InvalidArgument if a part of the word is no token and the model has no unknown token.
  // BpeModel leaves such a part out instead, and returns no error. REQUIRES: `word` is well-formed
  // UTF-8, not empty and below 4 GiB.
  virtual absl::Status Encode(std::string_view word, const WordState& state,
                              ModelBuffers* buffers) const = 0;

  // Encodes the beginning of a word of which only the first part, `word`, is known yet. As in
  // Encode, `word` may be in a word that was begun before, with its `*state`. Looks for an offset
  // in `word` up to which the tokens are the same whatever follows `word`, and for which
  // may_cut(offset) is true. Sets `buffers->tokens` to the tokens before that offset, changes
  // `*state` for the call that encodes the rest, and returns the offset. The last call of may_cut
  // is for the offset that is returned. For example, of "hello wor" the tokens of "hello" may be
  // known, and 5 is returned. Returns 0, with `*state` unchanged and `buffers->tokens` unspecified,
  // if no such offset is found. Returns the errors of Encode. REQUIRES: as for Encode.
  virtual absl::StatusOr<size_t> EncodeOpen(std::string_view word,
                                            absl::FunctionRef<bool(size_t)> may_cut,
                                            WordState* state, ModelBuffers* buffers) const = 0;

  // Returns the tokens, as the tokenizer's file writes them, with their ids.
  const TextMap<int32_t>& vocabulary() const { return vocabulary_; }

 protected:
  explicit TokenModel(TextMap<int32_t> vocabulary) : vocabulary_(std::move(vocabulary)) {}

 private:
  const TextMap<int32_t> vocabulary_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_MODEL_TOKEN_MODEL_H_
