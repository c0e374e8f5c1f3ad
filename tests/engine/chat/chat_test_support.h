// Conversations from JSON, and programs without a file.
#ifndef MEGATRAIN_TESTS_ENGINE_CHAT_CHAT_TEST_SUPPORT_H_
#define MEGATRAIN_TESTS_ENGINE_CHAT_CHAT_TEST_SUPPORT_H_

#include <gtest/gtest.h>
#include <simdjson.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat/conversation_record.h"
#include "engine/chat/rendered_chat.h"

namespace megatrain {

// Reads a record {"messages": [...]} and so on by `read`.
inline absl::StatusOr<Conversation> ReadConversation(
    const std::string& json,
    absl::Status (*read)(simdjson::dom::object, Conversation*) = ReadMessages) {
  simdjson::dom::parser parser;
  simdjson::dom::object record;
  EXPECT_EQ(parser.parse(json).get(record), simdjson::SUCCESS) << json;
  Conversation conversation;
  const absl::Status status = read(record, &conversation);
  if (!status.ok()) return status;
  return conversation;
}

// Keeps the order of keys, which a program may write.
using Json = nlohmann::ordered_json;

// The conversation of a list of messages.
inline Conversation ConversationOf(const Json& messages) {
  const auto read = ReadConversation(Json{{"messages", messages}}.dump());
  EXPECT_TRUE(read.ok()) << read.status();
  return read.ok() ? *read : Conversation();
}

// Renders `json`, a record of messages, with the program `text`.
inline absl::StatusOr<RenderedChat> RenderWith(const std::string& text, const std::string& json,
                                               TrainOn train_on = TrainOn::kAssistant) {
  const auto program = JinjaProgram::Parse(text);
  EXPECT_TRUE(program.ok()) << program.status();
  const auto conversation = ReadConversation(json);
  EXPECT_TRUE(conversation.ok()) << conversation.status();
  if (!program.ok() || !conversation.ok()) return absl::InternalError("the test's own input");
  const JinjaVariables special_tokens = {{"bos_token", JinjaValue::String("<s>")},
                                         {"eos_token", JinjaValue::String("</s>")}};
  return RenderChat(*program, special_tokens, absl::CivilDay(2026, 1, 31), train_on, *conversation);
}

// The stretches of text that the loss is on.
inline std::vector<std::string> TargetTexts(const RenderedChat& rendered) {
  std::vector<std::string> texts;
  for (const auto& [begin, end] : rendered.target_ranges) {
    texts.push_back(rendered.text.substr(begin, end - begin));
  }
  return texts;
}

// The error of a record of messages.
inline std::string ErrorWith(const std::string& program, const std::string& record,
                             TrainOn train_on = TrainOn::kAssistant) {
  const auto rendered = RenderWith(program, record, train_on);
  EXPECT_FALSE(rendered.ok()) << rendered->text;
  EXPECT_EQ(rendered.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(rendered.status().message());
}

// The stretches of a record of messages that the loss is on.
inline std::vector<std::string> TargetsWith(const std::string& program, const std::string& record,
                                            TrainOn train_on = TrainOn::kAssistant,
                                            int64_t turns_without_loss = 0) {
  const auto rendered = RenderWith(program, record, train_on);
  EXPECT_TRUE(rendered.ok()) << rendered.status();
  if (!rendered.ok()) return {};
  EXPECT_EQ(rendered->turns_without_loss, turns_without_loss) << rendered->text;
  return TargetTexts(*rendered);
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_CHAT_CHAT_TEST_SUPPORT_H_
