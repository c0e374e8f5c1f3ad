// A conversation as chat templates take it.
#ifndef MEGATRAIN_ENGINE_CHAT_CONVERSATION_H_
#define MEGATRAIN_ENGINE_CHAT_CONVERSATION_H_

#include <string>
#include <string_view>
#include <vector>

#include "engine/chat/jinja/jinja_program.h"
#include "engine/chat/jinja/jinja_value.h"

namespace megatrain {

struct ChatMessage {
  // The keys of the message, in its order: role, content, tool_calls and so on. A content is a
  // string, or a list of parts {"type": "text", "text": "..."}. There are no nulls and no key
  // twice.
  JinjaValue::Entries fields;
  bool trained = true;    // false: no loss is on the message, as it has `weight: 0`
  std::string role;       // the role of `fields`
  std::string text;       // the content, or ""; of a content in parts, their texts, a line each
  bool in_parts = false;  // the content is a list of parts

  // Returns the field, or null if there is none. Valid until `fields` changes.
  const JinjaValue* Find(std::string_view key) const {
    for (const auto& [name, value] : fields) {
      if (name == key) return &value;
    }
    return nullptr;
  }
  bool is_assistant() const { return role == "assistant"; }

  // Makes a message of role and content alone. REQUIRES: both are well-formed UTF-8.
  static ChatMessage Of(std::string role, std::string content) {
    ChatMessage message;
    message.fields = {{"role", JinjaValue::String(role)}, {"content", JinjaValue::String(content)}};
    message.role = std::move(role);
    message.text = std::move(content);
    return message;
  }
};

struct Conversation {
  std::vector<ChatMessage> messages;
  JinjaValue tools = JinjaValue::None();      // a list of dicts
  JinjaValue documents = JinjaValue::None();  // a list of dicts
  JinjaVariables kwargs;  // the record's chat_template_kwargs, for the template alone
  // The fields `instruction` and `input` of an alpaca record, for templates that look at them.
  JinjaVariables alpaca;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHAT_CONVERSATION_H_
