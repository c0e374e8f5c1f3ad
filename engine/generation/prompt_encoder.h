// PromptEncoder turns prompts into token ids: a text with the tokens that the tokenizer puts before
// it, and a conversation through the model's chat template.
#ifndef MEGATRAIN_ENGINE_GENERATION_PROMPT_ENCODER_H_
#define MEGATRAIN_ENGINE_GENERATION_PROMPT_ENCODER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/chat/chat_template.h"
#include "engine/chat/conversation.h"
#include "engine/job/job_spec.h"
#include "engine/tokenizer/tokenizer.h"

namespace megatrain {

// Options for encoding prompts.
struct PromptEncoderOptions {
  const Tokenizer* tokenizer = nullptr;  // must be set
  std::string model_directory;           // may be "" if no chat template is read from it
  bool chat = false;                     // a text is the user's turn of a conversation
  std::string chat_template = "auto";    // as data.chat_template
  std::string template_date = "";        // as data.template_date; empty means today
  AddBos add_bos = AddBos::kAuto;        // as data.add_bos; for texts, and for the alpaca template
  int64_t vocabulary = 0;                // the model's
  int64_t max_tokens = 0;                // of prompt and answer together
  std::string limit = "";     // where max_tokens comes from, for messages: "the model's positions"
  int64_t answer_tokens = 0;  // the most that an answer takes; they must fit beside the prompt
  FileSystem* files = PosixFileSystem();
};

struct EncodedPrompt {
  std::vector<int32_t> ids;
  std::optional<uint64_t> seed;  // that of the prompt's record, if it has one
};

// Encodes prompts one after another. Not thread-safe.
class PromptEncoder {
 public:
  // The objects that `options` points to must outlive the encoder.
  explicit PromptEncoder(const PromptEncoderOptions& options) : options_(options) {}

  // Returns the tokens of a prompt. Messages begin with `place`. Opens the chat template for the
  // first conversation. Returns InvalidArgument for a record that is malformed, a conversation that
  // the template refuses, a prompt without tokens, one that is too long, one with a token that the
  // model does not have, and options that the tokenizer or the template does not take (add_bos,
  // template_date). Returns the errors of ChatTemplate::Create and of Tokenizer::Encode.
  absl::StatusOr<EncodedPrompt> Encode(const Prompt& prompt, const std::string& place);

 private:
  absl::StatusOr<EncodedPrompt> EncodeAny(const Prompt& prompt);
  absl::Status EncodeText(const std::string& text, std::vector<int32_t>* ids);
  absl::Status EncodeChat(const Conversation& conversation, std::vector<int32_t>* ids);
  absl::Status Check(const std::vector<int32_t>& ids) const;

  const PromptEncoderOptions options_;
  std::unique_ptr<ChatTemplate> template_;  // null before the first conversation
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_GENERATION_PROMPT_ENCODER_H_
