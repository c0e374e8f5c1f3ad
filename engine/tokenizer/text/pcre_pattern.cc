#include "engine/tokenizer/text/pcre_pattern.h"

#include "absl/strings/str_cat.h"
#include "engine/tokenizer/text/text_map.h"
#include "engine/tokenizer/text/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace megatrain {
namespace {

// Enough for a backtracking group to step over this much of one word; known patterns backtrack over
// single characters only, which needs no stack.
constexpr size_t kJitStackBytesMax = size_t{64} << 20;

std::string ErrorText(int error) {
  PCRE2_UCHAR buffer[256];
  if (pcre2_get_error_message(error, buffer, sizeof(buffer)) < 0) return "unknown error";
  return reinterpret_cast<const char*>(buffer);
}

// Returns true if a ^ in `pattern` may stand for the beginning of a line.
bool HasLineBegin(std::string_view pattern) {
  bool in_class = false;
  for (size_t at = 0; at < pattern.size(); ++at) {
    const char c = pattern[at];
    if (c == '^' && !in_class) return true;
    if (c == '\\') {
      ++at;
    } else if (c == '[' || c == ']') {
      in_class = c == '[';
    }
  }
  return false;
}

// The memory of one call of ForEachMatch.
class Workspace {
 public:
  explicit Workspace(const pcre2_code* code)
      : data_(pcre2_match_data_create_from_pattern(code, nullptr)) {}
  ~Workspace() {
    pcre2_match_data_free(data_);
    pcre2_match_context_free(context_);
    pcre2_jit_stack_free(stack_);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  pcre2_match_data* data() { return data_; }
  pcre2_match_context* context() { return context_; }

  // Replaces JIT's default 32 KiB of stack; false if that was done before.
  bool GrowStack() {
    if (stack_ != nullptr) return false;
    stack_ = pcre2_jit_stack_create(size_t{1} << 16, kJitStackBytesMax, nullptr);
    context_ = pcre2_match_context_create(nullptr);
    if (stack_ == nullptr || context_ == nullptr) return false;
    pcre2_jit_stack_assign(context_, nullptr, stack_);
    return true;
  }

 private:
  pcre2_match_data* data_;
  pcre2_match_context* context_ = nullptr;
  pcre2_jit_stack* stack_ = nullptr;
};

}  // namespace

struct PcrePattern::Code {
  explicit Code(pcre2_code* code) : code(code) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  pcre2_code* const code;
};

PcrePattern::PcrePattern(std::string_view pattern, std::string_view source)
    : pattern_(pattern), source_(source) {}
PcrePattern::~PcrePattern() = default;

absl::StatusOr<std::unique_ptr<PcrePattern>> PcrePattern::Compile(std::string_view pattern,
                                                                  std::string_view source) {
  auto result = std::unique_ptr<PcrePattern>(new PcrePattern(pattern, source));
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  if (context == nullptr) return absl::ResourceExhaustedError("no memory for PCRE2");
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context, 100);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* const code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (code == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("the regular expression \"", ToAbsl(source),
                                                   "\" cannot be compiled: ", ErrorText(error)));
  }
  result->code_ = std::make_unique<Code>(code);
  uint32_t lookbehind = 0, empty = 0;  // the translator lets no \b, \B, \G or \K through
  pcre2_pattern_info(code, PCRE2_INFO_MAXLOOKBEHIND, &lookbehind);
  pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &empty);
  result->looks_back_ = lookbehind > 0 || empty != 0 || HasLineBegin(pattern);
  // A processor or a policy without JIT leaves the interpreter: slower, the same matches.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  return result;
}

absl::Status PcrePattern::ForEachMatch(std::string_view text, size_t from,
                                       absl::FunctionRef<void(size_t begin, size_t end)> match,
                                       size_t* known) const {
  Workspace workspace(code_->code);
  if (workspace.data() == nullptr) return absl::ResourceExhaustedError("no memory for PCRE2");
  // With PARTIAL_HARD a match counts only if matching never looked at the end of the text.
  const uint32_t options = PCRE2_NO_UTF_CHECK | (known != nullptr ? PCRE2_PARTIAL_HARD : 0);
  size_t last_end = std::string_view::npos;
  if (known != nullptr) *known = text.size();
  while (from <= text.size()) {
    const int found =
        pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                    options, workspace.data(), workspace.context());
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found == PCRE2_ERROR_JIT_STACKLIMIT && workspace.GrowStack()) continue;
    const PCRE2_SIZE* ovector = pcre2_get_ovector_pointer(workspace.data());
    if (found == PCRE2_ERROR_PARTIAL && known != nullptr) {
      *known = ovector[0];
      break;
    }
    if (found < 0) {
      return absl::ResourceExhaustedError(absl::StrCat("the regular expression \"", source_,
                                                       "\" gave up at byte ", from, ": ",
                                                       ErrorText(found)));
    }
    const size_t begin = ovector[0];
    const size_t end = ovector[1];
    if (begin == end && begin == last_end) {
      if (from >= text.size()) break;
      from += Utf8Length(static_cast<unsigned char>(text[from]));
      continue;
    }
    match(begin, end);
    from = end;
    last_end = end;
  }
  return absl::OkStatus();
}

}  // namespace megatrain
