#include "engine/data/sequences/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "engine/data/sequences/packing.h"
#include "tests/engine/data/records/token_bytes.h"
#include "tests/engine/data/sequences/data_test_support.h"
#include "tests/support/read_file.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(DatasetTest, TextFilesAndJsonLinesAreDocumentsClosedByEndOfText) {
  TestDirectory directory;
  const JobSpec spec =
      SpecOf({{directory.Write("a.txt", "one\r\ntwo\n"), DataFormat::kText, ""},
              {directory.Write("b.jsonl", "{\"text\":\"x\"}\n\n{\"text\":\"\"}\n{\"text\":\"yz\"}"),
               DataFormat::kText, ""},
              {directory.Write("c.json", "[{\"text\":\"w\"}]"), DataFormat::kText, ""}},
             6);
  const auto dataset = OpenWithBytes(spec, directory);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(TrainTexts(**dataset), ElementsAre("one\r\nt", "wo\n$x$", "$yz$w$"));
  const auto last = (*dataset)->TrainSequence(2);
  EXPECT_THAT(last->document_ids, ElementsAre(0, 1, 1, 1, 2, 2));
  EXPECT_EQ((*dataset)->train_report().documents, 5);
  EXPECT_EQ((*dataset)->train_report().tokens, 18);
  EXPECT_FALSE((*dataset)->TrainSequence(3).ok());
  EXPECT_FALSE((*dataset)->TrainSequence(-1).ok());
}

TEST(DatasetTest, LongTextIsReadInPiecesAndIsOneDocument) {
  TestDirectory directory;
  std::string text = "\xef\xbb\xbf";
  for (int i = 0; i < 4000; ++i) text += "some line of text " + std::to_string(i) + " more\n";
  text += "\xc3\xa9";
  const JobSpec spec = SpecOf({{directory.Write("a.txt", text), DataFormat::kText, ""}}, 1000);
  const auto dataset = OpenWithBytes(spec, directory);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::string all;
  for (const std::string& part : TrainTexts(**dataset)) all += part;
  EXPECT_EQ(all, text.substr(3) + "$");
  EXPECT_EQ((*dataset)->train_report().documents, 1);
}

TEST(DatasetTest, TheWordsDoNotDependOnTheThreads) {
  TestDirectory directory;
  std::string lines;
  for (int i = 0; i < 30000; ++i) {
    lines += "{\"text\": \"" + std::string(static_cast<size_t>(i * 7919 % 400), 'a' + i % 26) +
             std::to_string(i) + "\"}\n";
  }
  ASSERT_GT(lines.size(), size_t{5} << 20);  // more than one batch
  const std::string path = directory.Write("a.jsonl", lines);
  std::string words;
  for (const int64_t threads : {1, 2, 5}) {
    JobSpec spec = SpecOf({{path, DataFormat::kText, ""}}, 512);
    spec.engine.threads = threads;
    spec.data.cache_directory = directory / "cache" + std::to_string(threads);
    const auto dataset = OpenWithBytes(spec, directory);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ((*dataset)->train_report().documents, 30000);
    for (const auto& entry : std::filesystem::directory_iterator(spec.data.cache_directory)) {
      if (entry.path().filename().string().substr(0, 5) != "words") continue;
      const std::string made = ReadFileOrEmpty(entry.path());
      if (threads == 1) words = made;
      EXPECT_TRUE(made == words) << threads;
    }
  }
  ASSERT_FALSE(words.empty());
  // The first bad record is named, whatever the blocks.
  directory.Write("a.jsonl",
                  lines + "{\"text\": \"<|pad|>\"}\n{\"text\": 1}\n{\"text\": \"\xff\"}\n");
  EXPECT_THAT(OpenError(SpecOf({{path, DataFormat::kText, ""}}, 512), directory),
              HasSubstr("a.jsonl:30002: \"text\" is a number"));
}

TEST(DatasetTest, TokensAreCutAndTheRemainderDroppedAndReported) {
  TestDirectory directory;
  std::vector<uint16_t> first(7), second(6);
  std::iota(first.begin(), first.end(), uint16_t{0});
  std::iota(second.begin(), second.end(), uint16_t{7});
  const JobSpec spec = SpecOf(
      {{directory.Write("a.bin", Bytes(first)), DataFormat::kTokens, "uint16"},
       {directory.Write("b.npy", Npy("{'descr': '<u2', 'fortran_order': False, 'shape': (6,), }",
                                     Bytes(second))),
        DataFormat::kTokens, ""}},
      5);
  const auto dataset = OpenDataset(spec, nullptr, directory.path(), 13, directory.path(), nullptr);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ((*dataset)->train_sequences(), 2);
  const auto sequence = (*dataset)->TrainSequence(1);  // of both files: the list is one stream
  EXPECT_THAT(sequence->input_ids, ElementsAre(5, 6, 7, 8, 9));
  EXPECT_THAT(sequence->labels, ElementsAre(5, 6, 7, 8, 9));
  EXPECT_THAT(sequence->position_ids, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(sequence->document_ids, ElementsAre(0, 0, 0, 0, 0));
  EXPECT_EQ((*dataset)->train_report().dropped_tokens, 3);
  EXPECT_THAT(
      std::string(OpenDataset(spec, nullptr, directory.path(), 12, directory.path(), nullptr)
                      .status()
                      .message()),
      HasSubstr("b.npy: element 5 (from 0; at byte "));
}

TEST(DatasetTest, MixedListsKeepTheirOrder) {
  TestDirectory directory;
  const std::string tokens =
      directory.Write("t.bin", Bytes(std::vector<uint16_t>{65, 66, 67, 68, 69}));
  const std::string text = directory.Write("a.txt", "abcde");
  const JobSpec spec = SpecOf({{text, DataFormat::kText, ""},
                               {tokens, DataFormat::kTokens, "uint16"},
                               {text, DataFormat::kText, ""}},
                              4);
  const auto dataset = OpenWithBytes(spec, directory);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(TrainTexts(**dataset), ElementsAre("abcd", "e$", "ABCD", "abcd", "e$"));
}

TEST(DatasetTest, SplitsTheLastSequencesOffForEvaluation) {
  TestDirectory directory;
  std::vector<uint16_t> ids(100);
  std::iota(ids.begin(), ids.end(), uint16_t{0});
  JobSpec spec =
      SpecOf({{directory.Write("t.bin", Bytes(ids)), DataFormat::kTokens, "uint16"}}, 10);
  spec.data.eval_fraction = 0.11;  // ceil(1.1) = 2
  const auto dataset = OpenWithBytes(spec, directory);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->train_sequences(), 8);
  ASSERT_EQ((*dataset)->eval_sequences(), 2);
  EXPECT_EQ((*dataset)->EvalSequence(0)->input_ids[0], 80);
  EXPECT_EQ((*dataset)->EvalSequence(1)->input_ids[0], 90);
  EXPECT_FALSE((*dataset)->EvalSequence(2).ok());
  EXPECT_FALSE((*dataset)->TrainSequence(8).ok());

  spec.data.eval = spec.data.train;  // then the fraction counts for nothing
  const auto listed = OpenWithBytes(spec, directory);
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_EQ((*listed)->train_sequences(), 10);
  EXPECT_EQ((*listed)->eval_sequences(), 10);
  ASSERT_EQ((*listed)->eval_sets().size(), 1u);
  EXPECT_EQ((*listed)->eval_sets()[0].name, "");
  EXPECT_EQ((*listed)->eval_sets()[0].end, 10);

  spec.data.eval.clear();
  spec.data.eval_fraction = 0.95;
  EXPECT_THAT(OpenError(spec, directory), HasSubstr("leaves none to train on"));
}

TEST(DatasetTest, TheOrderGoesThroughEveryEpoch) {
  TestDirectory directory;
  JobSpec spec = SpecOf({{directory.Write("t.bin", Bytes(std::vector<uint16_t>(340, 1))),
                          DataFormat::kTokens, "uint16"}},
                        10);
  auto dataset = OpenWithBytes(spec, directory);
  for (int64_t position = 0; position < 100; ++position) {
    EXPECT_EQ((*dataset)->TrainingOrder(position), position % 34);
  }
  spec.data.shuffle = true;
  const std::string in_order = (*dataset)->fingerprint();
  dataset = OpenWithBytes(spec, directory);
  EXPECT_NE((*dataset)->fingerprint(), in_order);
  std::vector<std::vector<int64_t>> epochs;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    epochs.emplace_back();
    for (int64_t i = 0; i < 34; ++i) {
      epochs.back().push_back((*dataset)->TrainingOrder(epoch * 34 + i));
    }
    EXPECT_EQ(std::set<int64_t>(epochs.back().begin(), epochs.back().end()).size(), 34u);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  spec.training.seed = 43;
  const auto other = OpenWithBytes(spec, directory);
  EXPECT_NE((*other)->fingerprint(), (*dataset)->fingerprint());
}

TEST(DatasetTest, ReportsProgressToTheEnd) {
  TestDirectory directory;
  const JobSpec spec =
      SpecOf({{directory.Write("a.txt", std::string(5000, 'a')), DataFormat::kText, ""},
              {directory.Write("b.jsonl", "{\"text\":\"x\"}\n"), DataFormat::kText, ""},
              {directory.Write("t.bin", "12345678"), DataFormat::kTokens, "uint16"}},
             4);
  for (int round = 0; round < 2; ++round) {  // made, and found in the cache
    int64_t last = 0, total = 0;
    const auto dataset = OpenDataset(spec, MakeBytesTokenizer(), directory.path(), 60000,
                                     directory / "cache", [&](int64_t done, int64_t of) {
                                       EXPECT_GE(done, last);
                                       last = done;
                                       total = of;
                                       return absl::OkStatus();
                                     });
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ(last, total);
    EXPECT_EQ(total, 5000 + 13 + 8);
  }
}

// Abandoned at each of its calls, made and found in the cache: nothing but the error comes back,
// and the next attempt is none the worse.
TEST(DatasetTest, IsAbandonedWhereverProgressSaysSo) {
  TestDirectory directory;
  JobSpec spec = SpecOf({{directory.Write("a.txt", std::string(5000, 'a')), DataFormat::kText, ""},
                         {directory.Write("b.jsonl", "{\"text\":\"x\"}\n"), DataFormat::kText, ""},
                         {directory.Write("t.bin", "12345678"), DataFormat::kTokens, "uint16"}},
                        4);
  spec.engine.threads = 1;  // others would not call the progress
  for (int allowed = 0;; ++allowed) {
    int calls = 0;
    const auto dataset = OpenDataset(spec, MakeBytesTokenizer(), directory.path(), 60000,
                                     directory / "cache", [&](int64_t, int64_t) {
                                       return ++calls > allowed ? absl::CancelledError("abandoned")
                                                                : absl::OkStatus();
                                     });
    if (dataset.ok()) {
      EXPECT_GE(allowed, 3);  // one for each file, whose hashes may be remembered by now
      EXPECT_LE(calls, allowed);
      break;
    }
    EXPECT_EQ(dataset.status().code(), absl::StatusCode::kCancelled) << dataset.status();
    EXPECT_EQ(calls, allowed + 1);
  }
}

TEST(DatasetTest, RefusesBadInputWithFileAndLine) {
  TestDirectory directory;
  const auto error = [&](const std::string& name, const std::string& content, DataFormat format) {
    const std::string message =
        OpenError(SpecOf({{directory.Write(name, content), format, ""}}, 8), directory);
    // Nothing half-made stays; a file that is sound but of no use may.
    if (name != "i.jsonl") {
      EXPECT_THAT(CachedFiles(directory), IsEmpty()) << name;
    }
    return message;
  };
  EXPECT_THAT(error("a.jsonl", "{\"text\":\"x\"}\n{\"text\":\n", DataFormat::kText),
              HasSubstr("a.jsonl:2: malformed JSON"));
  EXPECT_THAT(error("b.json", "[{\"text\":\"x\"},\n{\"text\":}]", DataFormat::kText),
              HasSubstr("b.json:2: element 2: malformed JSON"));
  EXPECT_THAT(error("c.jsonl", "{\"txt\":\"x\"}", DataFormat::kText),
              HasSubstr("c.jsonl:1: \"text\" is missing"));
  EXPECT_THAT(error("d.txt", "abc\xff", DataFormat::kText),
              HasSubstr("d.txt: invalid UTF-8 at byte 3"));
  EXPECT_THAT(error("e.jsonl", "{\"text\":\"x\"}\n{\"text\":\"\xc3\"}", DataFormat::kText),
              HasSubstr("e.jsonl:2: invalid UTF-8 at byte 22"));
  EXPECT_THAT(error("f.txt", "", DataFormat::kText), HasSubstr("f.txt: is empty"));
  EXPECT_THAT(error("g.jsonl", "\n\n", DataFormat::kText), HasSubstr("g.jsonl: is empty"));
  EXPECT_THAT(error("h.jsonl", "{\"messages\":[{\"role\":\"robot\",\"content\":\"x\"}]}",
                    DataFormat::kMessages),
              HasSubstr("h.jsonl:1: "));
  EXPECT_THAT(error("i.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"no answer\"}]}",
                    DataFormat::kMessages),
              HasSubstr("data.train: makes no sequence: none of 1 examples has a token that the "
                        "loss is on"));
  std::filesystem::remove_all(directory / "cache");
  EXPECT_THAT(
      OpenError(SpecOf({{directory.Write("t.bin", "1234"), DataFormat::kTokens, "uint16"}}, 8),
                directory),
      HasSubstr("element 0 (from 0; at byte 0) is token 12849"));
  EXPECT_THAT(
      OpenError(
          SpecOf({{directory.Write("u.bin", std::string(4, '\0')), DataFormat::kTokens, "uint16"}},
                 8),
          directory),
      HasSubstr("2 tokens are fewer than one sequence of 8"));
  EXPECT_THAT(OpenError(SpecOf({{directory / "none.txt", DataFormat::kText, ""}}, 8), directory),
              HasSubstr("none.txt: No such file"));
  EXPECT_THAT(OpenError(SpecOf({}, 8), directory), HasSubstr("data.train: names no file"));
  EXPECT_THAT(OpenError(SpecOf({{"x", DataFormat::kText, ""}}, 1), directory),
              HasSubstr("data.sequence_length: is 1"));
}

TEST(DatasetTest, ATokenizerOfAnotherModelIsRefusedWithTheLine) {
  TestDirectory directory;
  const JobSpec spec =
      SpecOf({{directory.Write("a.jsonl", "{\"text\":\"a\"}\n{\"text\":\"\xc3\xa9\"}"),
               DataFormat::kText, ""}},
             4);
  // Made with a larger vocabulary before: the cache does not hide it.
  ASSERT_TRUE(OpenWithBytes(spec, directory).ok());
  EXPECT_THAT(std::string(OpenDataset(spec, MakeBytesTokenizer(), directory.path(), 250,
                                      directory / "cache", nullptr)
                              .status()
                              .message()),
              HasSubstr("the end-of-text token 257 is not below the model's vocabulary of 250"));
  EXPECT_THAT(
      std::string(OpenDataset(spec, nullptr, directory.path(), 250, directory / "cache", nullptr)
                      .status()
                      .message()),
      HasSubstr("a.jsonl: format text needs a tokenizer"));
}

TEST(DatasetTest, RefusesSettingsThatMakeNoSense) {
  TestDirectory directory;
  const std::string path = directory.Write("a.txt", "some text");
  JobSpec spec = SpecOf({{path, DataFormat::kText, ""}}, 4);
  for (const double fraction : {-0.1, 1.0, std::nan("")}) {
    spec.data.eval_fraction = fraction;
    EXPECT_THAT(OpenError(spec, directory), HasSubstr("data.eval_fraction: is ")) << fraction;
  }
  spec.data.eval_fraction = 0;
  spec.data.eval = {
      {directory.Write("b.bin", std::string(4, '\0')), DataFormat::kTokens, "uint16"}};
  EXPECT_THAT(OpenError(spec, directory), HasSubstr("data.eval: makes no sequence: 2 tokens"));
  spec.data.eval[0].name = "few";
  EXPECT_THAT(OpenError(spec, directory), HasSubstr("data.eval, set few: makes no sequence"));
  spec.data.eval.clear();
  DataFile entry = spec.data.train[0];
  entry.weight = 1;
  spec.data.train.assign(1025, entry);
  EXPECT_THAT(OpenError(spec, directory),
              HasSubstr("1025 entries have weights; at most 1024 can be mixed"));
}

// The same bytes are other numbers.
TEST(DatasetTest, TheFingerprintKnowsTheTypeOfTokens) {
  TestDirectory directory;
  JobSpec spec = SpecOf({{directory.Write("a.txt", "training"), DataFormat::kText, ""}}, 2);
  spec.data.eval = {{directory.Write("t.bin", Bytes(std::vector<uint16_t>{5, 0, 6, 0})),
                     DataFormat::kTokens, "uint16"}};
  const auto narrow = OpenWithBytes(spec, directory);
  spec.data.eval[0].dtype = "uint32";
  const auto wide = OpenWithBytes(spec, directory);
  ASSERT_TRUE(narrow.ok() && wide.ok()) << narrow.status() << wide.status();
  EXPECT_EQ((*narrow)->eval_sequences(), 2);
  EXPECT_EQ((*wide)->eval_sequences(), 1);
  EXPECT_NE((*narrow)->fingerprint(), (*wide)->fingerprint());
}

TEST(DatasetTest, TheFingerprintKnowsHowSequencesAreMade) {
  TestDirectory directory;
  JobSpec spec = SpecOf({{directory.Write("a.txt", "one sequence"), DataFormat::kText, ""}}, 20);
  const auto print = [&] {
    const auto dataset = OpenWithBytes(spec, directory);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return dataset.ok() ? (*dataset)->fingerprint() : std::string();
  };
  const std::string before = print();
  spec.data.sequence_length = 21;
  EXPECT_NE(print(), before);
  spec.data.sequence_length = 20;
  spec.data.packing = !spec.data.packing;
  EXPECT_NE(print(), before);
  // Documents that are held out are not trained on.
  spec.data.sequence_length = 4;
  spec.data.packing = true;
  const std::string all = print();
  spec.data.eval_fraction = 0.3;
  EXPECT_NE(print(), all);
}

TEST(DatasetTest, EvaluationFilesOfOneNameAreASet) {
  TestDirectory directory;
  JobSpec spec = SpecOf({{directory.Write("a.txt", "training"), DataFormat::kText, ""}}, 4);
  spec.data.eval = {{directory.Write("b.txt", "12"), DataFormat::kText, ""},
                    {directory.Write("c.txt", "abcdefg"), DataFormat::kText, ""},
                    {directory.Write("d.txt", "345678"), DataFormat::kText, ""}};
  spec.data.eval[0].name = spec.data.eval[2].name = "digits";
  const auto dataset = OpenWithBytes(spec, directory);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const std::vector<EvalSet> sets = (*dataset)->eval_sets();
  ASSERT_EQ(sets.size(), 2u);
  EXPECT_EQ(sets[0].name, "digits");
  EXPECT_EQ(sets[0].begin, 0);
  EXPECT_EQ(sets[0].end, 3);
  EXPECT_EQ(sets[1].name, "");
  EXPECT_EQ(sets[1].begin, 3);
  EXPECT_EQ(sets[1].end, 5);
  ASSERT_EQ((*dataset)->eval_sequences(), 5);
  std::vector<std::string> texts;
  for (int64_t i = 0; i < 5; ++i) texts.push_back(TextOf(*(*dataset)->EvalSequence(i)));
  EXPECT_THAT(texts, ElementsAre("12$3", "4567", "8$", "abcd", "efg$"));
  EXPECT_FALSE((*dataset)->EvalSequence(-1).ok());
  EXPECT_FALSE((*dataset)->EvalSequence(5).ok());
  const DatasetReport& report = (*dataset)->eval_report();
  EXPECT_EQ(report.documents, 3);
  EXPECT_EQ(report.tokens, 18);
  EXPECT_EQ(report.sequences, 5);
  EXPECT_EQ((*dataset)->train_report().documents, 1);
}

TEST(DatasetTest, TheFingerprintKnowsTheEvaluationData) {
  TestDirectory directory;
  JobSpec spec = SpecOf({{directory.Write("a.txt", "training text"), DataFormat::kText, ""}}, 4);
  spec.data.eval = {{directory.Write("e.txt", "evaluated"), DataFormat::kText, ""}};
  const auto print = [&] {
    const auto dataset = OpenWithBytes(spec, directory);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return dataset.ok() ? (*dataset)->fingerprint() : std::string();
  };
  const std::string before = print();
  EXPECT_EQ(print(), before);
  directory.Write("e.txt", "EVALUATED anew");
  EXPECT_NE(print(), before);
}

}  // namespace
}  // namespace megatrain
