// Cuts text into words by a chain of splits. The words are then merged separately.
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

// The treatment of a match by a split, as in SplitDelimiterBehavior of `tokenizers`.
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// The bytes [begin, end) of a text.
using TextPiece = std::pair<size_t, size_t>;

// Thread safety: const methods may be called from several threads.
class PreTokenizer {
 public:
  // Adds a step, which is applied to every piece that the steps before it left. With `invert`,
  // matches and the text between them change roles. Returns the errors of SplitRegex::Compile.
  absl::Status AddSplit(std::string_view regex, SplitBehavior behavior, bool invert);
  // Makes needs_prefix_space() true. The caller of Cut must then put a space before a text that
  // does not begin with one.
  void SetPrefixSpace() { prefix_space_ = true; }

  bool needs_prefix_space() const { return prefix_space_; }

  // Calls give(begin, end) for the pieces of `text`, from left to right. Pieces are not empty.
  // Memory does not grow with the number of pieces if all splits have kIsolated. Returns the errors
  // of SplitRegex::ForEachMatch. REQUIRES: `text` is well-formed UTF-8.
  absl::Status Cut(std::string_view text, absl::FunctionRef<void(size_t, size_t)> give) const;

 private:
  struct Step {
    std::unique_ptr<SplitRegex> regex;
    SplitBehavior behavior;
    bool invert;
  };
  // Applies the steps from `step` on to `piece` of `text`.
  absl::Status CutFrom(size_t step, std::string_view text, TextPiece piece,
                       absl::FunctionRef<void(size_t, size_t)> give) const;

  std::vector<Step> steps_;
  bool prefix_space_ = false;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TEXT_PRE_TOKENIZER_H_
