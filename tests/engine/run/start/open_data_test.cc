// What a run makes of its data before the first step, and what it says of them.
#include "engine/run/start/open_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/engine.h"
#include "tests/engine/numerics/model_reference.h"
#include "tests/engine/run/hooked_run.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(AsInputErrorTest, WhatIsWrongWithDataIsNeitherADamagedCheckpointNorALossThatIsNotFinite) {
  for (const absl::Status& status : {absl::DataLossError("x"), absl::AbortedError("x")}) {
    EXPECT_EQ(AsInputError(status), absl::InvalidArgumentError("x"));
  }
  for (const absl::Status& status :
       {absl::OkStatus(), absl::NotFoundError("x"), absl::CancelledError("x")}) {
    EXPECT_EQ(AsInputError(status), status);
  }
}

TEST(BadRecordsOfARunTest, ThoseWithoutANameAreCounted) {
  DatasetReport report;
  EXPECT_THAT(DescribeBadRecords(report), IsEmpty());
  report.bad_records.Add("a.jsonl:1: no object");
  report.bad_records.Add("a.jsonl:3: no text");
  EXPECT_THAT(DescribeBadRecords(report),
              ElementsAre("passed over: a.jsonl:1: no object", "passed over: a.jsonl:3: no text"));
  report.bad_records.count += 7;
  EXPECT_THAT(DescribeBadRecords(report),
              ElementsAre("passed over: a.jsonl:1: no object", "passed over: a.jsonl:3: no text",
                          "passed over: 7 more bad records"));
}

class OpenDataTest : public ::testing::Test {
 protected:
  // A record, which is twice a sequence long.
  static std::string Record() {
    return absl::StrCat("{\"text\": \"", std::string(80, 'a'), "\"}\n");
  }

  const std::unique_ptr<EngineHost> host_ = HostWithPool();
};

// Its data for training are numbers of tokens.
TEST_F(OpenDataTest, AJobThatEvaluatesOnTextAloneHasATokenizer) {
  JobSpec spec = HookedJob("text_to_evaluate");
  const std::string path = FreshDirectory("texts") + "/eval.jsonl";
  std::ofstream(path) << Record() << Record();
  spec.data.eval = {{path, DataFormat::kText, ""}};
  spec.data.tokenizer = "bytes";
  spec.training.steps = 1;
  HookedRun run;
  ASSERT_TRUE(run.Train(*host_, spec).ok()) << run.run.status;
  EXPECT_TRUE(run.run.records.at(0).eval_loss.has_value());
}

TEST_F(OpenDataTest, RecordsThatAreLeftOutOfEitherDataAreNamed) {
  const std::string directory = FreshDirectory("records");
  std::ofstream(directory + "/train.jsonl") << Record() << "{\"text\": 1}\n"
                                            << Record() << Record() << Record();
  std::ofstream(directory + "/eval.jsonl") << Record() << Record() << "{\"text\":\n";
  JobSpec spec = HookedJob("bad_records");
  spec.data.train = {{directory + "/train.jsonl", DataFormat::kText, ""}};
  spec.data.eval = {{directory + "/eval.jsonl", DataFormat::kText, ""}};
  spec.data.tokenizer = "bytes";
  spec.data.on_bad_record = OnBadRecord::kSkip;
  spec.training.steps = 1;
  HookedRun run;
  ASSERT_TRUE(run.Train(*host_, spec).ok()) << run.run.status;
  EXPECT_THAT(run.run.messages,
              AllOf(Contains(AllOf(HasSubstr("passed over: "), HasSubstr("train.jsonl:2"))),
                    Contains(AllOf(HasSubstr("passed over: "), HasSubstr("eval.jsonl:3")))));
}

// A bit of the cache that has changed would end the run where it is read.
TEST_F(OpenDataTest, TheCacheIsVerifiedWhereThatIsAskedFor) {
  const std::string directory = FreshDirectory("verified");
  std::ofstream(directory + "/train.jsonl") << Record() << Record() << Record() << Record();
  JobSpec spec = HookedJob("verifying");
  spec.data.train = {{directory + "/train.jsonl", DataFormat::kText, ""}};
  spec.data.tokenizer = "bytes";
  spec.data.cache_directory = directory + "/cache";
  spec.training.steps = 1;
  HookedRun first;
  ASSERT_TRUE(first.Train(*host_, spec).ok()) << first.run.status;
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory + "/cache")) {
    const std::string name = entry.path().filename();
    if (name.ends_with(".cache") && name != "hashes.cache") paths.push_back(entry.path());
  }
  ASSERT_FALSE(paths.empty());
  for (const std::string& path : paths) {
    SCOPED_TRACE(path);
    const std::string whole = ReadBytes(path);
    std::string damaged = whole;
    damaged.at(0) = static_cast<char>(damaged[0] ^ 1);
    std::ofstream(path, std::ios::binary) << damaged;
    spec.checkpoint.directory = FreshDirectory("verifying_again") + "/checkpoints";
    HookedRun again;
    again.options.verify_data = true;
    ASSERT_TRUE(again.Train(*host_, spec).ok()) << again.run.status;
    EXPECT_EQ(ReadBytes(path), whole);
  }
}

}  // namespace
}  // namespace megatrain
