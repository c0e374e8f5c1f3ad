#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/chat/chat_renderers.h"
#include "engine/tokenizer/text/text_map.h"

namespace megatrain {
namespace {

// Stanford Alpaca's prompt, the response right behind it, and the end-of-text token.
class AlpacaTemplate : public ChatTemplate {
 public:
  explicit AlpacaTemplate(std::string eos) : eos_(std::move(eos)) {}

  absl::StatusOr<Rendered> RenderText(absl::Span<const ChatMessage> messages) const override {
    MT_RETURN_IF_ERROR(CheckMessages(messages));
    if (messages.size() != 2 || messages[0].role != "user" || messages[1].role != "assistant") {
      return absl::InvalidArgumentError(absl::StrFormat(
          "the alpaca template takes one user's message and the assistant's answer to it, not this "
          "conversation of %d (use chatml or llama3)",
          messages.size()));
    }
    const ChatMessage& user = messages[0];
    Rendered out;
    if (user.input_begin > 0 && user.input_begin <= user.content.size()) {
      const std::string_view content = user.content;
      absl::StrAppend(
          &out.text,
          "Below is an instruction that describes a task, paired with an input that provides "
          "further context. Write a response that appropriately completes the request.\n\n"
          "### Instruction:\n",
          ToAbsl(content.substr(0, user.input_begin - 1)), "\n\n### Input:\n",
          ToAbsl(content.substr(user.input_begin)), "\n\n### Response:");
    } else {
      absl::StrAppend(&out.text,
                      "Below is an instruction that describes a task. Write a response that "
                      "appropriately completes the request.\n\n### Instruction:\n",
                      user.content, "\n\n### Response:");
    }
    const size_t begin = out.text.size();
    absl::StrAppend(&out.text, messages[1].content, eos_);
    out.target.emplace_back(begin, out.text.size());
    return out;
  }

  std::string fingerprint() const override { return absl::StrCat("alpaca-v1 eos=", eos_); }

 private:
  const std::string eos_;
};

}  // namespace

std::unique_ptr<ChatTemplate> MakeAlpacaTemplate(std::string eos) {
  return std::make_unique<AlpacaTemplate>(std::move(eos));
}

}  // namespace megatrain
