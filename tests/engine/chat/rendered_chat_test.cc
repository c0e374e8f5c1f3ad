// Tests what programs are given, what of it they must read, and the turns that the loss is on.
#include "engine/chat/rendered_chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/engine/chat/chat_test_support.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kChatml[] =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

std::string TextWith(const std::string& program, const std::string& record) {
  const auto rendered = RenderWith(program, record);
  return rendered.ok() ? rendered->text : std::string(rendered.status().message());
}

constexpr char kMarked[] =
    "{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }};{% endgeneration %}{% else %}{{ m.content }}{% endif %}"
    "{% endfor %}";
constexpr char kThree[] =
    R"({"messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "a"},
        {"role": "user", "content": "q"}, {"role": "assistant", "content": "b", "weight": 0},
        {"role": "user", "content": "r"}, {"role": "assistant", "content": "c", "weight": 1}]})";

TEST(RenderChat, WeightAndTheLastTurnChooseAmongTheTurns) {
  EXPECT_THAT(TargetsWith(kMarked, kThree), ElementsAre("a;", "c;"));
  EXPECT_THAT(TargetsWith(kMarked, kThree, TrainOn::kLast), ElementsAre("c;"));
  EXPECT_THAT(TargetsWith(kChatml, kThree), ElementsAre("a<|im_end|>", "c<|im_end|>"));
  EXPECT_THAT(TargetsWith(kChatml, kThree, TrainOn::kLast), ElementsAre("c<|im_end|>"));
  // The last turn is the last one, whatever its weight.
  const std::string last_untrained =
      R"({"messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "a"},
          {"role": "assistant", "content": "b", "weight": 0}]})";
  EXPECT_THAT(TargetsWith(kChatml, last_untrained, TrainOn::kLast), IsEmpty());
  EXPECT_THAT(ErrorWith(kChatml, kThree, TrainOn::kAll),
              HasSubstr("messages[3] has weight 0, but the loss is to be on the whole"));
  EXPECT_THAT(TargetsWith(kChatml,
                          R"({"messages": [{"role": "user", "content": "p"},
                              {"role": "assistant", "content": "a", "weight": 1}]})",
                          TrainOn::kAll),
              ElementsAre("<|im_start|>user\np<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n"));
}

TEST(RenderChat, NoTargetIsEmpty) {
  const std::string program =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";
  const std::string record =
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
          {"role": "user", "content": "r"}, {"role": "assistant", "content": ""}]})";
  EXPECT_THAT(TargetsWith(program, record, TrainOn::kLast), IsEmpty());
  EXPECT_THAT(TargetsWith("", record, TrainOn::kAll), IsEmpty());
}

TEST(RenderChat, TheTurnEndsWithItsMark) {
  const std::string record =
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q "},
          {"role": "assistant", "content": " a\n"}, {"role": "user", "content": "r"},
          {"role": "assistant", "content": "b"}]})";
  EXPECT_THAT(TargetsWith(kChatml, record), ElementsAre(" a\n<|im_end|>", "b<|im_end|>"));
  // Without a mark the line feed is it.
  const std::string plain =
      "{% for m in messages %}{{ m.role + ': ' + m.content + '\n\n' }}{% endfor %}"
      "{% if add_generation_prompt %}assistant:{% endif %}";
  EXPECT_THAT(TargetsWith(plain, record), ElementsAre("  a\n\n\n", " b\n\n"));
  // A program without a generation prompt leaves the header to the model.
  const std::string bare = "{% for m in messages %}[{{ m.role }}]{{ m.content }}</s> {% endfor %}";
  EXPECT_THAT(TargetsWith(bare, record), ElementsAre("[assistant] a\n</s>", "[assistant]b</s>"));
}

// Phi-3's program ends conversations so.
TEST(RenderChat, AMarkBeforeTheOneThatEndsTheConversationIsTrainedOn) {
  const std::string program =
      "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}";
  EXPECT_THAT(TargetsWith(program, kThree), ElementsAre("a<|end|>", "c<|end|>\n</s>"));
}

TEST(RenderChat, AMarkThatOnlyEndsTheConversationIsTrainedOnThere) {
  const std::string program =
      "{% for m in messages %}{% if m.role == 'user' %}[Q]{{ m.content }}[/Q]{% else %}"
      " {{ m.content }}{% if loop.last %}{{ eos_token }}{% endif %}{% endif %}{% endfor %}";
  EXPECT_THAT(TargetsWith(program, kThree), ElementsAre(" a", " c</s>"));
}

constexpr char kDropsReasoning[] =
    "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}{{ '<' + m.role + '>' }}"
    "{% if m.role == 'assistant' and loop.index0 > ns.last and m.reasoning_content %}"
    "{{ '(' + m.reasoning_content + ')' }}{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}<e>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

TEST(RenderChat, ATurnThatLosesItsReasoningIsFoundWithoutIt) {
  const std::string record = R"({"messages": [
      {"role": "user", "content": "q"},
      {"role": "assistant", "content": "", "reasoning_content": "one", "tool_calls": [
          {"type": "function", "function": {"name": "f", "arguments": {}}}]},
      {"role": "tool", "content": "t"},
      {"role": "assistant", "content": "ok", "reasoning_content": "ok<e>\n"},
      {"role": "user", "content": "r"},
      {"role": "assistant", "content": "ok", "reasoning_content": "three"}]})";
  EXPECT_THAT(TargetsWith(kDropsReasoning, record),
              ElementsAre(R"({"name": "f", "arguments": {}}<e>)", "ok<e>", "(three)ok<e>"));
  // The last one alone is found without the others.
  EXPECT_THAT(TargetsWith(kDropsReasoning, record, TrainOn::kLast), ElementsAre("(three)ok<e>"));
}

TEST(RenderChat, ATurnWhosePlaceIsUncertainIsLeftOutAndCounted) {
  // Earlier answers are written in capitals.
  const std::string program =
      "{% for m in messages %}<{{ m.role }}>{{ m.content | upper if m.role == 'assistant' and "
      "not loop.last else m.content }}<e>{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";
  EXPECT_THAT(TargetsWith(program, kThree, TrainOn::kAssistant, 1), ElementsAre("c<e>"));
}

TEST(RenderChat, APromptThatTheTextDoesNotKeepEndsBeforeTheAnswer) {
  const std::string program =
      "{% for m in messages %}<{{ m.role }}>{{ m.content.split('</think>')[-1] }}<e>{% endfor %}"
      "{% if add_generation_prompt %}<assistant><think>\n{% endif %}";
  const std::string record =
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "<table>"},
          {"role": "user", "content": "r"},
          {"role": "assistant", "content": "<think>\nhm</think><th>"}]})";
  EXPECT_THAT(TargetsWith(program, record), ElementsAre("<table><e>", "<th><e>"));
}

// QwQ's prompts end with a piece that no turn keeps, GLM-4.7's with one that turns without
// reasoning close at once.
TEST(RenderChat, ATurnOfToolCallsAloneIsFoundBehindSuchAPrompt) {
  const std::string record = R"({"messages": [
      {"role": "user", "content": "q"},
      {"role": "assistant", "content": "", "tool_calls": [
          {"type": "function", "function": {"name": "f", "arguments": {}}}]},
      {"role": "tool", "content": "t"},
      {"role": "assistant", "content": "ok"}]})";
  for (const char* closed : {"", "</think>"}) {
    const std::string program = absl::StrCat(
        "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}", closed,
        "{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}"
        "</tool_call>{% endfor %}{% else %}{{ m.content }}{% endif %}<e>{% endfor %}"
        "{% if add_generation_prompt %}<assistant><think>{% endif %}");
    EXPECT_THAT(TargetsWith(program, record), ElementsAre("<tool_call>f</tool_call><e>", "ok<e>"));
  }
}

TEST(RenderChat, AnAnswerMayBeginTheConversation) {
  const std::string program =
      "{% if messages[0].role != 'system' %}<system>default<e>{% endif %}"
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}<e>{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";
  EXPECT_THAT(TargetsWith(program, R"({"messages": [{"role": "assistant", "content": "hi"},
                                       {"role": "user", "content": "x"}]})"),
              ElementsAre("hi<e>"));
}

TEST(RenderChat, WhatTheProgramDoesNotReadIsRefused) {
  const auto with = [](const std::string& beside, const std::string& in_message) {
    return R"({"messages": [{"role": "user", "content": "q"},
               {"role": "assistant", "content": "a")" +
           in_message + "}]" + beside + "}";
  };
  EXPECT_THAT(ErrorWith(kChatml, with(R"(, "tools": [{"name": "f"}])", "")),
              HasSubstr("the record has tools, which the chat template does not read; remove it, "
                        "or choose another template with data.chat_template"));
  EXPECT_THAT(ErrorWith(kChatml, with(R"(, "documents": [{"text": "d"}])", "")),
              HasSubstr("the record has documents"));
  EXPECT_THAT(
      ErrorWith(kChatml, with(R"(, "chat_template_kwargs": {"enable_thinkin": false})", "")),
      HasSubstr("the record has chat_template_kwargs.enable_thinkin, which"));
  for (const char* key : {"tool_calls", "reasoning_content", "thinking", "prefix"}) {
    const std::string value = key == std::string("tool_calls") ? "[{}]" : "\"x\"";
    EXPECT_THAT(ErrorWith(kChatml, with("", std::string(", \"") + key + "\": " + value)),
                HasSubstr(std::string("messages[1] has ") + key));
  }
  EXPECT_THAT(TargetsWith(kChatml, with("", R"(, "name": "n", "tool_call_id": "i", "x": null)")),
              ElementsAre("a<|im_end|>"));
  // Leaving out empty values loses nothing.
  EXPECT_THAT(TargetsWith(kChatml, with(R"(, "tools": [], "documents": [],
                                            "chat_template_kwargs": {"enable_thinking": null})",
                                        R"(, "tool_calls": [], "reasoning_content": "")")),
              ElementsAre("a<|im_end|>"));
  // A variable of that name is none of the message's keys.
  EXPECT_THAT(ErrorWith(std::string("{% set thinking = 1 %}{{ thinking }}") + kChatml,
                        with("", R"(, "reasoning_content": "r")")),
              HasSubstr("messages[1] has reasoning_content"));
}

TEST(RenderChat, ARoleThatIsPassedOverIsRefused) {
  const std::string program =
      "{% for m in messages %}{% if m.role == 'user' or m.role == 'assistant' %}{{ m.content }}"
      "{% endif %}{% endfor %}";
  EXPECT_THAT(ErrorWith(program, R"({"messages": [{"role": "user", "content": "q"},
                                     {"role": "developer", "content": "d"}]})"),
              HasSubstr("messages[1] has the role \"developer\", which the chat template passes "
                        "over"));
  EXPECT_THAT(ErrorWith(program, R"({"messages": [{"role": "system", "content": "s"},
                                     {"role": "user", "content": "q"}]})"),
              HasSubstr("messages[0] has the role \"system\", which"));
  EXPECT_EQ(TextWith(program, R"({"messages": [{"role": "system", "content": ""},
                                     {"role": "user", "content": "q"}]})"),
            "q");
  EXPECT_EQ(TextWith(kChatml, R"({"messages": [{"role": "developer", "content": "d"}]})"),
            "<|im_start|>developer\nd<|im_end|>\n");
}

TEST(RenderChat, APromptsRolesAreLookedAtToo) {
  const auto program = JinjaProgram::Parse(
      "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}A:{% endif %}");
  ASSERT_TRUE(program.ok()) << program.status();
  const absl::CivilDay day(2026, 1, 31);
  const Json user = {{"role", "user"}, {"content", "q"}};
  const Json developer = {{"role", "developer"}, {"content", "d"}};
  EXPECT_EQ(RenderChatPrompt(*program, {}, day, ConversationOf(Json::array({user}))).value(),
            "qA:");
  EXPECT_THAT(std::string(RenderChatPrompt(*program, {}, day,
                                           ConversationOf(Json::array({user, developer})))
                              .status()
                              .message()),
              HasSubstr("messages[1] has the role \"developer\""));
  EXPECT_EQ(RenderChatPrompt(*program, {}, day, Conversation()).status(),
            absl::InvalidArgumentError("a conversation without messages"));
  EXPECT_EQ(RenderChat(*program, {}, day, TrainOn::kAssistant, Conversation()).status(),
            absl::InvalidArgumentError("a conversation without messages"));
}

TEST(RenderChat, RolesThatTheProgramDoesNotNameAreFew) {
  Json messages = Json::array();
  const auto add = [&messages](const std::string& role) {
    const Json message = {{"role", role}, {"content", "x"}};
    messages.push_back(message);
  };
  for (int i = 0; i < 16; ++i) add(absl::StrCat("role", i));
  add("role0");
  EXPECT_TRUE(RenderWith(kChatml, Json{{"messages", messages}}.dump()).ok());
  add("one more");
  EXPECT_EQ(ErrorWith(kChatml, Json{{"messages", messages}}.dump()),
            "the conversation has more than 16 roles that the chat template does not name");
}

TEST(RenderChat, ReasoningIsFilledFromItsOtherNames) {
  const std::string program =
      "{% for m in messages %}{{ m.thinking }}|{{ m.reasoning_content }}|{{ m.reasoning }};"
      "{% endfor %}";
  const auto with = [](const std::string& key) {
    return R"({"messages": [{"role": "assistant", ")" + key + "\": \"r\"}]}";
  };
  EXPECT_EQ(TextWith(program, with("reasoning_content")), "r|r|;");
  EXPECT_EQ(TextWith(program, with("thinking")), "r|r|;");
  EXPECT_EQ(TextWith(program, with("reasoning")), "r|r|r;");
  EXPECT_EQ(TextWith(program, R"({"messages": [
                {"role": "assistant", "reasoning_content": "", "thinking": "r"}]})"),
            "r|r|;")
      << "an empty name gives way to a full one";
  EXPECT_EQ(TextWith(program, R"({"messages": [
                {"role": "assistant", "reasoning_content": "r", "thinking": ""}]})"),
            "r|r|;");
}

TEST(RenderChat, AProgramThatReadsOneNameOfReasoningReadsAll) {
  for (const char* name : {"thinking", "reasoning_content"}) {
    for (const char* key : {"reasoning_content", "thinking", "reasoning"}) {
      EXPECT_EQ(
          TextWith(absl::StrCat("{{ messages[0].", name, " }}"),
                   absl::StrCat(R"({"messages": [{"role": "assistant", ")", key, "\": \"r\"}]}")),
          "r")
          << name << " from " << key;
    }
  }
}

TEST(RenderChat, ANameThatOnlyItselfFillsIsRefusedUnderAnother) {
  const auto with = [](const std::string& key) {
    return R"({"messages": [{"role": "assistant", ")" + key + "\": \"r\"}]}";
  };
  EXPECT_EQ(TextWith("{{ messages[0].reasoning }}", with("reasoning")), "r");
  for (const char* key : {"reasoning_content", "thinking"}) {
    EXPECT_THAT(ErrorWith("{{ messages[0].reasoning }}", with(key)),
                HasSubstr(absl::StrCat("messages[0] has ", key, ", which")));
  }
}

TEST(RenderChat, ReasoningOfTheLastMessageThatIsPassedOverIsRefused) {
  const std::string program =
      "{% for m in messages %}{% if m.reasoning_content and not loop.last %}"
      "({{ m.reasoning_content }}){% endif %}{{ m.content }};{% endfor %}";
  const std::string answer = R"({"role": "assistant", "content": "a", "reasoning": "r"})";
  EXPECT_THAT(ErrorWith(program, R"({"messages": [)" + answer + "]}"),
              HasSubstr("messages[0] has reasoning, which the chat template passes over here"));
  EXPECT_EQ(TextWith(program, R"({"messages": [)" + answer + R"(, {"role": "user", "content": "q"},
                         {"role": "assistant", "content": "b", "reasoning": ""}]})"),
            "(r)a;q;b;");
}

TEST(RenderChat, PartsAreJoinedForAProgramThatDoesNotReadThem) {
  const std::string record = R"({"messages": [{"role": "user", "content": [
      {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]})";
  EXPECT_EQ(TextWith("{{ messages[0].content }}", record), "a\nb");
  EXPECT_EQ(TextWith("{% for p in messages[0].content %}[{{ p.text }}]{% endfor %}", record),
            "[a][b]");
}

TEST(RenderChat, ProgramsSeeTheRecordAsTransformersGivesIt) {
  const std::string record = R"({"messages": [{"role": "user", "content": "q", "name": null}],
      "tools": [{"type": "function", "function": {"name": "f", "x": [1, 2.5, null, true]}}],
      "chat_template_kwargs": {"enable_thinking": false, "bos_token": "<b>"}})";
  EXPECT_EQ(TextWith("{{ bos_token }}{{ tools | tojson }}{{ enable_thinking }}{{ documents }}"
                     "{{ 'name' in messages[0] }}{{ add_generation_prompt }}",
                     record),
            R"(<b>[{"type": "function", "function": {"name": "f", "x": [1, 2.5, null, true]}}])"
            "FalseNoneFalseFalse");
  EXPECT_EQ(TextWith("{{ strftime_now('%d %b %Y %H:%M') }}{{ messages[0].content }}",
                     R"({"messages": [{"role": "user", "content": "q"}]})"),
            "31 Jan 2026 00:00q");
}

TEST(RenderChat, AnEmptyListOfToolsIsOne) {
  for (const char* tools : {"[]", "\"[]\""}) {
    EXPECT_EQ(TextWith("{{ tools is none }}{{ tools }}{{ documents is none }}",
                       absl::StrCat(R"({"messages": [{"role": "user", "content": "q"}],
                                        "documents": [], "tools": )",
                                    tools, "}")),
              "False[]False");
  }
}

// Some of Cohere's programs end every conversation so, with the generation prompt behind it.
TEST(RenderChat, WhatEndsEveryConversationIsNotTrainedOn) {
  const std::string program =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}"
      "<system>Write 'Action:'.<end>{% if add_generation_prompt %}<assistant>{% endif %}";
  EXPECT_THAT(TargetsWith(program, kThree), ElementsAre("a<end>", "c<end>"));
}

TEST(RenderChat, WhatAProgramRaisesIsTheExamplesError) {
  const std::string record = R"({"messages": [{"role": "user", "content": "q"}]})";
  EXPECT_EQ(ErrorWith("{{ raise_exception('Only tools!') }}", record),
            "the chat template refuses the conversation: Only tools!");
  EXPECT_THAT(ErrorWith("\n{{ 1 + messages[0].content }}", record),
              HasSubstr("the chat template fails: line 2: "));
  EXPECT_THAT(ErrorWith("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
                        "{% endfor %}",
                        record),
              HasSubstr("the chat template fails: line 1: "));
}

TEST(RenderChat, FindingTheTurnsOfALongConversationIsBounded) {
  Json messages;
  for (int i = 0; i < 300; ++i) {
    messages.push_back({{"role", "user"}, {"content", "q"}});
    messages.push_back({{"role", "assistant"}, {"content", "a"}});
  }
  const std::string record = Json{{"messages", messages}}.dump();
  const std::string slow = std::string(
                               "{% for i in range(1000) %}{% for j in range(1000) %}"
                               "{% endfor %}{% endfor %}") +
                           kChatml;
  EXPECT_THAT(ErrorWith(slow, record), HasSubstr("finding the assistant's turns takes too long"));
  EXPECT_THAT(TargetsWith(slow, record, TrainOn::kLast), ElementsAre("a<|im_end|>"));
  EXPECT_EQ(TargetsWith(kChatml, record).size(), 300u);
}

}  // namespace
}  // namespace megatrain
