// The Unigram model of SentencePiece, which cuts a word into its most probable tokens.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_MODEL_UNIGRAM_MODEL_H_
#define MEGATRAIN_ENGINE_TOKENIZER_MODEL_UNIGRAM_MODEL_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tokenizer/model/token_model.h"
#include "engine/tokenizer/model/token_trie.h"

namespace megatrain {

// Viterbi's search with FP64 sums of log probabilities from left to right, as `tokenizers` does it.
// If sums are equal, the one whose last token is longest wins. A character that is no token counts
// as 10 below the rarest token. Neighbouring unknown characters become one token, or with
// `byte_fallback` their bytes.
class UnigramModel : public TokenModel {
 public:
  // `pieces` are (token, log probability) by id. Returns InvalidArgument if a token is there twice,
  // a score is not finite, or `unknown_id` is not an id.
  static absl::StatusOr<std::unique_ptr<TokenModel>> Make(
      const std::vector<std::pair<std::string, double>>& pieces, std::optional<int32_t> unknown_id,
      bool byte_fallback);

  // Time is linear in the length of the word (times the longest token's). Memory is that of the
  // longest stretch that tokens reach across.
  absl::Status Encode(std::string_view word, double score, ModelBuffers* buffers) const override;
  absl::StatusOr<size_t> EncodeOpen(std::string_view word, absl::FunctionRef<bool(size_t)> may_cut,
                                    double* score, ModelBuffers* buffers) const override;

 private:
  UnigramModel(TextMap<int32_t> vocabulary,
               const std::vector<std::pair<std::string, double>>& pieces,
               std::optional<int32_t> unknown_id, bool byte_fallback);

  // The places that every way through the word passes are called settled. Calls
  // settled(offset, score) at each of them but the beginning, and stops if it returns false.
  absl::Status Search(std::string_view word, double score, ModelBuffers* buffers,
                      absl::FunctionRef<void(size_t offset, double score)> settled) const;
  // Appends the tokens of the best way from the settled place `begin` to `end`.
  void Walk(std::string_view word, size_t begin, size_t end, ModelBuffers* buffers) const;
  // Ends the run of unknown characters [begin, end), if there is one.
  void WriteUnknown(std::string_view word, size_t begin, size_t end,
                    std::vector<TokenAt>* tokens) const;

  std::vector<double> scores_;  // by id
  std::optional<int32_t> unknown_id_;
  double unknown_score_;
  size_t longest_ = 0;  // bytes of the longest token
  bool byte_fallback_;
  int32_t byte_ids_[256];  // -1: none
  TokenTrie trie_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_MODEL_UNIGRAM_MODEL_H_
