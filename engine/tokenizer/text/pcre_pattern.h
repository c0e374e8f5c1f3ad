// PcrePattern is a regular expression that PCRE2 runs.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TEXT_PCRE_PATTERN_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TEXT_PCRE_PATTERN_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain {

// Matches by backtracking, in time that may grow much faster than the text. Thread safety: const
// methods may be called from several threads.
class PcrePattern {
 public:
  // `pattern` is in PCRE2's syntax, with its options UTF, UCP and MULTILINE and LF as the only
  // newline. Errors show `source`, the pattern as the user wrote it. Returns InvalidArgument if
  // PCRE2 does not compile `pattern`, and ResourceExhausted if there is no memory to begin.
  static absl::StatusOr<std::unique_ptr<PcrePattern>> Compile(std::string_view pattern,
                                                              std::string_view source);
  ~PcrePattern();
  PcrePattern(const PcrePattern&) = delete;
  PcrePattern& operator=(const PcrePattern&) = delete;

  // Calls match(begin, end) for the matches in the text from the byte `from` on, which do not
  // overlap, from left to right. An empty match directly after another match is skipped. Returns
  // ResourceExhausted if PCRE2 runs out of memory or gives up. REQUIRES: `text` is well-formed
  // UTF-8, and a character begins or ends at `from`.
  //
  // If `known` is not null, the text may go on. `match` is then called only for the matches that
  // are the same whatever follows, and `*known` becomes the offset from which on matches depend on
  // what follows. REQUIRES in that case: !looks_back().
  absl::Status ForEachMatch(std::string_view text, size_t from,
                            absl::FunctionRef<void(size_t begin, size_t end)> match,
                            size_t* known) const;

  // Returns true if a match may depend on what is before it, or may be empty.
  bool looks_back() const { return looks_back_; }
  // Returns the pattern as it was given. Valid as long as this object.
  std::string_view pattern() const { return pattern_; }

 private:
  struct Code;  // of PCRE2
  PcrePattern(std::string_view pattern, std::string_view source);

  const std::string pattern_;
  const std::string source_;
  std::unique_ptr<Code> code_;
  bool looks_back_ = false;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TEXT_PCRE_PATTERN_H_
