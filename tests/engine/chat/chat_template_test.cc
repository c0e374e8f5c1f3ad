// Rendered conversations, equal to what the `transformers` library makes of the families' own
// programs (tests/golden/make_tokenizer_references.py), and what is refused.
#include "engine/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "engine/chat/chat_template_text.h"
#include "engine/tokenizer/bytes_tokenizer.h"
#include "engine/tokenizer/hf_tokenizer.h"
#include "nlohmann/json.hpp"

namespace megatrain {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kNowhere[] = "/nonexistent";

std::string Read(const std::string& path) {
  std::ifstream file("tests/golden/tokenizers/" + path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

std::shared_ptr<const Tokenizer> Open(const std::string& name, const std::string& config) {
  auto tokenizer = MakeHfTokenizer(
      {.tokenizer_json = Read(name + "/tokenizer.json"), .tokenizer_config = config});
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

// A tokenizer with a family's special tokens; what stands before and at the end of an answer.
struct Family {
  const char* tokenizer;
  const char* config;
  std::string before, end;
};

const Family kChatml = {"qwen", R"({"eos_token": {"content": "<|im_end|>"}})",
                        "<|im_start|>assistant\n", "<|im_end|>"};
const Family kLlama3 = {"llama3",
                        R"({"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"})",
                        "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"};
const Family kMistral = {"mistral", R"({"bos_token": "<s>", "eos_token": "</s>"})", "[/INST]",
                         "</s>"};
const Family kGemma = {"gemma", R"({"bos_token": "<bos>", "eos_token": "<eos>"})",
                       "<start_of_turn>model\n", "<end_of_turn>"};

const Family& FamilyOf(const std::string& name) {
  return name.rfind("llama3", 0) == 0    ? kLlama3
         : name.rfind("mistral", 0) == 0 ? kMistral
         : name.rfind("gemma", 0) == 0   ? kGemma
                                         : kChatml;
}

std::vector<ChatMessage> Messages(const Json& item) {
  std::vector<ChatMessage> messages;
  for (const Json& message : item["messages"]) {
    messages.push_back({message["role"], message["content"]});
  }
  return messages;
}

// The parameters are the folders of tests/golden/tokenizers/chat.
class ChatGolden : public testing::TestWithParam<const char*> {};

TEST_P(ChatGolden, RenderedAsTheTemplateDoes) {
  const std::string name = GetParam();
  const Family& family = FamilyOf(name);
  const auto tokenizer = Open(family.tokenizer, family.config);
  ASSERT_NE(tokenizer, nullptr);
  const std::string folder = "tests/golden/tokenizers/chat/" + name;
  const auto chat = ChatTemplate::Create("auto", folder, *tokenizer);
  ASSERT_TRUE(chat.ok()) << chat.status();
  size_t rendered_count = 0;
  for (const Json& item : Json::parse(Read("chat/" + name + "/cases.json"))) {
    const std::vector<ChatMessage> messages = Messages(item);
    const auto rendered = (*chat)->RenderText(messages);
    if (!item.contains("text")) {
      EXPECT_EQ(rendered.status().code(), absl::StatusCode::kInvalidArgument) << item;
      EXPECT_THAT(std::string(rendered.status().message()), HasSubstr("messages[")) << item;
      continue;
    }
    ++rendered_count;
    ASSERT_TRUE(rendered.ok()) << rendered.status() << item;
    EXPECT_EQ(rendered->text, item["text"].get<std::string>());
    const auto assistants = std::count_if(messages.begin(), messages.end(),
                                          [](const auto& m) { return m.role == "assistant"; });
    ASSERT_EQ(rendered->target.size(), static_cast<size_t>(assistants));
    for (const auto& [begin, end] : rendered->target) {
      EXPECT_EQ(rendered->text.substr(begin - family.before.size(), family.before.size()),
                family.before);
      EXPECT_EQ(rendered->text.substr(end - family.end.size(), family.end.size()), family.end);
    }
    std::vector<int32_t> ids;
    std::vector<uint8_t> target;
    ASSERT_TRUE((*chat)->Render(messages, *tokenizer, &ids, &target).ok());
    EXPECT_EQ(ids, item["ids"].get<std::vector<int32_t>>()) << item["text"];
    ASSERT_EQ(target.size(), ids.size());
  }
  EXPECT_GE(rendered_count, 10u);
}

INSTANTIATE_TEST_SUITE_P(All, ChatGolden,
                         testing::Values("chatml", "qwen2", "qwen2.5", "qwen3", "llama3",
                                         "llama3.1", "mistral-v0.1", "mistral-v0.2-old",
                                         "mistral-v0.2", "mistral-8x22b", "mistral-v0.3",
                                         "mistral-codestral", "mistral-last-user",
                                         "mistral-nemo-old", "mistral-nemo", "gemma", "gemma3"));

TEST(ChatTemplate, TargetIsTheAnswerAndItsEnd) {
  const auto tokenizer = Open("qwen", R"({"eos_token": "<|im_end|>"})");
  const auto chat = ChatTemplate::Create("chatml", "/nonexistent", *tokenizer);
  ASSERT_TRUE(chat.ok()) << chat.status();
  std::vector<int32_t> ids;
  std::vector<uint8_t> target;
  ASSERT_TRUE((*chat)
                  ->Render({{"user", "Q?"}, {"assistant", "the answer"}}, *tokenizer, &ids, &target)
                  .ok());
  std::vector<int32_t> chosen;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (target[i] != 0) chosen.push_back(ids[i]);
  }
  EXPECT_EQ(tokenizer->Decode(chosen, false), "the answer<|im_end|>");
  EXPECT_FALSE((*chat)->Render({{"tool", "x"}}, *tokenizer, &ids, &target).ok());
  EXPECT_FALSE((*chat)->Render({}, *tokenizer, &ids, &target).ok());
  EXPECT_FALSE((*chat)->Render({{"user", "\xff"}}, *tokenizer, &ids, &target).ok());
  for (const char* name : {"auto", "chatlm"}) {
    EXPECT_FALSE(ChatTemplate::Create(name, "/nonexistent", *tokenizer).ok()) << name;
  }
}

TEST(ChatTemplate, AlpacaIsStanfordsText) {
  const auto tokenizer = MakeBytesTokenizer();
  const auto chat = ChatTemplate::Create("alpaca", "/nonexistent", *tokenizer);
  ASSERT_TRUE(chat.ok()) << chat.status();
  const std::string user = "Add.\n1 2";
  const auto with_input =
      (*chat)->RenderText({{"user", user, /*input_begin=*/5}, {"assistant", "3"}});
  ASSERT_TRUE(with_input.ok());
  EXPECT_EQ(with_input->text,
            "Below is an instruction that describes a task, paired with an input that provides "
            "further context. Write a response that appropriately completes the request.\n\n"
            "### Instruction:\nAdd.\n\n### Input:\n1 2\n\n### Response:3<|eos|>");
  const auto without = (*chat)->RenderText({{"user", "Hi"}, {"assistant", "ok"}});
  ASSERT_TRUE(without.ok());
  EXPECT_EQ(without->text,
            "Below is an instruction that describes a task. Write a response that appropriately "
            "completes the request.\n\n### Instruction:\nHi\n\n### Response:ok<|eos|>");
  std::vector<int32_t> ids;
  std::vector<uint8_t> target;
  ASSERT_TRUE(
      (*chat)->Render({{"user", "Hi"}, {"assistant", "ok"}}, *tokenizer, &ids, &target).ok());
  EXPECT_EQ(std::count(target.begin(), target.end(), 1), 3);  // o, k, end of text
  EXPECT_FALSE((*chat)->RenderText({{"system", "x"}, {"user", "y"}}).ok());
}

std::string TextOf(const ChatTemplate& chat, std::vector<ChatMessage> messages) {
  const auto rendered = chat.RenderText(messages);
  return rendered.ok() ? rendered->text : std::string(rendered.status().message());
}

// The text that the loss is on, by the tokens.
std::string TargetOf(const ChatTemplate& chat, const Tokenizer& tokenizer,
                     std::vector<ChatMessage> messages) {
  std::vector<int32_t> ids, chosen;
  std::vector<uint8_t> target;
  EXPECT_TRUE(chat.Render(messages, tokenizer, &ids, &target).ok());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (target[i] != 0) chosen.push_back(ids[i]);
  }
  return tokenizer.Decode(chosen, false);
}

TEST(ChatTemplate, PlainMistralIsThatOfV03) {
  const auto tokenizer = Open(kMistral.tokenizer, kMistral.config);
  const auto chat = ChatTemplate::Create("mistral", kNowhere, *tokenizer);
  ASSERT_TRUE(chat.ok()) << chat.status();
  for (const Json& item : Json::parse(Read("chat/mistral-v0.3/cases.json"))) {
    const auto rendered = (*chat)->RenderText(Messages(item));
    ASSERT_EQ(rendered.ok(), item.contains("text"));
    if (rendered.ok()) {
      EXPECT_EQ(rendered->text, item["text"].get<std::string>());
    }
  }
  EXPECT_EQ(TargetOf(**chat, *tokenizer,
                     {{"user", "a"}, {"assistant", "b "}, {"user", "c"}, {"assistant", "d"}}),
            " b</s> d</s>");
  const auto own =
      ChatTemplate::Create("mistral", "tests/golden/tokenizers/chat/mistral-nemo", *tokenizer);
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(TextOf(**own, {{"user", "a"}}), "<s>[INST]a[/INST]");
  EXPECT_NE((*own)->fingerprint(), (*chat)->fingerprint());
  const auto foreign =
      ChatTemplate::Create("mistral", "tests/golden/tokenizers/chat/gemma", *tokenizer);
  ASSERT_TRUE(foreign.ok()) << foreign.status();
  EXPECT_EQ((*foreign)->fingerprint(), (*chat)->fingerprint());
}

TEST(ChatTemplate, PlainGemmaRefusesASystemMessage) {
  const auto tokenizer = Open(kGemma.tokenizer, kGemma.config);
  const auto chat = ChatTemplate::Create("gemma", kNowhere, *tokenizer);
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(TextOf(**chat, {{"user", " a\n"}, {"assistant", " b "}}),
            "<bos><start_of_turn>user\na<end_of_turn>\n<start_of_turn>model\nb<end_of_turn>\n");
  EXPECT_EQ(TargetOf(**chat, *tokenizer, {{"user", "a"}, {"assistant", "b"}}), "b<end_of_turn>");
  EXPECT_THAT(TextOf(**chat, {{"system", "s"}, {"user", "a"}}),
              HasSubstr("messages[0]: this gemma template takes no system message"));
  const auto own = ChatTemplate::Create("gemma", "tests/golden/tokenizers/chat/gemma3", *tokenizer);
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(TextOf(**own, {{"system", "s "}, {"user", " a"}}),
            "<bos><start_of_turn>user\ns \n\na<end_of_turn>\n");
}

TEST(ChatTemplate, OrdersOfRolesAreRefusedByMessage) {
  const auto tokenizer = Open(kMistral.tokenizer, kMistral.config);
  const auto chat = ChatTemplate::Create("mistral", kNowhere, *tokenizer);
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_THAT(TextOf(**chat, {{"user", "a"}, {"user", "b"}}),
              HasSubstr("messages[1] is the user's: the mistral template's roles alternate"));
  EXPECT_THAT(TextOf(**chat, {{"system", "s"}, {"assistant", "b"}}),
              HasSubstr("messages[1] is the assistant's"));
  EXPECT_THAT(TextOf(**chat, {{"user", "a"}, {"system", "s"}}),
              HasSubstr("messages[1]: the mistral template takes a system message only as"));
  EXPECT_THAT(TextOf(**chat, {{"tool", "x"}}), HasSubstr("none of system, user, assistant"));
  const auto old =
      ChatTemplate::Create("auto", "tests/golden/tokenizers/chat/mistral-v0.1", *tokenizer);
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_THAT(TextOf(**old, {{"system", "s"}, {"user", "a"}}),
              HasSubstr("messages[0]: this mistral template takes no system message"));
}

TEST(ChatTemplate, MistralNeedsAnEosToken) {
  const auto tokenizer = Open(kMistral.tokenizer, R"({"bos_token": "<s>"})");
  const auto chat = ChatTemplate::Create("mistral", kNowhere, *tokenizer);
  EXPECT_THAT(std::string(chat.status().message()), HasSubstr("names no eos_token"));
}

std::string Program(const std::string& name) {
  return Read("chat/" + name + "/chat_template.jinja");
}

std::string Refusal(const std::string& program) {
  const auto variant = RecogniseChatTemplate(program);
  if (variant.ok()) return "";
  EXPECT_EQ(variant.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(
      std::string(variant.status().message()),
      HasSubstr("name one with data.chat_template: chatml, llama3, mistral, gemma, alpaca"));
  return std::string(variant.status().message());
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(RecogniseChatTemplate, HowAProgramIsWrittenDoesNotMatter) {
  const std::string program = Program("mistral-v0.2");
  EXPECT_EQ(Refusal(program), "");
  EXPECT_EQ(Refusal(Replaced(program, "message['content']", "message.content")), "");
  EXPECT_EQ(Refusal(Replaced(program, "' [INST] ' + system", "\" [INST] \"+system")), "");
  EXPECT_EQ(Refusal(Replaced(program, "'\\n\\n'", "'\n\n'")), "");
  EXPECT_EQ(Refusal(Replaced(program, "{{- bos_token }}", "{#- x #}\r\n{{- bos_token -}}")), "");
  EXPECT_EQ(Refusal(Program("gemma") + "\n"), "");
}

TEST(RecogniseChatTemplate, WhatIsNotWhollyKnownIsRefused) {
  const std::string mistral = Program("mistral-v0.2");
  // White space that is written: the tag does not take it away.
  EXPECT_NE(Refusal(Replaced(mistral, "{{- bos_token }}", "{{ bos_token }}")), "");
  EXPECT_NE(Refusal(mistral + " x"), "");
  EXPECT_NE(Refusal(Replaced(mistral, "' [INST] ' + system", "'[INST] ' + system")), "");
  EXPECT_NE(Refusal(Replaced(mistral, "'\\n\\n'", "'\\n'")), "");
  EXPECT_NE(Refusal(Replaced(mistral, "loop.first", "loop.index == 2")), "");
  EXPECT_NE(Refusal(Replaced(mistral, "eos_token}}", "eos_token")), "");
  EXPECT_THAT(Refusal(Replaced(mistral, "{{- bos_token }}", "")), HasSubstr("{%for message in"));
  EXPECT_THAT(Refusal("{%- set today = strftime_now('%Y-%m-%d') %}{{- bos_token }}"
                      "{{- '[SYSTEM_PROMPT]' + system_message + '[/SYSTEM_PROMPT]' }}[INST]"),
              HasSubstr("with [SYSTEM_PROMPT]"));
  EXPECT_THAT(Refusal("{{ bos_token + '[INST] ' + '<<SYS>>' }}"), HasSubstr("Llama 2"));
  EXPECT_THAT(Refusal(Replaced(Program("llama3"), "{{ content }}", "{{ content }}\n")),
              HasSubstr("it writes text outside of its tags"));
  const std::string gemma = Program("gemma");
  EXPECT_NE(Refusal(Replaced(gemma, " | trim", "")), "");
  EXPECT_NE(Refusal(Replaced(gemma, "'model'", "'assistant'")), "");
  EXPECT_NE(Refusal(Replaced(gemma, "{{ bos_token }}", "{{ bos_token }}\n")), "");
  EXPECT_NE(Refusal(Replaced(Program("gemma3"), "{{ message['content'] | trim }}\n",
                             "{{ message['content'] | trim }}\n{{ 'x' }}")),
            "");
}

}  // namespace
}  // namespace megatrain
