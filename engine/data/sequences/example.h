// Parses one training example from its JSON record.
#ifndef MEGATRAIN_ENGINE_DATA_SEQUENCES_EXAMPLE_H_
#define MEGATRAIN_ENGINE_DATA_SEQUENCES_EXAMPLE_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/chat/chat_template.h"
#include "engine/job/data_format.h"

namespace megatrain {

struct Example {
  bool is_chat = false;
  std::string text;                   // set unless is_chat
  std::vector<ChatMessage> messages;  // set if is_chat
};

// Accepts these records:
//   text      {"text": "..."}
//   alpaca    {"instruction": "...", "input": "...", "output": "..."}. `input` may be missing or
//             empty. The user's message is the instruction, followed by a newline and the input if
//             there is one.
//   sharegpt  {"conversations": [{"from": "...", "value": "..."}, ...], "system": "..."}. `from` is
//             human or user, gpt or assistant, or system. `system` may be missing or empty;
//             otherwise it becomes the first message.
//   messages  {"messages": [{"role": "...", "content": "..."}, ...]}
// Other keys are ignored. Tools, tool calls and their results are refused because they would change
// what a chat template renders. Not thread-safe, because it keeps a parser's buffers.
class ExampleParser {
 public:
  ExampleParser();
  ~ExampleParser();
  ExampleParser(const ExampleParser&) = delete;
  ExampleParser& operator=(const ExampleParser&) = delete;

  // Parses `json` into `*example`. Returns InvalidArgument for malformed JSON (with the column, and
  // the line within the record if it has several), a missing field, a field of another type, or
  // invalid UTF-8 (with the byte). Messages name neither the file nor the record; callers add them.
  absl::Status Parse(DataFormat format, std::string_view json, Example* example);

  // Returns the format that the record's keys suggest, or InvalidArgument if they fit none.
  absl::StatusOr<DataFormat> Guess(std::string_view json);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_EXAMPLE_H_
