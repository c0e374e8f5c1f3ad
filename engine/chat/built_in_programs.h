// Holds the chat templates that a job can name without a file. They are in the formats of
// well-known families, for models whose directory has no template.
#ifndef MEGATRAIN_ENGINE_CHAT_BUILT_IN_PROGRAMS_H_
#define MEGATRAIN_ENGINE_CHAT_BUILT_IN_PROGRAMS_H_

#include <string_view>

namespace megatrain {

// The names of the programs, for messages.
inline constexpr char kChatTemplateNames[] = "chatml, llama3, mistral, gemma, alpaca";

struct BuiltInProgram {
  std::string_view name;
  std::string_view text;  // the Jinja program; it marks the assistant's turns with {% generation %}
  bool needs_eos;         // it ends a turn with eos_token
};

// Returns the program of that name, valid as long as the process, or null if there is none.
const BuiltInProgram* FindBuiltInProgram(std::string_view name);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHAT_BUILT_IN_PROGRAMS_H_
