// Conversation is the conversation of one record, a training example or a prompt, as chat templates
// take it. Its values are those of Jinja programs (jinja/jinja_value.h).
#ifndef MEGATRAIN_ENGINE_CHAT_CONVERSATION_H_
#define MEGATRAIN_ENGINE_CHAT_CONVERSATION_H_

#include <string>
#include <string_view>
#include <vector>

#include "engine/chat/jinja/jinja_program.h"
#include "engine/chat/jinja/jinja_value.h"

namespace megatrain {

struct ChatMessage {
  // The keys of the message, in its order: role, content, tool_calls and so on, but not weight. A
  // content is a string, or a list of parts {"type": "text", "text": "..."}. No value is null, and
  // no key is there twice; values within lists and dicts may be null. Texts are well-formed UTF-8.
  JinjaValue::Entries fields;
  // False excludes an assistant's message from the loss: its record has `weight: 0`, or it belongs
  // to the prompt of a preference pair. data.train_on chooses among the others (TrainOn in
  // rendered_chat.h). Ignored for other roles.
  bool trained = true;
  std::string role;  // the role of `fields`
  // The content; "" if there is none. If the content is a list of parts, their texts, joined by
  // line feeds.
  std::string text;
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
  JinjaValue tools = JinjaValue::None();      // a list of dicts; None if the record has none
  JinjaValue documents = JinjaValue::None();  // as tools
  JinjaVariables kwargs;  // the record's chat_template_kwargs, for the template alone
  // The fields `instruction` and, unless it is empty, `input` of an alpaca record, for templates
  // that look at them.
  JinjaVariables alpaca;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHAT_CONVERSATION_H_
