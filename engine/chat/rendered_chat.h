// Renders a conversation with a Jinja program and finds the text that the loss is on. ChatTemplate
// (chat_template.h) chooses the program and its special tokens, and states the rules.
#ifndef MEGATRAIN_ENGINE_CHAT_RENDERED_CHAT_H_
#define MEGATRAIN_ENGINE_CHAT_RENDERED_CHAT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/civil_time.h"
#include "engine/chat/conversation.h"
#include "engine/chat/jinja/jinja_program.h"
#include "engine/chat/target_tokens.h"

namespace megatrain {

// The part of a conversation that the loss is on. Messages with `weight: 0` are never part of it.
enum class TrainOn {
  kAssistant,  // the assistant's turns
  kLast,       // the last of the assistant's turns; nothing if that has `weight: 0`
  kAll,        // the whole conversation; one with ChatMessage::trained false is refused
};

// A rendered conversation, with the text that the loss is on.
struct RenderedChat {
  std::string text;
  // The byte ranges of `text` that the loss is computed on, in ascending order, without overlap.
  std::vector<TextRange> target_ranges;
  // The number of the turns asked for (TrainOn) that no loss is on, because their place is
  // uncertain or no {% generation %} block wrote them. If all turns are asked for, each block
  // counts as one turn's.
  int64_t turns_without_loss = 0;
};

// Renders the conversation. `day` is what the program takes for today. Returns the errors of
// ChatTemplate::RenderText. The arguments are used during the call only.
//
// A program without {% generation %} is run up to 7n + 5 times if the last turn that the loss is on
// is the assistant's n-th, one with it up to 2n + 1 times. Each role that the program does not name
// costs a run more, and so does reasoning in the last message. The work of all runs together is
// bounded.
absl::StatusOr<RenderedChat> RenderChat(const JinjaProgram& program,
                                        const JinjaVariables& special_tokens, absl::CivilDay day,
                                        TrainOn train_on, const Conversation& conversation);

// Renders the conversation with a generation prompt, for an answer. Returns the errors of
// RenderChat.
absl::StatusOr<std::string> RenderChatPrompt(const JinjaProgram& program,
                                             const JinjaVariables& special_tokens,
                                             absl::CivilDay day, const Conversation& conversation);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHAT_RENDERED_CHAT_H_
