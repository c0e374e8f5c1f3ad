// Records of conversations, and what is refused in them.
#include "engine/chat/conversation_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/chat/chat_test_support.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

using Read = absl::Status (*)(simdjson::dom::object, Conversation*);

std::string Error(const std::string& json, Read read = ReadMessages) {
  const auto conversation = ReadConversation(json, read);
  EXPECT_FALSE(conversation.ok()) << json;
  EXPECT_EQ(conversation.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(conversation.status().message());
}

// The messages, tools and documents as JSON, by a program that writes them.
std::string AsJson(const std::string& json, Read read = ReadMessages) {
  const auto conversation = ReadConversation(json, read);
  if (!conversation.ok()) return std::string(conversation.status().message());
  // The mentions are for the check that the program reads the keys.
  const auto program = JinjaProgram::Parse(
      "{{ messages | tojson }}{% if tools %} {{ tools | tojson }}{% endif %}"
      "{% if documents %} {{ documents | tojson }}{% endif %}{{ v }}"
      "{% set x = [messages[0].text, messages[0].tool_calls, messages[0].reasoning] %}");
  EXPECT_TRUE(program.ok()) << program.status();
  const auto rendered = RenderChat(*program, {}, absl::CivilDay(), TrainOn::kAll, *conversation);
  return rendered.ok() ? rendered->text : std::string(rendered.status().message());
}

std::string OneMessage(const std::string& fields) { return R"({"messages": [{)" + fields + "}]}"; }

TEST(ConversationRecord, MessagesStayAsTheyAre) {
  EXPECT_EQ(AsJson(R"({"id": 7, "source": "x", "tools": [{"b": 1, "a": 2.0}], "messages": [
                       {"content": "U", "role": "user", "name": "n", "tool_calls": null},
                       {"role": "assistant", "tool_calls": [{"id": "i", "function": {
                           "arguments": "{\"x\": 1}", "name": "f"}}], "content": null},
                       {"role": "tool", "content": "", "tool_call_id": "i"}]})"),
            R"([{"content": "U", "role": "user", "name": "n"}, )"
            R"({"role": "assistant", "tool_calls": [{"id": "i", "function": )"
            R"({"arguments": "{\"x\": 1}", "name": "f"}}]}, )"
            R"({"role": "tool", "content": "", "tool_call_id": "i"}] [{"b": 1, "a": 2.0}])");
  EXPECT_EQ(AsJson(R"({"tools": "[{\"name\": \"f\"}]", "documents": [{"text": "d"}],
                       "chat_template_kwargs": {"v": "!"}, "messages": [
                       {"role": "user", "content": [{"type": "text", "text": "a", "image": null}]}
                       ]})"),
            R"([{"role": "user", "content": [{"type": "text", "text": "a"}]}] )"
            R"([{"name": "f"}] [{"text": "d"}]!)");
  EXPECT_EQ(
      AsJson(R"({"tools": "", "documents": null, "functions": [], "chat_template_kwargs": null,
                       "system": "S", "messages": [{"role": "assistant", "reasoning": "r"}]})"),
      R"([{"role": "system", "content": "S"}, {"thinking": "r", "role": "assistant", )"
      R"("reasoning": "r", "reasoning_content": "r"}])");
  for (const char* empty : {"null", "\"\""}) {
    EXPECT_EQ(AsJson(R"({"system": )" + std::string(empty) +
                     R"(, "messages": [{"role": "system", "content": "S"}]})"),
              R"([{"role": "system", "content": "S"}])");
  }
}

TEST(ConversationRecord, WeightIsNotShownToTheProgram) {
  const auto conversation = ReadConversation(
      R"({"messages": [{"weight": 0, "role": "assistant", "content": "a"},
                       {"role": "assistant", "content": "b", "weight": 1}]})");
  ASSERT_TRUE(conversation.ok()) << conversation.status();
  EXPECT_FALSE(conversation->messages[0].trained);
  EXPECT_TRUE(conversation->messages[1].trained);
  EXPECT_EQ(conversation->messages[0].Find("weight"), nullptr);
  EXPECT_EQ(Error(OneMessage(R"("role": "assistant", "content": "a", "weight": 0.5)")),
            "\"messages[0].weight\" is neither 0 nor 1");
  EXPECT_EQ(Error(OneMessage(R"("role": "assistant", "content": "a", "weight": 2)")),
            "\"messages[0].weight\" is neither 0 nor 1");
  EXPECT_EQ(Error(OneMessage(R"("role": "assistant", "content": "a", "weight": -1)")),
            "\"messages[0].weight\" is neither 0 nor 1");
  EXPECT_EQ(Error(OneMessage(R"("role": "user", "content": "a", "weight": 1)")),
            "\"messages[0].weight\" is of a message with the role user; the loss is on the "
            "assistant's only");
}

TEST(ConversationRecord, AWeightMayBeATruthValueOrHaveAPoint) {
  for (const char* weight : {"1", "1.0", "true", "0", "0.0", "-0.0", "false"}) {
    const auto conversation = ReadConversation(
        OneMessage(R"("role": "assistant", "content": "a", "weight": )" + std::string(weight)));
    ASSERT_TRUE(conversation.ok()) << conversation.status();
    EXPECT_EQ(conversation->messages[0].trained, weight[0] == '1' || weight[0] == 't') << weight;
  }
  EXPECT_EQ(Error(OneMessage(R"("role": "assistant", "content": "a", "weight": "1")")),
            "\"messages[0].weight\" is neither 0 nor 1");
}

// Templates of models that see take a part with the key for an image.
TEST(ConversationRecord, ANullKeyOfAPartIsNotThere) {
  EXPECT_EQ(AsJson(OneMessage(R"("role": "user", "content": [{"image": null, "text": "a",
                                  "type": "text"}, {"type": "text", "text": "b", "x": null}])")),
            R"([{"role": "user", "content": [{"text": "a", "type": "text"}, )"
            R"({"type": "text", "text": "b"}]}])");
}

TEST(ConversationRecord, BadMessagesAreRefusedByName) {
  EXPECT_EQ(Error(R"({"messages": []})"), "\"messages\" is empty");
  EXPECT_EQ(Error(R"({"messages": "x"})"),
            "\"messages\" is a string; a list of messages is needed");
  EXPECT_EQ(Error(R"({"messages": [5]})"), "\"messages[0]\" is a number; an object is needed");
  EXPECT_EQ(Error(R"({"messages": [{}], "messages": []})"),
            "\"messages[0].role\" is missing; the message has no keys");
  EXPECT_EQ(Error(R"({"messages": [{"role": "user", "content": ""}], "messages": []})"),
            "\"messages\" is there twice");
  EXPECT_EQ(Error(OneMessage(R"("role": "user")")),
            "\"messages[0].content\" is missing; the message has \"role\"");
  EXPECT_EQ(Error(OneMessage(R"("role": "user", "content": null)")),
            "\"messages[0].content\" is missing; the message has \"role\", \"content\"");
  EXPECT_EQ(Error(OneMessage(R"("role": "user", "tool_calls": [])")),
            "\"messages[0].content\" is missing; the message has \"role\", \"tool_calls\"");
  EXPECT_EQ(Error(OneMessage(R"("role": 1, "content": "")")),
            "\"messages[0].role\" is a number; a string is needed");
  EXPECT_EQ(Error(OneMessage(R"("role": "user", "content": {})")),
            "\"messages[0].content\" is an object; a string is needed");
  EXPECT_EQ(Error(OneMessage(R"("role": "user", "content": true)")),
            "\"messages[0].content\" is true or false; a string is needed");
  EXPECT_EQ(Error(OneMessage(R"("role": "user", "content": "", "role": "x")")),
            "\"messages[0].role\" is there twice");
  EXPECT_EQ(Error(OneMessage(R"("role": "assistant", "content": "", "function_call": {"a": 1})")),
            "\"messages[0].function_call\" is not supported; give \"tool_calls\"");
  EXPECT_EQ(Error(OneMessage(R"("role": "assistant", "tool_calls": {"a": 1})")),
            "\"messages[0].tool_calls\" is an object; a list of objects is needed");
  EXPECT_EQ(Error(OneMessage(R"("role": "assistant", "tool_calls": ["f"])")),
            "\"messages[0].tool_calls[0]\" is a string; an object is needed");
  EXPECT_EQ(Error(OneMessage(R"("role": "user", "content": "", "x": 18446744073709551615)")),
            "\"messages[0].x\" holds a whole number beyond 64 bits");
  EXPECT_THAT(Error(OneMessage(R"("role": "user", "content": "", "x": )" + std::string(300, '[') +
                               std::string(300, ']'))),
              HasSubstr("\"messages[0].x\" is nested more than"));
  std::string many = R"("role": "user", "content": "")";
  for (int i = 0; i < 62; ++i) many += ", \"k" + std::to_string(i) + "\": 1";
  EXPECT_TRUE(ReadConversation(OneMessage(many)).ok());
  EXPECT_EQ(Error(OneMessage(many + ", \"l\": 1")), "\"messages[0]\" has more than 64 keys");
}

TEST(ConversationRecord, AValueIsNestedAtMost192Deep) {
  const auto nested = [](size_t levels) {
    return OneMessage(R"("role": "user", "content": "", "x": )" + std::string(levels, '[') +
                      std::string(levels, ']'));
  };
  EXPECT_TRUE(ReadConversation(nested(192)).ok());
  EXPECT_EQ(Error(nested(193)), "\"messages[0].x\" is nested more than 192 deep");
}

TEST(ConversationRecord, AMissingFieldIsNamedWithTheFirstEightKeys) {
  std::string keys = R"("role": "user")";
  std::string listed = "\"role\"";
  for (const char* key : {"a", "b", "c", "d", "e", "f", "g"}) {
    keys += ", \"" + std::string(key) + "\": 1";
    listed += ", \"" + std::string(key) + "\"";
  }
  const std::string missing = "\"messages[0].content\" is missing; the message has " + listed;
  EXPECT_EQ(Error(OneMessage(keys)), missing);
  EXPECT_EQ(Error(OneMessage(keys + R"(, "h": 1, "i": 1)")), missing + ", ...");
}

TEST(ConversationRecord, OnlyPartsOfTextAreTaken) {
  const auto part = [](const std::string& part) {
    return Error(OneMessage(R"("role": "user", "content": [)" + part + "]"));
  };
  EXPECT_EQ(part(R"({"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}})"),
            "\"messages[0].content[1].type\" is \"image_url\"; only \"text\" is supported");
  EXPECT_EQ(part("\"a\""), "\"messages[0].content[0]\" is a string; an object is needed");
  EXPECT_EQ(part(R"({"text": "a"})"), "\"messages[0].content[0].type\" is missing");
  EXPECT_EQ(part(R"({"type": "text"})"), "\"messages[0].content[0].text\" is missing");
  EXPECT_EQ(part(R"({"type": "text", "text": "a", "cache": 1})"),
            "\"messages[0].content[0].cache\" is not a key of a text; {\"type\": \"text\", "
            "\"text\": \"...\"} is supported");
  EXPECT_EQ(part(R"({"type": "text", "text": "a", "text": "b"})"),
            "\"messages[0].content[0].text\" is there twice");
}

TEST(ConversationRecord, KeysOfTheRecordThatBearOnTheTextAreRefused) {
  const auto beside = [](const std::string& field) {
    return Error(R"({"messages": [{"role": "user", "content": ""}], )" + field + "}");
  };
  for (const char* key : {"functions", "function_call", "tool_choice", "chat_template", "images",
                          "videos", "audios", "add_generation_prompt", "continue_final_message"}) {
    EXPECT_THAT(beside("\"" + std::string(key) + "\": [1]"),
                HasSubstr("\"" + std::string(key) +
                          "\" is not supported: it bears on what a chat "
                          "template renders"));
  }
  EXPECT_EQ(beside(R"("tools": {"a": 1})"), "\"tools\" is an object; a list of objects is needed");
  EXPECT_EQ(beside(R"("tools": ["f"])"), "\"tools[0]\" is a string; an object is needed");
  EXPECT_EQ(beside(R"("tools": "f")"), "\"tools\" is a text that is not JSON");
  EXPECT_EQ(beside(R"("tools": "\"f\"")"), "\"tools\" is a string; a list of objects is needed");
  for (const std::string key : {"tools", "documents", "chat_template_kwargs"}) {
    EXPECT_EQ(beside("\"" + key + "\": null, \"" + key + "\": null"),
              "\"" + key + "\" is there twice");
  }
  EXPECT_EQ(beside(R"("system": "a", "system": "b")"), "\"system\" is there twice");
  EXPECT_EQ(beside(R"("documents": ["d"])"), "\"documents[0]\" is a string; an object is needed");
  EXPECT_EQ(beside(R"("chat_template_kwargs": {"a": 1, "a": 2})"),
            "\"chat_template_kwargs.a\" is there twice");
  EXPECT_EQ(beside(R"("documents": 1)"), "\"documents\" is a number; a list of objects is needed");
  EXPECT_EQ(beside(R"("chat_template_kwargs": [])"),
            "\"chat_template_kwargs\" is a list; an object is needed");
  for (const std::string key : {"messages", "tools", "documents", "add_generation_prompt",
                                "continue_final_message", "tokenize", "chat_template"}) {
    EXPECT_EQ(beside(R"("chat_template_kwargs": {")" + key + R"(": 1})"),
              "\"chat_template_kwargs." + key + "\" is not a variable that a record may set");
  }
  EXPECT_EQ(beside(R"("system": 1)"), "\"system\" is a number; a string is needed");
}

TEST(ConversationRecord, ShareGptTurnsBecomeMessages) {
  EXPECT_EQ(AsJson(R"({"id": "1", "system": "S", "tools":
                       "[{\"name\": \"f\"}, {\"type\": \"function\", \"function\": {}}]",
                       "conversations": [
                       {"from": "human", "value": "U", "weight": null}, {"from": "function_call",
                        "value": "{\"name\": \"f\", \"arguments\": {\"x\": [1, \"é\"]}}"},
                       {"from": "observation", "value": "{}"}, {"from": "gpt", "value": "A"},
                       {"from": "function_call", "value":
                        "[{\"name\": \"f\", \"arguments\": \"{}\"}, {\"name\": \"g\", \"arguments\": {}}]"},
                       {"from": "tool", "value": "t"}, {"from": "developer", "value": "d"}]})",
                   ReadShareGpt),
            R"([{"role": "system", "content": "S"}, {"role": "user", "content": "U"}, )"
            R"({"role": "assistant", "tool_calls": [{"type": "function", "function": )"
            R"({"name": "f", "arguments": {"x": [1, "é"]}}}]}, {"role": "tool", "content": "{}"}, )"
            R"({"role": "assistant", "content": "A"}, )"
            R"({"role": "assistant", "tool_calls": [)"
            R"({"type": "function", "function": {"name": "f", "arguments": "{}"}}, )"
            R"({"type": "function", "function": {"name": "g", "arguments": {}}}]}, )"
            R"({"role": "tool", "content": "t"}, {"role": "developer", "content": "d"}] )"
            R"([{"type": "function", "function": {"name": "f"}}, )"
            R"({"type": "function", "function": {}}])");
}

TEST(ConversationRecord, ShareGptsNamesOfRoles) {
  for (const auto& [from, role] :
       std::vector<std::pair<std::string, std::string>>{{"human", "user"},
                                                        {"user", "user"},
                                                        {"gpt", "assistant"},
                                                        {"assistant", "assistant"},
                                                        {"observation", "tool"},
                                                        {"tool", "tool"},
                                                        {"function", "tool"},
                                                        {"system", "system"},
                                                        {"developer", "developer"}}) {
    const auto conversation = ReadConversation(
        R"({"conversations": [{"from": ")" + from + R"(", "value": "x"}]})", ReadShareGpt);
    ASSERT_TRUE(conversation.ok()) << conversation.status();
    EXPECT_EQ(conversation->messages[0].role, role) << from;
  }
}

TEST(ConversationRecord, BadShareGptIsRefusedByName) {
  const auto turn = [](const std::string& fields) {
    return Error(R"({"conversations": [{)" + fields + "}]}", ReadShareGpt);
  };
  EXPECT_EQ(turn(R"("from": "gpt", "value": "", "weight": 0, "weight": 1)"),
            "\"conversations[0].weight\" is there twice");
  EXPECT_THAT(turn(R"("from": "bot", "value": "")"),
              HasSubstr("\"conversations[0].from\" is \"bot\"; human or user, gpt or assistant, "
                        "system, developer, function_call, or observation, tool or function is "
                        "expected"));
  EXPECT_THAT(turn(R"("from": "human")"), HasSubstr("\"conversations[0].value\" is missing"));
  EXPECT_THAT(turn(R"("value": "")"), HasSubstr("\"conversations[0].from\" is missing"));
  EXPECT_EQ(turn(R"("from": "gpt", "value": "", "score": 1)"),
            "\"conversations[0].score\" is not a key of a turn; from, value and weight are");
  EXPECT_EQ(turn("\"from\": \"function_call\", \"value\": \"f(x)\""),
            "\"conversations[0].value\" is a text that is not JSON");
  EXPECT_EQ(turn(R"("from": "function_call", "value": "{\"name\": \"f\"}")"),
            "\"conversations[0].value\" has \"name\"; an object {\"name\", \"arguments\"}, or a "
            "list of them, is needed");
  const std::string needed = "an object {\"name\", \"arguments\"}, or a list of them, is needed";
  EXPECT_EQ(turn(R"("from": "function_call", "value": "5")"),
            "\"conversations[0].value\" is a number; " + needed);
  EXPECT_EQ(turn(R"("from": "function_call", "value":
                    "{\"name\": \"f\", \"arguments\": {}, \"id\": 1}")"),
            R"("conversations[0].value" has "name", "arguments", "id"; )" + needed);
  EXPECT_EQ(turn(R"("from": "function_call", "value":
                    "[{\"name\": \"f\", \"arguments\": {}}, {\"name\": 1, \"arguments\": {}}]")"),
            R"("conversations[0].value[1]" has "name", "arguments"; )" + needed);
  EXPECT_EQ(turn(R"("from": "function_call", "value": "[]")"),
            "\"conversations[0].value\" calls no function");
  EXPECT_EQ(turn(R"("from": "human", "value": "", "weight": 0)"),
            "\"conversations[0].weight\" is of a message with the role user; the loss is on the "
            "assistant's only");
  EXPECT_EQ(Error(R"({"system": "S", "conversations": [{"from": "system", "value": "T"}]})",
                  ReadShareGpt),
            "\"system\" is there beside a conversation that begins with a system message; give "
            "one");
}

TEST(ConversationRecord, AlpacaIsAQuestionAndItsAnswer) {
  EXPECT_EQ(
      AsJson(R"({"instruction": "Do", "input": "", "output": "Done", "text": "x"})", ReadAlpaca),
      R"([{"role": "user", "content": "Do"}, {"role": "assistant", "content": "Done"}])");
  EXPECT_EQ(AsJson(R"({"instruction": "Do", "input": null, "output": "Done", "history": null})",
                   ReadAlpaca),
            R"([{"role": "user", "content": "Do"}, {"role": "assistant", "content": "Done"}])");
  EXPECT_EQ(AsJson(R"({"instruction": "Do", "input": "this", "output": "Done", "system": "S",
                       "history": [["p", "a"]]})",
                   ReadAlpaca),
            R"([{"role": "system", "content": "S"}, {"role": "user", "content": "p"}, )"
            R"({"role": "assistant", "content": "a"}, {"role": "user", "content": "Do\nthis"}, )"
            R"({"role": "assistant", "content": "Done"}])");
  EXPECT_EQ(Error(R"({"instruction": "", "output": "", "history": [], "history": [["p", "a"]]})",
                  ReadAlpaca),
            "\"history\" is there twice");
  EXPECT_EQ(Error(R"({"instruction": "", "output": "", "history": [["p"]]})", ReadAlpaca),
            "\"history\" holds something that is not a pair [question, answer]");
  EXPECT_EQ(Error(R"({"instruction": "", "output": "", "history": [["p", "a", "x"]]})", ReadAlpaca),
            "\"history\" holds something that is not a pair [question, answer]");
  EXPECT_EQ(Error(R"({"instruction": "", "output": "", "history": 1})", ReadAlpaca),
            "\"history\" is a number; a list of pairs is needed");
  EXPECT_EQ(Error(R"({"output": ""})", ReadAlpaca), "\"instruction\" is missing");
  EXPECT_EQ(Error(R"({"instruction": "", "instruction": "", "output": ""})", ReadAlpaca),
            "\"instruction\" is there twice");
  EXPECT_EQ(Error(R"({"instruction": "", "output": null})", ReadAlpaca),
            "\"output\" is null; a string is needed");
}

TEST(ConversationRecord, EarlierTurnsOfAlpacaComeInTheirOrder) {
  EXPECT_EQ(AsJson(R"({"instruction": "Do", "output": "Done",
                       "history": [["p", "a"], ["q", "b"]]})",
                   ReadAlpaca),
            R"([{"role": "user", "content": "p"}, {"role": "assistant", "content": "a"}, )"
            R"({"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}, )"
            R"({"role": "user", "content": "Do"}, {"role": "assistant", "content": "Done"}])");
  EXPECT_EQ(Error(R"({"instruction": "", "output": "", "history": [["p", 1]]})", ReadAlpaca),
            "\"history\" is a number; a string is needed");
}

TEST(ConversationRecord, AFieldOfAlpacaIsOneText) {
  EXPECT_EQ(Error(R"({"instruction": "", "input": 5, "output": ""})", ReadAlpaca),
            "\"input\" is a number; a string is needed");
  EXPECT_EQ(Error(R"({"instruction": "", "input": "", "input": "", "output": ""})", ReadAlpaca),
            "\"input\" is there twice");
  EXPECT_EQ(Error(R"({"instruction": null, "output": ""})", ReadAlpaca),
            "\"instruction\" is null; a string is needed");
  EXPECT_EQ(Error(R"({"instruction": "", "output": "", "output": ""})", ReadAlpaca),
            "\"output\" is there twice");
}

// The template of Stanford's Alpaca has another prompt where there is an input.
TEST(ConversationRecord, ATemplateSeesTheInputOfAlpacaUnlessItIsEmpty) {
  const auto fields = [](const std::string& json) {
    const auto conversation = ReadConversation(json, ReadAlpaca);
    EXPECT_TRUE(conversation.ok()) << conversation.status();
    std::string text;
    for (const auto& [name, value] : conversation->alpaca) {
      text += name + "=" + std::string(value.as_string()) + ";";
    }
    return text;
  };
  EXPECT_EQ(fields(R"({"instruction": "Do", "input": "this", "output": "Done"})"),
            "instruction=Do;input=this;");
  EXPECT_EQ(fields(R"({"instruction": "Do", "input": "", "output": "Done"})"), "instruction=Do;");
  EXPECT_EQ(fields(R"({"instruction": "Do", "output": "Done"})"), "instruction=Do;");
}

TEST(ConversationRecord, KeysThatWouldBearOnTheTextMayBeEmpty) {
  EXPECT_EQ(AsJson(R"({"messages": [{"role": "user", "content": "q"}], "tool_choice": {},
                       "functions": null, "images": "", "videos": []})"),
            R"([{"role": "user", "content": "q"}])");
}

TEST(ConversationRecord, AFunctionCallIsATurnOfTheAssistant) {
  const auto call = [](const std::string& weight) {
    return ReadConversation(R"({"conversations": [{"from": "function_call",
        "value": "{\"name\": \"f\", \"arguments\": {}}")" +
                                weight + "}]}",
                            ReadShareGpt);
  };
  const auto trained = call(""), untrained = call(", \"weight\": 0");
  ASSERT_TRUE(trained.ok() && untrained.ok()) << trained.status() << untrained.status();
  EXPECT_TRUE(trained->messages[0].is_assistant());
  EXPECT_TRUE(trained->messages[0].trained);
  EXPECT_TRUE(untrained->messages[0].is_assistant());
  EXPECT_FALSE(untrained->messages[0].trained);
}

TEST(ConversationRecord, OfDoubleKeysWithinAValueTheLastCounts) {
  EXPECT_EQ(AsJson(OneMessage(R"("role": "assistant", "tool_calls": [{"a": 1, "b": 2, "a": 3}])")),
            R"([{"role": "assistant", "tool_calls": [{"a": 3, "b": 2}]}])");
}

TEST(ConversationRecord, TheTextsOfPartsAreJoined) {
  const auto conversation =
      ReadConversation(OneMessage(R"("role": "user", "content": [{"type": "text", "text": "a"},
                                                {"text": "b", "type": "text"}])"));
  ASSERT_TRUE(conversation.ok()) << conversation.status();
  EXPECT_EQ(conversation->messages[0].text, "a\nb");
  EXPECT_TRUE(conversation->messages[0].in_parts);
}

}  // namespace
}  // namespace megatrain
