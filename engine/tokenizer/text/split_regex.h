// Regular expressions of pre-tokenizers. They match as Oniguruma (Ruby syntax, UTF-8) does in
// `tokenizers`, and are run by PCRE2.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TEXT_SPLIT_REGEX_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TEXT_SPLIT_REGEX_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain {

// Translates a pattern from Oniguruma's syntax to a PCRE2 pattern (for UTF, UCP and MULTILINE) that
// matches the same. Returns Unimplemented, naming the construct, for one that the two read
// differently and that has no translation here, and InvalidArgument for invalid UTF-8.
absl::StatusOr<std::string> TranslateRegex(std::string_view pattern);

// Returns `text` with all characters escaped that have a meaning in regular expressions.
std::string EscapeRegex(std::string_view text);

// Thread safety: const methods may be called from several threads.
class SplitRegex {
 public:
  // `pattern` is in Oniguruma's syntax. Returns the errors of TranslateRegex, and InvalidArgument
  // if the pattern cannot be compiled.
  static absl::StatusOr<std::unique_ptr<SplitRegex>> Compile(std::string_view pattern);
  ~SplitRegex();
  SplitRegex(const SplitRegex&) = delete;
  SplitRegex& operator=(const SplitRegex&) = delete;

  // Calls match(begin, end) for the matches from left to right, which do not overlap. An empty
  // match directly after another match is skipped. Returns ResourceExhausted if the matcher runs
  // out of memory or gives up. REQUIRES: `text` is well-formed UTF-8.
  absl::Status ForEachMatch(std::string_view text,
                            absl::FunctionRef<void(size_t begin, size_t end)> match) const;

 private:
  struct State;
  explicit SplitRegex(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TEXT_SPLIT_REGEX_H_
