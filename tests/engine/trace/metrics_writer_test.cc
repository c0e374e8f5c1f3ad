#include "engine/trace/metrics_writer.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
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
  // What follows a line that is no record goes with it.
  std::ofstream(path, std::ios::trunc) << whole << "{\"st\n" << Lines({3});
  writer = MetricsWriter::Open(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->TruncateTo(9).ok());
  EXPECT_EQ(ReadAll(path), whole);
  // Nothing but a torn line.
  std::ofstream(path, std::ios::trunc) << "{\"step\":1,\"lo";
  writer = MetricsWriter::Open(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->TruncateTo(9).ok());
  EXPECT_EQ(ReadAll(path), "");
}

TEST(MetricsWriterTest, AFirstRecordThatWasTornAnywhereIsCutOff) {
  const std::string path = PathFor("torn_first.jsonl");
  const std::string line = Lines({1});
  for (size_t torn = 1; torn <= 12; ++torn) {
    std::ofstream(path, std::ios::trunc) << line.substr(0, torn);
    auto writer = MetricsWriter::Open(path);
    ASSERT_TRUE(writer.ok()) << torn << " bytes: " << writer.status();
    ASSERT_TRUE((*writer)->TruncateTo(9).ok());
    EXPECT_EQ(ReadAll(path), "") << torn << " bytes";
  }
  // A line that has ended is not torn.
  for (const char* const other : {"{\n", "{\"step\n", "{\"state\":"}) {
    std::ofstream(path, std::ios::trunc) << other;
    EXPECT_FALSE(MetricsWriter::Open(path).ok()) << other;
    EXPECT_EQ(ReadAll(path), other);
  }
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

TEST(MetricsWriterTest, AnEmptyFileIsTaken) {
  const std::string path = PathFor("empty.jsonl");
  std::ofstream(path).close();
  auto writer = MetricsWriter::Open(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  WriteSteps(writer->get(), {1});
  EXPECT_EQ(ReadAll(path), Lines({1}));
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

// A file may grow to its limit and no further, so that the system takes a part of the line.
TEST(MetricsWriterTest, ALineThatIsTakenInPartIsAnErrorAndCanBeCutOff) {
  const std::string path = PathFor("limit.jsonl");
  auto writer = MetricsWriter::Open(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  WriteSteps(writer->get(), {1});
  StepRecord second;
  second.step = 2;
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit narrow = before;
  narrow.rlim_cur = Lines({1}).size() + 10;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &narrow), 0);
  const absl::Status status = (*writer)->Write(second);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  EXPECT_EQ(ReadAll(path), Lines({1}) + Lines({2}).substr(0, 10));
  ASSERT_TRUE((*writer)->TruncateTo(9).ok());
  WriteSteps(writer->get(), {2});
  EXPECT_EQ(ReadAll(path), Lines({1, 2}));
}

// Lets every later write of the calling thread fail with `error`. Returns true if the kernel
// agrees.
bool FailWrites(uint32_t error) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter = {static_cast<unsigned short>(std::size(program)), program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(MetricsWriterTest, AnExceededQuotaIsAFullDiskAndAnotherErrorIsNot) {
  const std::string path = PathFor("quota.jsonl");
  auto writer = MetricsWriter::Open(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  struct Case {
    int error;
    absl::StatusCode code;
  };
  for (const Case& c : {Case{EDQUOT, absl::StatusCode::kUnavailable},
                        Case{EIO, absl::StatusCode::kInvalidArgument}}) {
    bool filtered = false;
    absl::Status status;
    std::thread([&] {
      filtered = FailWrites(static_cast<uint32_t>(c.error));
      if (filtered) status = (*writer)->Write(StepRecord());
    }).join();
    if (!filtered) GTEST_SKIP() << "this system lets no process filter its calls";
    EXPECT_EQ(status.code(), c.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::strerror(c.error)));
  }
  EXPECT_EQ(ReadAll(path), "");
}

}  // namespace
}  // namespace megatrain
