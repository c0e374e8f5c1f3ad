#include "engine/trace/metrics_writer.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

std::string PathFor(const std::string& name) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
  std::filesystem::remove(path);
  return path;
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string Lines(std::vector<int64_t> steps) {
  std::string text;
  for (int64_t step : steps) {
    StepRecord record;
    record.step = step;
    text += StepRecordJson(record) + "\n";
  }
  return text;
}

void WriteSteps(MetricsWriter* writer, std::vector<int64_t> steps) {
  for (int64_t step : steps) {
    StepRecord record;
    record.step = step;
    ASSERT_TRUE(writer->Write(record).ok());
  }
}

TEST(MetricsWriterTest, EachLineIsThereAtOnce) {
  const std::string path = PathFor("new.jsonl");
  auto writer = MetricsWriter::Open(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  WriteSteps(writer->get(), {1, 2});
  EXPECT_EQ(ReadAll(path), Lines({1, 2}));
}

TEST(MetricsWriterTest, ResumingCutsBackToTheCheckpoint) {
  const std::string path = PathFor("cut.jsonl");
  std::ofstream(path) << Lines({1, 2, 3, 4, 5});
  auto writer = MetricsWriter::Open(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->TruncateTo(3).ok());
  EXPECT_EQ(ReadAll(path), Lines({1, 2, 3}));
  WriteSteps(writer->get(), {4});
  EXPECT_EQ(ReadAll(path), Lines({1, 2, 3, 4}));
  ASSERT_TRUE((*writer)->TruncateTo(0).ok());
  EXPECT_EQ(ReadAll(path), "");
}

TEST(MetricsWriterTest, ATornLineIsCutOff) {
  const std::string path = PathFor("torn.jsonl");
  const std::string whole = Lines({1, 2});
  for (size_t torn = 1; torn <= 20; ++torn) {
    std::ofstream(path, std::ios::trunc) << whole << whole.substr(0, torn);
    auto writer = MetricsWriter::Open(path);
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE((*writer)->TruncateTo(9).ok());
    EXPECT_EQ(ReadAll(path), whole);
  }
  // A whole record without its line end: the next line must not be glued to it.
  std::ofstream(path, std::ios::trunc) << whole << whole.substr(0, whole.find('\n'));
  auto writer = MetricsWriter::Open(path);
  ASSERT_TRUE((*writer)->TruncateTo(9).ok());
  EXPECT_EQ(ReadAll(path), whole);
  // Nothing but a torn line.
  std::ofstream(path, std::ios::trunc) << "{\"step\":1,\"lo";
  writer = MetricsWriter::Open(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->TruncateTo(9).ok());
  EXPECT_EQ(ReadAll(path), "");
}

TEST(MetricsWriterTest, OtherFilesAreNotOverwritten) {
  const std::string path = PathFor("train.jsonl");
  for (const char* text : {"{\"text\": \"precious\"}\n", "precious", "{\"step\": 1}\n"}) {
    std::ofstream(path, std::ios::trunc) << text;
    const absl::Status status = MetricsWriter::Open(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("holds no step metrics"));
    EXPECT_EQ(ReadAll(path), text);
  }
}

TEST(MetricsWriterTest, APathThatCannotBeWrittenIsNamed) {
  const std::string path = PathFor("no-directory") + "/m.jsonl";
  const absl::Status status = MetricsWriter::Open(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
}

TEST(MetricsWriterTest, AFullDiskIsReported) {
  auto writer = MetricsWriter::Open("/dev/full");
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_TRUE((*writer)->TruncateTo(0).ok());
  const absl::Status full = (*writer)->Write(StepRecord());
  EXPECT_EQ(full.code(), absl::StatusCode::kUnavailable) << full;
  EXPECT_THAT(std::string(full.message()), HasSubstr("No space left"));
}

}  // namespace
}  // namespace megatrain
