// SplitRegex is a regular expression of a pre-tokenizer. It matches as Oniguruma (Ruby syntax,
// UTF-8) does in `tokenizers` (Hugging Face's library).
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TEXT_SPLIT_REGEX_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TEXT_SPLIT_REGEX_H_

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain {

class MatchProgram;  // match_program.h
class PcrePattern;   // pcre_pattern.h

// Translates a pattern of Oniguruma's syntax to one that matches the same in PcrePattern. Returns
// Unimplemented, naming the construct, if Oniguruma and PCRE2 read it differently and there is no
// translation here, or if a group, class or interval is not closed. Returns it also for a pattern
// that is longer than 16 KiB, has a zero byte or has groups nested more than 64 deep. Returns
// InvalidArgument for invalid UTF-8.
absl::StatusOr<std::string> TranslateRegex(std::string_view pattern);

// Returns `text` with its ASCII punctuation escaped, so that as a pattern it matches itself.
std::string EscapeRegex(std::string_view text);

// A compiled pattern. A MatchProgram runs it if it can, else PCRE2. If the program gives up in a
// text, PCRE2 goes on there. Thread safety: const methods may be called from several threads.
class SplitRegex {
 public:
  // `pattern` is in Oniguruma's syntax. Returns the errors of TranslateRegex and of
  // PcrePattern::Compile.
  static absl::StatusOr<std::unique_ptr<SplitRegex>> Compile(std::string_view pattern);
  // `pattern` is in PCRE2's syntax. REQUIRES: it can be compiled.
  static std::unique_ptr<SplitRegex> CompilePcre(std::string_view pattern);
  ~SplitRegex();
  SplitRegex(const SplitRegex&) = delete;
  SplitRegex& operator=(const SplitRegex&) = delete;

  // Calls match(begin, end), with offsets in bytes, for the matches, which do not overlap, from
  // left to right. An empty match directly after another match is skipped. Returns
  // ResourceExhausted if PCRE2 runs out of memory or gives up, or if matching looks at the text too
  // often; `match` may have been called before. REQUIRES: `text` is well-formed UTF-8.
  absl::Status ForEachMatch(std::string_view text,
                            absl::FunctionRef<void(size_t begin, size_t end)> match) const;

  // Does as ForEachMatch for a text that may go on, but calls `match` only for the matches that are
  // the same whatever follows. Sets `*known` to the offset from which on matches depend on what
  // follows. For a pattern that looks at the text before its match or can match the empty text,
  // `*known` is 0 and `match` is not called.
  absl::Status ForEachSettledMatch(std::string_view text,
                                   absl::FunctionRef<void(size_t begin, size_t end)> match,
                                   size_t* known) const;

  // Returns the program that runs the pattern, valid as long as this object. Returns null if PCRE2
  // alone runs it: MatchProgram::Make does not take the pattern, or the pattern looks at the text
  // before its match or can match the empty text. The first call makes the program.
  const MatchProgram* program() const;

  // Returns the pattern as it was given. Valid as long as this object.
  std::string_view pattern() const { return pattern_; }

 private:
  SplitRegex(std::string_view pattern, std::unique_ptr<const PcrePattern> pcre);
  absl::Status Run(std::string_view text, absl::FunctionRef<void(size_t begin, size_t end)> match,
                   size_t* known) const;

  const std::string pattern_;
  const std::unique_ptr<const PcrePattern> pcre_;
  mutable std::once_flag program_once_;
  mutable std::unique_ptr<const MatchProgram> program_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TEXT_SPLIT_REGEX_H_
