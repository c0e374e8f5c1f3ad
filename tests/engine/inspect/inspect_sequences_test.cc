#include "engine/inspect/inspect_sequences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/engine/data/records/token_bytes.h"
#include "tests/engine/data/sequences/data_test_support.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

TEST(InspectSequencesTest, PrintsTheTrainingOrderThroughEpochs) {
  TestDirectory directory;
  std::vector<uint16_t> ids;
  for (uint16_t i = 0; i < 20; ++i) ids.push_back(i);
  JobSpec spec = SpecOf({{directory.Write("t.bin", Bytes(ids)), DataFormat::kTokens, "uint16"}}, 4);
  spec.data.shuffle = true;
  const auto dataset = OpenWithBytes(spec, directory);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const auto json = SequencesJson(**dataset, 3, 8);
  ASSERT_TRUE(json.ok()) << json.status();
  const nlohmann::json printed = nlohmann::json::parse(*json);
  ASSERT_EQ(printed.size(), 5u);
  for (int64_t i = 0; i < 5; ++i) {
    const nlohmann::json& entry = printed[static_cast<size_t>(i)];
    const int64_t index = (*dataset)->TrainingOrder(3 + i);
    EXPECT_EQ(entry["position"], 3 + i);
    EXPECT_EQ(entry["sequence"], index);
    EXPECT_EQ(entry["input_ids"][0], 4 * index);
    EXPECT_EQ(entry["labels"], entry["input_ids"]);
  }
  EXPECT_EQ(nlohmann::json::parse(*SequencesJson(**dataset, 2, 2)).size(), 0u);
  for (const auto& [begin, end] : {std::pair{-1, 2}, std::pair{3, 2}}) {
    EXPECT_THAT(std::string(SequencesJson(**dataset, begin, end).status().message()),
                HasSubstr("give A:B with 0 <= A <= B; the first epoch is 0:5"));
    EXPECT_FALSE(SequencesText(**dataset, nullptr, begin, end).ok());
  }
}

TEST(InspectSequencesTest, ShowsTheLossMaskOverDecodedText) {
  TestDirectory directory;
  const std::string turn = R"({"instruction":"Hi\t!","output":"Yes\n"})";
  const JobSpec spec =
      SpecOf({{directory.Write("a.jsonl", turn + "\n" + turn + "\n" + R"({"instruction":")" +
                                              std::string(300, 'x') + R"(","output":"cut off"})"),
               DataFormat::kAlpaca, ""}},
             200);
  const auto dataset = OpenWithBytes(spec, directory);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const auto tokenizer = MakeBytesTokenizer();
  const auto text = DescribeDataset(**dataset, tokenizer.get(), 3);
  ASSERT_TRUE(text.ok()) << text.status();
  const std::string document =
      "         | <|im_start|>user\\nHi\\t!<|im_end|>\\n<|im_start|>assistant\\n\n"
      "    loss | Yes\\n<|im_end|>\n"
      "         | \\n\n";
  EXPECT_EQ(*text,
            "3 documents, 138 tokens, 1 training sequences\n"
            "1 examples are longer than a sequence and were cut off\n"
            "1 examples have no token that the loss is on and were passed over\n"
            "sequence 0: 138 tokens, 62 padding, 2 documents, 28 predictions\n"
            "  document 0\n" +
                document + "  document 1\n" + document);
  EXPECT_THAT(*SequencesText(**dataset, tokenizer.get(), 1, 2),
              HasSubstr("position 1 (sequence 0): 138 tokens"));
  EXPECT_THAT(*SequencesText(**dataset, nullptr, 0, 1), HasSubstr("    loss | 89 101 115 10 60"));
}

TEST(InspectSequencesTest, GuessesHowAFileIsToBeRead) {
  TestDirectory directory;
  EXPECT_EQ(GuessDataFile(directory.Write("a.txt", "x"))->format, DataFormat::kText);
  EXPECT_EQ(GuessDataFile(directory.Write("a.npy", "x"))->format, DataFormat::kTokens);
  EXPECT_EQ(GuessDataFile(directory.Write("a.jsonl", "{\"messages\":[]}"))->format,
            DataFormat::kMessages);
  EXPECT_EQ(GuessDataFile(directory.Write("b.json", "[{\"instruction\":\"\"}]"))->format,
            DataFormat::kAlpaca);
  EXPECT_THAT(
      std::string(GuessDataFile(directory.Write("c.jsonl", "\n{\"q\":1}")).status().message()),
      HasSubstr("c.jsonl:2: no known format: the record has \"q\""));
  EXPECT_THAT(std::string(GuessDataFile("x.bin").status().message()), HasSubstr("dtype"));
  EXPECT_FALSE(GuessDataFile(directory / "none.jsonl").ok());
}

}  // namespace
}  // namespace megatrain
