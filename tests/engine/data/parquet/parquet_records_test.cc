// Rows of the files in tests/golden/parquet, which pyarrow wrote, and files that lie.
#include "engine/data/parquet/parquet_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/engine/data/sequences/data_test_support.h"
#include "tests/support/read_file.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kProgram[] = "server/megatrain-parquet";
constexpr char kFolder[] = "tests/golden/parquet/";

struct Rows {
  std::vector<std::string> json;  // or what is wrong with the row
  std::string error;              // of the file
};

Rows ReadRows(const std::string& path, const std::string& column = "") {
  Rows rows;
  const auto file = DataFileReader::Open(path);
  if (!file.ok()) return {{}, std::string(file.status().message())};
  const auto reader = ParquetRecordReader::Open(file->get(), column);
  if (!reader.ok()) return {{}, std::string(reader.status().message())};
  Record record;
  while (true) {
    const auto more = (*reader)->Next(&record);
    if (!more.ok()) rows.error = std::string(more.status().message());
    if (!more.ok() || !*more) break;
    EXPECT_EQ(record.element, static_cast<int64_t>(rows.json.size()) + 1);
    rows.json.push_back(record.defect.ok() ? std::string(record.json)
                                           : std::string(record.defect.message()));
  }
  EXPECT_LE((*reader)->bytes_read(), (*file)->size());
  return rows;
}

// Has a script run in the place of the program that reads Parquet.
void UseScript(const TestDirectory& directory, const std::string& script) {
  const std::string path = directory.Write("program", "#!/bin/sh\n" + script);
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  setenv("MEGATRAIN_PARQUET", path.c_str(), 1);
}

class ParquetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::access(kProgram, X_OK) != 0) {
      GTEST_SKIP() << "built without Apache Arrow (deploy/install-deps.sh --parquet)";
    }
    setenv("MEGATRAIN_PARQUET", kProgram, 1);
  }
  TestDirectory directory_;
};

class ParquetFileTest : public ParquetTest, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Files, ParquetFileTest,
                         ::testing::Values("texts", "types", "no_name", "messages", "conversations",
                                           "alpaca", "empty"));

TEST_P(ParquetFileTest, HasTheRowsThatWereWritten) {
  const std::string path = std::string(kFolder) + GetParam();
  const Rows rows = ReadRows(path + ".parquet");
  EXPECT_EQ(rows.error, "");
  std::istringstream lines(ReadFileOrEmpty(path + ".jsonl"));
  std::string line;
  size_t row = 0;
  for (; std::getline(lines, line); ++row) {
    ASSERT_LT(row, rows.json.size());
    EXPECT_EQ(nlohmann::json::parse(rows.json[row]), nlohmann::json::parse(line)) << row;
  }
  EXPECT_EQ(row, rows.json.size());
}

TEST_F(ParquetTest, OneColumnIsReadAlone) {
  const std::string path = std::string(kFolder) + "texts.parquet";
  EXPECT_EQ(ReadRows(path, "text").json[0], "{\"text\":\"eins\"}");
  EXPECT_THAT(ReadRows(path, "no such column").json[0], HasSubstr("\"id\":0,\"text\":\"eins\""));
}

TEST_F(ParquetTest, AColumnWithoutANameHidesNoOther) {
  const std::string path = std::string(kFolder) + "no_name.parquet";
  EXPECT_EQ(ReadRows(path).json[0], "{\"\":7,\"text\":\"eins\"}");
  EXPECT_EQ(ReadRows(path, "text").json[0], "{\"text\":\"eins\"}");
}

TEST_F(ParquetTest, WholeFloatingPointNumbersStaySuch) {
  const Rows rows = ReadRows(std::string(kFolder) + "types.parquet");
  ASSERT_EQ(rows.json.size(), 3u) << rows.error;
  EXPECT_THAT(rows.json[0], HasSubstr("\"single\":0.5"));
  EXPECT_THAT(rows.json[1], HasSubstr("\"real\":-1.5e+300,\"single\":3.0"));
}

TEST_F(ParquetTest, FilesThatLieAreRefused) {
  const auto error = [](const std::string& name) {
    return ReadRows(kFolder + ("bad/" + name) + ".parquet").error;
  };
  EXPECT_THAT(error("file_claims_more_rows"),
              HasSubstr("its row groups have 1000 rows, and the file claims 8000"));
  EXPECT_THAT(error("group_claims_more_rows"),
              HasSubstr("row group 0 claims 8000 rows, and the file 1000 in all"));
  EXPECT_THAT(error("all_claim_more_rows"),
              HasSubstr("row group 0 has not the 8000 rows that it claims"));
  EXPECT_THAT(error("chunk_beyond_the_file"),
              HasSubstr("column 0 of row group 0 claims 1000000 bytes at byte 4 of a file of"));
  EXPECT_THAT(error("page_claims_more_bytes"), HasSubstr("expected: 1000000, but got:11897"));
  EXPECT_THAT(error("page_claims_more_compressed_bytes"), HasSubstr("Page was smaller"));
  EXPECT_THAT(error("footer_larger_than_file"), HasSubstr("bad/footer_larger_than_file.parquet: "));
  EXPECT_THAT(error("cut_short"), HasSubstr("magic bytes not found"));
  EXPECT_THAT(error("not_parquet"), HasSubstr("bad/not_parquet.parquet: "));
  EXPECT_THAT(error("bomb"), HasSubstr("takes more than 1 GiB of memory at a time"));
  EXPECT_THAT(ReadRows(std::string(kFolder) + "bad/text_is_no_utf8.parquet").json,
              ElementsAre("{\"text\":\"good\"}", "column \"text\": a text is not UTF-8",
                          "{\"text\":\"fine\"}"));
}

TEST_F(ParquetTest, AReaderThatIsGivenUpEndsItsProgram) {
  const auto file = DataFileReader::Open(std::string(kFolder) + "texts.parquet");
  ASSERT_TRUE(file.ok());
  for (int i = 0; i < 3; ++i) {
    const auto reader = ParquetRecordReader::Open(file->get(), "");
    ASSERT_TRUE(reader.ok());
    Record record;
    for (int row = 0; row < i; ++row) ASSERT_TRUE(*(*reader)->Next(&record));
  }
}

TEST_F(ParquetTest, AProgramThatDiesIsAnErrorOfTheFile) {
  setenv("MEGATRAIN_PARQUET", "/bin/false", 1);
  EXPECT_THAT(ReadRows(std::string(kFolder) + "texts.parquet").error,
              HasSubstr("texts.parquet: the program that reads Parquet ended with exit code 1"));
}

// Training sees the same of a Parquet file as of its rows in JSON Lines.
TEST_F(ParquetTest, EveryFormatReadsIt) {
  for (const auto& [name, format] :
       {std::pair{"texts", DataFormat::kText}, std::pair{"messages", DataFormat::kMessages},
        std::pair{"conversations", DataFormat::kShareGpt},
        std::pair{"alpaca", DataFormat::kAlpaca}}) {
    std::string text[2];
    for (int i = 0; i < 2; ++i) {
      JobSpec spec = SpecOf(
          {{std::string(kFolder) + name + (i == 0 ? ".parquet" : ".jsonl"), format, ""}}, 64);
      spec.engine.threads = 1 + i;
      int64_t done = 0, total = 0;
      const auto dataset =
          OpenDataset(spec, MakeBytesTokenizer(), directory_.path(), kBytesVocabulary,
                      directory_ / "cache", [&](int64_t bytes_done, int64_t bytes_total) {
                        done = bytes_done;
                        total = bytes_total;
                        return absl::OkStatus();
                      });
      ASSERT_TRUE(dataset.ok()) << dataset.status();
      EXPECT_EQ(done, total);
      for (int64_t s = 0; s < (*dataset)->train_sequences(); ++s) {
        const Sequence sequence = *(*dataset)->TrainSequence(s);
        for (size_t t = 0; t < sequence.labels.size(); ++t) {
          text[i] += std::to_string(sequence.input_ids[t]) + " " +
                     std::to_string(sequence.labels[t]) + "\n";
        }
      }
    }
    EXPECT_TRUE(text[0] == text[1]) << name;
    EXPECT_GT(text[0].size(), 100u) << name;
  }
}

TEST_F(ParquetTest, BadRowsAreSkippedAndNamed) {
  JobSpec spec =
      SpecOf({{std::string(kFolder) + "bad/text_is_no_utf8.parquet", DataFormat::kText, ""}}, 4);
  EXPECT_THAT(OpenError(spec, directory_),
              HasSubstr("text_is_no_utf8.parquet: row 2: column \"text\": a text is not UTF-8"));
  spec.data.on_bad_record = OnBadRecord::kSkip;
  const auto dataset = OpenWithBytes(spec, directory_);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->train_report().documents, 2);
  EXPECT_THAT((*dataset)->train_report().bad_records.named,
              ElementsAre(HasSubstr("text_is_no_utf8.parquet: row 2: column \"text\"")));
  spec.data.train[0].format = DataFormat::kMessages;
  spec.data.on_bad_record = OnBadRecord::kFail;
  EXPECT_THAT(OpenError(spec, directory_), HasSubstr("row 1: \"messages\" is missing"));
}

TEST(ParquetWithoutArrowTest, TheErrorSaysHowToGetIt) {
  setenv("MEGATRAIN_PARQUET", "/nowhere/megatrain-parquet", 1);
  TestDirectory directory;
  const JobSpec spec = SpecOf({{std::string(kFolder) + "texts.parquet", DataFormat::kText, ""}}, 4);
  EXPECT_THAT(OpenError(spec, directory),
              HasSubstr("texts.parquet: Parquet is read with Apache Arrow, which this installation "
                        "was built without (there is no program /nowhere/megatrain-parquet); run "
                        "deploy/install-deps.sh --parquet and build again, or convert the file"));
}

TEST(ParquetGivenUpTest, NoProcessIsLeftBehind) {
  setenv("MEGATRAIN_PARQUET", "/usr/bin/yes", 1);
  const auto file = DataFileReader::Open(std::string(kFolder) + "texts.parquet");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(ParquetRecordReader::Open(file->get(), "").ok());
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child that nobody has waited for";
}

TEST(ParquetProgramTest, InheritsNoFilesAndNoSignals) {
  TestDirectory directory;
  UseScript(directory, "ls /proc/self/fd > " + (directory / "files") +
                           "\ncat /proc/self/status > " + (directory / "status") +
                           "\nread -r pid name state parent group rest < /proc/self/stat\n"
                           "echo $group > " +
                           (directory / "group") + "\nexit 3\n");
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  sigprocmask(SIG_BLOCK, &blocked, &before);
  const auto handler = std::signal(SIGUSR2, SIG_IGN);
  constexpr int kInherited = 57;  // a descriptor that an exec does not close
  ASSERT_EQ(::dup2(STDERR_FILENO, kInherited), kInherited);
  const std::string error = ReadRows(std::string(kFolder) + "texts.parquet").error;
  ::close(kInherited);
  std::signal(SIGUSR2, handler);
  sigprocmask(SIG_SETMASK, &before, nullptr);

  EXPECT_THAT(error, HasSubstr("ended with exit code 3"));
  const std::string files = "\n" + ReadFileOrEmpty(directory / "files");
  EXPECT_THAT(files, HasSubstr("\n0\n"));
  EXPECT_EQ(files.find("\n57\n"), std::string::npos) << files;
  const std::string status = ReadFileOrEmpty(directory / "status");
  const auto has_signal = [&status](const std::string& mask, int signal) {
    const size_t at = status.find(mask);
    EXPECT_NE(at, std::string::npos) << mask;
    if (at == std::string::npos) return true;
    const uint64_t bits = std::strtoull(status.c_str() + at + mask.size(), nullptr, 16);
    return (bits & (uint64_t{1} << (signal - 1))) != 0;
  };
  EXPECT_FALSE(has_signal("SigBlk:", SIGUSR1)) << status;
  EXPECT_FALSE(has_signal("SigIgn:", SIGUSR2)) << status;
  // The terminal's signals go to the group of the process that started it.
  const int group = std::atoi(ReadFileOrEmpty(directory / "group").c_str());
  EXPECT_GT(group, 0);
  EXPECT_NE(group, static_cast<int>(::getpgrp()));
}

TEST(ParquetProgramTest, WhatItMustNotSendIsRefused) {
  const auto file = DataFileReader::Open(std::string(kFolder) + "texts.parquet");
  ASSERT_TRUE(file.ok()) << file.status();
  const auto sent = [&file](ParquetMessage message, int64_t at, int64_t bytes) -> absl::Status {
    TestDirectory directory;
    const ParquetHeader header = {message, at, bytes};
    const std::string path = directory.Write(
        "message", std::string(reinterpret_cast<const char*>(&header), sizeof(header)));
    UseScript(directory, "exec cat " + path + " >&0\n");
    const auto reader = ParquetRecordReader::Open(file->get(), "");
    if (!reader.ok()) return reader.status();
    Record record;
    return (*reader)->Next(&record).status();
  };
  const absl::Status early = sent(ParquetMessage::kRead, -1, 1);
  EXPECT_EQ(early.code(), absl::StatusCode::kInternal) << early;
  EXPECT_THAT(std::string(early.message()), HasSubstr("asks for 1 bytes at -1"));
  const absl::Status much = sent(ParquetMessage::kRead, 0, kParquetReadBytesMax + 1);
  EXPECT_EQ(much.code(), absl::StatusCode::kInternal) << much;
  EXPECT_THAT(std::string(much.message()), HasSubstr("asks for 4194305 bytes at 0"));
  EXPECT_THAT(std::string(sent(ParquetMessage::kRecord, 7, -1).message()),
              HasSubstr("texts.parquet: row 7 takes -1 bytes as JSON"));
  EXPECT_THAT(std::string(sent(ParquetMessage::kDefect, 7, kParquetReasonBytesMax + 1).message()),
              HasSubstr("row 7 takes 65537 bytes as JSON; up to 65536 are possible"));
}

}  // namespace
}  // namespace megatrain
