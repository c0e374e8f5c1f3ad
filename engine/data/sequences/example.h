// Parses one training example from its JSON record.
#ifndef MEGATRAIN_ENGINE_DATA_SEQUENCES_EXAMPLE_H_
#define MEGATRAIN_ENGINE_DATA_SEQUENCES_EXAMPLE_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/chat/conversation.h"
#include "engine/chat/preference_record.h"
#include "engine/job/data_format.h"

namespace megatrain {

struct Example {
  bool is_chat = false;
  std::string text;           // set unless is_chat
  Conversation conversation;  // set if is_chat
  // Set in place of the others by ParsePair.
  std::optional<PreferencePair> pair;
};

// Accepts these records:
//   text      {"text": "..."}
//   alpaca    {"instruction": "...", "input": "...", "output": "..."}
//   sharegpt  {"conversations": [{"from": "...", "value": "..."}, ...]}
//   messages  {"messages": [{"role": "...", "content": "..."}, ...]}
// engine/chat/conversation_record.h describes conversations and the keys that may stand beside
// them. Not thread-safe, because it keeps a parser's buffers.
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

  // Parses a pair of answers (preference_record.h): of format preference as
  // PreferenceForm::kPrompt, of the chat formats as the form of the same name. Errors are as for
  // Parse.
  absl::Status ParsePair(DataFormat format, std::string_view json, Example* example);

  // Returns the format that the record's keys suggest, or InvalidArgument if they fit none. A
  // record with `chosen` and `rejected` is one of format preference.
  absl::StatusOr<DataFormat> Guess(std::string_view json);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_EXAMPLE_H_
