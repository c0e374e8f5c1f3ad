// The constructors of the families' chat templates, and the checks that they share. Users call
// ChatTemplate::Create, which chooses among the constructors.
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

// Return a template for a variant of its own format. `bos` and `eos` are the texts of those tokens,
// "" if the tokenizer has none.
std::unique_ptr<ChatTemplate> MakeChatmlTemplate(ChatVariant variant);
std::unique_ptr<ChatTemplate> MakeLlama3Template(ChatVariant variant, std::string bos);
std::unique_ptr<ChatTemplate> MakeMistralTemplate(ChatVariant variant, std::string bos,
                                                  std::string eos);
std::unique_ptr<ChatTemplate> MakeGemmaTemplate(ChatVariant variant, std::string bos);
std::unique_ptr<ChatTemplate> MakeAlpacaTemplate(std::string eos);

// Returns InvalidArgument, naming the message, for an unknown role or a text that is not UTF-8.
// Returns InvalidArgument also if there are no messages.
absl::Status CheckMessages(absl::Span<const ChatMessage> messages);

// Checks that the messages after the first `system_messages` alternate between user and assistant,
// beginning with the user, as Gemma's and Mistral's templates require. Returns InvalidArgument,
// naming the first message that does not. `family` is used in the error's text.
absl::Status CheckAlternation(absl::Span<const ChatMessage> messages, size_t system_messages,
                              std::string_view family);

// Returns the InvalidArgument status for a system message that the family's template does not take.
absl::Status SystemRefused(std::string_view family);

// Strips white space as Python's str.strip() does, which Jinja's `trim` uses. REQUIRES: `text` is
// UTF-8.
std::string_view PythonStrip(std::string_view text);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHAT_CHAT_RENDERERS_H_
