// Tests the turns of programs that mark them with {% generation %}.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/chat/chat_test_support.h"
#include "tests/support/read_file.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(RenderChat, GenerationBlocksAreAsTransformersNotesThem) {
  const Json references = Json::parse(ReadFileOrEmpty("tests/golden/chat_masks/generation.json"));
  ASSERT_EQ(references.size(), 3u);
  size_t cases = 0;
  for (const auto& [name, reference] : references.items()) {
    const std::string program = reference["program"];
    for (const Json& item : reference["cases"]) {
      const auto rendered = RenderWith(program, Json{{"messages", item["messages"]}}.dump());
      ASSERT_TRUE(rendered.ok()) << rendered.status() << item;
      EXPECT_EQ(rendered->text, item["text"].get<std::string>());
      std::vector<TextRange> target = item["target"].get<std::vector<TextRange>>();
      std::erase_if(target, [](const TextRange& range) { return range.first == range.second; });
      EXPECT_EQ(rendered->target_ranges, target) << name << item;
      ++cases;
    }
  }
  EXPECT_EQ(cases, 11u);
}

// Two blocks in the second turn and none in the first, which has no content.
TEST(RenderChat, BlocksBelongToTheTurnThatAddsThem) {
  const std::string program =
      "{% for m in messages %}{% for p in m.content.split() %}{% if m.role == 'assistant' %}"
      "{% generation %}<{{ p }}>{% endgeneration %}{% else %}{{ p }}{% endif %}{% endfor %}"
      "{% endfor %}";
  const std::string record =
      R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": ""},
          {"role": "assistant", "content": "a b"},
          {"role": "assistant", "content": "c d", "weight": 0}]})";
  EXPECT_THAT(TargetsWith(program, record, TrainOn::kAssistant, 1), ElementsAre("<a>", "<b>"));
}

// Here all turns are wanted, with two blocks in one of them or with none.
TEST(RenderChat, ATurnWithoutABlockIsCounted) {
  const std::string program =
      "{% for m in messages %}{% for p in m.content.split() %}{% if m.role == 'assistant' %}"
      "{% generation %}<{{ p }}>{% endgeneration %}{% endif %}{% endfor %}{% endfor %}";
  EXPECT_THAT(TargetsWith(program, R"({"messages": [{"role": "assistant", "content": "a b"}]})"),
              ElementsAre("<a>", "<b>"));
  EXPECT_THAT(TargetsWith(program,
                          R"({"messages": [{"role": "assistant", "content": ""},
                              {"role": "assistant", "content": "a"}]})",
                          TrainOn::kAssistant, 1),
              ElementsAre("<a>"));
}

// As many blocks as turns, but not one in each.
TEST(RenderChat, ABlockOfAnotherTurnIsNotTrainedOn) {
  const std::string program =
      "{% for m in messages %}{% for p in m.content.split() %}"
      "{% generation %}<{{ p }}>{% endgeneration %}{% endfor %}{% endfor %}";
  const std::string record =
      R"({"messages": [{"role": "assistant", "content": "a b", "weight": 0},
                       {"role": "assistant", "content": ""}]})";
  EXPECT_THAT(TargetsWith(program, record, TrainOn::kAssistant, 1), IsEmpty());
  EXPECT_THAT(TargetsWith(program, record, TrainOn::kLast, 1), IsEmpty());
}

constexpr char kTwoOfThree[] =
    R"({"messages": [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"},
                     {"role": "assistant", "content": "c", "weight": 0}]})";

// Here only the last turn has its first block, so that the blocks of earlier ones move up.
TEST(RenderChat, BlocksThatMoveWhenMessagesFollowAreUncertain) {
  const std::string program =
      "{% for m in messages %}{% if loop.last %}{% generation %}!{% endgeneration %}{% endif %}"
      "{% generation %}{{ m.content }};{% endgeneration %}{% endfor %}";
  EXPECT_THAT(TargetsWith(program, kTwoOfThree, TrainOn::kAssistant, 2), IsEmpty());
  EXPECT_THAT(TargetsWith(program, kTwoOfThree, TrainOn::kLast), IsEmpty());
}

// Here earlier answers are longer than the last one.
TEST(RenderChat, ABlockThatMovesIsKnownWhereEachTurnHasOne) {
  const std::string program =
      "{% for m in messages %}{% if not loop.last %}: {% endif %}"
      "{% generation %}{{ m.content }};{% endgeneration %}{% endfor %}";
  EXPECT_THAT(TargetsWith(program, kTwoOfThree), ElementsAre("a;", "b;"));
}

// The outer block ends last, and both begin with the text.
TEST(RenderChat, BlocksWithinOneAnotherAreOneTarget) {
  EXPECT_THAT(TargetsWith("{% generation %}{% generation %}{{ messages[0].content }}"
                          "{% endgeneration %};{% endgeneration %}",
                          R"({"messages": [{"role": "assistant", "content": "a"}]})"),
              ElementsAre("a", ";"));
}

// transformers counts such a block from the end of the text at that time.
TEST(RenderChat, ABlockWhoseTextIsWrittenElsewhereIsRefused) {
  const std::string record =
      R"({"messages": [{"role": "user", "content": "quite long"},
                       {"role": "assistant", "content": "hi"}]})";
  const std::string block = "{% generation %}{{ messages[1].content }}{% endgeneration %}";
  for (const std::string& program :
       {"{% set x %}" + block + "{% endset %}{{ messages[0].content }}{{ x }}",
        "{% macro m() %}A:" + block + "{% endmacro %}{{ messages[0].content }}{{ m() }}"}) {
    EXPECT_THAT(ErrorWith(program, record),
                HasSubstr("the chat template has {% generation %} within a macro or {% set %}"));
    EXPECT_THAT(TargetsWith(program, record, TrainOn::kAll), testing::SizeIs(1));
  }
  EXPECT_THAT(TargetsWith("{% macro m() %}" + block + ";{% endmacro %}A:{{ m() }}", record),
              ElementsAre("hi"));
}

}  // namespace
}  // namespace megatrain
