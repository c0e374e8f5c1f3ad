#include "engine/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Error(std::string_view text) {
  const auto value = ParseJson(text, "FILE");
  EXPECT_FALSE(value.ok()) << text;
  EXPECT_EQ(value.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(value.status().message());
}

TEST(JsonTest, ParsesEveryKindOfValue) {
  const auto value =
      ParseJson(R"({"a": [1, -2, 0.5, true, null, "\u00e9\n"], "b": {"c": {}}})", "FILE");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(*value, nlohmann::json::parse(
                        R"({"a": [1, -2, 0.5, true, null, "\u00e9\n"], "b": {"c": {}}})"));
  EXPECT_EQ(*ParseJson("18446744073709551615", "FILE"), 18446744073709551615u);
}

TEST(JsonTest, KeepsTheOrderOfKeys) {
  const std::string text = R"({"z":1,"a":{"y":2,"b":[{"x":3,"c":4}]},"m":5})";
  const auto value = ParseOrderedJson(text, "FILE");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(value->dump(), text);
}

TEST(JsonTest, RefusesDuplicateKeys) {
  EXPECT_THAT(Error(R"({"a": 1, "b": {"c": 1, "c": 2}})"), HasSubstr("\"c\" appears twice"));
  // The same key in different objects is none.
  EXPECT_TRUE(ParseJson(R"([{"a": 1}, {"a": {"a": 2}}])", "FILE").ok());
  const auto ordered = ParseOrderedJson(R"({"a": 1, "b": 2, "a": 3})", "FILE");
  EXPECT_EQ(ordered.status().message(),
            "FILE: not valid JSON: the key \"a\" appears twice in one object");
}

TEST(JsonTest, RefusesDeepNesting) {
  const std::string deep(1'000'000, '[');
  EXPECT_THAT(Error(deep), HasSubstr("deeper than 64"));
  EXPECT_THAT(Error(std::string(65, '[') + std::string(65, ']')), HasSubstr("deeper than 64"));
  const std::string allowed = std::string(64, '[') + std::string(64, ']');
  EXPECT_TRUE(ParseJson(allowed, "FILE").ok());
}

TEST(JsonTest, RefusesWhatIsNotJson) {
  EXPECT_THAT(Error(""), HasSubstr("FILE: not valid JSON"));
  Error("{");
  EXPECT_THAT(Error("{} {}"), AllOf(StartsWith("FILE: not valid JSON: parse error at line 1"),
                                    EndsWith(" (byte 4)")));
  Error("{'a': 1}");
  Error("NaN");
  EXPECT_THAT(Error(std::string_view("{}\0", 3)), HasSubstr("byte 2 is zero"));
  EXPECT_THAT(Error("1e999"), HasSubstr("overflow"));
  EXPECT_THAT(Error("\"\xff\""), HasSubstr("UTF-8"));
}

TEST(JsonTest, DescribesValuesForMessages) {
  const std::string text(100, 'x');
  EXPECT_EQ(DescribeJson(nullptr), "null");
  EXPECT_EQ(DescribeJson(true), "true");
  EXPECT_EQ(DescribeJson(false), "false");
  EXPECT_EQ(DescribeJson(-7), "the number -7");
  EXPECT_EQ(DescribeJson(7u), "the number 7");
  EXPECT_EQ(DescribeJson(0.5), "the number 0.5");
  EXPECT_EQ(DescribeJson(text), "the string \"" + text + "\"");
  EXPECT_EQ(DescribeJson(text + "x"), "a long string");
  EXPECT_EQ(DescribeJson(nlohmann::json::array()), "a list");
  EXPECT_EQ(DescribeJson(nlohmann::json::object()), "an object");
}

}  // namespace
}  // namespace megatrain
