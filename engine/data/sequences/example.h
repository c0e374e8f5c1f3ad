// ExampleParser parses a training example from its JSON record.
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

// A training example: a text, a conversation, or a pair of answers.
struct Example {
  bool is_chat = false;
  std::string text;           // set unless is_chat
  Conversation conversation;  // set if is_chat
  // ParsePair sets it, and the fields above then mean nothing. Parse clears it.
  std::optional<PreferencePair> pair;
};

// Accepts these records, and pairs of answers (ParsePair). Other keys of a text are passed over.
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

  // Parses `json` into `*example`, which may have been used before. `json` is used during the call
  // only. Returns InvalidArgument for malformed JSON (with the column, where one is known, and
  // the line within the record if it has several), a record that is no object, invalid UTF-8 (with
  // the byte), and what conversation_record.h refuses, such as a missing or double field. Returns
  // InvalidArgument also for the formats tokens and preference, which have no such examples.
  // Messages name neither the file nor the record; callers add them. After an error `*example` is
  // unspecified.
  absl::Status Parse(DataFormat format, std::string_view json, Example* example);

  // Parses a pair of answers into example->pair (preference_record.h). A record of format
  // `preference` is read in the form PreferenceForm::kPrompt, and one of a chat format in the form
  // of that name. Returns InvalidArgument for the same defects as Parse, for what ReadPreference
  // refuses, and for the formats text and tokens, which have no pairs.
  absl::Status ParsePair(DataFormat format, std::string_view json, Example* example);

  // Returns the format that the record's keys suggest. Returns InvalidArgument if they fit none, or
  // if the JSON is malformed or no object. A record with `chosen` and `rejected` is one of format
  // preference.
  absl::StatusOr<DataFormat> Guess(std::string_view json);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_EXAMPLE_H_
