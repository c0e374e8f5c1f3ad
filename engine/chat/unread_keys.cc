#include "engine/chat/unread_keys.h"

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

absl::Status Unread(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(
      what,
      ", which the chat template does not read; remove it, or choose another template with "
      "data.chat_template"));
}

}  // namespace

absl::Status CheckRead(const JinjaProgram& program, const Conversation& conversation) {
  if (!conversation.tools.is_empty() && !program.mentions("tools")) {
    return Unread("the record has tools");
  }
  if (!conversation.documents.is_empty() && !program.mentions("documents")) {
    return Unread("the record has documents");
  }
  for (const auto& [key, value] : conversation.kwargs) {
    if (!value.is_empty() && !program.mentions(key)) {
      return Unread(absl::StrCat("the record has chat_template_kwargs.", key));
    }
  }
  const bool reads_reasoning =
      program.reads_key("reasoning_content") || program.reads_key("thinking");
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    for (const auto& [key, value] : conversation.messages[i].fields) {
      if (key == "role" || key == "content" || key == "name" || key == "tool_call_id") continue;
      if (value.is_empty()) continue;
      if ((IsReasoning(key) && reads_reasoning) || program.reads_key(key)) continue;
      return Unread(absl::StrCat("messages[", i, "] has ", key));
    }
  }
  return absl::OkStatus();
}

}  // namespace megatrain
