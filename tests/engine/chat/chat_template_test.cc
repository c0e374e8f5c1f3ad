// Rendered conversations, equal to what the `transformers` library makes of the families' own
// programs (tests/golden/make_tokenizer_references.py), the built-in programs
// (make_chat_mask_references.py), and the choice of a program.
#include "engine/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/tokenizer/bytes_tokenizer.h"
#include "engine/tokenizer/hf_tokenizer.h"
#include "tests/engine/chat/chat_test_support.h"
#include "tests/support/read_file.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kChats[] = "tests/golden/tokenizers/chat/";

Json Cases(const std::string& path) {
  Json cases = Json::parse(ReadFileOrEmpty(path), nullptr, /*allow_exceptions=*/false);
  EXPECT_FALSE(cases.is_discarded()) << path;
  return cases;
}

std::shared_ptr<const Tokenizer> Open(const std::string& name, const std::string& config) {
  const std::string path = "tests/golden/tokenizers/" + name + "/tokenizer.json";
  auto tokenizer =
      MakeHfTokenizer({.tokenizer_json = ReadFileOrEmpty(path), .tokenizer_config = config});
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

absl::StatusOr<std::unique_ptr<ChatTemplate>> Create(const std::string& name,
                                                     const std::string& directory,
                                                     const Tokenizer& tokenizer,
                                                     TrainOn train_on = TrainOn::kAssistant) {
  ChatTemplateOptions options;
  options.name = name;
  options.model_directory = directory;
  options.day = absl::CivilDay(2026, 1, 31);
  options.train_on = train_on;
  return ChatTemplate::Create(options, tokenizer);
}

// A tokenizer with a family's special tokens.
struct Family {
  const char* tokenizer;
  const char* config;
};

const Family kChatml = {"qwen", R"({"eos_token": {"content": "<|im_end|>"}})"};
const Family kLlama3 = {"llama3",
                        R"({"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"})"};
const Family kMistral = {"mistral", R"({"bos_token": "<s>", "eos_token": "</s>"})"};
const Family kGemma = {"gemma", R"({"bos_token": "<bos>", "eos_token": "<eos>"})"};

const Family& FamilyOf(const std::string& name) {
  return name.rfind("llama3", 0) == 0    ? kLlama3
         : name.rfind("mistral", 0) == 0 ? kMistral
         : name.rfind("gemma", 0) == 0   ? kGemma
                                         : kChatml;
}

// The parameters are the folders of tests/golden/tokenizers/chat.
class ChatGolden : public testing::TestWithParam<const char*> {};

TEST_P(ChatGolden, RenderedAsTheTemplateDoes) {
  const std::string name = GetParam();
  const Family& family = FamilyOf(name);
  const auto tokenizer = Open(family.tokenizer, family.config);
  ASSERT_NE(tokenizer, nullptr);
  const auto chat = Create("auto", kChats + name, *tokenizer);
  ASSERT_TRUE(chat.ok()) << chat.status();
  size_t rendered_count = 0;
  const Json cases = Cases(kChats + name + "/cases.json");
  const Json found = Cases("tests/golden/chat_masks/found.json")[name];
  ASSERT_EQ(found.size(), cases.size());
  for (size_t index = 0; index < cases.size(); ++index) {
    const Json& item = cases[index];
    const Conversation conversation = ConversationOf(item["messages"]);
    const auto rendered = (*chat)->RenderText(conversation);
    if (!item.contains("text")) {
      EXPECT_EQ(rendered.status().code(), absl::StatusCode::kInvalidArgument) << item;
      continue;
    }
    ++rendered_count;
    ASSERT_TRUE(rendered.ok()) << rendered.status() << item;
    EXPECT_EQ(rendered->text, item["text"].get<std::string>());
    EXPECT_EQ(rendered->turns_without_loss, 0) << item;
    EXPECT_EQ(rendered->target_ranges, found[index].get<std::vector<TextRange>>()) << item;
    std::vector<int32_t> ids;
    std::vector<uint8_t> target;
    int64_t turns_without_loss = 0;
    ASSERT_TRUE((*chat)->Render(conversation, *tokenizer, &ids, &target, &turns_without_loss).ok());
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

class BuiltInGolden : public testing::TestWithParam<const char*> {};

TEST_P(BuiltInGolden, RenderedAsTheFormatSays) {
  const auto tokenizer = Open("gemma", R"({"bos_token": "<bos>", "eos_token": "<eos>"})");
  ASSERT_NE(tokenizer, nullptr);
  const auto chat = Create(GetParam(), "", *tokenizer);
  ASSERT_TRUE(chat.ok()) << chat.status();
  size_t rendered_count = 0;
  const Json named = Cases("tests/golden/chat_masks/named.json");
  for (const Json& item : named[GetParam()]) {
    const auto rendered = (*chat)->RenderText(ConversationOf(item["messages"]));
    ASSERT_EQ(rendered.ok(), item.contains("text")) << rendered.status() << item;
    if (!rendered.ok()) continue;
    ++rendered_count;
    EXPECT_EQ(rendered->text, item["text"].get<std::string>());
    std::vector<TextRange> target = item["target"].get<std::vector<TextRange>>();
    EXPECT_EQ(rendered->target_ranges, target);
    EXPECT_EQ(rendered->turns_without_loss, 0);
  }
  EXPECT_GE(rendered_count, 9u);
}

INSTANTIATE_TEST_SUITE_P(All, BuiltInGolden,
                         testing::Values("chatml", "llama3", "mistral", "gemma", "alpaca"));

// The text that the loss is on, by the tokens.
std::string TargetOf(const ChatTemplate& chat, const Tokenizer& tokenizer, const Json& messages) {
  std::vector<int32_t> ids, chosen;
  std::vector<uint8_t> target;
  int64_t turns_without_loss = 0;
  EXPECT_TRUE(
      chat.Render(ConversationOf(messages), tokenizer, &ids, &target, &turns_without_loss).ok());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (target[i] != 0) chosen.push_back(ids[i]);
  }
  return tokenizer.Decode(chosen, false);
}

const Json kTwoTurns = {{{"role", "user"}, {"content", "Q?"}},
                        {{"role", "assistant"}, {"content", "the answer"}},
                        {{"role", "user"}, {"content", "R?"}},
                        {{"role", "assistant"}, {"content", "another"}}};

TEST(ChatTemplate, TheLossIsOnTheAnswersTokens) {
  const auto tokenizer = Open("qwen", R"({"eos_token": "<|im_end|>"})");
  const auto loss_on = [&](TrainOn train_on) {
    const auto chat = Create("chatml", "", *tokenizer, train_on);
    EXPECT_TRUE(chat.ok()) << chat.status();
    return TargetOf(**chat, *tokenizer, kTwoTurns);
  };
  EXPECT_EQ(loss_on(TrainOn::kAssistant), "the answer<|im_end|>another<|im_end|>");
  EXPECT_EQ(loss_on(TrainOn::kLast), "another<|im_end|>");
  EXPECT_EQ(loss_on(TrainOn::kAll),
            "<|im_start|>user\nQ?<|im_end|>\n<|im_start|>assistant\nthe answer<|im_end|>\n"
            "<|im_start|>user\nR?<|im_end|>\n<|im_start|>assistant\nanother<|im_end|>\n");
}

TEST(ChatTemplate, AConversationIsAppendedToWhatIsThere) {
  const auto tokenizer = MakeBytesTokenizer();
  const auto chat = Create("chatml", "", *tokenizer);
  ASSERT_TRUE(chat.ok()) << chat.status();
  std::vector<int32_t> ids = {7};
  std::vector<uint8_t> target = {1};
  int64_t turns_without_loss = 3;
  const absl::Status status =
      (*chat)->Render(ConversationOf(kTwoTurns), *tokenizer, &ids, &target, &turns_without_loss);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(ids[0], 7);
  EXPECT_EQ(ids[1], '<');
  EXPECT_EQ(target.size(), ids.size());
  EXPECT_EQ(target[1], 0);
  EXPECT_EQ(turns_without_loss, 3);
}

TEST(ChatTemplate, AlpacaIsStanfordsText) {
  const auto tokenizer = MakeBytesTokenizer();
  const auto chat = Create("alpaca", "/nonexistent", *tokenizer);
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto conversation =
      ReadConversation(R"({"instruction": "Add.\n", "input": "1 2", "output": "3"})", ReadAlpaca);
  ASSERT_TRUE(conversation.ok()) << conversation.status();
  const auto with_input = (*chat)->RenderText(*conversation);
  ASSERT_TRUE(with_input.ok()) << with_input.status();
  EXPECT_EQ(with_input->text,
            "Below is an instruction that describes a task, paired with an input that provides "
            "further context. Write a response that appropriately completes the request.\n\n"
            "### Instruction:\nAdd.\n\n\n### Input:\n1 2\n\n### Response:3<|eos|>");
  EXPECT_THAT(TargetTexts(*with_input), ElementsAre("3<|eos|>"));
  EXPECT_EQ(
      TargetOf(**chat, *tokenizer,
               {{{"role", "user"}, {"content", "Hi"}}, {{"role", "assistant"}, {"content", "ok"}}}),
      "ok<|eos|>");
  // A prompt has no answer, without which the template takes no conversation.
  EXPECT_EQ((*chat)->RenderPrompt(ConversationOf({{{"role", "user"}, {"content", "Hi"}}})).value(),
            "Below is an instruction that describes a task. Write a response that appropriately "
            "completes the request.\n\n### Instruction:\nHi\n\n### Response:");
  EXPECT_THAT(std::string((*chat)->RenderText(ConversationOf(kTwoTurns)).status().message()),
              HasSubstr("takes one user's message and the assistant's answer to it, not this "
                        "conversation of 4 (use chatml or llama3)"));
}

TEST(ChatTemplate, ATemplateThatNeedsAnEosTokenSaysSo) {
  const auto tokenizer = Open(kMistral.tokenizer, R"({"bos_token": "<s>"})");
  for (const char* name : {"mistral", "alpaca"}) {
    EXPECT_THAT(std::string(Create(name, "", *tokenizer).status().message()),
                HasSubstr("names no eos_token"));
  }
  EXPECT_TRUE(Create("chatml", "", *tokenizer).ok());
}

TEST(ChatTemplate, ARecordsVariableGoesBeforeAFieldOfAlpaca) {
  const auto tokenizer = MakeBytesTokenizer();
  const auto chat = Create("alpaca", "", *tokenizer);
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto conversation = ReadConversation(
      R"({"instruction": "Add.", "input": "1 2", "output": "3",
          "chat_template_kwargs": {"instruction": "Subtract."}})",
      ReadAlpaca);
  ASSERT_TRUE(conversation.ok()) << conversation.status();
  const auto rendered = (*chat)->RenderText(*conversation);
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_THAT(rendered->text, HasSubstr("### Instruction:\nSubtract.\n\n### Input:\n1 2\n"));
}

class ChosenTemplate : public testing::Test {
 protected:
  // Returns the text of one message, or the error.
  std::string Rendered(const std::string& name, const std::string& beside = "") {
    const auto chat = Create(name, directory_.path(), *tokenizer_);
    if (!chat.ok()) return std::string(chat.status().message());
    const auto conversation =
        ReadConversation(R"({"messages": [{"role": "user", "content": "q"}])" + beside + "}");
    EXPECT_TRUE(conversation.ok()) << conversation.status();
    const auto rendered = (*chat)->RenderText(*conversation);
    return rendered.ok() ? rendered->text : std::string(rendered.status().message());
  }

  const std::shared_ptr<const Tokenizer> tokenizer_ = MakeBytesTokenizer();
  const TestDirectory directory_;
};

TEST_F(ChosenTemplate, AutoIsTheDirectorysOwn) {
  EXPECT_THAT(Rendered("auto"), HasSubstr("has no chat template (chat_template.jinja, or in "
                                          "tokenizer_config.json): name one with"));
  directory_.Write("chat_template.json", R"({"chat_template": "json {{ messages[0].content }}"})");
  EXPECT_EQ(Rendered("auto"), "json q");
  directory_.Write("tokenizer_config.json", R"({"chat_template": "config {{ unk_token }}",
                                                "unk_token": {"content": "<unk>"}})");
  EXPECT_EQ(Rendered("auto"), "config <unk>");
  directory_.Write("chat_template.jinja", "file {{ bos_token }}{{ eos_token }}");
  EXPECT_EQ(Rendered("auto"), "file <|bos|><|eos|>");
  EXPECT_THAT(Rendered("chatml"), HasSubstr("<|im_start|>user\nq<|im_end|>"));
  directory_.Write("chat_template.jinja", "{% for %}");
  EXPECT_THAT(Rendered("auto"), HasSubstr("chat_template.jinja: is not a chat template: line 1: "));
}

TEST_F(ChosenTemplate, APathIsThatFile) {
  const std::string path = directory_.Write("own.jinja", "own {{ messages[0].content }}");
  EXPECT_EQ(Rendered(path), "own q");
  const auto own = Create(path, directory_.path(), *tokenizer_);
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ((*own)->own_program(), "own {{ messages[0].content }}");
  EXPECT_FALSE((*own)->uses_day());
  EXPECT_THAT(Rendered(directory_ / "none.jinja"), HasSubstr("none.jinja: there is no such file"));
  EXPECT_THAT(Rendered("chatlm"),
              HasSubstr("chat_template \"chatlm\" is not known; these are: auto, chatml, llama3, "
                        "mistral, gemma, alpaca, the path of a .jinja file"));
}

// What is not in the model's directory has to be written into the result's.
TEST_F(ChosenTemplate, AProgramThatIsNotTheDirectorysIsKept) {
  directory_.Write("chat_template.jinja", "its own {{ messages[0].content }}");
  const auto own = Create("auto", directory_.path(), *tokenizer_);
  const auto built_in = Create("chatml", directory_.path(), *tokenizer_);
  ASSERT_TRUE(own.ok() && built_in.ok()) << own.status() << built_in.status();
  EXPECT_EQ((*own)->own_program(), "");
  EXPECT_THAT((*built_in)->own_program(), HasSubstr("<|im_start|>"));
}

TEST_F(ChosenTemplate, TurnsWithoutLossAreAddedUp) {
  // Earlier answers are written in capitals, so that their place is uncertain.
  directory_.Write("chat_template.jinja",
                   "{% for m in messages %}<{{ m.role }}>{{ m.content | upper if m.role == "
                   "'assistant' and not loop.last else m.content }}<e>{% endfor %}"
                   "{% if add_generation_prompt %}<assistant>{% endif %}");
  const auto chat = Create("auto", directory_.path(), *tokenizer_);
  ASSERT_TRUE(chat.ok()) << chat.status();
  std::vector<int32_t> ids;
  std::vector<uint8_t> target;
  int64_t turns_without_loss = 3;
  const Conversation conversation = ConversationOf(kTwoTurns);
  ASSERT_TRUE((*chat)->Render(conversation, *tokenizer_, &ids, &target, &turns_without_loss).ok());
  EXPECT_EQ(turns_without_loss, 4);
}

constexpr char kTools[] = R"(, "tools": [{"name": "f"}])";

TEST_F(ChosenTemplate, RecordsWithToolsTakeToolUse) {
  directory_.Write("tokenizer_config.json", R"({"chat_template": [
      {"name": "default", "template": "default {{ tools }}"},
      {"name": "tool_use", "template": "tool_use {{ tools | tojson }}"},
      {"name": "rag", "template": "{% not read %}"}]})");
  EXPECT_EQ(Rendered("auto"), "default None");
  EXPECT_EQ(Rendered("auto", kTools), R"(tool_use [{"name": "f"}])");
  EXPECT_EQ(Rendered("auto", R"(, "tools": [])"), "tool_use []");
  directory_.Write("tokenizer_config.json",
                   R"({"chat_template": [{"name": "rag", "template": ""}]})");
  EXPECT_THAT(Rendered("auto"), HasSubstr("has several chat templates (rag) and none of them is"));
  directory_.Write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_THAT(Rendered("auto"), HasSubstr("tokenizer_config.json: chat_template is neither a"));
}

TEST_F(ChosenTemplate, AMalformedListOfTemplatesIsRefused) {
  const auto rendered = [this](const std::string& items) {
    directory_.Write("tokenizer_config.json", R"({"chat_template": [)" + items + "]}");
    return Rendered("auto");
  };
  const std::string good = R"({"name": "default", "template": "x"})";
  for (const char* bad : {"5", R"({"template": "x"})", R"({"name": 5, "template": "x"})",
                          R"({"name": "default"})", R"({"name": "default", "template": 5})"}) {
    EXPECT_THAT(rendered(good + ", " + bad), HasSubstr("chat_template is neither a string nor"))
        << bad;
  }
  std::string many = good;
  for (int i = 1; i < 100; ++i) many += ", " + good;
  EXPECT_EQ(rendered(many), "x");
  EXPECT_THAT(rendered(many + ", " + good), HasSubstr("chat_template is neither a string nor"));
  directory_.Write("tokenizer_config.json", "[]");
  EXPECT_THAT(Rendered("auto"), HasSubstr("tokenizer_config.json: not a JSON object"));
  directory_.Write("tokenizer_config.json", R"({"chat_template": null})");
  directory_.Write("chat_template.json", R"({"chat_template": "other file"})");
  EXPECT_EQ(Rendered("auto"), "other file");
}

TEST_F(ChosenTemplate, AFolderHasAtMost100Templates) {
  ASSERT_TRUE(PosixFileSystem()->CreateDirectories(directory_ / "additional_chat_templates").ok());
  directory_.Write("chat_template.jinja", "default");
  directory_.Write("additional_chat_templates/README.md", "none");
  for (int i = 0; i < 99; ++i) {
    directory_.Write("additional_chat_templates/" + std::to_string(i) + ".jinja", "x");
  }
  EXPECT_EQ(Rendered("auto"), "default");
  directory_.Write("additional_chat_templates/99.jinja", "x");
  EXPECT_THAT(Rendered("auto"),
              HasSubstr("additional_chat_templates: holds more than 100 templates"));
}

TEST_F(ChosenTemplate, FurtherTemplatesLieInAFolder) {
  ASSERT_TRUE(PosixFileSystem()->CreateDirectories(directory_ / "additional_chat_templates").ok());
  directory_.Write("additional_chat_templates/tool_use.jinja", "tools");
  EXPECT_THAT(Rendered("auto"), HasSubstr("the model's only chat template is \"tool_use\""));
  directory_.Write("chat_template.jinja", "default");
  EXPECT_EQ(Rendered("auto"), "default");
  EXPECT_THAT(Rendered("auto", kTools), HasSubstr("the record has tools, which the chat template "
                                                  "does not read"));
  directory_.Write("additional_chat_templates/tool_use.jinja", "tool_use {{ tools | length }}");
  EXPECT_EQ(Rendered("auto", kTools), "tool_use 1");
}

TEST_F(ChosenTemplate, SpecialTokensAreThoseOfTheFiles) {
  directory_.Write("chat_template.jinja",
                   "{{ unk_token }}|{{ image_token }}|{{ sep_token }}|{{ audio_token }}");
  directory_.Write("special_tokens_map.json", R"({"unk_token": "<u>", "sep_token": "<sep>"})");
  directory_.Write("tokenizer_config.json", R"({"unk_token": "<unk>", "add_bos_token": true,
      "image_token": "<img>", "extra_special_tokens": {"audio_token": "<audio>"}})");
  EXPECT_EQ(Rendered("auto"), "<u>|<img>|<sep>|<audio>") << "as in transformers";
  // A file with added_tokens_decoder stands alone.
  directory_.Write("tokenizer_config.json",
                   R"({"unk_token": "<unk>", "added_tokens_decoder": {}})");
  EXPECT_EQ(Rendered("auto"), "<unk>|||");
  // A special token that is no text is passed over.
  directory_.Write("tokenizer_config.json", R"({"unk_token": null, "sep_token": {"content": 5},
      "audio_token": {"lstrip": true}, "image_token": {"content": "<i>"},
      "extra_special_tokens": ["<e>"], "added_tokens_decoder": {}})");
  EXPECT_EQ(Rendered("auto"), "|<i>||");
  directory_.Write("special_tokens_map.json", "[]");
  directory_.Write("tokenizer_config.json", "{}");
  EXPECT_THAT(Rendered("auto"), HasSubstr("special_tokens_map.json: not a JSON object"));
  directory_.Write("special_tokens_map.json", "{}");
  // The tokenizer's own go before those of a directory that is another tokenizer's.
  directory_.Write("chat_template.jinja", "{{ bos_token }}{{ eos_token }}");
  directory_.Write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  EXPECT_EQ(Rendered("auto"), "<|bos|><|eos|>");
}

// Byte by byte, "\u00e3" stands for 0xE3, which alone is no text.
TEST_F(ChosenTemplate, ASpecialTokenIsWrittenAsInTheVocabulary) {
  const auto tokenizer = Open("qwen", R"({"eos_token": "\u00e3"})");
  ASSERT_NE(tokenizer, nullptr);
  ASSERT_EQ(tokenizer->Decode({tokenizer->eos_id()}, false), "\xe3");
  directory_.Write("chat_template.jinja",
                   "{{ eos_token }}{% for c in eos_token %}x{% endfor %}{{ messages[0].content }}");
  const auto chat = Create("auto", directory_.path(), *tokenizer);
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto rendered =
      (*chat)->RenderText(*ReadConversation(R"({"messages": [{"role": "user", "content": "q"}]})"));
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_EQ(rendered->text, "\u00e3xq");
}

TEST_F(ChosenTemplate, TheFingerprintHasAllThatChangesTheText) {
  const auto fingerprint = [&](const std::string& text, absl::CivilDay day, TrainOn train_on) {
    directory_.Write("chat_template.jinja", text);
    ChatTemplateOptions options;
    options.model_directory = directory_.path();
    options.day = day;
    options.train_on = train_on;
    const auto chat = ChatTemplate::Create(options, *tokenizer_);
    EXPECT_TRUE(chat.ok()) << chat.status();
    return (*chat)->fingerprint();
  };
  const absl::CivilDay one(2026, 1, 31), other(2026, 2, 1);
  const std::string base = fingerprint("a{{ unk_token }}", one, TrainOn::kAssistant);
  EXPECT_EQ(fingerprint("a{{ unk_token }}", other, TrainOn::kAssistant), base);
  EXPECT_NE(fingerprint("a{{ unk_token }}", one, TrainOn::kLast), base);
  EXPECT_NE(fingerprint("b{{ unk_token }}", one, TrainOn::kAssistant), base);
  directory_.Write("tokenizer_config.json", R"({"unk_token": "<unk>", "sep_token": "x"})");
  const std::string with_unk = fingerprint("a{{ unk_token }}", one, TrainOn::kAssistant);
  EXPECT_NE(with_unk, base);
  directory_.Write("tokenizer_config.json", R"({"unk_token": "<unk>", "sep_token": "y"})");
  EXPECT_EQ(fingerprint("a{{ unk_token }}", one, TrainOn::kAssistant), with_unk);
  const std::string dated = fingerprint("{{ strftime_now('%d') }}", one, TrainOn::kAssistant);
  EXPECT_NE(fingerprint("{{ strftime_now('%d') }}", other, TrainOn::kAssistant), dated);
}

}  // namespace
}  // namespace megatrain
