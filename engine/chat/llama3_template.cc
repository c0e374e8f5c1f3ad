#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/chat_renderers.h"
#include "engine/tokenizer/text/text_map.h"

namespace megatrain {
namespace {

// <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|> for each message, bos before all.
class Llama3Template : public ChatTemplate {
 public:
  Llama3Template(ChatVariant variant, std::string bos)
      : variant_(std::move(variant)), bos_(std::move(bos)) {}

  absl::StatusOr<Rendered> RenderText(absl::Span<const ChatMessage> messages) const override {
    MT_RETURN_IF_ERROR(CheckMessages(messages));
    Rendered out;
    out.text = bos_;
    if (!variant_.date.empty()) {
      // Llama 3.1: the system turn is always there, with two dates; it takes the first message's.
      std::string_view system;
      if (messages[0].role == "system") {
        system = messages[0].content;
        messages.remove_prefix(1);
      }
      AppendHeader("system", &out.text);
      absl::StrAppend(&out.text,
                      "Cutting Knowledge Date: December 2023\nToday Date: ", variant_.date, "\n\n",
                      ToAbsl(PythonStrip(system)), "<|eot_id|>");
    }
    for (const ChatMessage& message : messages) {
      AppendHeader(message.role, &out.text);
      const size_t begin = out.text.size();
      absl::StrAppend(&out.text, ToAbsl(PythonStrip(message.content)), "<|eot_id|>");
      if (message.role == "assistant") out.target.emplace_back(begin, out.text.size());
    }
    return out;
  }

  std::string fingerprint() const override {
    return absl::StrCat("llama3-v1 bos=", bos_, " date=", variant_.date);
  }

 private:
  static void AppendHeader(const std::string& role, std::string* text) {
    absl::StrAppend(text, "<|start_header_id|>", role, "<|end_header_id|>\n\n");
  }

  const ChatVariant variant_;
  const std::string bos_;
};

}  // namespace

std::unique_ptr<ChatTemplate> MakeLlama3Template(ChatVariant variant, std::string bos) {
  return std::make_unique<Llama3Template>(std::move(variant), std::move(bos));
}

}  // namespace megatrain
