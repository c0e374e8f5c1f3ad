// Reads a conversation from the JSON record of a training example. The results are copies: the
// record may go.
//
// Keys of the record beside the conversation:
//   tools                 a list of objects, or a JSON text of such a list
//   documents             a list of objects
//   chat_template_kwargs  an object: variables for the template
//   system                a text: becomes the first message, unless it is empty. The conversation
//                         must not begin with a system message then.
// Keys that would change what a template renders, and are not among these (functions, tool_choice
// and so on), are refused unless they are empty. All other keys of the record are passed over.
//
// Keys of a message of `messages` are kept for the template, which may refuse them
// (chat_template.h), but for `weight`, and `function_call`, which is refused. A key with null is
// left out, as transformers leaves it out.
#ifndef MEGATRAIN_ENGINE_CHAT_CONVERSATION_RECORD_H_
#define MEGATRAIN_ENGINE_CHAT_CONVERSATION_RECORD_H_

#include <simdjson.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/chat/conversation.h"

namespace megatrain {

// ReadMessages, ReadShareGpt and ReadAlpaca read a record into an empty `*conversation`. All
// functions return InvalidArgument, naming the key, for a missing or double field, a field of
// another type, a key that is refused, a list without messages, a weight on a message that is not
// the assistant's, and anything else that these comments do not allow. They also return it for a
// message or chat_template_kwargs of more than 64 keys, and for what JsonToJinja (record_json.h)
// refuses. After an error the output is unspecified. In objects that are passed to the template as
// they are (tools, documents, values of chat_template_kwargs and of a message's keys) the last of
// double keys counts.

// Reads {"messages": [{"role": "...", "content": "..."}, ...]}. A content is a text or a list of
// {"type": "text", "text": "..."}, whose keys with null are left out; an assistant's may be missing
// beside tool_calls, reasoning_content, reasoning or thinking. tool_calls are passed on as they
// are. `weight` of an assistant's message is 0 or 1, or false or true.
absl::Status ReadMessages(simdjson::dom::object record, Conversation* conversation);

// Reads {"conversations": [{"from": "...", "value": "..."}, ...]}. `from` stands for a role:
//   human, user              user
//   gpt, assistant           assistant
//   system, developer        themselves
//   function_call            assistant, with the tool calls that the value holds as JSON: an object
//                            {"name", "arguments"} or a list of them
//   observation, tool, function   tool
// A tool without a "function" key is wrapped as {"type": "function", "function": tool}, which
// templates expect. `weight` is as in messages. Other keys of a turn are refused unless null.
absl::Status ReadShareGpt(simdjson::dom::object record, Conversation* conversation);

// Reads {"instruction": "...", "input": "...", "output": "...", "history": [["...", "..."], ...]}.
// The user's message is the instruction, followed by a line feed and the input if there is one.
// `history` holds earlier turns of user and assistant. REQUIRES: the record has `output`.
absl::Status ReadAlpaca(simdjson::dom::object record, Conversation* conversation);

// Parts of the functions above, for readers of other records (preference_record.h).

enum class MessageForm { kMessages, kShareGpt };
// Appends the messages of `value`, which is a list of messages (of turns for kShareGpt) or a single
// one. `name` is its key, for error messages. An empty list is no error.
absl::Status ReadMessageList(simdjson::dom::element value, const std::string& name,
                             MessageForm form, std::vector<ChatMessage>* messages);
// Reads the keys beside the conversation, and wraps tools for kShareGpt. `system` becomes the first
// of conversation->messages, so read these before. chat_template_kwargs must not have messages,
// tools, documents, add_generation_prompt, continue_final_message, tokenize or chat_template.
absl::Status ReadBeside(simdjson::dom::object record, MessageForm form, Conversation* conversation);
// Appends the history and the user's message of an alpaca record, and its `instruction` and `input`
// to conversation->alpaca. REQUIRES: conversation->messages is empty.
absl::Status ReadAlpacaPrompt(simdjson::dom::object record, Conversation* conversation);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHAT_CONVERSATION_RECORD_H_
