#include "engine/inspect/inspect_sequences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/engine/data/records/compressed_text.h"
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

TEST(InspectSequencesTest, AStretchStaysOnItsLine) {
  TestDirectory directory;
  const JobSpec spec =
      SpecOf({{directory.Write("a.txt", "a\tb\rc\\d\x01\x1f \x7f~"), DataFormat::kText, ""}}, 40);
  const auto dataset = OpenWithBytes(spec, directory);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(*SequencesText(**dataset, MakeBytesTokenizer().get(), 0, 1),
              HasSubstr("    loss | \\tb\\rc\\\\d\\x01\\x1f \\x7f~<|eos|>\n"));
}

TEST(InspectSequencesTest, DescribesAMix) {
  TestDirectory directory;
  const std::string more = directory.Write("a.bin", Bytes(std::vector<uint16_t>(24, 1)));
  const std::string less = directory.Write("b.bin", Bytes(std::vector<uint16_t>(12, 1)));
  JobSpec spec =
      SpecOf({{more, DataFormat::kTokens, "uint16"}, {less, DataFormat::kTokens, "uint16"}}, 4);
  spec.data.train[0].weight = 3;
  spec.data.train[1].weight = 1;
  const auto dataset = OpenWithBytes(spec, directory);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const auto text = DescribeDataset(**dataset, nullptr, 0);
  ASSERT_TRUE(text.ok()) << text.status();
  // The third of the few is the eleventh of all.
  EXPECT_EQ(*text, "2 documents, 36 tokens, 9 training sequences\n" + more +
                       ": 75% of the mix, 6 sequences, 1.375 passes an epoch\n" + less +
                       ": 25% of the mix, 3 sequences, 0.9167 passes an epoch\n"
                       "an epoch of the mix is 11 sequences\n");
}

TEST(InspectSequencesTest, CountsWhatIsForEvaluation) {
  TestDirectory directory;
  JobSpec spec = SpecOf({{directory.Write("a.bin", Bytes(std::vector<uint16_t>(20, 1))),
                          DataFormat::kTokens, "uint16"}},
                        4);
  spec.data.eval = {{directory.Write("b.bin", Bytes(std::vector<uint16_t>(8, 1))),
                     DataFormat::kTokens, "uint16"}};
  const auto dataset = OpenWithBytes(spec, directory);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const auto text = DescribeDataset(**dataset, nullptr, 0);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "1 documents, 20 tokens, 5 training sequences, 2 for evaluation\n");
}

TEST(InspectSequencesTest, ShowsPairsAsPairs) {
  TestDirectory directory;
  const std::string records = R"({"prompt":"Hi","chosen":"Yes","rejected":"No!"})"
                              "\n"
                              R"({"prompt":"Oh","chosen":"Good","rejected":"Bad"})";
  JobSpec spec = SpecOf({{directory.Write("p.jsonl", records), DataFormat::kPreference, ""}}, 400);
  spec.training.objective = Objective::kDpo;
  const auto dataset = OpenWithBytes(spec, directory);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ((*dataset)->train_sequences(), 1);
  const auto tokenizer = MakeBytesTokenizer();
  const auto text = SequencesText(**dataset, tokenizer.get(), 0, 1);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr(" 2 pairs, "));
  size_t at = 0;  // in this order
  for (const char* part : {"  pair 0, chosen\n", "Yes", "  pair 0, rejected\n", "No!",
                           "  pair 1, chosen\n", "Good", "  pair 1, rejected\n", "Bad"}) {
    at = text->find(part, at);
    ASSERT_NE(at, std::string::npos) << part << " in " << *text;
  }
  const nlohmann::json printed = nlohmann::json::parse(*SequencesJson(**dataset, 0, 1));
  EXPECT_EQ(printed[0]["pairs"], nlohmann::json::parse("[[0, 1], [2, 3]]"));
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
  EXPECT_EQ(GuessDataFile(directory.Write("B.NPY", "x"))->format, DataFormat::kTokens);
  EXPECT_THAT(std::string(GuessDataFile("x.bin").status().message()), HasSubstr("dtype"));
  EXPECT_THAT(std::string(GuessDataFile(directory.Write("B.BIN", "x")).status().message()),
              HasSubstr("dtype"));
  EXPECT_FALSE(GuessDataFile(directory / "none.jsonl").ok());
  EXPECT_EQ(GuessDataFile(directory.Write("d.jsonl.gz", Gzip("{\"conversations\":[]}")))->format,
            DataFormat::kShareGpt);
  EXPECT_EQ(GuessDataFile(directory.Write("e.csv", "instruction,output\na,b\n"))->format,
            DataFormat::kAlpaca);
  EXPECT_THAT(std::string(GuessDataFile(directory.Write("f.jsonl", "\n")).status().message()),
              HasSubstr("f.jsonl: is empty"));
  EXPECT_THAT(
      std::string(GuessDataFile(directory.Write("g.csv", "text\n\xff\n")).status().message()),
      HasSubstr("g.csv: row 2: column \"text\": invalid UTF-8"));
}

TEST(InspectSequencesTest, WarnsOfWhatIsNotTrainedOn) {
  EXPECT_EQ(DatasetWarnings(DatasetReport()), "");
  DatasetReport report;
  report.turns_without_loss = 3;
  report.dropped_tokens = 7;
  report.bad_records.count = 1002;
  report.bad_records.named = {"a.jsonl:1: not JSON", "a.jsonl:5: empty"};
  EXPECT_EQ(DatasetWarnings(report),
            "3 turns of the assistant have no loss, because the chat template writes them "
            "otherwise when further messages follow\n"
            "7 tokens at the end are less than a sequence and were dropped\n"
            "1,002 records cannot be read and were passed over\n"
            "  a.jsonl:1: not JSON\n"
            "  a.jsonl:5: empty\n"
            "  and 1,000 more\n");
  report.bad_records.count = 2;
  EXPECT_THAT(DatasetWarnings(report), ::testing::EndsWith("  a.jsonl:5: empty\n"));
}

}  // namespace
}  // namespace megatrain
