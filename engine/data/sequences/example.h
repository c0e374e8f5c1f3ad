// One example of training data, and its JSON form in each format.
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
  std::string text;                   // if not is_chat
  std::vector<ChatMessage> messages;  // if is_chat
};

// Parses records:
//   text      {"text": "..."}
//   alpaca    {"instruction": "...", "input": "..." (may be missing or empty), "output": "..."}:
//             the user's turn is the instruction, and a newline and the input if there is one
//   sharegpt  {"conversations": [{"from": "...", "value": "..."}, ...], "system": "..." (may be
//             missing or empty: the first turn then)}: `from` is human or user, gpt or assistant,
//             or system
//   messages  {"messages": [{"role": "...", "content": "..."}, ...]}
// Other keys are passed over, except those that would change what a chat template renders (tools,
// tool calls and their results), which are refused. Not thread-safe: it keeps a parser's buffers.
class ExampleParser {
 public:
  ExampleParser();
  ~ExampleParser();
  ExampleParser(const ExampleParser&) = delete;
  ExampleParser& operator=(const ExampleParser&) = delete;

  // InvalidArgument says what is wrong with the record, not where the record is: malformed JSON
  // with the line inside the record where there are several, and the column, a missing field, a
  // field of another type, invalid UTF-8 with the byte.
  absl::Status Parse(DataFormat format, std::string_view json, Example* example);

  // Which format a record looks like, by its keys.
  absl::StatusOr<DataFormat> Guess(std::string_view json);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_EXAMPLE_H_
