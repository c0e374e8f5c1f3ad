#include "engine/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace megatrain {
namespace {

using ::testing::HasSubstr;

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
}

TEST(JsonTest, RefusesDeepNesting) {
  const std::string deep(1'000'000, '[');
  EXPECT_THAT(Error(deep), HasSubstr("deeper than 64"));
  const std::string allowed = std::string(64, '[') + std::string(64, ']');
  EXPECT_TRUE(ParseJson(allowed, "FILE").ok());
}

TEST(JsonTest, RefusesWhatIsNotJson) {
  EXPECT_THAT(Error(""), HasSubstr("FILE: not valid JSON"));
  Error("{");
  Error("{} {}");
  Error("{'a': 1}");
  Error("NaN");
  EXPECT_THAT(Error(std::string_view("{}\0", 3)), HasSubstr("byte 2 is zero"));
  EXPECT_THAT(Error("1e999"), HasSubstr("overflow"));
  EXPECT_THAT(Error("\"\xff\""), HasSubstr("UTF-8"));
}

}  // namespace
}  // namespace megatrain
