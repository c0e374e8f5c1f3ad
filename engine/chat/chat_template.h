// Messages to token ids in a model family's chat format, and which of them the loss is on.
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
  std::string role;  // system | user | assistant
  std::string content;
  // Alpaca's two parts in one content, "instruction\ninput": where the input begins, 0 if there is
  // none. Only the alpaca template looks at it.
  size_t input_begin = 0;
};

// Thread safety: const methods may be called from several threads.
class ChatTemplate {
 public:
  // `name` is the job file's `data.chat_template`: "chatml", "llama3", "mistral", "gemma",
  // "alpaca", or "auto" for the one that the model directory's chat_template (in
  // chat_template.jinja or tokenizer_config.json) is. A template that is not known is refused with
  // the list of those that are. `tokenizer` is read during the call only.
  //
  // A name means the directory's own variant of it where that is known, else the plain one: chatml
  // without a default system turn; Llama 3's, without a date; Mistral 7B Instruct v0.3's; Gemma 1
  // and 2's, which refuses a system message.
  //
  // Since v0.3, Mistral's templates put a system message before the user's message that ends the
  // conversation, so that one which ends with the assistant's answer is rendered without it.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Create(
      const std::string& name, const std::string& model_directory, const Tokenizer& tokenizer,
      FileSystem* files = PosixFileSystem());
  virtual ~ChatTemplate() = default;

  // Appends the ids of the whole conversation, those of the text that the family's own template
  // renders (without a generation prompt), and for each id 1 in `target` if the loss is on it: the
  // assistant's turns from what follows the generation prompt to the end-of-turn token. A token
  // that straddles the start of such a stretch belongs to it. A conversation without an assistant's
  // turn has no target; that is not an error here.
  // InvalidArgument: an unknown role, an empty conversation, an order of roles that the family's
  // template refuses, or invalid UTF-8 (the message's index is named).
  absl::Status Render(absl::Span<const ChatMessage> messages, const Tokenizer& tokenizer,
                      std::vector<int32_t>* ids, std::vector<uint8_t>* target) const;

  // The rendered text, and the byte ranges [begin, end) of it that the loss is on, ascending.
  struct Rendered {
    std::string text;
    std::vector<std::pair<size_t, size_t>> target;
  };
  virtual absl::StatusOr<Rendered> RenderText(absl::Span<const ChatMessage> messages) const = 0;

  // Names the template and everything in it that decides the text: part of the key of cached data.
  virtual std::string fingerprint() const = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHAT_CHAT_TEMPLATE_H_
