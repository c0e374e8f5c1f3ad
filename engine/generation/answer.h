// Answer: the text that a model writes behind a prompt, token by token, until something stops it.
#ifndef MEGATRAIN_ENGINE_GENERATION_ANSWER_H_
#define MEGATRAIN_ENGINE_GENERATION_ANSWER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "engine/tokenizer/tokenizer.h"

namespace megatrain {

// The rules that end an answer before it has its greatest length. The answer ends before one of
// these tokens, or before one of these texts in what is written.
struct StopRules {
  std::vector<int32_t> ids;
  std::vector<std::string> texts;  // none of them empty
};

// An answer that is being written. Not thread-safe.
class Answer {
 public:
  // `tokenizer` and `stop` must outlive this object; `prompt` is copied. `tokens_max` is the
  // greatest number of the answer's tokens. REQUIRES: tokens_max >= 1.
  Answer(const Tokenizer& tokenizer, const StopRules& stop, absl::Span<const int32_t> prompt,
         int64_t tokens_max);

  // Adds a token. Returns the text that is certain now and was not returned before, in whole UTF-8
  // characters. The end of the text is not certain as long as it may be the beginning of a stop
  // text and the answer goes on. Special tokens have no text. REQUIRES: !ended().
  std::string Take(int32_t token);

  bool ended() const { return ended_; }
  // Returns true if a stop ended the answer, false if its length did. REQUIRES: ended().
  bool stopped() const { return stopped_; }
  // Returns all text that Take returned, one after another.
  const std::string& text() const { return text_; }
  // Returns the tokens of the prompt and of the answer. A token of StopRules::ids is not among
  // them, but those of a text that stopped the answer are.
  const std::vector<int32_t>& ids() const { return ids_; }
  // Returns the number of the answer's tokens in ids().
  int64_t tokens() const { return static_cast<int64_t>(ids_.size() - prompt_tokens_); }

 private:
  std::string WrittenText() const;
  std::string End(bool stopped, const std::string& written, size_t end);

  const Tokenizer& tokenizer_;
  const StopRules& stop_;
  const size_t prompt_tokens_;
  const size_t tokens_max_;
  std::vector<int32_t> ids_;
  std::vector<int32_t> context_;  // the prompt's last tokens, then the answer's
  size_t context_bytes_ = 0;      // of the text of the prompt's tokens among them
  size_t settled_ = 0;            // bytes of text_ that context_ no longer gives
  std::string text_;
  bool ended_ = false, stopped_ = false;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_GENERATION_ANSWER_H_
