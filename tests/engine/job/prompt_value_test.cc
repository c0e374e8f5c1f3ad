// The list of prompts, training.sample_prompts.

#include <optional>
#include <string>
#include <vector>

#include "engine/config/yaml_tree.h"
#include "engine/job/job_keys.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

// The value is bound to `spec`.
ConfigValue PromptsOf(JobSpec& spec) {
  return JobKeys(&spec).Find("training.sample_prompts")->value;
}

std::optional<ValueError> Read(JobSpec& spec, const std::string& yaml) {
  const absl::StatusOr<YamlNode> node = ParseYaml(yaml, "f.yaml");
  EXPECT_TRUE(node.ok()) << node.status();
  return node.ok() ? PromptsOf(spec).read(*node) : ValueError{};
}

// A chat template sees false as a boolean, and "false" as a text.
TEST(PromptValueTest, TheValuesOfAConversationKeepTheirTypes) {
  JobSpec spec;
  const std::vector<Prompt>& prompts = spec.training.sample_prompts;
  const auto error = Read(spec,
                          "- messages: [{role: user, content: What is one}]\n"
                          "  system: \"7\"\n"
                          "  documents: []\n"
                          "  tools: [{name: add, strict: true, minimum: -1.5}]\n"
                          "  chat_template_kwargs: {thinking: false, said: \"false\", none: ~}\n");
  ASSERT_FALSE(error.has_value()) << error->message;
  ASSERT_EQ(prompts.size(), 1u);
  EXPECT_EQ(prompts[0].text, "");
  EXPECT_EQ(prompts[0].record,
            R"({"messages":[{"role":"user","content":"What is one"}],"system":"7","documents":[],)"
            R"("tools":[{"name":"add","strict":true,"minimum":-1.5}],)"
            R"("chat_template_kwargs":{"thinking":false,"said":"false","none":null}})");
}

// JSON has only the first of YAML's three words for each.
TEST(PromptValueTest, ABooleanIsOneInAllOfItsSpellings) {
  JobSpec spec;
  const auto error = Read(spec,
                          "- messages: []\n"
                          "  tools: [True, TRUE, False, FALSE, \"True\", 'FALSE', tRUE]\n");
  ASSERT_FALSE(error.has_value()) << error->message;
  ASSERT_EQ(spec.training.sample_prompts.size(), 1u);
  EXPECT_EQ(spec.training.sample_prompts[0].record,
            R"({"messages":[],"tools":[true,true,false,false,"True","FALSE","tRUE"]})");
}

TEST(PromptValueTest, TextsAndConversationsMayBeMixedAndHaveOneCanonicalText) {
  JobSpec spec;
  std::vector<Prompt>& prompts = spec.training.sample_prompts;
  prompts = {{"old", ""}};
  const ConfigValue value = PromptsOf(spec);
  ASSERT_FALSE(Read(spec, "[a, {messages: []}, \"1\"]").has_value());
  ASSERT_EQ(prompts.size(), 3u);
  EXPECT_EQ(prompts[0].text, "a");
  EXPECT_EQ(prompts[1].record, R"({"messages":[]})");
  EXPECT_EQ(prompts[2].text, "1");
  EXPECT_EQ(value.text(), R"(["a",{"messages":[]},"1"])");
  ASSERT_FALSE(Read(spec, "[]").has_value());
  EXPECT_EQ(value.text(), "[]");
}

TEST(PromptValueTest, TheErrorOfAListIsThatOfItsEntry) {
  JobSpec spec;
  EXPECT_TRUE(Read(spec, "a").has_value());
  EXPECT_TRUE(Read(spec, "{messages: []}").has_value());
  for (const std::string entry : {"\"\"", "~", "[a]", "{system: a}"}) {
    const auto error = Read(spec, "- a\n- " + entry + "\n- b\n");
    ASSERT_TRUE(error.has_value()) << entry;
    EXPECT_EQ(error->path, "[1]");
    EXPECT_EQ(error->where, "f.yaml:2");
  }
  const auto key = Read(spec, "- a\n- messages: []\n  seed: 1\n");
  ASSERT_TRUE(key.has_value());
  EXPECT_EQ(key->path, "[1].seed");
  EXPECT_EQ(key->where, "f.yaml:3");
  EXPECT_THAT(key->message, HasSubstr("does not know the key seed"));
}

}  // namespace
}  // namespace megatrain
