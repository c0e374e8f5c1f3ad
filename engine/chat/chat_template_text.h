// Recognises a family's chat template from the text of its Jinja program. Jinja itself is not
// interpreted: the program must be a known one.
#ifndef MEGATRAIN_ENGINE_CHAT_CHAT_TEMPLATE_TEXT_H_
#define MEGATRAIN_ENGINE_CHAT_CHAT_TEMPLATE_TEXT_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace megatrain {

// The names that a job file can give besides "auto", for messages.
inline constexpr char kChatTemplateNames[] = "chatml, llama3, mistral, gemma, alpaca";

enum class ChatFormat { kChatml, kLlama3, kAlpaca, kMistral, kGemma };

// The place where mistral and gemma templates put a system message that begins the conversation. A
// blank line separates it from the user's text.
enum class SystemPlace {
  kRefused,         // it is an error
  kFirstUser,       // before the first user message
  kEndingUser,      // before the last message if that is the user's, else left out
  kEqualsLastUser,  // before the last user message and any other with the same text
};

// A chat format with the settings that differ between the models that use it.
struct ChatVariant {
  ChatFormat format = ChatFormat::kChatml;
  // chatml: the text of the system turn that is added if the conversation has none; "" adds none.
  std::string default_system;
  // chatml: Qwen3's handling of reasoning. Assistant turns after the last question begin with their
  // <think> block, and earlier ones lose it.
  bool think = false;
  // With `think`: a user message counts as a tool's response, and not as a question, if it begins
  // and ends with the <tool_response> tags (true) or contains both anywhere (false).
  bool tool_response_wraps = true;
  // llama3: the "Today Date" of Llama 3.1's system header; "" for Llama 3, which has no such
  // header.
  std::string date;

  SystemPlace system = SystemPlace::kRefused;
  // gemma: the text begins with the bos token.
  bool bos = true;
  // mistral: the text before and after a user message, before an assistant message, between that
  // and the eos token, and after the eos token.
  std::string user_open = "[INST] ", user_close = "[/INST]";
  std::string assistant_open, before_eos, after_eos;
  // mistral: white space around an assistant message is dropped.
  bool trim_assistant = false;
};

// Returns the variant of Mistral 7B Instruct v0.3.
ChatVariant PlainMistral();

// Returns the variant that renders as the Jinja program `text` does. Returns Unimplemented if the
// program is not known, because a template mistaken for another would train on wrong text.
absl::StatusOr<ChatVariant> RecogniseChatTemplate(std::string_view text);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHAT_CHAT_TEMPLATE_TEXT_H_
