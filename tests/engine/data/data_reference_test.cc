// The sequences of the files in tests/golden/data, against an implementation of its own.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/data/batch_loader.h"
#include "engine/data/inspect_sequences.h"
#include "tests/engine/data/data_test_support.h"

namespace megatrain {
namespace {

class DataReferenceTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Cases, DataReferenceTest,
                         ::testing::Values("text_packed", "text_unpacked", "alpaca_packed",
                                           "messages_unpacked", "mixed_packed", "tokens"));

TEST_P(DataReferenceTest, SequencesAreTheReferences) {
  const std::string folder = "tests/golden/data/";
  const nlohmann::json expected =
      nlohmann::json::parse(ReadWholeFile(folder + GetParam() + ".expected.json"));
  std::vector<DataFile> files;
  for (const nlohmann::json& file : expected["files"]) {
    const std::string format = file["format"];
    files.push_back({folder + file["path"].get<std::string>(),
                     format == "text"     ? DataFormat::kText
                     : format == "alpaca" ? DataFormat::kAlpaca
                     : format == "tokens" ? DataFormat::kTokens
                                          : DataFormat::kMessages,
                     ""});
  }
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

}  // namespace
}  // namespace megatrain
