#include "engine/data/sequences/example.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Error(DataFormat format, const std::string& json) {
  Example example;
  const absl::Status status = ExampleParser().Parse(format, json, &example);
  EXPECT_FALSE(status.ok()) << json;
  return std::string(status.message());
}

TEST(ExampleTest, ParsesText) {
  ExampleParser parser;
  Example example;
  ASSERT_TRUE(parser.Parse(DataFormat::kText, R"({"id": 1, "text": "a\u00e9\n"})", &example).ok());
  EXPECT_FALSE(example.is_chat);
  EXPECT_EQ(example.text, "a\xc3\xa9\n");
}

TEST(ExampleTest, ParsesAlpaca) {
  ExampleParser parser;
  Example example;
  for (const char* json : {R"({"instruction": "Do", "output": "Done"})",
                           R"({"instruction": "Do", "input": "", "output": "Done", "text": "x"})",
                           R"({"instruction": "Do", "input": null, "output": "Done"})"}) {
    ASSERT_TRUE(parser.Parse(DataFormat::kAlpaca, json, &example).ok());
    EXPECT_TRUE(example.is_chat);
    ASSERT_EQ(example.messages.size(), 2u);
    EXPECT_EQ(example.messages[0].role, "user");
    EXPECT_EQ(example.messages[0].content, "Do");
    EXPECT_EQ(example.messages[0].input_begin, 0u);
    EXPECT_EQ(example.messages[1].role, "assistant");
    EXPECT_EQ(example.messages[1].content, "Done");
  }
  ASSERT_TRUE(parser
                  .Parse(DataFormat::kAlpaca,
                         R"({"instruction": "Do", "input": "this", "output": "Done"})", &example)
                  .ok());
  EXPECT_EQ(example.messages[0].content, "Do\nthis");
  EXPECT_EQ(example.messages[0].input_begin, 3u);
}

TEST(ExampleTest, ParsesMessages) {
  ExampleParser parser;
  Example example;
  ASSERT_TRUE(parser
                  .Parse(DataFormat::kMessages,
                         R"({"tools": [], "messages": [{"role": "system", "content": "S"},
                             {"content": "U", "role": "user", "name": "x", "tool_calls": null},
                             {"role": "assistant", "content": ""}]})",
                         &example)
                  .ok());
  ASSERT_EQ(example.messages.size(), 3u);
  EXPECT_EQ(example.messages[0].role, "system");
  EXPECT_EQ(example.messages[1].content, "U");
  EXPECT_EQ(example.messages[2].content, "");
}

TEST(ExampleTest, ShareGptHoldsTheSameConversations) {
  Example example;
  ExampleParser parser;
  ASSERT_TRUE(parser
                  .Parse(DataFormat::kShareGpt,
                         R"({"id": "1", "system": "S", "tools": "[]", "conversations": [
                             {"from": "human", "value": "U"}, {"from": "gpt", "value": "A"},
                             {"from": "user", "value": "V"}, {"from": "assistant", "value": ""}]})",
                         &example)
                  .ok());
  EXPECT_TRUE(example.is_chat);
  std::vector<std::string> turns;
  for (const ChatMessage& message : example.messages) {
    turns.push_back(message.role + ":" + message.content);
  }
  EXPECT_THAT(turns, ElementsAre("system:S", "user:U", "assistant:A", "user:V", "assistant:"));
  // A system turn of the conversation's own; an empty or missing one beside it is none.
  for (const char* beside : {"", R"("system": "", )", R"("system": null, "tools": null, )"}) {
    const std::string record =
        std::string("{") + beside + R"("conversations": [{"from": "system", "value": "T"}]})";
    ASSERT_TRUE(parser.Parse(DataFormat::kShareGpt, record, &example).ok()) << record;
    ASSERT_EQ(example.messages.size(), 1u);
    EXPECT_EQ(example.messages[0].role, "system");
  }
  EXPECT_THAT(Error(DataFormat::kShareGpt, R"({"messages": []})"),
              HasSubstr("\"conversations\" is missing, which format sharegpt needs; the record has "
                        "\"messages\"; it looks like format: messages"));
  EXPECT_THAT(Error(DataFormat::kShareGpt, R"({"conversations": [{"from": "human"}]})"),
              HasSubstr("\"conversations[0].value\" is missing"));
  EXPECT_THAT(Error(DataFormat::kShareGpt, R"({"conversations": [{"from": "bot", "value": ""}]})"),
              HasSubstr("\"conversations[0].from\" is \"bot\"; human or user, gpt or assistant, or "
                        "system is expected"));
  EXPECT_THAT(Error(DataFormat::kShareGpt,
                    R"({"conversations": [{"from": "function_call", "value": "{}"}]})"),
              HasSubstr("tool calls are not supported"));
  EXPECT_THAT(Error(DataFormat::kShareGpt, R"({"tools": "[{}]", "conversations": []})"),
              HasSubstr("tools are not supported"));
  EXPECT_THAT(Error(DataFormat::kShareGpt, R"({"conversations": []})"),
              HasSubstr("\"conversations\" is empty"));
  EXPECT_THAT(
      Error(DataFormat::kShareGpt,
            R"({"system": "S", "conversations": [{"from": "system", "value": "T"}]})"),
      HasSubstr("\"system\" is there beside a conversation that begins with a system turn"));
}

TEST(ExampleTest, NamesWhatIsMissingOrOfAnotherType) {
  EXPECT_THAT(Error(DataFormat::kText, R"({"body": "x"})"),
              HasSubstr("\"text\" is missing, which format text needs; the record has \"body\""));
  EXPECT_THAT(Error(DataFormat::kText, R"({"text": 5})"),
              HasSubstr("\"text\" is a number; a string is needed"));
  EXPECT_THAT(Error(DataFormat::kText, R"({"text": "a", "text": "b"})"),
              HasSubstr("\"text\" is there twice"));
  EXPECT_THAT(Error(DataFormat::kText, "[1]"), HasSubstr("the record is a list"));
  EXPECT_THAT(Error(DataFormat::kText, R"({"messages": []})"), HasSubstr("format: messages"));
  EXPECT_THAT(Error(DataFormat::kAlpaca, R"({"instruction": "x"})"),
              HasSubstr("\"output\" is missing"));
  EXPECT_THAT(Error(DataFormat::kAlpaca, R"({"instruction": "x", "output": null})"),
              HasSubstr("\"output\" is null"));
  EXPECT_THAT(Error(DataFormat::kMessages, R"({"conversations": []})"),
              HasSubstr("\"messages\" is missing, which format messages needs; the record has "
                        "\"conversations\"; it looks like format: sharegpt"));
  EXPECT_THAT(Error(DataFormat::kMessages, R"({"messages": "x"})"),
              HasSubstr("\"messages\" is a string; a list of messages is needed"));
  EXPECT_THAT(Error(DataFormat::kMessages, R"({"messages": []})"),
              HasSubstr("\"messages\" is empty"));
  EXPECT_THAT(Error(DataFormat::kMessages, R"({"messages": [{"role": "user"}]})"),
              HasSubstr("\"messages[0].content\" is missing; the message has \"role\""));
  EXPECT_THAT(Error(DataFormat::kMessages,
                    R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})"),
              HasSubstr("\"messages[0].content\" is a list; a string is needed"));
  EXPECT_THAT(Error(DataFormat::kMessages, R"({"messages": ["hello"]})"),
              HasSubstr("messages[0] is a string"));
  EXPECT_THAT(Error(DataFormat::kMessages, R"({"tools": [{}], "messages": []})"),
              HasSubstr("tools are not supported"));
}

TEST(ExampleTest, SaysWhereJsonIsMalformed) {
  EXPECT_THAT(Error(DataFormat::kText, R"({"text": "a)"), HasSubstr("malformed JSON near column "));
  EXPECT_THAT(Error(DataFormat::kText, R"({"text" "a"})"),
              HasSubstr("malformed JSON near column 11"));
  EXPECT_THAT(Error(DataFormat::kText, "{\"id\": 1,\n\"text\" \"a\"}"),
              HasSubstr("malformed JSON on line 2 of the record near column 10"));
  EXPECT_THAT(Error(DataFormat::kText, "{\"text\": \"\xff\"}"),
              HasSubstr("invalid UTF-8 at byte 10"));
  EXPECT_THAT(Error(DataFormat::kText, R"({"text": "\ud800"})"), HasSubstr("malformed JSON"));
  EXPECT_THAT(Error(DataFormat::kText, "{\"text\": \"a\"} {}"), HasSubstr("malformed JSON"));
  EXPECT_THAT(Error(DataFormat::kText, ""), HasSubstr("malformed JSON"));
  const std::string deep =
      R"({"text": "a", "x": )" + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_THAT(Error(DataFormat::kText, deep), HasSubstr("nested more than 1,024 deep"));
}

TEST(ExampleTest, GuessesTheFormat) {
  ExampleParser parser;
  EXPECT_EQ(*parser.Guess(R"({"text": "x"})"), DataFormat::kText);
  EXPECT_EQ(*parser.Guess(R"({"text": "x", "instruction": "", "output": ""})"),
            DataFormat::kAlpaca);
  EXPECT_EQ(*parser.Guess(R"({"messages": []})"), DataFormat::kMessages);
  EXPECT_EQ(*parser.Guess(R"({"conversations": []})"), DataFormat::kShareGpt);
  EXPECT_FALSE(parser.Guess(R"({"question": "x"})").ok());
}

}  // namespace
}  // namespace megatrain
