// Turns conversations into token ids in a model family's chat format, and marks the tokens that the
// loss is computed on.
#ifndef MEGATRAIN_ENGINE_CHAT_CHAT_TEMPLATE_H_
#define MEGATRAIN_ENGINE_CHAT_CHAT_TEMPLATE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/file.h"
#include "engine/tokenizer/tokenizer.h"

namespace megatrain {

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
  // For the alpaca template only: `content` holds "instruction\ninput", and this is the byte offset
  // of the input; 0 if there is no input.
  size_t input_begin = 0;
};

// Thread safety: const methods may be called from several threads.
class ChatTemplate {
 public:
  // `name` is the job file's `data.chat_template`: "chatml", "llama3", "mistral", "gemma", "alpaca"
  // or "auto". "auto" takes the template of the model directory, from chat_template.jinja or else
  // tokenizer_config.json. `tokenizer` and `files` are used during the call only.
  //
  // A family's name selects the directory's own variant of that format if it is a known one.
  // Otherwise it selects the plain variant: chatml without a default system turn, Llama 3 without a
  // date, Mistral 7B Instruct v0.3, or Gemma 1 and 2, which refuse a system message.
  //
  // Mistral's templates since v0.3 put the system message into the last message if that is the
  // user's. A training conversation ends with the assistant's answer, so its system message is left
  // out.
  //
  // Returns InvalidArgument for an unknown name, or if mistral or alpaca is chosen and the
  // tokenizer has no end-of-text token. For "auto" it returns NotFound if the directory has no
  // template, and Unimplemented, listing the known ones, for a template that is not known.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Create(
      const std::string& name, const std::string& model_directory, const Tokenizer& tokenizer,
      FileSystem* files = PosixFileSystem());
  virtual ~ChatTemplate() = default;

  // Renders the whole conversation, without a generation prompt, and appends its token ids to
  // `ids`. For each id it appends to `target` 1 if the loss is computed on it, else 0. The loss is
  // on the assistant's turns, each from the end of the generation prompt to its end-of-turn token.
  // A token that straddles the start of such a stretch belongs to it. A conversation without an
  // assistant's turn has no target and is not an error here.
  //
  // Returns InvalidArgument for an empty conversation and, naming the message, for an unknown role,
  // invalid UTF-8 or an order of roles that the family's template refuses.
  absl::Status Render(absl::Span<const ChatMessage> messages, const Tokenizer& tokenizer,
                      std::vector<int32_t>* ids, std::vector<uint8_t>* target) const;

  // The rendered text, and the byte ranges [begin, end) of it that the loss is computed on, in
  // ascending order.
  struct Rendered {
    std::string text;
    std::vector<std::pair<size_t, size_t>> target;
  };
  // Renders the whole conversation as text. Returns the errors of Render.
  virtual absl::StatusOr<Rendered> RenderText(absl::Span<const ChatMessage> messages) const = 0;

  // Identifies the template and every setting that affects its text. It is part of the key of
  // cached data.
  virtual std::string fingerprint() const = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHAT_CHAT_TEMPLATE_H_
