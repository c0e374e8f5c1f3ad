#include "engine/tokenizer/text/split_regex.h"

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/tokenizer/text/match_program.h"
#include "engine/tokenizer/text/pcre_pattern.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

// Each attempt to match may go on to the end of the text, and there may be one at each character.
// Known patterns look at no text more than a few times.
constexpr size_t kFollowedMax = 64;                   // times the text's bytes
constexpr size_t kFollowedAlways = size_t{16} << 20;  // more bytes, for short texts

}  // namespace

SplitRegex::SplitRegex(std::string_view pattern, std::unique_ptr<const PcrePattern> pcre)
    : pattern_(pattern), pcre_(std::move(pcre)) {}
SplitRegex::~SplitRegex() = default;

absl::StatusOr<std::unique_ptr<SplitRegex>> SplitRegex::Compile(std::string_view pattern) {
  MT_ASSIGN_OR_RETURN(const std::string translated, TranslateRegex(pattern));
  MT_ASSIGN_OR_RETURN(auto pcre, PcrePattern::Compile(translated, pattern));
  return std::unique_ptr<SplitRegex>(new SplitRegex(pattern, std::move(pcre)));
}

std::unique_ptr<SplitRegex> SplitRegex::CompilePcre(std::string_view pattern) {
  return std::unique_ptr<SplitRegex>(
      new SplitRegex(pattern, *PcrePattern::Compile(pattern, pattern)));
}

const MatchProgram* SplitRegex::program() const {
  std::call_once(program_once_, [this] {
    if (!pcre_->looks_back()) program_ = MatchProgram::Make(pcre_->pattern());
  });
  return program_.get();
}

absl::Status SplitRegex::ForEachMatch(
    std::string_view text, absl::FunctionRef<void(size_t begin, size_t end)> match) const {
  return Run(text, match, nullptr);
}

absl::Status SplitRegex::ForEachSettledMatch(
    std::string_view text, absl::FunctionRef<void(size_t begin, size_t end)> match,
    size_t* known) const {
  *known = 0;
  return pcre_->looks_back() ? absl::OkStatus() : Run(text, match, known);
}

absl::Status SplitRegex::Run(std::string_view text,
                             absl::FunctionRef<void(size_t begin, size_t end)> match,
                             size_t* known) const {
  size_t from = 0;
  size_t followed = 0;  // in bytes, by all attempts
  if (const MatchProgram* const program = this->program(); program != nullptr) {
    if (known != nullptr) *known = text.size();
    while (from < text.size()) {
      MatchProgram::Attempt attempt = program->Follow(text, from, &followed);
      if (followed > kFollowedMax * text.size() + kFollowedAlways) {
        return absl::ResourceExhaustedError(
            absl::StrCat("the regular expression \"", pattern_, "\" gave up at byte ", from,
                         ": it looks at the same text again and again"));
      }
      if (attempt.state == MatchProgram::kGaveUp) break;
      if (attempt.state != MatchProgram::kDone) {
        if (known != nullptr) {
          *known = from;
          return absl::OkStatus();
        }
        attempt.end = program->EndAt(text.size(), attempt);
      }
      if (attempt.end == MatchProgram::kNoMatch) {
        from += Utf8Length(static_cast<unsigned char>(text[from]));
        continue;
      }
      match(from, attempt.end);
      from = attempt.end;
    }
    if (from == text.size()) return absl::OkStatus();
  }
  return pcre_->ForEachMatch(text, from, match, known);
}

}  // namespace megatrain
