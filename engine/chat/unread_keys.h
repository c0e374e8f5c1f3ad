// Refuses a conversation with parts that its chat template does not read, because they would be
// lost in silence.
#ifndef MEGATRAIN_ENGINE_CHAT_UNREAD_KEYS_H_
#define MEGATRAIN_ENGINE_CHAT_UNREAD_KEYS_H_

#include <algorithm>
#include <iterator>
#include <string_view>

#include "absl/status/status.h"
#include "engine/chat/conversation.h"
#include "engine/chat/jinja/jinja_program.h"

namespace megatrain {

// The names that records and templates use for an assistant's reasoning. A record may use one and
// its template another: the renderer fills `thinking` and `reasoning_content` from any of them.
inline constexpr const char* kReasoningKeys[] = {"reasoning_content", "thinking", "reasoning"};
inline bool IsReasoning(std::string_view key) {
  return std::find(std::begin(kReasoningKeys), std::end(kReasoningKeys), key) !=
         std::end(kReasoningKeys);
}

// Checks that the program mentions everything in the conversation that could change its text: its
// tools, documents, chat_template_kwargs, and the keys of its messages but for role, content, name
// and tool_call_id. A key of kReasoningKeys also passes if the program mentions `thinking` or
// `reasoning_content`. Empty values are not checked, since nothing can be lost. Returns
// InvalidArgument with the key, and with the number of its message, for the first one that the
// program does not mention.
absl::Status CheckRead(const JinjaProgram& program, const Conversation& conversation);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHAT_UNREAD_KEYS_H_
