#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/chat_renderers.h"
#include "engine/tokenizer/text/text_map.h"

namespace megatrain {
namespace {

// <start_of_turn>role\ncontent<end_of_turn>\n for each message, bos before all. The assistant's
// role is "model"; contents are trimmed, Gemma 3's system text is not.
class GemmaTemplate : public ChatTemplate {
 public:
  GemmaTemplate(ChatVariant variant, std::string bos)
      : system_(variant.system), bos_(variant.bos ? std::move(bos) : "") {}

  absl::StatusOr<Rendered> RenderText(absl::Span<const ChatMessage> messages) const override {
    MT_RETURN_IF_ERROR(CheckMessages(messages));
    const size_t system_messages = messages[0].role == "system" ? 1 : 0;
    if (system_messages > 0 && system_ == SystemPlace::kRefused) return SystemRefused("gemma");
    MT_RETURN_IF_ERROR(CheckAlternation(messages, system_messages, "gemma"));
    Rendered out;
    out.text = bos_;
    for (size_t i = system_messages; i < messages.size(); ++i) {
      const bool assistant = messages[i].role == "assistant";
      absl::StrAppend(&out.text, "<start_of_turn>", assistant ? "model" : messages[i].role, "\n");
      if (i > 0 && i == system_messages) absl::StrAppend(&out.text, messages[0].content, "\n\n");
      const size_t begin = out.text.size();
      absl::StrAppend(&out.text, ToAbsl(PythonStrip(messages[i].content)), "<end_of_turn>");
      if (assistant) out.target.emplace_back(begin, out.text.size());
      out.text += "\n";
    }
    return out;
  }

  std::string fingerprint() const override {
    return absl::StrCat("gemma-v1 bos=", bos_, " system=", static_cast<int>(system_));
  }

 private:
  const SystemPlace system_;
  const std::string bos_;
};

}  // namespace

std::unique_ptr<ChatTemplate> MakeGemmaTemplate(ChatVariant variant, std::string bos) {
  return std::make_unique<GemmaTemplate>(std::move(variant), std::move(bos));
}

}  // namespace megatrain
