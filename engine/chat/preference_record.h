// Reads a pair of answers to the same prompt, one chosen and one rejected, from the record of a
// training example. Keys beside the prompt and the answers are those of conversation_record.h.
#ifndef MEGATRAIN_ENGINE_CHAT_PREFERENCE_RECORD_H_
#define MEGATRAIN_ENGINE_CHAT_PREFERENCE_RECORD_H_

#include <simdjson.h>

#include <string>

#include "absl/status/status.h"
#include "engine/chat/conversation.h"

namespace megatrain {

// A prompt with its chosen and its rejected answer.
struct PreferencePair {
  bool is_chat = false;
  // Texts, without a chat template; set unless is_chat. The prompt may be empty.
  std::string prompt, chosen, rejected;
  // The prompt followed by each answer; set if is_chat. The loss is on the answers' messages, so
  // the assistant's messages of the prompt are marked as not trained.
  Conversation chosen_chat, rejected_chat;
};

// The form in which a record has the prompt. The answers are always in `chosen` and `rejected`.
enum class PreferenceForm {
  // {"prompt": ..., "chosen": ..., "rejected": ...}, all texts or all lists of messages, as Hugging
  // Face's TRL takes them. A single message may stand for a list. A list whose first message has
  // `from` is one of sharegpt's turns.
  // - Without a prompt (null is none), the answers are whole: what both begin with is the prompt,
  //   as in TRL's extract_prompt. So they are if the prompt is a text and the answers are lists,
  //   which must not begin with the assistant's message then.
  // - A record without a prompt is read in a form below instead if it has that form's key and
  //   `chosen` fits: a text (kAlpaca), or a message or a list that begins with the assistant's.
  kPrompt,
  kMessages,  // {"messages": [...]}; the answers are messages or lists of them
  kShareGpt,  // {"conversations": [...]}, as kMessages, with turns of sharegpt
  kAlpaca,    // {"instruction", "input", "history"}; the answers are texts
};

// Reads a record into an empty `*pair`. Returns InvalidArgument, naming the key, for a missing or
// repeated field, a field of another type, a key that is refused, tools, documents,
// chat_template_kwargs or system beside texts, system beside an answer that begins the conversation
// with a system message, or an answer whose messages include none of the
// assistant. Returns the errors of ReadMessageList, ReadBeside and ReadAlpacaPrompt
// (conversation_record.h). After an error `*pair` is unspecified.
absl::Status ReadPreference(simdjson::dom::object record, PreferenceForm form,
                            PreferencePair* pair);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHAT_PREFERENCE_RECORD_H_
