// Answers to prompts that are given to generation from outside, and what of them is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine.h"
#include "engine/hf/config_json.h"
#include "tests/engine/run/hooked_run.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kModel[] = "tests/golden/models/llama";

class GenerateTest : public testing::Test {
 protected:
  GenerateTest() {
    options_.tokenizer = "bytes";
    options_.tokens = 20;
  }
  void Ask(const std::vector<std::string>& texts) {
    options_.prompts.clear();
    for (const std::string& text : texts) options_.prompts.push_back({text, ""});
  }
  absl::Status Run(const std::string& model = kModel) {
    answers_.clear();
    pieces_.assign(options_.prompts.size(), "");
    said_.clear();
    GenerateSink sink;
    sink.piece = [&](size_t prompt, const std::string& text) { pieces_[prompt] += text; };
    sink.answer = [&](size_t prompt, const GeneratedText& answer) {
      EXPECT_EQ(prompt, answers_.size());
      answers_.push_back(answer);
    };
    sink.say = [&](const std::string& line) { said_ += line; };
    const absl::Status status = Generate(*host_, model, options_, sink);
    if (status.ok()) {
      EXPECT_EQ(answers_.size(), options_.prompts.size());
      for (size_t i = 0; i < answers_.size(); ++i) EXPECT_EQ(answers_[i].text, pieces_[i]);
    }
    return status;
  }
  std::string Refused(const std::string& model = kModel) {
    const absl::Status status = Run(model);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(answers_, IsEmpty());
    return std::string(status.message());
  }
  std::vector<std::string> Texts() const {
    std::vector<std::string> texts;
    for (const GeneratedText& answer : answers_) texts.push_back(answer.text);
    return texts;
  }

  const std::unique_ptr<EngineHost> host_ = HostWithPool();
  GenerateOptions options_;
  std::vector<GeneratedText> answers_;
  std::vector<std::string> pieces_;
  std::string said_;
};

TEST_F(GenerateTest, ATokenizerWithIdsThatTheModelHasNotIsRefused) {
  const std::string model = "tests/golden/hf/llama";
  const auto config = ReadModelDescription(model);
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_EQ(config->vocabulary, 33) << "bytes go beyond it";
  Ask({"!"});  // 33, the first that the model has not
  EXPECT_THAT(Refused(model), HasSubstr("token 33 at position 0"));
  options_.tokens = 1;
  Ask({"\t\té"});
  options_.prompt_places = {"--prompt"};
  const absl::Status refused = Run(model);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(refused.message()),
      AllOf(HasSubstr("--prompt: "), HasSubstr("token 195 at position 2"), HasSubstr("tokenizer")));
  EXPECT_THAT(answers_, IsEmpty());
  Ask({"\t\t"});
  const absl::Status sound = Run(model);
  EXPECT_TRUE(sound.ok()) << sound;
}

// Drawn or not, alone or with others, at once or in waves.
TEST_F(GenerateTest, AnAnswerDoesNotDependOnOtherPrompts) {
  const std::vector<std::string> prompts = {"All work", "and no play makes Jack a dull boy", "x",
                                            "All work", std::string(100, 'y')};
  for (const double temperature : {0.0, 1.0}) {
    options_.temperature = temperature;
    options_.top_p = 0.95;
    options_.top_k = 50;
    options_.engine.device_memory = 0;
    Ask(prompts);
    ASSERT_TRUE(Run().ok());
    const std::vector<std::string> together = Texts();
    EXPECT_EQ(together[0], together[3]);
    EXPECT_THAT(said_, IsEmpty());
    for (size_t i = 0; i < prompts.size(); ++i) {
      Ask({prompts[i]});
      ASSERT_TRUE(Run().ok());
      EXPECT_THAT(Texts(), ElementsAre(together[i]));
    }
    // Less memory than all prompts need together, more than one does.
    Ask(prompts);
    for (options_.engine.device_memory = 700 << 10; said_.empty();
         options_.engine.device_memory -= 10 << 10) {
      ASSERT_TRUE(Run().ok());
      EXPECT_THAT(Texts(), together);
    }
    EXPECT_THAT(said_, HasSubstr("of 5 prompts at a time"));
  }
}

// Where the likeliest token alone may be drawn, the answer is that of temperature 0.
TEST_F(GenerateTest, DrawsAmongTheLikeliestTokensAlone) {
  Ask({"All work", "and no play"});
  options_.temperature = 0;
  ASSERT_TRUE(Run().ok());
  const std::vector<std::string> likeliest = Texts();
  options_.temperature = 2;
  ASSERT_TRUE(Run().ok());
  EXPECT_NE(Texts(), likeliest);
  options_.top_k = 1;
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(Texts(), likeliest);
  options_.top_k = 0;
  options_.top_p = 1e-9;
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(Texts(), likeliest);
}

TEST_F(GenerateTest, WhatDoesNotFitIsRefusedWithItsBytes) {
  Ask({"All work"});
  options_.engine.device_memory = 10000;
  const absl::Status status = Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("key-value cache"), HasSubstr("device memory: needs"),
                    HasSubstr("10,000 bytes")));
}

TEST_F(GenerateTest, TheSeedIsThePromptsOwn) {
  options_.temperature = 1.5;
  options_.prompts = {{"", R"({"prompt": "All work", "seed": 7})"},
                      {"", R"({"prompt": "All work"})"},
                      {"All work", ""}};
  ASSERT_TRUE(Run().ok());
  const std::vector<std::string> texts = Texts();
  EXPECT_NE(texts[0], texts[1]);
  EXPECT_EQ(texts[1], texts[2]);
  options_.seed = 7;
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(Texts()[2], texts[0]);
}

TEST_F(GenerateTest, StopsEndAnAnswer) {
  options_.temperature = 0;
  Ask({"All work"});
  options_.tokens = 60;
  ASSERT_TRUE(Run().ok());
  const std::string whole = answers_[0].text;
  EXPECT_EQ(answers_[0].tokens, 60);
  EXPECT_EQ(answers_[0].prompt_tokens, 8);
  EXPECT_FALSE(answers_[0].stopped);
  // A character behind another one, where it occurs first: other bytes need not be whole
  // characters.
  size_t at = 1;
  const auto plain = [&](size_t i) { return static_cast<unsigned char>(whole[i]) < 0x80; };
  while (at < whole.size() && !(plain(at - 1) && plain(at) && whole.find(whole[at]) == at)) ++at;
  ASSERT_LT(at, whole.size()) << "choose another prompt";
  options_.stop_texts = {whole.substr(at, 1)};
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(answers_[0].text, whole.substr(0, at));
  EXPECT_TRUE(answers_[0].stopped);
  options_.stop_texts = {};
  options_.stop_ids = {whole[at]};
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(answers_[0].text, whole.substr(0, at));
  EXPECT_TRUE(answers_[0].stopped);
  options_.stop_ids = {259};
  EXPECT_THAT(Refused(), AllOf(HasSubstr("--stop-id: 259"), HasSubstr("0 to 258")));
  options_.stop_ids = {-1};
  EXPECT_THAT(Refused(), HasSubstr("--stop-id: -1"));
  options_.stop_ids = {0, 258};
  EXPECT_TRUE(Run().ok()) << "the first and the last one";
  options_.stop_texts = {""};
  EXPECT_THAT(Refused(), HasSubstr("--stop: an empty text"));
}

TEST_F(GenerateTest, ConversationsGoThroughTheTemplate) {
  options_.temperature = 0;
  options_.chat_template = "chatml";
  const std::string rendered = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n";
  Ask({rendered});
  ASSERT_TRUE(Run().ok());
  const GeneratedText expected = answers_[0];
  options_.prompts = {{"", R"({"messages": [{"role": "user", "content": "Hello"}]})"}};
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(answers_[0].text, expected.text);
  EXPECT_EQ(answers_[0].prompt_tokens, expected.prompt_tokens);
  options_.chat = true;
  Ask({"Hello"});
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(answers_[0].text, expected.text);
}

TEST_F(GenerateTest, PromptsThatCannotBeAnsweredAreNamed) {
  EXPECT_THAT(Refused(), HasSubstr("there is no prompt"));
  const auto expect = [&](const Prompt& prompt, const std::string& message) {
    options_.prompts = {{"good", ""}, prompt};
    options_.prompt_places = {"f:1", "f:2"};
    EXPECT_THAT(Refused(), AllOf(HasSubstr("f:2: "), HasSubstr(message)));
  };
  expect({std::string(237, 'x'), ""},
         "237 tokens of prompt and 20 new ones are more than 256, the model's positions");
  expect({"\xff", ""}, "UTF-8");
  expect({"", "[1]"}, "expects an object");
  expect({"", "{"}, "the record");
  expect({"", R"({"text": "a"})"}, "has neither prompt nor messages");
  expect({"", R"({"prompt": "a", "messages": []})"}, "both prompt and messages");
  expect({"", R"({"prompt": 1})"}, "prompt");
  expect({"", R"({"prompt": "a", "seed": -1})"}, "seed: expects a whole number");
  options_.chat_template = "chatml";
  expect({"", R"({"messages": []})"}, "\"messages\" is empty");
  expect({"", R"({"messages": [{"role": "user", "content": "a", "tool_calls": [1]}]})"},
         "tool_calls");
}

TEST_F(GenerateTest, APromptWithoutAPlaceIsNamedByItsNumber) {
  Ask({"good", "\xff", "\xff"});
  options_.prompt_places = {"f:1"};
  EXPECT_THAT(Refused(), HasSubstr("prompt 2: "));
}

TEST_F(GenerateTest, APromptAndItsAnswerMayFillTheModelsPositions) {
  Ask({std::string(236, 'x')});
  const absl::Status status = Run();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(answers_[0].prompt_tokens, 236);
}

TEST_F(GenerateTest, PromptsAreReadFromFiles) {
  const TestDirectory directory;
  const auto read = [&](const std::string& name, const std::string& content) {
    options_.prompts.clear();
    options_.prompt_places.clear();
    return ReadPrompts(directory.Write(name, content), PosixFileSystem(), &options_);
  };
  ASSERT_TRUE(read("a.txt", "one\n\n  \n two \r\nthree").ok());
  ASSERT_EQ(options_.prompts.size(), 3u);
  EXPECT_EQ(options_.prompts[1].text, " two ");
  EXPECT_EQ(options_.prompt_places[2], directory / "a.txt:5");
  ASSERT_TRUE(read("a.jsonl", "{\"prompt\": \"a\"}\n").ok());
  EXPECT_EQ(options_.prompts[0].record, "{\"prompt\": \"a\"}");
  EXPECT_THAT(std::string(read("empty.txt", "\n \n").message()), HasSubstr("holds no prompt"));
  // A byte order mark is no text, but within a file.
  const std::string mark = "\xef\xbb\xbf";
  ASSERT_TRUE(read("mark.txt", mark + "one\n" + mark + "two\n").ok());
  ASSERT_EQ(options_.prompts.size(), 2u);
  EXPECT_EQ(options_.prompts[0].text, "one");
  EXPECT_EQ(options_.prompts[1].text, mark + "two");
  ASSERT_TRUE(read("mark.jsonl", mark + "{\"prompt\": \"a\"}\n").ok());
  EXPECT_EQ(options_.prompts[0].record, "{\"prompt\": \"a\"}");
  EXPECT_THAT(std::string(read("only_mark.txt", mark).message()), HasSubstr("holds no prompt"));
  // Prompts of another file do not count.
  ASSERT_TRUE(read("b.txt", "one").ok());
  const absl::Status none =
      ReadPrompts(directory.Write("none.txt", "\n"), PosixFileSystem(), &options_);
  EXPECT_EQ(none.code(), absl::StatusCode::kInvalidArgument) << none;
  EXPECT_EQ(options_.prompts.size(), 1u);
}

// Hot enough that all 259 tokens are alike: of 20 answers of 200 tokens some meet the end of text.
TEST_F(GenerateTest, TheTokenizersEndOfTextEndsAnAnswer) {
  options_.temperature = 1e9;
  options_.tokens = 200;
  for (int seed = 0; seed < 20; ++seed) {
    options_.prompts.push_back({"", absl::StrCat(R"({"prompt": "a", "seed": )", seed, "}")});
  }
  const absl::Status status = Run();
  ASSERT_TRUE(status.ok()) << status;
  int stopped = 0;
  for (const GeneratedText& answer : answers_) {
    stopped += answer.stopped;
    if (!answer.stopped) {
      EXPECT_EQ(answer.tokens, 200);
    }
  }
  EXPECT_GT(stopped, 0);
}

TEST_F(GenerateTest, ABosGoesBeforeAPromptWhereItIsAskedFor) {
  options_.tokens = 1;
  const auto tokens = [&](AddBos add_bos) {
    options_.add_bos = add_bos;
    const absl::Status status = Run();
    EXPECT_TRUE(status.ok()) << status;
    return status.ok() ? answers_[0].prompt_tokens : int64_t{-1};
  };
  Ask({"All work"});
  EXPECT_EQ(tokens(AddBos::kAuto), 8);
  EXPECT_EQ(tokens(AddBos::kFalse), 8);
  EXPECT_EQ(tokens(AddBos::kTrue), 9);
  // A template writes its own, except alpaca's, which is a plain text.
  options_.chat = true;
  options_.chat_template = "chatml";
  EXPECT_EQ(tokens(AddBos::kTrue), tokens(AddBos::kFalse));
  options_.chat_template = "alpaca";
  EXPECT_EQ(tokens(AddBos::kTrue), tokens(AddBos::kFalse) + 1);
}

}  // namespace
}  // namespace megatrain
