#include "engine/config/config_values.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/config/yaml_tree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::optional<ValueError> Read(const ConfigValue& value, const std::string& text) {
  const absl::StatusOr<YamlNode> node = ParseYaml(text, "f.yaml");
  EXPECT_TRUE(node.ok()) << node.status();
  return node.ok() ? value.read(*node) : ValueError{};
}

// A resumed run is refused if a text differs, so two numbers must not have one text.
TEST(ConfigValuesTest, TheTextOfANumberIsTheShortestThatReadsBackAsTheSame) {
  double number = 0, back = 0;
  const ConfigValue value = Number(&number, {-1e300, 1e300}), copy = Number(&back, {-1e300, 1e300});
  const std::vector<std::pair<double, std::string>> texts = {
      {0.0, "0"},
      {0.0003, "0.0003"},
      {1e-08, "1e-08"},
      {-2.5, "-2.5"},
      {0.3, "0.3"},
      {0.30000000000000004, "0.30000000000000004"},
      {1.0000000000000002, "1.0000000000000002"}};
  for (const auto& [is, text] : texts) {
    number = is;
    EXPECT_EQ(value.text(), text);
    EXPECT_FALSE(Read(copy, value.text()).has_value()) << text;
    EXPECT_EQ(back, is) << text;
  }
}

TEST(ConfigValuesTest, AnOptionalValueIsNullUntilAGoodOneIsRead) {
  std::optional<double> rate;
  const ConfigValue value = Optional(&rate, [](double* held) { return Number(held, {0, 1}); });
  EXPECT_EQ(value.text(), "null");
  EXPECT_TRUE(Read(value, "2").has_value());
  EXPECT_FALSE(rate.has_value());
  EXPECT_FALSE(Read(value, "0.5").has_value());
  EXPECT_EQ(rate, 0.5);
  EXPECT_EQ(value.text(), "0.5");
  EXPECT_TRUE(Read(value, "2").has_value());
  EXPECT_EQ(value.text(), "0.5");
}

TEST(ConfigValuesTest, AWordStandsForNoNumber) {
  int64_t number = 3;
  const ConfigValue value = WholeOr("all", &number, 1, 9);
  EXPECT_EQ(value.text(), "3");
  EXPECT_FALSE(Read(value, "all").has_value());
  EXPECT_EQ(number, 0);
  EXPECT_EQ(value.text(), "\"all\"");
  EXPECT_TRUE(Read(value, "0").has_value());
  EXPECT_FALSE(Read(value, "9").has_value());
  EXPECT_EQ(number, 9);
}

TEST(ConfigValuesTest, WhatIsRefusedDoesNotChangeANumber) {
  int64_t whole = 5;
  double number = 0.5;
  bool flag = true;
  for (const char* const text : {"10", "-1", "x", "\"3\"", "[3]", "~"}) {
    EXPECT_TRUE(Read(Whole(&whole, 1, 9), text).has_value()) << text;
    EXPECT_TRUE(Read(Number(&number, {0, 1}), text).has_value()) << text;
    EXPECT_TRUE(Read(Boolean(&flag), text).has_value()) << text;
  }
  EXPECT_EQ(whole, 5);
  EXPECT_EQ(number, 0.5);
  EXPECT_TRUE(flag);
}

// JSON, which is YAML too, has a size with its unit in quotes, and a number without.
TEST(ConfigValuesTest, ASizeWithItsUnitMayBeQuotedAndAPlainNumberMayNot) {
  int64_t bytes = 5;
  const ConfigValue value = Bytes(&bytes, "all");
  EXPECT_FALSE(Read(value, "\"24GiB\"").has_value());
  EXPECT_EQ(bytes, int64_t{24} << 30);
  EXPECT_FALSE(Read(value, "'1.5 KiB'").has_value());
  EXPECT_EQ(bytes, 1536);
  for (const char* const text : {"\"1024\"", "'0'", "\"5GB\"", "\"B\"", "\"\""}) {
    EXPECT_TRUE(Read(value, text).has_value()) << text;
    EXPECT_EQ(bytes, 1536) << text;
  }
}

TEST(ConfigValuesTest, AListTakesThePlaceOfTheFormerOne) {
  std::vector<std::string> texts = {"old"};
  std::vector<int64_t> numbers = {7};
  EXPECT_FALSE(Read(Texts(&texts, "a name"), "[a, b]").has_value());
  EXPECT_THAT(texts, ElementsAre("a", "b"));
  EXPECT_FALSE(Read(Wholes(&numbers, 1, 9), "[1, 9]").has_value());
  EXPECT_THAT(numbers, ElementsAre(1, 9));
}

TEST(ConfigValuesTest, TheErrorOfAListIsThatOfItsEntry) {
  std::vector<std::string> texts;
  std::vector<int64_t> numbers;
  const auto empty = Read(Texts(&texts, "a name"), "- a\n- \"\"\n- b\n");
  ASSERT_TRUE(empty.has_value());
  EXPECT_THAT(empty->message, StartsWith("expects a name, got "));
  EXPECT_EQ(empty->where, "f.yaml:2");
  for (const std::string entry : {"0", "10", "x", "[1]"}) {
    const auto wrong = Read(Wholes(&numbers, 1, 9), "- 1\n- 9\n- " + entry + "\n");
    ASSERT_TRUE(wrong.has_value()) << entry;
    EXPECT_THAT(wrong->message, HasSubstr("expects a whole number from 1 to 9, got "));
    EXPECT_EQ(wrong->where, "f.yaml:3");
  }
}

}  // namespace
}  // namespace megatrain
