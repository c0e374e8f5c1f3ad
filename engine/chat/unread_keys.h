// Refuses what a conversation has and its chat template does not read: it would be lost in silence.
#ifndef MEGATRAIN_ENGINE_CHAT_UNREAD_KEYS_H_
#define MEGATRAIN_ENGINE_CHAT_UNREAD_KEYS_H_

#include "absl/status/status.h"
#include "engine/chat/conversation.h"
#include "engine/chat/jinja/jinja_program.h"

namespace megatrain {

// The names that records and templates have for an assistant's reasoning; any of them stands for
// all.
inline constexpr const char* kReasoningKeys[] = {"reasoning_content", "thinking", "reasoning"};

// Checks that the program mentions everything in the conversation that could change its text: its
// tools, documents, chat_template_kwargs, and the keys of its messages but for role, content, name
// and tool_call_id. What is empty holds nothing that could be lost. Returns InvalidArgument with
// the key, and with the number of its message.
absl::Status CheckRead(const JinjaProgram& program, const Conversation& conversation);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHAT_UNREAD_KEYS_H_
