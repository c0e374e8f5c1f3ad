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

// Finds the tokens with the greatest sum of log probabilities by Viterbi's search. The FP64 sums
// are taken from left to right, as in `tokenizers` (Hugging Face's library). If sums are equal, the
// way whose last token is longest wins. A character that is no token scores 10 less than the least
// probable token. A run of such characters becomes the token with that text if there is one. Else,
// with `byte_fallback`, it becomes the tokens of its bytes if each byte has one. Else it becomes
// one unknown token.
class UnigramModel : public TokenModel {
 public:
  // pieces[id] is (token, log probability), and is copied. Without `unknown_id`, Encode and
  // EncodeOpen return InvalidArgument for a character that is no token. Make returns
  // InvalidArgument if a token is there twice, a score is not finite, or `unknown_id` is not an id.
  static absl::StatusOr<std::unique_ptr<TokenModel>> Make(
      const std::vector<std::pair<std::string, double>>& pieces, std::optional<int32_t> unknown_id,
      bool byte_fallback);

  // Takes O(bytes of the word * bytes of the longest token). Beside the tokens, memory does not
  // grow with the word, but with its longest stretch whose best tokens depend on what follows.
  absl::Status Encode(std::string_view word, const WordState& state,
                      ModelBuffers* buffers) const override;
  absl::StatusOr<size_t> EncodeOpen(std::string_view word, absl::FunctionRef<bool(size_t)> may_cut,
                                    WordState* state, ModelBuffers* buffers) const override;

 private:
  // A place that every best way through the word passes.
  struct Settled {
    size_t offset;
    double score;  // of the tokens before it
    bool unknown;  // the last of them is unknown
  };

  UnigramModel(TextMap<int32_t> vocabulary,
               const std::vector<std::pair<std::string, double>>& pieces,
               std::optional<int32_t> unknown_id, bool byte_fallback);

  // Calls settled(place) at settled places up to `limit`, from left to right; buffers->paths are
  // then from the settled place before. Sets `*origin` to the last of them, from which the paths
  // are at the end.
  absl::Status Search(std::string_view word, double score, size_t limit, ModelBuffers* buffers,
                      size_t* origin, absl::FunctionRef<void(const Settled&)> settled) const;
  // Returns the last place that is on the ways to all of `places`. The paths are from `origin`.
  static size_t Meet(const std::vector<BestPath>& paths, size_t origin, std::vector<size_t> places);
  // Appends the tokens of the best way from the settled place `begin` to `end`.
  void Walk(size_t begin, size_t end, ModelBuffers* buffers) const;
  // Does as Encode, for a word that goes on after `word` if `open`.
  absl::Status EncodePart(std::string_view word, const WordState& state, bool open,
                          ModelBuffers* buffers) const;
  // Writes the run of unknown characters [begin, end), if there is one. Of a `long_run`, longer
  // than any token, this may be a part; `rest` says that it is not the first.
  void WriteUnknown(std::string_view word, size_t begin, size_t end, bool long_run, bool rest,
                    std::vector<TokenAt>* tokens) const;

  std::vector<double> scores_;  // by id
  std::optional<int32_t> unknown_id_;
  double unknown_score_;
  size_t longest_ = 0;  // bytes of the longest token
  bool byte_fallback_;
  int32_t byte_ids_[256];  // -1: none
  bool all_bytes_ = true;  // every byte has a token
  TokenTrie trie_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_MODEL_UNIGRAM_MODEL_H_
