#include "engine/generation/answer.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace megatrain {
namespace {

// The prompt's last tokens that are decoded with the answer. A tokenizer may decode a text's first
// token differently, so the answer's first one must not be that.
constexpr size_t kContextTokens = 16;

// Returns the length of the largest prefix of `text` that does not end inside a UTF-8 character.
size_t WholeCharacters(std::string_view text) {
  size_t end = text.size();
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const unsigned char byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;
    const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    if (length > back) end = text.size() - back;
    break;
  }
  return end;
}

// Returns the length of the longest end of `text` that begins `stop` without being all of it.
size_t Begun(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.substr(text.size() - length) == stop.substr(0, length)) return length;
  }
  return 0;
}

}  // namespace

Answer::Answer(const Tokenizer& tokenizer, const StopRules& stop, absl::Span<const int32_t> prompt,
               int64_t tokens_max)
    : tokenizer_(tokenizer),
      stop_(stop),
      prompt_tokens_(prompt.size()),
      tokens_max_(static_cast<size_t>(tokens_max)),
      ids_(prompt.begin(), prompt.end()),
      context_(prompt.end() - static_cast<std::ptrdiff_t>(std::min(kContextTokens, prompt.size())),
               prompt.end()),
      context_bytes_(tokenizer.Decode(context_, /*skip_special=*/true).size()) {}

std::string Answer::WrittenText() const {
  std::string text = tokenizer_.Decode(context_, /*skip_special=*/true);
  return text_.substr(0, settled_) + text.substr(std::min(text.size(), context_bytes_));
}

std::string Answer::End(bool stopped, const std::string& written, size_t end) {
  ended_ = true;
  stopped_ = stopped;
  end = WholeCharacters(std::string_view(written).substr(0, end));
  if (end <= text_.size()) return "";
  std::string more = written.substr(text_.size(), end - text_.size());
  text_ += more;
  return more;
}

std::string Answer::Take(int32_t token) {
  if (std::find(stop_.ids.begin(), stop_.ids.end(), token) != stop_.ids.end()) {
    const std::string written = WrittenText();
    return End(/*stopped=*/true, written, written.size());
  }
  ids_.push_back(token);
  context_.push_back(token);
  const std::string written = WrittenText();
  // A stop cannot begin before what was certain.
  size_t first = std::string::npos;
  for (const std::string& stop : stop_.texts)
    first = std::min(first, written.find(stop, text_.size()));
  if (first != std::string::npos) return End(/*stopped=*/true, written, first);
  if (ids_.size() - prompt_tokens_ >= tokens_max_) {
    return End(/*stopped=*/false, written, written.size());
  }
  size_t held = 0;
  for (const std::string& stop : stop_.texts) held = std::max(held, Begun(written, stop));
  const size_t end = WholeCharacters(std::string_view(written).substr(0, written.size() - held));
  if (end <= text_.size()) return "";
  std::string more = written.substr(text_.size(), end - text_.size());
  text_ += more;
  // A long context begins anew where all of it is certain, so that a token costs no more and more.
  if (text_.size() == written.size() && context_.size() > 16 * kContextTokens) {
    std::vector<int32_t> tail(context_.end() - kContextTokens, context_.end());
    const size_t bytes = tokenizer_.Decode(tail, /*skip_special=*/true).size();
    if (bytes > 0) {  // else the next token would be decoded as a text's first
      context_ = std::move(tail);
      context_bytes_ = bytes;
      settled_ = text_.size();
    }
  }
  return more;
}

}  // namespace megatrain
