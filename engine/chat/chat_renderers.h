// The families' chat templates, and what they share. ChatTemplate::Create chooses among them.
#ifndef MEGATRAIN_ENGINE_CHAT_CHAT_RENDERERS_H_
#define MEGATRAIN_ENGINE_CHAT_CHAT_RENDERERS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/chat/chat_template.h"
#include "engine/chat/chat_template_text.h"

namespace megatrain {

// Each takes a variant of its format. `bos` and `eos` are the tokens' text, "" if there is none.
std::unique_ptr<ChatTemplate> MakeChatmlTemplate(ChatVariant variant);
std::unique_ptr<ChatTemplate> MakeLlama3Template(ChatVariant variant, std::string bos);
std::unique_ptr<ChatTemplate> MakeMistralTemplate(ChatVariant variant, std::string bos,
                                                  std::string eos);
std::unique_ptr<ChatTemplate> MakeGemmaTemplate(ChatVariant variant, std::string bos);
std::unique_ptr<ChatTemplate> MakeAlpacaTemplate(std::string eos);

// InvalidArgument: no message, an unknown role, or text that is not UTF-8.
absl::Status CheckMessages(absl::Span<const ChatMessage> messages);

// As Gemma's and Mistral's templates check: behind the first `system_messages` messages, the first
// is the user's, the third, and so on, and only these. InvalidArgument names the first that is not.
absl::Status CheckAlternation(absl::Span<const ChatMessage> messages, size_t system_messages,
                              std::string_view family);

// The refusal of a first system message.
absl::Status SystemRefused(std::string_view family);

// Python's str.strip(), which Jinja's trim is.
std::string_view PythonStrip(std::string_view text);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHAT_CHAT_RENDERERS_H_
