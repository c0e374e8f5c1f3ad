// Recognises a family's chat template by the text of its Jinja program.
#ifndef MEGATRAIN_ENGINE_CHAT_CHAT_TEMPLATE_TEXT_H_
#define MEGATRAIN_ENGINE_CHAT_CHAT_TEMPLATE_TEXT_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace megatrain {

// Those that a job file can name, for messages.
inline constexpr char kChatTemplateNames[] = "chatml, llama3, mistral, gemma, alpaca";

enum class ChatFormat { kChatml, kLlama3, kAlpaca, kMistral, kGemma };

// mistral, gemma: what becomes of a system message that begins the conversation. Where it is put, a
// blank line is between it and the user's text.
enum class SystemPlace {
  kRefused,
  kFirstUser,       // before the first user's message
  kEndingUser,      // before a user's message that ends the conversation; else it is left out
  kEqualsLastUser,  // before the last user's message and each that has the same text
};

// A chat format, with what varies within it.
struct ChatVariant {
  ChatFormat format = ChatFormat::kChatml;
  // chatml: the system turn that is put first if the conversation has none; empty: nothing is put.
  std::string default_system;
  // chatml: Qwen3's handling of reasoning. The assistant's turns behind the last question begin
  // with their <think> block, earlier ones lose it.
  bool think = false;
  // With `think`: a question that is wrapped in <tool_response> is not the last question if it
  // begins and ends with the tags (true), or holds both anywhere (false).
  bool tool_response_wraps = true;
  // llama3: Llama 3.1's system header with this "Today Date"; empty: Llama 3, without.
  std::string date;

  SystemPlace system = SystemPlace::kRefused;
  // gemma: a bos token before all.
  bool bos = true;
  // mistral: what stands around a user's text; before the assistant's text; between it and the eos
  // token; and behind that.
  std::string user_open = "[INST] ", user_close = "[/INST]";
  std::string assistant_open, before_eos, after_eos;
  // mistral: the assistant's text without the white space around it.
  bool trim_assistant = false;
};

// Mistral 7B Instruct v0.3's.
ChatVariant PlainMistral();

// `text` is the Jinja program. Unimplemented if it is not one that is known to render as a variant
// does: a template taken for another would train on wrong text.
absl::StatusOr<ChatVariant> RecogniseChatTemplate(std::string_view text);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHAT_CHAT_TEMPLATE_TEXT_H_
