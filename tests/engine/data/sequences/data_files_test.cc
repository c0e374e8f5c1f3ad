// Kinds of data files, directories of them, bad records, and data that is not read twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "engine/base/watched_file_system.h"
#include "tests/engine/data/records/compressed_text.h"
#include "tests/engine/data/sequences/data_test_support.h"
#include "tests/support/read_file.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string TextOf(const Dataset& dataset) {
  std::string text;
  for (int64_t i = 0; i < dataset.train_sequences(); ++i) {
    const auto sequence = dataset.TrainSequence(i);
    EXPECT_TRUE(sequence.ok()) << sequence.status();
    if (!sequence.ok()) return "";
    for (size_t t = 0; t < sequence->input_ids.size() && sequence->document_ids[t] >= 0; ++t) {
      const int32_t id = sequence->input_ids[t];
      text += id == kBytesEosId ? '$' : id == kBytesBosId ? '^' : static_cast<char>(id);
    }
  }
  return text;
}

// The text of a job's data in file order, or the error.
std::string Read(const JobSpec& spec, const TestDirectory& directory) {
  const auto dataset = OpenWithBytes(spec, directory);
  return dataset.ok() ? TextOf(**dataset) : std::string(dataset.status().message());
}

TEST(DataFilesTest, KindsGoByTheNamesOfFiles) {
  TestDirectory directory;
  const std::string lines = "{\"text\":\"one\"}\n{\"text\":\"two\"}\n";
  const auto read = [&](const std::string& name, const std::string& content) {
    return Read(SpecOf({{directory.Write(name, content), DataFormat::kText, ""}}, 4), directory);
  };
  EXPECT_EQ(read("a.jsonl.gz", Gzip(lines)), "one$two$");
  EXPECT_EQ(read("b.JSONL.zst", Zstd(lines)), "one$two$");
  EXPECT_EQ(read("c.json.gz", Gzip("[{\"text\":\"one\"}]")), "one$");
  EXPECT_EQ(read("d.txt.zst", Zstd("plain\n")), "plain\n$");
  EXPECT_EQ(read("e.csv", "id,text\n7,one\n8,\"t,\"\"wo\"\n"), "one$t,\"wo$");
  EXPECT_EQ(read("f.csv.gz", Gzip("text\none\n")), "one$");
  EXPECT_EQ(read("g.log", lines), lines + "$");  // no known name
  EXPECT_EQ(read("m.jsonl", lines), "one$two$") << "not the words of g.log, which holds the same";
  EXPECT_THAT(read("h.txt.gz", "not compressed"), HasSubstr("h.txt.gz: its gzip data is damaged"));
  EXPECT_THAT(read("i.jsonl.gz", Gzip(lines).substr(0, 20)), HasSubstr("is cut short"));
  EXPECT_THAT(read("j.csv", "id,text\n7\n"),
              HasSubstr("j.csv: row 2: has 1 field; the first row names 2"));
  EXPECT_THAT(read("k.csv", "id,words\n7,x\n"), HasSubstr("k.csv: row 2: \"text\" is missing"));
  EXPECT_THAT(read("l.jsonl.gz", Gzip("")), HasSubstr("l.jsonl.gz: is empty"));
}

TEST(DataFilesTest, CsvHoldsChats) {
  TestDirectory directory;
  const std::string alpaca = directory.Write("a.csv", "instruction,input,output\nAdd,1 1,2\n");
  const std::string messages =
      directory.Write("m.csv",
                      "messages\n\"[{\"\"role\"\":\"\"user\"\",\"\"content\"\":\"\"Q\"\"},"
                      "{\"\"role\"\":\"\"assistant\"\",\"\"content\"\":\"\"A\"\"}]\"\n");
  EXPECT_EQ(Read(SpecOf({{alpaca, DataFormat::kAlpaca, ""}}, 100), directory),
            "<|im_start|>user\nAdd\n1 1<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n");
  EXPECT_EQ(Read(SpecOf({{messages, DataFormat::kMessages, ""}}, 100), directory),
            "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n");
}

TEST(DataFilesTest, DirectoriesAndGlobsAreReadInOrder) {
  TestDirectory directory;
  fs::create_directories(directory / "shards");
  for (int i = 0; i < 20; ++i) {  // more than are open at once is tried in bounded_file_system_test
    directory.Write("shards/" + std::to_string(100 + i) + ".jsonl",
                    "{\"text\":\"" + std::string(1, static_cast<char>('a' + i)) + "\"}");
  }
  std::string expected;
  for (int i = 0; i < 20; ++i) expected += std::string(1, static_cast<char>('a' + i)) + "$";
  for (const int64_t threads : {1, 3}) {
    JobSpec spec = SpecOf({{directory / "shards", DataFormat::kText, ""}}, 8);
    spec.engine.threads = threads;
    spec.data.cache_directory = directory / "cache" + std::to_string(threads);
    EXPECT_EQ(Read(spec, directory), expected);
  }
  EXPECT_EQ(Read(SpecOf({{directory / "shards/1[01]0*", DataFormat::kText, ""}}, 8), directory),
            "a$k$");
  EXPECT_THAT(Read(SpecOf({{directory / "shards/*.csv", DataFormat::kText, ""}}, 8), directory),
              HasSubstr("no file matches this pattern"));
}

TEST(DataFilesTest, TheFirstBadFileIsNamedAndTheGoodOnesAreKept) {
  TestDirectory directory;
  fs::create_directories(directory / "shards");
  for (int i = 0; i < 9; ++i) {
    directory.Write("shards/" + std::to_string(i) + ".jsonl",
                    i == 4 || i == 7 ? "{\"text\":" : "{\"text\":\"x" + std::to_string(i) + "\"}");
  }
  JobSpec spec = SpecOf({{directory / "shards", DataFormat::kText, ""}}, 8);
  for (const int64_t threads : {1, 4}) {
    spec.engine.threads = threads;
    EXPECT_THAT(Read(spec, directory), HasSubstr("shards/4.jsonl:1: malformed JSON"));
    int words = 0;
    for (const auto& entry : fs::directory_iterator(directory / "cache")) {
      const std::string name = entry.path().filename();
      EXPECT_EQ(name.find(".tmp"), std::string::npos) << name;
      words += name.substr(0, 5) == "words" ? 1 : 0;
    }
    EXPECT_GE(words, 4);  // those before it, and what others had begun
  }
}

TEST(DataFilesTest, BadRecordsAreSkippedCountedAndNamed) {
  TestDirectory directory;
  std::string lines = "{\"text\":\"a\"}\n{\"txt\":1}\n{\"text\":\"b\"}\n{\"text\":\"\xff\"}\n";
  for (int i = 0; i < 150; ++i) lines += "{\"text\":\n";
  const std::string records = directory.Write("r.jsonl", lines);
  const std::string csv = directory.Write("s.csv", "text,n\nc,1\nd\ne,2\n");
  const std::string plain = directory.Write("t.txt", "good start\n\xff");
  JobSpec spec = SpecOf({{records, DataFormat::kText, ""},
                         {csv, DataFormat::kText, ""},
                         {plain, DataFormat::kText, ""}},
                        4);
  EXPECT_THAT(Read(spec, directory), HasSubstr("r.jsonl:2: \"text\" is missing"));
  spec.data.on_bad_record = OnBadRecord::kSkip;
  std::string fingerprint;
  for (int round = 0; round < 2; ++round) {  // made, and found in the cache
    const auto dataset = OpenWithBytes(spec, directory);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ(TextOf(**dataset), "a$b$c$e$");
    const DatasetReport& report = (*dataset)->train_report();
    EXPECT_EQ(report.documents, 4);
    EXPECT_EQ(report.bad_records.count, 154);
    ASSERT_EQ(report.bad_records.named.size(), 100u);
    EXPECT_THAT(report.bad_records.named[0],
                HasSubstr("r.jsonl:2: \"text\" is missing, which format text needs"));
    EXPECT_THAT(report.bad_records.named[1], HasSubstr("r.jsonl:4: invalid UTF-8 at byte "));
    EXPECT_THAT(report.bad_records.named[2], HasSubstr("r.jsonl:5: malformed JSON"));
    if (round > 0) {
      EXPECT_EQ((*dataset)->fingerprint(), fingerprint);
    }
    fingerprint = (*dataset)->fingerprint();
  }
  // Words without them are not taken where they end the job.
  spec.data.on_bad_record = OnBadRecord::kFail;
  EXPECT_THAT(Read(spec, directory), HasSubstr("r.jsonl:2: \"text\" is missing"));

  spec.data.on_bad_record = OnBadRecord::kSkip;
  spec.data.train = {{csv, DataFormat::kText, ""}, {plain, DataFormat::kText, ""}};
  const auto dataset = OpenWithBytes(spec, directory);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT((*dataset)->train_report().bad_records.named,
              ElementsAre(HasSubstr("s.csv: row 3: has 1 field"),
                          HasSubstr("t.txt: invalid UTF-8 at byte 11")));
  spec.data.train = {{plain, DataFormat::kText, ""}};
  EXPECT_THAT(Read(spec, directory), HasSubstr("data.train: makes no sequence: none of its 1 "
                                               "records can be read: "));
  // A file that cannot be read on is no matter of a record.
  spec.data.train = {{directory.Write("u.jsonl.gz", "{}"), DataFormat::kText, ""}};
  EXPECT_THAT(Read(spec, directory), HasSubstr("u.jsonl.gz: its gzip data is damaged"));
}

TEST(DataFilesTest, DamagedCompressionEndsTheJobThatSkipsBadRecords) {
  TestDirectory directory;
  const auto read = [&](const std::string& name, const std::string& content) {
    JobSpec spec = SpecOf({{directory.Write("good.txt", "goods"), DataFormat::kText, ""},
                           {directory.Write(name, content), DataFormat::kText, ""}},
                          4);
    spec.data.on_bad_record = OnBadRecord::kSkip;
    return Read(spec, directory);
  };
  for (const std::string text : {"some text", "{\"text\":\"a\"}\n"}) {
    const std::string gzip = Gzip(text), zstd = Zstd(text);
    const std::string end = text == "some text" ? ".txt" : ".jsonl";
    EXPECT_THAT(read("a" + end + ".gz", gzip.substr(0, gzip.size() - 5)),
                HasSubstr("is cut short"));
    EXPECT_THAT(read("b" + end + ".zst", zstd.substr(0, zstd.size() - 5)),
                HasSubstr("is cut short"));
  }
  EXPECT_EQ(read("c.txt.gz", Gzip("\xff")), "goods$") << "well compressed, but no text";
}

TEST(DataFilesTest, SkippingGivesTheSameWordsWhateverTheThreads) {
  TestDirectory directory;
  std::string lines;
  for (int i = 0; i < 20000; ++i) {
    lines += i % 7 == 3 ? "{\"text\": 5}\n"
                        : "{\"text\": \"" + std::string(static_cast<size_t>(i % 300), 'a') +
                              std::to_string(i) + "\"}\n";
  }
  JobSpec spec = SpecOf({{directory.Write("a.jsonl", lines), DataFormat::kText, ""}}, 512);
  spec.data.on_bad_record = OnBadRecord::kSkip;
  std::string first;
  std::vector<std::string> named;
  for (const int64_t threads : {1, 2, 5}) {
    spec.engine.threads = threads;
    spec.data.cache_directory = directory / "cache" + std::to_string(threads);
    const auto dataset = OpenWithBytes(spec, directory);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    if (threads == 1) first = TextOf(**dataset);
    if (threads == 1) named = (*dataset)->train_report().bad_records.named;
    EXPECT_TRUE(TextOf(**dataset) == first);
    EXPECT_EQ((*dataset)->train_report().bad_records.named, named);
    EXPECT_EQ((*dataset)->train_report().bad_records.count, 2857);
  }
}

TEST(DataFilesTest, ABosGoesBeforeEachTextWhereTheJobSaysSo) {
  TestDirectory directory;
  std::string text;
  for (int i = 0; i < 200000; ++i) text += "line of words\n";  // several pieces
  JobSpec spec = SpecOf(
      {{directory.Write("a.txt", text), DataFormat::kText, ""},
       {directory.Write("b.jsonl", "{\"text\":\"x\"}\n{\"text\":\"\"}"), DataFormat::kText, ""}},
      4096);
  spec.engine.threads = 3;
  EXPECT_TRUE(Read(spec, directory) == text + "$x$$");
  const std::string without = (*OpenWithBytes(spec, directory))->fingerprint();
  spec.data.add_bos = AddBos::kFalse;
  EXPECT_EQ((*OpenWithBytes(spec, directory))->fingerprint(), without);
  spec.data.add_bos = AddBos::kTrue;
  EXPECT_TRUE(Read(spec, directory) == "^" + text + "$^x$^$");
  EXPECT_NE((*OpenWithBytes(spec, directory))->fingerprint(), without);
  // Chats get one from their template alone, except alpaca's, which is a plain text.
  spec.data.train = {{directory.Write("c.jsonl", "{\"instruction\":\"A\",\"output\":\"B\"}"),
                      DataFormat::kAlpaca, ""}};
  EXPECT_EQ(Read(spec, directory)[0], '<');
  spec.data.chat_template = "alpaca";
  EXPECT_EQ(Read(spec, directory).substr(0, 6), "^Below");
  const auto alpaca = OpenWithBytes(spec, directory);
  EXPECT_EQ((*alpaca)->TrainSequence(0)->labels[0], kMaskedLabel);
}

TEST(DataFilesTest, WhatWasPreparedWithABosIsNotThatWithout) {
  TestDirectory directory;
  JobSpec spec = SpecOf({{directory.Write("c.jsonl", "{\"instruction\":\"A\",\"output\":\"B\"}"),
                          DataFormat::kAlpaca, ""}},
                        4096);
  spec.data.chat_template = "alpaca";
  for (const bool bos : {true, false, true}) {
    spec.data.add_bos = bos ? AddBos::kTrue : AddBos::kFalse;
    EXPECT_EQ(Read(spec, directory).substr(0, 6), bos ? "^Below" : "Below ");
  }
}

// The prepared files of one kind cannot be opened.
class RefusingFiles : public WatchedFileSystem {
 public:
  explicit RefusingFiles(std::string kind)
      : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }),
        kind_(std::move(kind)) {}
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForReading(
      const std::string& path) override {
    if (path.find(kind_) != std::string::npos) return absl::PermissionDeniedError("no entry");
    return PosixFileSystem()->OpenForReading(path);
  }

 private:
  const std::string kind_;
};

TEST(DataFilesTest, WhyPreparedDataCannotBeReadIsSaid) {
  TestDirectory directory;
  const JobSpec spec = SpecOf({{directory.Write("a.txt", "hello"), DataFormat::kText, ""}}, 4);
  for (const std::string kind : {"/words-", "/sequences-"}) {
    RefusingFiles files(kind);
    const auto dataset = OpenDataset(spec, MakeBytesTokenizer(), directory.path(), kBytesVocabulary,
                                     directory / "cache", nullptr, &files);
    EXPECT_EQ(dataset.status().code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(std::string(dataset.status().message()),
                HasSubstr(".cache: was just made and cannot be read: no entry"));
  }
}

// Another process makes the words of a file just when they were found to be missing.
class LateWords : public WatchedFileSystem {
 public:
  explicit LateWords(std::string made)
      : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }),
        made_(std::move(made)) {}
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForReading(
      const std::string& path) override {
    if (put_ || path.find("/words-") == std::string::npos) {
      return PosixFileSystem()->OpenForReading(path);
    }
    put_ = true;
    fs::rename(made_, path);
    return absl::NotFoundError("not yet");
  }

 private:
  const std::string made_;
  bool put_ = false;
};

TEST(DataFilesTest, WordsThatAnotherProcessHasJustMadeAreKept) {
  TestDirectory directory;
  const JobSpec spec = SpecOf({{directory.Write("a.txt", "hello"), DataFormat::kText, ""}}, 4);
  ASSERT_TRUE(OpenWithBytes(spec, directory).ok());
  std::string words;
  for (const std::string& path : CachedFiles(directory)) {
    if (path.find("/words-") != std::string::npos) words = path;
  }
  ASSERT_NE(words, "");
  fs::rename(words, directory / "others");
  const auto others = PosixFileSystem()->Examine(directory / "others");
  ASSERT_TRUE(others.ok()) << others.status();
  LateWords files(directory / "others");
  const auto dataset = OpenDataset(spec, MakeBytesTokenizer(), directory.path(), kBytesVocabulary,
                                   directory / "cache", nullptr, &files);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(TextOf(**dataset), "hello$");
  const auto now = PosixFileSystem()->Examine(words);
  ASSERT_TRUE(now.ok()) << now.status();
  EXPECT_EQ(now->inode, others->inode) << "they were made again";
}

// Files that look as old as those of users, whose every reading is counted.
class OldFiles : public WatchedFileSystem {
 public:
  OldFiles() : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }) {}
  absl::StatusOr<FileInfo> Examine(const std::string& path) override {
    absl::StatusOr<FileInfo> info = PosixFileSystem()->Examine(path);
    if (info.ok()) info->changed -= absl::Hours(1);
    return info;
  }
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForReading(
      const std::string& path) override {
    if (!path.ends_with(".cache")) opened.push_back(path);
    return PosixFileSystem()->OpenForReading(path);
  }
  std::vector<std::string> opened;  // of the data
};

TEST(DataFilesTest, WhatLooksUnchangedIsReadAgainOnlyWhenAsked) {
  TestDirectory directory;
  const std::string text = directory.Write("a.txt", "hello");
  const std::string ids = directory.Write("b.bin", "12345678");
  const JobSpec spec =
      SpecOf({{text, DataFormat::kText, ""}, {ids, DataFormat::kTokens, "uint16"}}, 4);
  OldFiles files;
  const auto open = [&](int64_t vocabulary, bool verify) {
    files.opened.clear();
    return OpenDataset(spec, MakeBytesTokenizer(), directory.path(), vocabulary,
                       directory / "cache", nullptr, &files, verify);
  };
  const auto first = open(60000, false);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT(files.opened, ElementsAre(text, text, ids));  // hashed, made; scanned
  const auto second = open(60000, false);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_THAT(files.opened, ElementsAre(ids));  // its header
  EXPECT_EQ((*second)->fingerprint(), (*first)->fingerprint());
  ASSERT_TRUE(open(60000, true).ok());
  EXPECT_THAT(files.opened, ElementsAre(text, ids));
  // An id that a smaller vocabulary lacks is found, though the file is known.
  EXPECT_THAT(std::string(open(10000, false).status().message()),
              HasSubstr("is token 12849, which is not below the model's vocabulary of 10000"));
  // Another content of the same length.
  directory.Write("a.txt", "jello");
  const auto changed = open(60000, false);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_NE((*changed)->fingerprint(), (*first)->fingerprint());
}

// What is known of it then says nothing of its ids.
TEST(DataFilesTest, AFileThatWasReadAsAnotherFormatIsScannedForIds) {
  TestDirectory directory;
  const std::string path = directory.Write("b.bin", "12345678");
  OldFiles files;
  const auto open = [&](DataFormat format, int64_t vocabulary) {
    const std::string dtype = format == DataFormat::kTokens ? "uint16" : "";
    return OpenDataset(SpecOf({{path, format, dtype}}, 4), MakeBytesTokenizer(), directory.path(),
                       vocabulary, directory / "cache", nullptr, &files)
        .status();
  };
  EXPECT_FALSE(open(DataFormat::kText, 60000).ok()) << "no records, but it was hashed";
  EXPECT_THAT(std::string(open(DataFormat::kTokens, 10000).message()),
              HasSubstr("is token 12849, which is not below the model's vocabulary of 10000"));
  EXPECT_TRUE(open(DataFormat::kTokens, 60000).ok());
}

TEST(DataFilesTest, InvalidTextIsNamedWithItsPlaceInTheWholeFile) {
  TestDirectory directory;
  const auto error = [&](const std::string& content) {
    return Read(SpecOf({{directory.Write("a.txt", content), DataFormat::kText, ""}}, 4), directory);
  };
  EXPECT_THAT(error("\xef\xbb\xbf"
                    "ab\xff"),
              HasSubstr("a.txt: invalid UTF-8 at byte 5;"));
  EXPECT_THAT(error("\xef\xbb\xbf"), HasSubstr("a.txt: is empty"));
  std::string text(3500000, 'a');  // several pieces
  text[3000000] = '\xff';
  EXPECT_THAT(error(text), HasSubstr("a.txt: invalid UTF-8 at byte 3000000;"));
}

TEST(DataFilesTest, LongPlainTextsAreMadeSideBySideAndToldOf) {
  TestDirectory directory;
  const int64_t bytes = int64_t{9} << 20;
  std::vector<DataFile> files;
  for (const char* name : {"a.txt", "b.txt"}) {
    files.push_back({directory.Write(name, std::string(static_cast<size_t>(bytes), name[0])),
                     DataFormat::kText, ""});
  }
  JobSpec spec = SpecOf(files, 4096);
  spec.engine.threads = 2;
  const auto open = [&](const absl::Status& answer, int64_t* last) {
    return OpenDataset(spec, MakeBytesTokenizer(), directory.path(), kBytesVocabulary,
                       directory / "cache", [&answer, last](int64_t done, int64_t) {
                         *last = done;
                         return answer;
                       });
  };
  int64_t last = -1;
  EXPECT_EQ(open(absl::CancelledError("abandoned"), &last).status().code(),
            absl::StatusCode::kCancelled);
  const auto dataset = open(absl::OkStatus(), &last);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(last, 2 * bytes);
  EXPECT_EQ((*dataset)->train_report().documents, 2);
  EXPECT_EQ((*dataset)->train_report().tokens, 2 * (bytes + 1));
  EXPECT_EQ((*dataset)->TrainSequence(0)->input_ids[0], 'a');
}

}  // namespace
}  // namespace megatrain
