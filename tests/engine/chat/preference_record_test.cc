#include "engine/chat/preference_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

absl::Status Read(const std::string& json, PreferenceForm form, PreferencePair* pair) {
  simdjson::dom::parser parser;
  return ReadPreference(parser.parse(json), form, pair);
}

PreferencePair Pair(const std::string& json, PreferenceForm form = PreferenceForm::kPrompt) {
  PreferencePair pair;
  const absl::Status status = Read(json, form, &pair);
  EXPECT_TRUE(status.ok()) << status;
  return pair;
}

std::string Error(const std::string& json, PreferenceForm form = PreferenceForm::kPrompt) {
  PreferencePair pair;
  const absl::Status status = Read(json, form, &pair);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

// "role:content", with a "-" before messages that are not trained.
std::vector<std::string> Turns(const Conversation& conversation) {
  std::vector<std::string> turns;
  for (const ChatMessage& message : conversation.messages) {
    turns.push_back((message.trained ? "" : "-") + message.role + ":" + message.text);
  }
  return turns;
}

TEST(PreferenceRecordTest, Texts) {
  PreferencePair pair = Pair(R"({"prompt": "Sky?", "chosen": " Blue.", "rejected": ""})");
  EXPECT_FALSE(pair.is_chat);
  EXPECT_EQ(pair.prompt, "Sky?");
  EXPECT_EQ(pair.chosen, " Blue.");
  EXPECT_EQ(pair.rejected, "");
}

// As extract_prompt of TRL.
TEST(PreferenceRecordTest, ThePromptOfTextsIsWhatTheyHaveInCommon) {
  const auto parts = [](const std::string& chosen, const std::string& rejected) {
    const PreferencePair pair =
        Pair(R"({"chosen": ")" + chosen + R"(", "rejected": ")" + rejected + "\"}");
    return std::vector<std::string>{pair.prompt, pair.chosen, pair.rejected};
  };
  EXPECT_THAT(parts("The sky is blue.", "The sky is green."),
              ElementsAre("The sky is", " blue.", " green."));
  EXPECT_THAT(parts("ab", "abc"), ElementsAre("a", "b", "bc"));
  EXPECT_THAT(parts("same", "same"), ElementsAre("sam", "e", "e"));
  EXPECT_THAT(parts("abc", "ab"), ElementsAre("a", "bc", "b"));
  EXPECT_THAT(parts("a b", "a bc"), ElementsAre("a ", "b", "bc"));
  EXPECT_THAT(parts("x", "y"), ElementsAre("", "x", "y"));
  EXPECT_THAT(parts("", "x"), ElementsAre("", "", "x"));
  // Characters that share their first bytes are not cut.
  EXPECT_THAT(parts("aé", "aè"), ElementsAre("a", "é", "è"));
  EXPECT_THAT(parts("aé", "aéb"), ElementsAre("a", "é", "éb"));
}

TEST(PreferenceRecordTest, Conversations) {
  constexpr char kUser[] = R"({"role": "user", "content": "Sky?"})";
  constexpr char kBlue[] = R"({"role": "assistant", "content": "Blue."})";
  constexpr char kGreen[] = R"({"content": "Green.", "role": "assistant"})";
  const std::string user = kUser, blue = kBlue, green = kGreen;
  const std::vector<std::string> records = {
      R"({"prompt": [)" + user + R"(], "chosen": [)" + blue + R"(], "rejected": [)" + green + "]}",
      R"({"prompt": [)" + user + R"(], "chosen": )" + blue + R"(, "rejected": )" + green + "}",
      // Implicit, and with a text that repeats the prompt.
      R"({"chosen": [)" + user + "," + blue + R"(], "rejected": [)" + user + "," + green + "]}",
      R"({"prompt": "Sky?", "chosen": [)" + user + "," + blue + R"(], "rejected": [)" + user + "," +
          green + "]}"};
  for (const std::string& json : records) {
    SCOPED_TRACE(json);
    const PreferencePair pair = Pair(json);
    EXPECT_TRUE(pair.is_chat);
    EXPECT_THAT(Turns(pair.chosen_chat), ElementsAre("user:Sky?", "assistant:Blue."));
    EXPECT_THAT(Turns(pair.rejected_chat), ElementsAre("user:Sky?", "assistant:Green."));
  }
  // Equal conversations keep their last message.
  const PreferencePair same = Pair(R"({"chosen": [)" + user + "," + blue + R"(], "rejected": [)" +
                                   user + "," + blue + "]}");
  EXPECT_THAT(Turns(same.chosen_chat), ElementsAre("user:Sky?", "assistant:Blue."));
}

TEST(PreferenceRecordTest, ThePromptOfConversationsIsWhatBothBeginWith) {
  const std::string begin = R"({"role": "user", "content": "Q"},
                               {"role": "assistant", "content": "X"})";
  const std::string more = R"(, {"role": "user", "content": "R"},
                              {"role": "assistant", "content": ")";
  const auto pair = [](const std::string& chosen, const std::string& rejected) {
    return Pair(R"({"prompt": null, "chosen": [)" + chosen + R"(], "rejected": [)" + rejected +
                "]}");
  };
  const PreferencePair last = pair(begin + more + "A\"}", begin + more + "B\"}");
  EXPECT_THAT(Turns(last.chosen_chat),
              ElementsAre("user:Q", "-assistant:X", "user:R", "assistant:A"));
  EXPECT_THAT(Turns(last.rejected_chat),
              ElementsAre("user:Q", "-assistant:X", "user:R", "assistant:B"));
  // The shorter one keeps its last message.
  const PreferencePair shorter = pair(begin, begin + more + "B\"}");
  EXPECT_THAT(Turns(shorter.chosen_chat), ElementsAre("user:Q", "assistant:X"));
  EXPECT_THAT(Turns(shorter.rejected_chat),
              ElementsAre("user:Q", "assistant:X", "user:R", "assistant:B"));
  // A message with a key more is another one.
  const PreferencePair named = pair(begin, R"({"role": "user", "content": "Q", "name": "n"},
                {"role": "assistant", "content": "X"})");
  EXPECT_EQ(named.chosen_chat.messages[0].Find("name"), nullptr);
  EXPECT_NE(named.rejected_chat.messages[0].Find("name"), nullptr);
}

TEST(PreferenceRecordTest, EarlierAnswersOfThePromptAreNotTrained) {
  const PreferencePair pair = Pair(
      R"({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"},
                            {"from": "human", "value": "Sky?"}],
          "chosen": {"from": "gpt", "value": "Blue."}, "rejected": {"from": "gpt", "value": "No."},
          "system": "Be brief.", "tools": [{"name": "f"}], "score": 3})",
      PreferenceForm::kShareGpt);
  EXPECT_THAT(Turns(pair.chosen_chat),
              ElementsAre("system:Be brief.", "user:Hi", "-assistant:Hello", "user:Sky?",
                          "assistant:Blue."));
  EXPECT_THAT(Turns(pair.rejected_chat), SizeIs(5));
  EXPECT_FALSE(pair.chosen_chat.tools.is_none());
  EXPECT_FALSE(pair.rejected_chat.tools.is_none());
}

TEST(PreferenceRecordTest, AlpacaAndMessages) {
  PreferencePair pair = Pair(
      R"({"instruction": "Add.", "input": "1 2", "chosen": "3", "rejected": "4",
          "history": [["a", "b"]]})",
      PreferenceForm::kAlpaca);
  EXPECT_THAT(Turns(pair.chosen_chat),
              ElementsAre("user:a", "-assistant:b", "user:Add.\n1 2", "assistant:3"));
  EXPECT_THAT(Turns(pair.rejected_chat).back(), "assistant:4");
  EXPECT_EQ(pair.rejected_chat.alpaca.size(), 2u);
  pair = Pair(R"({"messages": [{"role": "user", "content": "Q"}],
                  "chosen": {"role": "assistant", "content": "A"},
                  "rejected": [{"role": "assistant", "content": "B"}]})",
              PreferenceForm::kMessages);
  EXPECT_THAT(Turns(pair.rejected_chat), ElementsAre("user:Q", "assistant:B"));
}

TEST(PreferenceRecordTest, WithoutAPromptOtherFormsAreSeenByTheirKeys) {
  EXPECT_THAT(Turns(Pair(R"({"messages": [{"role": "user", "content": "Q"}],
                             "chosen": [{"role": "assistant", "content": "A"}],
                             "rejected": [{"role": "assistant", "content": "B"}]})")
                        .chosen_chat),
              ElementsAre("user:Q", "assistant:A"));
  EXPECT_THAT(Turns(Pair(R"({"instruction": "Q", "chosen": "A", "rejected": "B"})").chosen_chat),
              ElementsAre("user:Q", "assistant:A"));
  EXPECT_THAT(Turns(Pair(R"({"conversations": [{"from": "human", "value": "Q"}],
                             "chosen": {"from": "gpt", "value": "A"},
                             "rejected": {"from": "gpt", "value": "B"}})")
                        .rejected_chat),
              ElementsAre("user:Q", "assistant:B"));
  EXPECT_THAT(Turns(Pair(R"({"conversations": [{"from": "human", "value": "Q"}],
                             "chosen": [{"from": "gpt", "value": "A"}],
                             "rejected": [{"from": "gpt", "value": "B"}]})")
                        .chosen_chat),
              ElementsAre("user:Q", "assistant:A"));
  EXPECT_THAT(Turns(Pair(R"({"conversations": [{"from": "human", "value": "Q"}],
                             "chosen": [{"from": "assistant", "value": "A"}],
                             "rejected": [{"from": "assistant", "value": "B"}]})")
                        .chosen_chat),
              ElementsAre("user:Q", "assistant:A"));
  // A prompt of turns, as its answers are.
  EXPECT_THAT(Turns(Pair(R"({"prompt": [{"from": "human", "value": "Q"}],
                             "chosen": [{"from": "gpt", "value": "A"}],
                             "rejected": [{"from": "gpt", "value": "B"}]})")
                        .rejected_chat),
              ElementsAre("user:Q", "assistant:B"));
  // Whole conversations, beside a column that repeats one of them.
  EXPECT_THAT(Turns(Pair(R"({"messages": [{"role": "user", "content": "other"}],
                             "chosen": [{"role": "user", "content": "Q"},
                                        {"role": "assistant", "content": "A"}],
                             "rejected": [{"role": "user", "content": "Q"},
                                          {"role": "assistant", "content": "B"}]})")
                        .chosen_chat),
              ElementsAre("user:Q", "assistant:A"));
}

TEST(PreferenceRecordTest, TheKeysOfCommonMessagesMayHaveAnotherOrder) {
  const PreferencePair pair = Pair(
      R"({"chosen": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "X"},
                     {"role": "user", "content": "R"}, {"role": "assistant", "content": "A"}],
          "rejected": [{"content": "Q", "role": "user"}, {"content": "X", "role": "assistant"},
                       {"content": "R", "role": "user"}, {"content": "B", "role": "assistant"}]})");
  EXPECT_THAT(Turns(pair.chosen_chat),
              ElementsAre("user:Q", "-assistant:X", "user:R", "assistant:A"));
  EXPECT_THAT(Turns(pair.rejected_chat),
              ElementsAre("user:Q", "-assistant:X", "user:R", "assistant:B"));
}

TEST(PreferenceRecordTest, APromptMayBeOfTurnsAndItsAnswersOfMessages) {
  EXPECT_THAT(Turns(Pair(R"({"prompt": [{"from": "human", "value": "Q"}],
                             "chosen": [{"role": "assistant", "content": "A"}],
                             "rejected": [{"role": "assistant", "content": "B"}]})")
                        .chosen_chat),
              ElementsAre("user:Q", "assistant:A"));
  EXPECT_THAT(Turns(Pair(R"({"prompt": {"role": "user", "content": "Q"},
                             "chosen": {"from": "gpt", "value": "A"},
                             "rejected": {"from": "gpt", "value": "B"}})")
                        .rejected_chat),
              ElementsAre("user:Q", "assistant:B"));
}

// As those of a conversation in the same form are.
TEST(PreferenceRecordTest, TheToolsOfTurnsAreWrapped) {
  const auto program = JinjaProgram::Parse("{{ tools | tojson }}");
  ASSERT_TRUE(program.ok()) << program.status();
  const auto tools = [&program](const std::string& chosen, const std::string& rejected) {
    const PreferencePair pair =
        Pair(R"({"prompt": [{"role": "user", "content": "Q"}], "tools": [{"name": "f"}],
                 "chosen": [)" +
             chosen + R"(], "rejected": [)" + rejected + "]}");
    const auto rendered = program->Render({{"tools", pair.rejected_chat.tools}});
    return rendered.ok() ? rendered->text : std::string(rendered.status().message());
  };
  EXPECT_EQ(tools(R"({"from": "gpt", "value": "A"})", R"({"from": "gpt", "value": "B"})"),
            R"([{"type": "function", "function": {"name": "f"}}])");
  EXPECT_EQ(
      tools(R"({"role": "assistant", "content": "A"})", R"({"role": "assistant", "content": "B"})"),
      R"([{"name": "f"}])");
}

TEST(PreferenceRecordTest, ATextIsNoPromptOfAnswersAlone) {
  const std::string user = R"({"role": "user", "content": "Q"}, )";
  const std::string good = R"({"role": "assistant", "content": "good"})";
  const std::string bad = R"({"role": "assistant", "content": "bad"})";
  const auto record = [](const std::string& chosen, const std::string& rejected) {
    return R"({"prompt": "Q", "chosen": [)" + chosen + R"(], "rejected": [)" + rejected + "]}";
  };
  for (const std::string& json :
       {record(good, bad), record(user + good, bad), record(good, user + bad)}) {
    EXPECT_EQ(Error(json),
              "\"prompt\" is needed as a list of messages where the answers begin with the "
              "assistant's message");
  }
  EXPECT_THAT(
      Turns(Pair(R"({"chosen": [)" + good + R"(], "rejected": [)" + bad + "]}").chosen_chat),
      ElementsAre("assistant:good"));
}

TEST(PreferenceRecordTest, ASystemTextIsTheOnlyOne) {
  const auto record = [](const std::string& chosen, const std::string& rejected) {
    return R"({"system": "S", "chosen": [)" + chosen + R"({"role": "user", "content": "Q"},
                {"role": "assistant", "content": "A"}], "rejected": [)" +
           rejected + R"({"role": "user", "content": "R"},
                {"role": "assistant", "content": "B"}]})";
  };
  const std::string own = R"({"role": "system", "content": "T"}, )";
  const std::string other = R"({"role": "system", "content": "U"}, )";
  EXPECT_THAT(Turns(Pair(record("", "")).rejected_chat),
              ElementsAre("system:S", "user:R", "assistant:B"));
  for (const auto& [chosen, rejected] : std::vector<std::pair<std::string, std::string>>{
           {own, other}, {own, ""}, {"", own}, {own, own}}) {
    EXPECT_THAT(Error(record(chosen, rejected)), HasSubstr("\"system\" is there beside a"));
  }
}

TEST(PreferenceRecordTest, WhatItCannotReadIsNamed) {
  EXPECT_THAT(Error(R"({"prompt": "a", "chosen": "b"})"), HasSubstr("\"rejected\" is missing"));
  EXPECT_THAT(Error(R"({"prompt": "a", "chosen": "b", "rejected": ["c"]})"),
              HasSubstr("\"rejected\" is a list"));
  EXPECT_THAT(Error(R"({"prompt": 3, "chosen": "b", "rejected": "c"})"), HasSubstr("\"prompt\""));
  EXPECT_THAT(Error(R"({"prompt": "a", "chosen": "b", "chosen": "b", "rejected": "c"})"),
              HasSubstr("\"chosen\" is there twice"));
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"system", "\"s\""},
                                                        {"tools", R"([{"name": "f"}])"},
                                                        {"documents", R"([{"text": "d"}])"},
                                                        {"chat_template_kwargs", R"({"a": 1})"}}) {
    EXPECT_THAT(
        Error(R"({"prompt": "a", "chosen": "b", "rejected": "c", ")" + key + "\": " + value + "}"),
        HasSubstr("\"" + key + "\" is for a chat template"));
  }
  EXPECT_THAT(Error(R"({"prompt": "a", "chosen": [{"role": "user", "content": "x"}],
                        "rejected": [{"role": "user", "content": "x"}]})"),
              HasSubstr("\"chosen\" has no message of the assistant"));
  EXPECT_THAT(Error(R"({"chosen": {"role": "assistant", "content": "x"},
                        "rejected": {"role": "assistant", "content": "x"}})"),
              HasSubstr("\"prompt\" is needed as a list of messages"));
  EXPECT_THAT(Error(R"({"prompt": [{"role": "user", "content": "x"}],
                        "chosen": [{"role": "assistant", "content": "x"}],
                        "rejected": [{"role": "user", "content": "x"}]})"),
              HasSubstr("\"rejected\" has no message of the assistant"));
  for (const bool chosen_is_list : {true, false}) {
    const std::string list = R"([{"role": "user", "content": "x"},
                                 {"role": "assistant", "content": "x"}])";
    const std::string single = R"({"role": "assistant", "content": "x"})";
    EXPECT_THAT(Error(R"({"chosen": )" + (chosen_is_list ? list : single) + R"(, "rejected": )" +
                      (chosen_is_list ? single : list) + "}"),
                HasSubstr("\"prompt\" is needed as a list of messages"));
  }
  EXPECT_THAT(Error(R"({"chosen": [], "rejected": []})"),
              HasSubstr("\"chosen\" has no message of the assistant"));
  EXPECT_THAT(
      Error(R"({"instruction": "x", "chosen": "y", "rejected": 1})", PreferenceForm::kAlpaca),
      HasSubstr("\"rejected\""));
}

}  // namespace
}  // namespace megatrain
