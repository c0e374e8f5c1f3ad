// Turns conversations into token ids in a model's chat format, and marks the tokens that the loss
// is computed on. The format is a Jinja program, which is run as apply_chat_template of
// transformers runs it (jinja/jinja_program.h).
//
// The job's key `data.chat_template` names the program: "auto" is the model directory's own
// (template_files.h), a name is a built-in one (built_in_programs.h), and a path that ends in
// .jinja is that file. If a directory has several, "tool_use" renders records with tools, even an
// empty list, and "default" all others. Records without tools are refused if there is no "default".
//
// The program sees the variables messages, tools, documents, add_generation_prompt, the special
// tokens by name (bos_token and so on), the record's chat_template_kwargs, and an alpaca record's
// instruction and input. A variable of chat_template_kwargs goes before a special token or an
// alpaca field of the same name.
// - bos_token, eos_token and pad_token are the tokenizer's, if it has them.
// - `reasoning_content` and `thinking` of a message are filled from each other and from its
//   `reasoning`, as transformers does.
// - A content in parts becomes their texts, with a line feed between them, for a program that does
//   not mention `text`. transformers would print Python's text of a list.
// - strftime_now tells the midnight with which the day of `data.template_date` begins.
//
// As a rule, nothing that the program does not know is dropped silently, unless it is empty. A
// record is refused if it has tools, documents or variables that the program does not mention, or
// if a message has a key that it does not mention. Only role, content, name and tool_call_id may go
// unread. Reasoning of an answer that ends the conversation is refused if the program renders the
// same text without it. A message that is not empty, of a role other than user and assistant, is
// refused if the program does not mention the role and renders the same text without the message.
// Only the first message of each such role is tried, and a conversation with more than 16 such
// roles is refused.
//
// The loss is on the assistant's turns, which are the messages of role `assistant`, or on what
// `data.train_on` names (TrainOn).
// - If the program has {% generation %}, a turn is what its blocks wrote. Blocks within a macro or
//   {% set %} are refused unless their text stands where transformers notes it.
// - Otherwise TurnFinder finds it: from the end of the generation prompt, which the program writes
//   to ask for an answer, to its end-of-turn mark. A turn whose place is uncertain is left out, and
//   counted.
#ifndef MEGATRAIN_ENGINE_CHAT_CHAT_TEMPLATE_H_
#define MEGATRAIN_ENGINE_CHAT_CHAT_TEMPLATE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/civil_time.h"
#include "engine/base/file.h"
#include "engine/chat/conversation.h"
#include "engine/chat/jinja/jinja_program.h"
#include "engine/chat/rendered_chat.h"
#include "engine/tokenizer/tokenizer.h"

namespace megatrain {

struct ChatTemplateOptions {
  std::string name = "auto";    // data.chat_template of the job
  std::string model_directory;  // may be "" if `name` is not "auto"
  absl::CivilDay day;           // the day that strftime_now tells
  TrainOn train_on = TrainOn::kAssistant;
  FileSystem* files = PosixFileSystem();  // used by Create only
};

// Thread safety: const methods may be called from several threads.
class ChatTemplate {
 public:
  // `tokenizer` is used during the call only. Returns InvalidArgument for an unknown name, for a
  // file that is no Jinja program (JinjaProgram::Parse), for a malformed file of the directory, for
  // a directory whose programs are neither "default" nor "tool_use", and if a built-in program
  // needs an end-of-text token and the tokenizer has none. Returns NotFound if "auto" finds no
  // program or the file is missing, and the errors of reading.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Create(const ChatTemplateOptions& options,
                                                              const Tokenizer& tokenizer);

  // Renders the whole conversation, without a generation prompt. Returns InvalidArgument if it has
  // no messages or holds what is refused (see above). Returns it also if the program refuses it
  // (raise_exception), fails or takes too long. A conversation without a turn that the loss is on
  // is no error: its target_ranges are empty.
  absl::StatusOr<RenderedChat> RenderText(const Conversation& conversation) const;

  // Renders the whole conversation with a generation prompt. Returns the errors of RenderText.
  absl::StatusOr<std::string> RenderPrompt(const Conversation& conversation) const;

  // Appends the token ids of RenderText's text to `ids`, and for each id to `target` 1 if the loss
  // is computed on it, else 0. A token that straddles the start or the end of a range belongs to
  // it. Adds the number of turns left out to `*turns_without_loss`. Returns the errors of
  // RenderText and of Tokenizer::EncodeWithOffsets, and Internal if the tokenizer gives another
  // number of offsets than ids. `tokenizer` must be the one given to Create. After an error all
  // three outputs may have been added to.
  absl::Status Render(const Conversation& conversation, const Tokenizer& tokenizer,
                      std::vector<int32_t>* ids, std::vector<uint8_t>* target,
                      int64_t* turns_without_loss) const;

  // Returns true if a program names strftime_now, so that its text may depend on the day.
  bool uses_day() const;
  absl::CivilDay day() const { return options_.day; }
  // Returns the text of the Jinja program if it is not the model directory's own, else "".
  const std::string& own_program() const { return own_program_; }
  TrainOn train_on() const { return options_.train_on; }

  // Identifies the programs and every setting that affects the text and its ranges. It is part of
  // the key of cached data.
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  explicit ChatTemplate(const ChatTemplateOptions& options) : options_(options) {}
  absl::Status AddPrograms(const Tokenizer& tokenizer);
  absl::Status AddSpecialTokens(const Tokenizer& tokenizer);
  absl::Status AddProgram(const std::string& name, const std::string& text,
                          const std::string& file);
  absl::StatusOr<const JinjaProgram*> Choose(const Conversation& conversation) const;

  const ChatTemplateOptions options_;
  std::map<std::string, JinjaProgram> programs_;  // by name; "default", "tool_use" or both
  JinjaVariables special_tokens_;
  std::string own_program_;
  std::string fingerprint_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHAT_CHAT_TEMPLATE_H_
