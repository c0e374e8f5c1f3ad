// How text is cut into the words that are merged separately: a chain of splits.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TEXT_PRE_TOKENIZER_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TEXT_PRE_TOKENIZER_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/tokenizer/text/split_regex.h"

namespace megatrain {

// What happens to a match: as SplitDelimiterBehavior of `tokenizers`.
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// A piece of a text: [begin, end).
using TextPiece = std::pair<size_t, size_t>;

// Thread safety: const methods may be called from several threads.
class PreTokenizer {
 public:
  // Steps apply one after the other, each to every piece that the steps before it left.
  // `invert`: what lies between matches is treated as matches, and the reverse.
  absl::Status AddSplit(std::string_view regex, SplitBehavior behavior, bool invert);
  // A space is put before each piece that does not begin with one. Only as the first step, where
  // the caller does it: see needs_prefix_space.
  void SetPrefixSpace() { prefix_space_ = true; }

  bool needs_prefix_space() const { return prefix_space_; }

  // Calls give(begin, end) for the pieces of `text`, well-formed UTF-8, from left to right; they
  // are not empty. Memory does not grow with the number of pieces where every split isolates.
  absl::Status Cut(std::string_view text, absl::FunctionRef<void(size_t, size_t)> give) const;

 private:
  struct Step {
    std::unique_ptr<SplitRegex> regex;
    SplitBehavior behavior;
    bool invert;
  };
  // Steps from `step` on, applied to text[piece].
  absl::Status CutFrom(size_t step, std::string_view text, TextPiece piece,
                       absl::FunctionRef<void(size_t, size_t)> give) const;

  std::vector<Step> steps_;
  bool prefix_space_ = false;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TEXT_PRE_TOKENIZER_H_
