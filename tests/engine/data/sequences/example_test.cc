#include "engine/data/sequences/example.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
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

// "role:content" of each message.
std::vector<std::string> Turns(const Example& example) {
  std::vector<std::string> turns;
  for (const ChatMessage& message : example.conversation.messages) {
    turns.push_back(message.role + ":" + message.text);
  }
  return turns;
}

TEST(ExampleTest, ParsesConversations) {
  ExampleParser parser;
  Example example;
  for (const char* json : {R"({"instruction": "Do", "output": "Done"})",
                           R"({"instruction": "Do", "input": "", "output": "Done", "text": "x"})",
                           R"({"instruction": "Do", "input": null, "output": "Done"})"}) {
    ASSERT_TRUE(parser.Parse(DataFormat::kAlpaca, json, &example).ok());
    EXPECT_TRUE(example.is_chat);
    EXPECT_THAT(Turns(example), ElementsAre("user:Do", "assistant:Done"));
    EXPECT_EQ(example.conversation.alpaca.size(), 1u);
  }
  ASSERT_TRUE(parser
                  .Parse(DataFormat::kAlpaca,
                         R"({"instruction": "Do", "input": "this", "output": "Done"})", &example)
                  .ok());
  EXPECT_THAT(Turns(example), ElementsAre("user:Do\nthis", "assistant:Done"));
  EXPECT_EQ(example.conversation.alpaca.size(), 2u);
  ASSERT_TRUE(parser
                  .Parse(DataFormat::kMessages,
                         R"({"tools": [], "messages": [{"role": "system", "content": "S"},
                             {"content": "U", "role": "user", "name": "x", "tool_calls": null},
                             {"role": "assistant", "content": ""}]})",
                         &example)
                  .ok());
  EXPECT_THAT(Turns(example), ElementsAre("system:S", "user:U", "assistant:"));
  ASSERT_TRUE(parser
                  .Parse(DataFormat::kShareGpt,
                         R"({"id": "1", "system": "S", "tools": "[]", "conversations": [
                             {"from": "human", "value": "U"}, {"from": "gpt", "value": "A"}]})",
                         &example)
                  .ok());
  EXPECT_THAT(Turns(example), ElementsAre("system:S", "user:U", "assistant:A"));
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
  EXPECT_THAT(Error(DataFormat::kMessages, R"({"instruction": "x", "text": "y"})"),
              HasSubstr("; it looks like format: alpaca"));
  EXPECT_THAT(Error(DataFormat::kShareGpt, R"({"text": "x"})"),
              HasSubstr("; it looks like format: text"));
  EXPECT_THAT(Error(DataFormat::kMessages, R"({"messages": "x"})"),
              HasSubstr("\"messages\" is a string; a list of messages is needed"));
  EXPECT_THAT(Error(DataFormat::kMessages, R"({"messages": []})"),
              HasSubstr("\"messages\" is empty"));
  EXPECT_THAT(Error(DataFormat::kMessages, R"({"messages": [{"role": "user"}]})"),
              HasSubstr("\"messages[0].content\" is missing; the message has \"role\""));
  EXPECT_THAT(Error(DataFormat::kMessages, R"({"messages": ["hello"]})"),
              HasSubstr("\"messages[0]\" is a string; an object is needed"));
  EXPECT_THAT(Error(DataFormat::kShareGpt, R"({"messages": []})"),
              HasSubstr("\"conversations\" is missing, which format sharegpt needs; the record has "
                        "\"messages\"; it looks like format: messages"));
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
  EXPECT_EQ(Error(DataFormat::kText, R"({"id": 123456789012345678901234, "text": "a"})"),
            "a number is beyond what is read, 64-bit integers and FP64; write it as a text");
  EXPECT_THAT(Error(DataFormat::kText, R"({"id": 0123, "text": "a"})"),
              HasSubstr("malformed JSON near column "));
  const std::string deep =
      R"({"text": "a", "x": )" + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_THAT(Error(DataFormat::kText, deep), HasSubstr("nested more than 1,024 deep"));
}

TEST(ExampleTest, ParsesPairsOnlyWhereTheFormatHasThem) {
  ExampleParser parser;
  Example example;
  ASSERT_TRUE(parser
                  .ParsePair(DataFormat::kPreference,
                             R"({"prompt": "p", "chosen": "a", "rejected": "b"})", &example)
                  .ok());
  ASSERT_TRUE(example.pair.has_value());
  EXPECT_EQ(example.pair->prompt, "p");
  EXPECT_EQ(example.pair->chosen, "a");
  EXPECT_EQ(example.pair->rejected, "b");
  for (const auto& [format, json] :
       {std::pair{DataFormat::kAlpaca, R"({"instruction": "p", "chosen": "a", "rejected": "b"})"},
        std::pair{DataFormat::kMessages, R"({"messages": [{"role": "user", "content": "p"}],
                      "chosen": {"role": "assistant", "content": "a"},
                      "rejected": {"role": "assistant", "content": "b"}})"},
        std::pair{DataFormat::kShareGpt, R"({"conversations": [{"from": "human", "value": "p"}],
                      "chosen": {"from": "gpt", "value": "a"},
                      "rejected": {"from": "gpt", "value": "b"}})"}}) {
    const absl::Status status = parser.ParsePair(format, json, &example);
    ASSERT_TRUE(status.ok()) << DataFormatName(format) << status;
    EXPECT_TRUE(example.pair->is_chat);
    const Conversation& chosen = example.pair->chosen_chat;
    ASSERT_EQ(chosen.messages.size(), 2u) << DataFormatName(format);
    EXPECT_EQ(chosen.messages[0].text, "p");
    EXPECT_EQ(chosen.messages[1].text, "a");
    EXPECT_EQ(example.pair->rejected_chat.messages.back().text, "b");
  }
  const std::string text = R"({"text": "x", "prompt": "p", "chosen": "a", "rejected": "b"})";
  ASSERT_TRUE(parser.Parse(DataFormat::kText, text, &example).ok());
  EXPECT_FALSE(example.pair.has_value()) << "of the record before";
  for (const DataFormat format : {DataFormat::kText, DataFormat::kTokens}) {
    EXPECT_THAT(std::string(parser.ParsePair(format, text, &example).message()),
                HasSubstr("holds no pairs of answers"));
  }
  for (const DataFormat format : {DataFormat::kPreference, DataFormat::kTokens}) {
    EXPECT_THAT(Error(format, text), HasSubstr("has no such examples"));
  }
}

TEST(ExampleTest, GuessesTheFormat) {
  ExampleParser parser;
  EXPECT_EQ(*parser.Guess(R"({"text": "x"})"), DataFormat::kText);
  EXPECT_EQ(*parser.Guess(R"({"text": "x", "instruction": "", "output": ""})"),
            DataFormat::kAlpaca);
  EXPECT_EQ(*parser.Guess(R"({"messages": []})"), DataFormat::kMessages);
  EXPECT_EQ(*parser.Guess(R"({"conversations": []})"), DataFormat::kShareGpt);
  EXPECT_EQ(*parser.Guess(R"({"messages": [], "chosen": {}, "rejected": {}})"),
            DataFormat::kPreference);
  EXPECT_EQ(*parser.Guess(R"({"text": "x", "chosen": "y"})"), DataFormat::kText);
  EXPECT_EQ(*parser.Guess(R"({"text": "x", "rejected": "y"})"), DataFormat::kText);
  EXPECT_FALSE(parser.Guess(R"({"question": "x"})").ok());
}

}  // namespace
}  // namespace megatrain
