// The sequences of the files in tests/golden/data, against an implementation of its own.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "engine/data/sequences/batch_loader.h"
#include "engine/inspect/inspect_sequences.h"
#include "tests/engine/data/sequences/data_test_support.h"
#include "tests/support/read_file.h"

namespace megatrain {
namespace {

constexpr char kFolder[] = "tests/golden/data/";

nlohmann::json Expected(const std::string& name) {
  return nlohmann::json::parse(ReadFileOrEmpty(kFolder + name + ".expected.json"));
}

void ExpectSequences(const nlohmann::json& expected, const std::vector<DataFile>& files) {
  JobSpec spec = SpecOf(files, expected["sequence_length"]);
  spec.data.packing = expected["packing"];
  TestDirectory directory;
  for (int round = 0; round < 2; ++round) {  // made, and found in the cache
    const auto dataset = OpenWithBytes(spec, directory);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    const nlohmann::json& sequences = expected["sequences"];
    ASSERT_EQ((*dataset)->train_sequences(), static_cast<int64_t>(sequences.size()));
    for (size_t i = 0; i < sequences.size(); ++i) {
      const auto sequence = (*dataset)->TrainSequence(static_cast<int64_t>(i));
      ASSERT_TRUE(sequence.ok()) << sequence.status();
      EXPECT_EQ(nlohmann::json(sequence->input_ids), sequences[i]["input_ids"]) << i;
      EXPECT_EQ(nlohmann::json(sequence->labels), sequences[i]["labels"]) << i;
      EXPECT_EQ(nlohmann::json(sequence->position_ids), sequences[i]["position_ids"]) << i;
      EXPECT_EQ(nlohmann::json(sequence->document_ids), sequences[i]["document_ids"]) << i;
    }
    const DatasetReport& report = (*dataset)->train_report();
    EXPECT_EQ(report.truncated_examples, expected["truncated"].get<int64_t>());
    EXPECT_EQ(report.examples_without_target, expected["without_target"].get<int64_t>());
    EXPECT_EQ(report.dropped_tokens, expected["dropped"].get<int64_t>());

    // What `inspect --sequences` prints is the same.
    const auto json = SequencesJson(**dataset, 0, (*dataset)->train_sequences());
    ASSERT_TRUE(json.ok()) << json.status();
    nlohmann::json printed = nlohmann::json::parse(*json);
    for (nlohmann::json& entry : printed) {
      entry.erase("position");
      entry.erase("sequence");
    }
    EXPECT_EQ(printed, sequences);
  }
}

class DataReferenceTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Cases, DataReferenceTest,
                         ::testing::Values("text_packed", "text_unpacked", "alpaca_packed",
                                           "messages_unpacked", "mixed_packed", "tokens"));

TEST_P(DataReferenceTest, SequencesAreTheReferences) {
  const nlohmann::json expected = Expected(GetParam());
  std::vector<DataFile> files;
  for (const nlohmann::json& file : expected["files"]) {
    const auto format = ParseDataFormat(file["format"].get<std::string>());
    ASSERT_TRUE(format.ok()) << format.status();
    files.push_back({kFolder + file["path"].get<std::string>(), *format, ""});
  }
  ExpectSequences(expected, files);
}

// The same conversations in the other format.
TEST(ShareGptReferenceTest, SequencesAreThoseOfMessages) {
  const nlohmann::json expected = Expected("messages_unpacked");
  TestDirectory directory;
  std::vector<DataFile> files;
  for (const nlohmann::json& file : expected["files"]) {
    ASSERT_EQ(file["format"], "messages");
    std::istringstream lines(ReadFileOrEmpty(kFolder + file["path"].get<std::string>()));
    nlohmann::json records = nlohmann::json::array();
    for (std::string line; std::getline(lines, line);) {
      nlohmann::json record = {{"conversations", nlohmann::json::array()}};
      const nlohmann::json turns = nlohmann::json::parse(line);
      for (const nlohmann::json& message : turns["messages"]) {
        const std::string role = message["role"];
        if (role == "system") {
          record["system"] = message["content"];
          continue;
        }
        record["conversations"].push_back(
            {{"from", role == "user" ? "human" : "gpt"}, {"value", message["content"]}});
      }
      records.push_back(record);
    }
    files.push_back({directory.Write("turns.json", records.dump()), DataFormat::kShareGpt, ""});
  }
  ExpectSequences(expected, files);
}

}  // namespace
}  // namespace megatrain
