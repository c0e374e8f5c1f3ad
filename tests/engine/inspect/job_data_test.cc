// The data of a job, and of a file without one, as training sees it.
#include "engine/inspect/job_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/manifest.h"
#include "engine/hf/hf_init.h"
#include "engine/tokenizer/bytes_tokenizer.h"
#include "tests/engine/checkpoint/checkpoint_fixture.h"
#include "tests/engine/data/records/token_bytes.h"
#include "tests/engine/data/sequences/data_test_support.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class StandaloneFileTest : public ::testing::Test {
 protected:
  JobData Open() {
    data_.cache_directory = directory_ / "cache";
    auto opened = OpenStandaloneDataFile(data_);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *std::move(opened) : JobData();
  }

  const TestDirectory directory_;
  StandaloneDataFile data_;
};

TEST_F(StandaloneFileTest, IsReadInItsOrderByTheBytesTokenizer) {
  std::string records;
  for (int i = 10; i < 30; ++i) {
    absl::StrAppend(&records, R"({"instruction": "q)", i, R"(", "output": "a"})", "\n");
  }
  data_.file = {directory_.Write("a.jsonl", records), DataFormat::kAlpaca, ""};
  data_.sequence_length = 100;  // one record has 65 bytes
  const JobData opened = Open();
  ASSERT_NE(opened.tokenizer, nullptr);
  EXPECT_EQ(opened.tokenizer->vocabulary(), kBytesVocabulary);
  ASSERT_NE(opened.dataset, nullptr);
  ASSERT_EQ(opened.dataset->train_sequences(), 20);
  for (int64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(opened.dataset->TrainingOrder(i), i);
    EXPECT_THAT(TextOf(*opened.dataset->TrainSequence(i)),
                StartsWith(absl::StrCat("<|im_start|>user\nq", 10 + i, "<|im_end|>\n")));
  }
  data_.chat_template = "alpaca";
  data_.sequence_length = 4096;
  const JobData other = Open();
  ASSERT_NE(other.dataset, nullptr);
  EXPECT_THAT(TextOf(*other.dataset->TrainSequence(0)),
              ::testing::AllOf(HasSubstr("q10"), Not(HasSubstr("<|im_start|>"))));
}

TEST_F(StandaloneFileTest, OfPreferencesIsReadAsPairs) {
  data_.file = {directory_.Write("p.jsonl", R"({"prompt":"Hi","chosen":"Yes","rejected":"No!"})"),
                DataFormat::kPreference, ""};
  data_.sequence_length = 400;
  const JobData opened = Open();
  ASSERT_NE(opened.dataset, nullptr);
  ASSERT_EQ(opened.dataset->train_sequences(), 1);
  EXPECT_TRUE(opened.dataset->TrainSequence(0)->pairs);
}

// The tokens may be of any tokenizer.
TEST_F(StandaloneFileTest, OfTokensNeedsNoTokenizer) {
  const std::vector<uint16_t> ids = {1, 2, 3, 65535, 5, 6, 7, 8};
  data_.file = {directory_.Write("t.bin", Bytes(ids)), DataFormat::kTokens, "uint16"};
  data_.sequence_length = 4;
  const JobData opened = Open();
  EXPECT_EQ(opened.tokenizer, nullptr);
  ASSERT_NE(opened.dataset, nullptr);
  ASSERT_EQ(opened.dataset->train_sequences(), 2);
  EXPECT_EQ(opened.dataset->TrainSequence(0)->input_ids[3], 65535);
}

class JobDataTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::Status made =
        InitializeHfDirectory("llama-tiny", 1, /*config_only=*/true, directory_ / "model");
    ASSERT_TRUE(made.ok()) << made;
  }

  // A job that reads these files and leaves open what it can.
  JobSpec Job(std::vector<DataFile> train) const {
    JobSpec spec = SpecOf(std::move(train), 100);
    spec.model.path = directory_ / "model";
    spec.checkpoint.directory = directory_ / "checkpoints";
    return spec;
  }
  DataFile Alpaca() const {
    return {directory_.Write("a.jsonl", R"({"instruction": "q", "output": "a"})"),
            DataFormat::kAlpaca, ""};
  }
  DataFile Tokens(uint16_t last) const {
    std::vector<uint16_t> ids(200, 1);
    ids.back() = last;
    return {directory_.Write(absl::StrCat("t", last, ".bin"), Bytes(ids)), DataFormat::kTokens,
            "uint16"};
  }

  // Saves a checkpoint of a job whose template saw that day.
  void SaveWithDate(int64_t step, const std::string& date) const {
    FileSystem* const files = PosixFileSystem();
    WriteConfigDirectory(files, directory_ / "tiny");
    const auto path = SaveCheckpoint(directory_ / "checkpoints", step, DType::kF32,
                                     directory_ / "tiny", files, 9);
    ASSERT_TRUE(path.ok()) << path.status();
    auto manifest = ReadManifest(*path);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    manifest->state.spec["data.template_date"] = date;
    ASSERT_TRUE(
        WriteFileSynced(files, JoinPath(*path, kManifestFile), SerializeManifest(*manifest)).ok());
  }

  const TestDirectory directory_;
};

// A resumed run must see the texts that it began with.
TEST_F(JobDataTest, ADayThatIsLeftOpenIsThatOfTheNewestCheckpoint) {
  JobSpec spec = Job({Alpaca()});
  spec.data.chat_template = directory_.Write(
      "day.jinja",
      "{{ strftime_now('%d %B %Y') }}{% for m in messages %}|{{ m.content }}{% endfor %}");
  SaveWithDate(1, "2025-05-05");
  SaveWithDate(2, "2025-06-06");
  const auto open = OpenJobData(spec);
  ASSERT_TRUE(open.ok()) << open.status();
  EXPECT_EQ(open->dataset->template_date(), "2025-06-06");
  EXPECT_THAT(TextOf(*open->dataset->TrainSequence(0)), StartsWith("06 June 2025|q|a"));
  spec.data.template_date = "2026-01-31";
  const auto given = OpenJobData(spec);
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->dataset->template_date(), "2026-01-31");
}

TEST_F(JobDataTest, ATokenizerIsOpenedIfAnyFileHasText) {
  JobSpec spec = Job({Tokens(2)});
  const auto tokens = OpenJobData(spec);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(tokens->tokenizer, nullptr);
  spec.data.eval = {Alpaca()};
  const auto evaluated = OpenJobData(spec);
  ASSERT_TRUE(evaluated.ok()) << evaluated.status();
  EXPECT_NE(evaluated->tokenizer, nullptr);
  EXPECT_EQ(evaluated->dataset->eval_sequences(), 1);
  const auto trained = OpenJobData(Job({Alpaca()}));
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_NE(trained->tokenizer, nullptr);
  // The cache is the job's.
  EXPECT_TRUE(std::filesystem::exists(directory_ / "checkpoints/data"));
}

TEST_F(JobDataTest, IdsThatTheModelDoesNotHaveAreRefused) {
  EXPECT_TRUE(OpenJobData(Job({Tokens(258)})).ok());
  EXPECT_EQ(OpenJobData(Job({Tokens(259)})).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace megatrain
