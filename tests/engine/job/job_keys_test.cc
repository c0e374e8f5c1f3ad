#include "engine/job/job_keys.h"

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "engine/config/config_reader.h"
#include "engine/config/config_schema.h"
#include "engine/job/job_parser.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/config/schema_check.h"
#include "tests/engine/config/table_checks.h"

namespace megatrain {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr char kMinimal[] = "model: {path: m}\ndata: {train: [{path: t, format: text}]}\n";

std::string WrongBySchemaOfJobs(const std::string& yaml) {
  JobSpec spec;
  return WrongBySchema(JsonSchema(JobKeys(&spec)), YamlToJson(ParseYaml(yaml, "f.yaml").value()));
}

TEST(JobKeysTest, EachIsReadAtItsBoundsAndRefusedBeyondThem) {
  JobSpec spec;
  CheckBounds(JobKeys(&spec), kMinimal);
}

TEST(JobKeysTest, NumbersHaveFieldsOfTheirOwn) {
  JobSpec spec;
  const ConfigTable table = JobKeys(&spec);
  std::vector<std::string> overrides;
  std::map<std::string, std::string> given;  // by key
  for (const ConfigKey& key : table.keys) {
    const std::string type = key.value.schema.at("type").dump();
    const size_t number = given.size();
    std::string value;
    if (type == R"("integer")" || type == R"(["integer","string"])") {
      value = std::to_string(100 + number);
    } else if (type == R"("number")") {
      value = "0.1" + std::to_string(number) + "1";
    }
    if (value.empty()) continue;
    given[key.path] = value;
    overrides.push_back(key.path + "=" + value);
  }
  ASSERT_GT(given.size(), 30u);
  const auto read = ReadConfig(table, kMinimal, "f.yaml", overrides);
  ASSERT_TRUE(read.ok()) << read.status();
  for (const auto& [path, value] : given) {
    EXPECT_EQ(table.Find(path)->value.text(), value) << path;
  }
}

TEST(JobKeysTest, TheSchemaHasEach) {
  JobSpec spec;
  CheckSchema(JobKeys(&spec));
}

TEST(JobKeysTest, TheReadmeListsEach) {
  JobSpec spec;
  EXPECT_THAT(YamlBlocks("engine/job/README.md"), Contains(ConfigListing(JobKeys(&spec))));
}

TEST(JobKeysTest, TheListingIsAJobOfDefaults) {
  JobSpec defaults;
  const std::string listing = ConfigListing(JobKeys(&defaults));
  EXPECT_EQ(WrongBySchemaOfJobs(listing), "");
  absl::StatusOr<JobSpec> spec = ParseSubmittedJob(listing, "job.yaml", "/jobs", {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model.path, "/jobs/models/tiny");
  EXPECT_EQ(spec->training.steps, kStepsDefault);
  spec->model = defaults.model;
  spec->data.train.clear();
  spec->training.steps = 0;
  const ConfigTable is = JobKeys(&*spec), should = JobKeys(&defaults);
  for (size_t i = 0; i < is.keys.size(); ++i) {
    EXPECT_EQ(is.keys[i].value.text(), should.keys[i].value.text()) << is.keys[i].path;
  }
}

TEST(JobKeysTest, GoodJobsAreGoodByTheSchemaToo) {
  std::ifstream file("tests/fuzz/corpus/job/full.yaml");
  std::stringstream text;
  text << file.rdbuf();
  ASSERT_TRUE(ParseSubmittedJob(text.str(), "full.yaml", "/jobs", {}).ok());
  EXPECT_EQ(WrongBySchemaOfJobs(text.str()), "");
  EXPECT_EQ(WrongBySchemaOfJobs(kMinimal), "");
  EXPECT_EQ(WrongBySchemaOfJobs(std::string(kMinimal) + "training:\n"), "");
}

TEST(JobKeysTest, TheSchemaRefusesWhatTheReaderRefuses) {
  const std::string minimal = kMinimal;
  EXPECT_THAT(WrongBySchemaOfJobs("model: {path: m}\n"), HasSubstr("required"));
  EXPECT_THAT(WrongBySchemaOfJobs("model: {path: m}\ndata: {train: []}\n"), HasSubstr("minItems"));
  EXPECT_THAT(WrongBySchemaOfJobs("model: {path: m}\ndata: {train: [{path: t}]}\n"),
              HasSubstr(".data.train[0]"));
  EXPECT_THAT(WrongBySchemaOfJobs(minimal + "training: {setps: 5}\n"),
              HasSubstr(".training.setps: unknown"));
  EXPECT_THAT(WrongBySchemaOfJobs(minimal + "steps: 5\n"), HasSubstr(".steps: unknown"));
  EXPECT_THAT(WrongBySchemaOfJobs(minimal + "training: 5\n"), HasSubstr("type"));
}

}  // namespace
}  // namespace megatrain
