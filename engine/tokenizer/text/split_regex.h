// A pre-tokenizer's regular expression, which behaves as Oniguruma (Ruby syntax, UTF-8) does in
// `tokenizers`, run by PCRE2.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TEXT_SPLIT_REGEX_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TEXT_SPLIT_REGEX_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain {

// The PCRE2 pattern (for UTF, UCP and MULTILINE) that matches what Oniguruma matches by `pattern`.
// A construct that the two take differently and that has no translation here is refused by name.
absl::StatusOr<std::string> TranslateRegex(std::string_view pattern);

// `text` with every character that a regular expression treats specially escaped.
std::string EscapeRegex(std::string_view text);

// Thread safety: const methods may be called from several threads.
class SplitRegex {
 public:
  // `pattern` in Oniguruma's syntax.
  static absl::StatusOr<std::unique_ptr<SplitRegex>> Compile(std::string_view pattern);
  ~SplitRegex();
  SplitRegex(const SplitRegex&) = delete;
  SplitRegex& operator=(const SplitRegex&) = delete;

  // Calls match(begin, end) for the matches from left to right, none overlapping; an empty match
  // right behind another match is passed over. REQUIRES: `text` is well-formed UTF-8.
  absl::Status ForEachMatch(std::string_view text,
                            absl::FunctionRef<void(size_t begin, size_t end)> match) const;

 private:
  struct State;
  explicit SplitRegex(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TEXT_SPLIT_REGEX_H_
