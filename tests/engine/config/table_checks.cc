#include "tests/engine/config/table_checks.h"

#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/config/config_reader.h"
#include "engine/config/config_schema.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/config/schema_check.h"

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

constexpr char kAboveInt64[] = "9223372036854775808";

struct Samples {
  std::vector<std::string> good;
  std::vector<std::string> bad;
};

Samples WholeSamples(const Json& schema) {
  Samples samples{{}, {"many", "1.5", "\"1\"", "", "[1]"}};
  if (schema.contains("anyOf")) {  // 0, or a range
    const Json& range = schema["anyOf"][1];
    const int64_t min = range["minimum"], max = range["maximum"];
    return {{"0", absl::StrCat(min), absl::StrCat(max)},
            {"-1", absl::StrCat(min - 1), absl::StrCat(max + 1)}};
  }
  const int64_t min = schema["minimum"];
  samples.good.push_back(absl::StrCat(min));
  samples.bad.push_back(absl::StrCat(min - 1));
  if (!schema.contains("maximum")) {
    samples.good.push_back("9223372036854775807");
    samples.bad.push_back(kAboveInt64);
  } else if (const uint64_t max = schema["maximum"]; max == std::numeric_limits<uint64_t>::max()) {
    samples.good.push_back("18446744073709551615");
    samples.bad.push_back("18446744073709551616");
  } else {
    samples.good.push_back(absl::StrCat(max));
    samples.bad.push_back(absl::StrCat(max + 1));
  }
  return samples;
}

Samples NumberSamples(const Json& schema) {
  Samples samples{{}, {"fast", "nan", "inf", "\"1\"", "", "[1]"}};
  const auto text = [](double value) { return absl::StrFormat("%.17g", value); };
  for (const double side : {-1.0, 1.0}) {
    const std::string name = side < 0 ? "inimum" : "aximum";
    const bool exclusive = schema.contains("exclusiveM" + name);
    const double bound = schema[(exclusive ? "exclusiveM" : "m") + name];
    const double beyond = std::nextafter(bound, side * HUGE_VAL);
    samples.good.push_back(text(exclusive ? std::nextafter(bound, -side * HUGE_VAL) : bound));
    samples.bad.push_back(text(exclusive ? bound : beyond));
  }
  return samples;
}

// Values at the bounds that the schema tells, and beyond them.
Samples SamplesOf(const Json& schema) {
  if (schema.contains("enum")) {
    Samples samples{{}, {"none-of-them", "", "[]"}};
    for (const Json& word : schema["enum"]) {
      samples.good.push_back(word.is_string() ? word.get<std::string>() : word.dump());
    }
    return samples;
  }
  if (schema["type"] == "integer") return WholeSamples(schema);
  if (schema["type"] == "number") return NumberSamples(schema);
  if (schema["type"] == "boolean") return {{"true", "false"}, {"yes", "1", "\"true\"", ""}};
  if (schema["type"] == Json({"integer", "string"}) && schema.contains("maximum")) {
    Json number = schema;
    number["type"] = "integer";
    Samples samples = WholeSamples(number);
    const std::string pattern = schema["pattern"];
    samples.good.push_back(pattern.substr(1, pattern.size() - 2));  // "^all$"
    samples.bad.push_back("none-of-them");
    return samples;
  }
  if (schema["type"] == Json({"integer", "string"})) {
    return {{"0", "9223372036854775807", "24GiB", "1.5 TiB"},
            {"-1", kAboveInt64, "5GB", "\"1\"", ""}};
  }
  if (schema.contains("items")) return {{}, {"word", "{a: b}"}};
  return {};
}

// Texts of which any key takes some.
const char* const kTexts[] = {"\"\"",    "a",      "/a",        "-a",      ".a",     "a b",
                              "cuda",    "cuda:0", "cuda:999",  "cuda:01", "cuda:x", "cpu",
                              "\"h:1\"", "9464",   "'[::1]:1'", "auto",    "a.b-c_d"};

}  // namespace

void CheckBounds(const ConfigTable& table, const std::string& text) {
  const Json schema = JsonSchema(table);
  for (const ConfigKey& key : table.keys) {
    SCOPED_TRACE(key.path);
    const auto read = [&](const std::string& value) {
      return ReadConfig(table, text, "f.yaml", {absl::StrCat(key.path, "=", value)}).status();
    };
    // As an editor sees the value in a file.
    const auto wrong_by_schema = [&](const std::string& value) {
      const auto node = ParseYaml(value, "value");
      return node.ok() ? WrongBySchema(key.value.schema, YamlToJson(*node))
                       : std::string(node.status().message());
    };
    const Samples samples = SamplesOf(key.value.schema);
    for (const std::string& value : samples.good) {
      EXPECT_TRUE(read(value).ok()) << value << ": " << read(value);
      // Each word stands for a value of its own.
      if (key.value.schema.contains("enum")) {
        EXPECT_EQ(key.value.text(), value);
      }
      EXPECT_EQ(wrong_by_schema(value), "");
    }
    for (const std::string& value : samples.bad) {
      const absl::Status status = read(value);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << value;
      EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(": ", key.path, ": ")));
      if (value != kAboveInt64) {  // which the schema leaves to the reader
        EXPECT_NE(wrong_by_schema(value), "") << value;
      }
    }
    if (!samples.bad.empty()) continue;
    int taken = 0;
    for (const char* value : kTexts) {
      const absl::Status status = read(value);
      if (!status.ok()) {
        EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(": ", key.path, ": ")));
        continue;
      }
      ++taken;
      // A number is a text too for the reader.
      if (value != std::string("9464")) {
        EXPECT_EQ(wrong_by_schema(value), "");
      }
    }
    EXPECT_GT(taken, 0);
  }
}

void CheckSchema(const ConfigTable& table) {
  const Json schema = Json::parse(JsonSchema(table).dump());
  EXPECT_EQ(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
  EXPECT_EQ(schema["additionalProperties"], false);
  std::set<std::string> paths;
  for (const ConfigKey& key : table.keys) {
    SCOPED_TRACE(key.path);
    EXPECT_TRUE(paths.insert(key.path).second);
    const std::string pointer =
        "/properties/" + absl::StrJoin(absl::StrSplit(key.path, '.'), "/properties/");
    ASSERT_TRUE(schema.contains(Json::json_pointer(pointer)));
    const Json& entry = schema[Json::json_pointer(pointer)];
    EXPECT_TRUE(entry.contains("type"));
    EXPECT_FALSE(entry["description"].get<std::string>().empty());
    const Json& shown = key.has_default ? entry["default"] : entry["examples"][0];
    EXPECT_EQ(WrongBySchema(entry, shown), "");
    // The default is also what the reader takes.
    YamlNode node = ParseYaml(shown.dump(), "default").value();
    EXPECT_FALSE(key.value.read(node).has_value()) << shown;
  }
  for (const auto& [name, entry] : schema["properties"].items()) {
    if (paths.count(name) > 0) continue;
    EXPECT_EQ(entry["additionalProperties"], false) << name;
    for (const auto& [word, value] : entry["properties"].items()) {
      EXPECT_EQ(paths.count(name + "." + word), 1u) << name << "." << word;
    }
  }
}

std::vector<std::string> YamlBlocks(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::vector<std::string> blocks;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line == "```yaml") {
      inside = true;
      blocks.emplace_back();
    } else if (line == "```") {
      inside = false;
    } else if (inside) {
      blocks.back() += line + "\n";
    }
  }
  return blocks;
}

}  // namespace megatrain
