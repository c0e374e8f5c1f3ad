#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/chat_renderers.h"
#include "engine/tokenizer/text/text_map.h"

namespace megatrain {
namespace {

std::string_view StripNewlines(std::string_view text, bool left, bool right) {
  while (left && !text.empty() && text.front() == '\n') text.remove_prefix(1);
  while (right && !text.empty() && text.back() == '\n') text.remove_suffix(1);
  return text;
}

// <|im_start|>role\ncontent<|im_end|>\n for each message.
class ChatmlTemplate : public ChatTemplate {
 public:
  explicit ChatmlTemplate(ChatVariant variant) : variant_(std::move(variant)) {}

  absl::StatusOr<Rendered> RenderText(absl::Span<const ChatMessage> messages) const override {
    MT_RETURN_IF_ERROR(CheckMessages(messages));
    Rendered out;
    if (!variant_.default_system.empty() && messages[0].role != "system") {
      absl::StrAppend(&out.text, "<|im_start|>system\n", variant_.default_system, "<|im_end|>\n");
    }
    const size_t last_query = LastQuery(messages);
    for (size_t i = 0; i < messages.size(); ++i) {
      const ChatMessage& message = messages[i];
      absl::StrAppend(&out.text, "<|im_start|>", message.role, "\n");
      const size_t begin = out.text.size();
      if (message.role == "assistant" && variant_.think) {
        AppendReasoned(message.content, i > last_query, i + 1 == messages.size(), &out.text);
      } else {
        out.text += message.content;
      }
      out.text += "<|im_end|>";
      if (message.role == "assistant") out.target.emplace_back(begin, out.text.size());
      out.text += "\n";
    }
    return out;
  }

  std::string fingerprint() const override {
    return absl::StrCat("chatml-v1 think=", variant_.think, variant_.tool_response_wraps,
                        " system=", variant_.default_system);
  }

 private:
  // The last user's message that is not a tool's response; the last message if there is none.
  size_t LastQuery(absl::Span<const ChatMessage> messages) const {
    for (size_t i = messages.size(); i-- > 0;) {
      if (messages[i].role == "user" && !IsToolResponse(messages[i].content)) return i;
    }
    return messages.size() - 1;
  }

  bool IsToolResponse(std::string_view text) const {
    constexpr std::string_view kOpen = "<tool_response>";
    constexpr std::string_view kClose = "</tool_response>";
    if (variant_.tool_response_wraps) {
      return text.substr(0, kOpen.size()) == kOpen && text.size() >= kClose.size() &&
             text.substr(text.size() - kClose.size()) == kClose;
    }
    return text.find(kOpen) != std::string_view::npos &&
           text.find(kClose) != std::string_view::npos;
  }

  static void AppendReasoned(std::string_view content, bool after_query, bool is_last,
                             std::string* text) {
    constexpr std::string_view kOpen = "<think>";
    constexpr std::string_view kClose = "</think>";
    std::string_view reasoning;
    if (const size_t first = content.find(kClose); first != std::string_view::npos) {
      reasoning = StripNewlines(content.substr(0, first), false, true);
      if (const size_t open = reasoning.rfind(kOpen); open != std::string_view::npos) {
        reasoning.remove_prefix(open + kOpen.size());
      }
      reasoning = StripNewlines(reasoning, true, false);
      content.remove_prefix(content.rfind(kClose) + kClose.size());
      content = StripNewlines(content, true, false);
    }
    if (after_query && (is_last || !reasoning.empty())) {
      absl::StrAppend(text, "<think>\n", ToAbsl(StripNewlines(reasoning, true, true)),
                      "\n</think>\n\n", ToAbsl(StripNewlines(content, true, false)));
    } else {
      *text += content;
    }
  }

  const ChatVariant variant_;
};

}  // namespace

std::unique_ptr<ChatTemplate> MakeChatmlTemplate(ChatVariant variant) {
  return std::make_unique<ChatmlTemplate>(std::move(variant));
}

}  // namespace megatrain
