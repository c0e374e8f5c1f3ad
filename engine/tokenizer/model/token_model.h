// The interface of a tokenizer's model: words to tokens.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_MODEL_TOKEN_MODEL_H_
#define MEGATRAIN_ENGINE_TOKENIZER_MODEL_TOKEN_MODEL_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/tokenizer/model/word_cache.h"
#include "engine/tokenizer/text/text_map.h"

namespace megatrain {

// The best way to a place in a word, of Unigram.
struct BestPath {
  double score;
  uint32_t begin;  // where its last token begins; kNoPath if there is no way
  int32_t id;
};

// Memory that is reused from word to word, by one model.
struct ModelBuffers {
  std::vector<TokenAt> tokens;  // of the word, ascending
  std::vector<TokenAt> symbols;
  std::vector<BestPath> paths;
  WordCache words;  // of one model
};

// Thread safety: const methods may be called from several threads.
class TokenModel {
 public:
  virtual ~TokenModel() = default;

  // Sets `buffers->tokens` to those of `word`. `score` is that of the tokens given for what is
  // before it in its word, 0 at a word's beginning. Returns InvalidArgument if the word has no
  // tokens for want of an unknown token. REQUIRES: `word` is well-formed UTF-8, not empty and below
  // 4 GiB.
  virtual absl::Status Encode(std::string_view word, double score, ModelBuffers* buffers) const = 0;

  // Does the same for as much of the beginning of a word that goes on as has the same tokens
  // whatever follows, up to a place that may_cut(offset) allows. Returns the number of bytes, and
  // in `score` that of their tokens. The rest of the word is then encoded with that score. 0 if no
  // such place is known.
  virtual absl::StatusOr<size_t> EncodeOpen(std::string_view word,
                                            absl::FunctionRef<bool(size_t)> may_cut, double* score,
                                            ModelBuffers* buffers) const {
    return 0;
  }

  // The tokens as in the file, and their ids.
  const TextMap<int32_t>& vocabulary() const { return vocabulary_; }

 protected:
  explicit TokenModel(TextMap<int32_t> vocabulary) : vocabulary_(std::move(vocabulary)) {}

 private:
  const TextMap<int32_t> vocabulary_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_MODEL_TOKEN_MODEL_H_
