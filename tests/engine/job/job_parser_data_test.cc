// The section `data` of a job file.
#include <filesystem>
#include <string>
#include <vector>

#include "engine/job/job_parser.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/job/job_texts.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

std::string DataRefusal(const std::string& entry) {
  const std::string text = "model: {path: m}\ndata:\n  train:\n    - " + entry + "\n";
  return std::string(Parse(text).status().message());
}

TEST(JobParserDataTest, DataMayBeMixedAndItsKeysHaveWords) {
  const auto spec = Parse(
      "model: {path: m}\ndata:\n  add_bos: true\n  on_bad_record: skip\n  train:\n"
      "    - {path: dir/, format: tokens, weight: 0.25}\n"
      "    - {path: \"*.csv.gz\", format: text, weight: 3}\n");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->data.train[0].weight, 0.25);
  EXPECT_EQ(spec->data.train[0].path.substr(spec->data.train[0].path.size() - 4), "/dir");
  EXPECT_EQ(spec->data.train[1].weight, 3);
  EXPECT_EQ(spec->data.add_bos, AddBos::kTrue);
  EXPECT_EQ(spec->data.on_bad_record, OnBadRecord::kSkip);
  EXPECT_EQ(JobSpec().data.add_bos, AddBos::kAuto);
  EXPECT_THAT(
      std::string(Parse("model: {path: m}\ndata: {add_bos: yes, train: [{path: a, format: text}]}")
                      .status()
                      .message()),
      HasSubstr("data.add_bos: expects auto, true or false"));
}

TEST(JobParserDataTest, DataEntries) {
  EXPECT_EQ(
      DataRefusal("{path: a}"),
      "job.yaml:4: data.train[0].format: is missing; there are text, tokens, alpaca, sharegpt, "
      "messages or preference");
  EXPECT_EQ(DataRefusal("{format: text}"), "job.yaml:4: data.train[0].path: is missing");
  EXPECT_EQ(DataRefusal("{path: a, format: text}\n    - {path: b}"),
            "job.yaml:5: data.train[1].format: is missing; there are text, tokens, alpaca, "
            "sharegpt, messages or preference");
  EXPECT_THAT(DataRefusal("a.txt"), HasSubstr("data.train[0]: expects {path: ..., format: ...}"));
  EXPECT_EQ(DataRefusal("{path: a, fromat: text}"),
            "job.yaml:4: data.train[0].fromat: unknown key; did you mean format?");
  EXPECT_THAT(DataRefusal("{path: a, format: csv}"), HasSubstr("got csv"));
  EXPECT_THAT(DataRefusal("{path: a.bin, format: tokens}"), HasSubstr("dtype: is missing"));
  EXPECT_THAT(DataRefusal("{path: a.bin, format: tokens, dtype: int8}"),
              HasSubstr("uint16 or uint32"));
  EXPECT_THAT(DataRefusal("{path: a, format: text, weight: 0}"),
              HasSubstr("data.train[0].weight: expects a number above 0"));
  EXPECT_THAT(DataRefusal("{path: a, format: text, weight: 1}\n    - {path: b, format: text}"),
              HasSubstr("data.train: weight is given for 1 of 2 entries, and not for "));
  EXPECT_THAT(DataRefusal("{path: a, format: text}\n  eval:\n"
                          "    - {path: b, format: text, weight: 2}"),
              HasSubstr("data.eval: weight is for data.train"));
  EXPECT_THAT(DataRefusal("{path: a.npy, format: tokens, dtype: uint16}"),
              HasSubstr("is for .bin files"));
  EXPECT_THAT(DataRefusal("{path: A.BIN, format: tokens}"), HasSubstr("dtype: is missing"));
  EXPECT_EQ(DataRefusal("{path: A.BIN, format: tokens, dtype: uint16}"), "");
  EXPECT_THAT(DataRefusal("{path: A.NPY, format: tokens, dtype: uint16}"),
              HasSubstr("is for .bin files"));
  EXPECT_THAT(DataRefusal("{path: a.txt, format: tokens}"), HasSubstr(".npy or .bin"));
  EXPECT_THAT(DataRefusal("{path: a.jsonl.gz, format: tokens}"), HasSubstr(".npy or .bin"));
  // Of a directory or a pattern the files tell.
  EXPECT_EQ(DataRefusal("{path: dir, format: tokens}"), "");
  EXPECT_EQ(DataRefusal("{path: dir, format: tokens, dtype: uint32}"), "");
  EXPECT_EQ(DataRefusal("{path: \"*.bin\", format: tokens, dtype: uint16}"), "");
  EXPECT_THAT(DataRefusal("{path: a, format: text, dtype: uint16}"),
              HasSubstr("is for format tokens"));
}

TEST(JobParserDataTest, TheLossOfChatsIsSaidOnce) {
  const auto data = [](const std::string& keys) {
    return Parse("model: {path: m}\ndata: {train: [{path: t, format: text}]" + keys + "}\n");
  };
  EXPECT_EQ(data("")->data.train_on, "assistant");
  for (const char* keys :
       {", train_on_prompt: true", ", train_on: all", ", train_on: all, train_on_prompt: true"}) {
    const auto spec = data(keys);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->data.train_on, "all");
    EXPECT_TRUE(spec->data.train_on_prompt);
  }
  EXPECT_FALSE(data(", train_on: last, train_on_prompt: false")->data.train_on_prompt);
  for (const char* keys :
       {", train_on: last, train_on_prompt: true", ", train_on: all, train_on_prompt: false"}) {
    EXPECT_THAT(std::string(data(keys).status().message()),
                HasSubstr("data.train_on_prompt: contradicts data.train_on: "));
  }
  EXPECT_THAT(std::string(data(", train_on: answers").status().message()),
              HasSubstr("expects assistant, last or all"));
}

TEST(JobParserDataTest, TheDayOfTemplatesIsADay) {
  EXPECT_EQ(Refusal("", {"data.template_date=2024-02-29"}), "accepted");
  EXPECT_EQ(Refusal("", {"data.template_date="}), "accepted");
  for (const char* day : {"2023-02-29", "2024-2-9", "today", "2024-02-29T00"}) {
    EXPECT_THAT(Refusal("", {std::string("data.template_date=") + day}),
                HasSubstr("expects a day as 2026-01-31"));
  }
}

TEST(JobParserDataTest, PathsStartWhereTheFileThatIsReadLies) {
  const TestDirectory directory;
  std::filesystem::create_directories(directory / "far/sub");
  std::filesystem::create_directory_symlink(directory / "far/sub", directory / "link");
  directory.Write("far/job.yaml", kMinimal);
  const auto spec = ParseJobFile(directory / "link/../job.yaml", {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model.path, directory / "far/models/tiny");
}

}  // namespace
}  // namespace megatrain
