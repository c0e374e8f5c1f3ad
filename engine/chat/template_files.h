// Reads from a model's directory the chat templates and the special tokens that transformers takes
// from there.
#ifndef MEGATRAIN_ENGINE_CHAT_TEMPLATE_FILES_H_
#define MEGATRAIN_ENGINE_CHAT_TEMPLATE_FILES_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/file.h"

namespace megatrain {

// A chat template of a model's directory.
struct ChatProgramText {
  std::string text;  // the Jinja program
  std::string file;  // where it stands, for messages
};

// Returns the programs by name, not parsed, from the first of these places that has any:
//   chat_template.jinja ("default") and additional_chat_templates/NAME.jinja
//   chat_template in tokenizer_config.json: a text ("default"), or a list of {"name", "template"}
//   chat_template in chat_template.json, in the same forms
// Returns an empty map if there are none. Returns InvalidArgument for a malformed file or more than
// 100 programs, and the errors of reading. An additional_chat_templates that cannot be examined
// counts as missing. `files` is used during the call only.
absl::StatusOr<std::map<std::string, ChatProgramText>> ReadChatPrograms(
    const std::string& directory, FileSystem* files);

// Returns the texts of the special tokens by the names of their variables: bos_token, eos_token and
// all other keys that end in _token, and those within `extra_special_tokens`. They are from
// tokenizer_config.json. If that has no added_tokens_decoder, those of special_tokens_map.json take
// precedence. A value is a text or {"content": text}; others are passed over. Returns
// InvalidArgument for a malformed file, and the errors of reading.
absl::StatusOr<std::map<std::string, std::string>> ReadSpecialTokens(const std::string& directory,
                                                                     FileSystem* files);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHAT_TEMPLATE_FILES_H_
