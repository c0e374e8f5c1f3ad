#include "engine/chat/chat_renderers.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/tokenizer/text/text_map.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {

absl::Status CheckMessages(absl::Span<const ChatMessage> messages) {
  if (messages.empty()) return absl::InvalidArgumentError("a conversation without messages");
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (message.role != "system" && message.role != "user" && message.role != "assistant") {
      return absl::InvalidArgumentError(absl::StrFormat(
          "messages[%d]: role \"%s\" is none of system, user, assistant", i, message.role));
    }
    const absl::Status status = CheckUtf8(message.content);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("messages[", i, "].content: ", status.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckAlternation(absl::Span<const ChatMessage> messages, size_t system_messages,
                              std::string_view family) {
  for (size_t i = system_messages; i < messages.size(); ++i) {
    const bool users_turn = (i - system_messages) % 2 == 0;
    if ((messages[i].role == "user") == users_turn) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "messages[%d] is the %s's: the %s template's roles alternate user/assistant/user/..., and "
        "it is %s turn",
        i, messages[i].role, ToAbsl(family), users_turn ? "the user's" : "the assistant's"));
  }
  return absl::OkStatus();
}

absl::Status SystemRefused(std::string_view family) {
  return absl::InvalidArgumentError(
      absl::StrCat("messages[0]: this ", ToAbsl(family),
                   " template takes no system message (put it into the first user's message)"));
}

// White_Space and the separators U+001C to U+001F.
std::string_view PythonStrip(std::string_view text) {
  const auto is_space = [](char32_t c) { return IsWhiteSpace(c) || (c >= 0x1c && c <= 0x1f); };
  while (!text.empty() && is_space(Utf8At(text, 0))) {
    text.remove_prefix(Utf8Length(static_cast<unsigned char>(text[0])));
  }
  while (!text.empty()) {
    const size_t last = Utf8Before(text, text.size());
    if (!is_space(Utf8At(text, last))) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

}  // namespace megatrain
