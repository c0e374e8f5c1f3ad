// What is given to generation and is not the model's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/engine.h"
#include "engine/hf/config_json.h"
#include "tests/engine/run/hooked_run.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(GenerateTest, ATokenizerWithIdsThatTheModelHasNotIsRefused) {
  const std::string model = "tests/golden/hf/llama";
  const auto config = ReadModelConfig(model);
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_EQ(config->vocabulary, 33) << "bytes go beyond it";
  const auto host = Host();
  GenerateOptions options;
  options.tokenizer = "bytes";
  options.tokens = 1;
  options.prompt = "\t\té";
  std::string text;
  const auto emit = [&](const std::string& piece) { text += piece; };
  const absl::Status refused = Generate(*host, model, options, emit);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(refused.message()),
      AllOf(HasSubstr("--prompt"), HasSubstr("token 195 at position 2"), HasSubstr("tokenizer")));
  EXPECT_EQ(text, "");
  options.prompt = "\t\t";
  const absl::Status sound = Generate(*host, model, options, emit);
  EXPECT_TRUE(sound.ok()) << sound;
}

}  // namespace
}  // namespace megatrain
