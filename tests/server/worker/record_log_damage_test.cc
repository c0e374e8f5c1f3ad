// A record log keeps its records when its process is killed, a write fails, or files are damaged.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/worker/record_log.h"
#include "tests/server/worker/record_log_fixture.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string Content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void SetContent(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

// The last segment cut at every byte, as a killed process or a power cut leaves it: whole records
// stay, the torn one is dropped and told, and appending goes on with its number.
TEST(RecordLogTest, CutAtEveryByte) {
  const std::string directory = FreshDirectory("cut");
  std::vector<size_t> ends;  // of the lines
  {
    auto log = OpenLog(directory);
    for (int i = 1; i <= 4; ++i) ASSERT_TRUE(log->Append(i, absl::StrCat("text ", i)).ok());
    ASSERT_TRUE(log->FallBack(2).ok());
    ASSERT_TRUE(log->Append(3, "again 3").ok());
  }
  const std::filesystem::path path = directory + "/00000000000000000001.log";
  const std::string whole = Content(path);
  for (size_t at = 0; at < whole.size(); ++at) {
    if (whole[at] == '\n') ends.push_back(at + 1);
  }
  ASSERT_THAT(ends, SizeIs(6));
  const std::vector<std::string> texts = {"text 1", "text 2", "text 3", "text 4", "", "again 3"};
  for (size_t bytes = 0; bytes <= whole.size(); ++bytes) {
    // Also with what a file system may put where data did not reach the disk.
    for (const std::string& tail : {std::string(), std::string(50, '\0'), std::string("junk\n")}) {
      SCOPED_TRACE(absl::StrCat("cut to ", bytes, " of ", whole.size(), " + ", tail.size()));
      SetContent(path, whole.substr(0, bytes) + tail);
      size_t lines = 0;
      while (lines < ends.size() && ends[lines] <= bytes) ++lines;
      const bool torn = (lines > 0 ? ends[lines - 1] : 0) < bytes + tail.size();
      std::vector<std::string> notes;
      auto log = OpenLog(directory, {}, &notes);
      ASSERT_EQ(notes.size(), torn ? 1u : 0u);
      EXPECT_TRUE(!torn || notes[0].find("no whole record") != std::string::npos) << notes[0];
      EXPECT_EQ(log->next_sequence(), static_cast<int64_t>(lines) + 1);
      std::vector<std::string> expected(texts.begin(), texts.begin() + lines);
      EXPECT_EQ(Texts(ReadAll(*log)), expected);
      ASSERT_TRUE(log->Append(9, "new").ok());
      expected.push_back("new");
      const std::vector<LogRecord> records = ReadAll(*log);
      EXPECT_EQ(Texts(records), expected);
      EXPECT_EQ(SupersededSteps(records),
                lines >= 5 ? std::vector<int64_t>({3, 4}) : std::vector<int64_t>());
      log.reset();
      EXPECT_EQ(Texts(ReadAll(*OpenLog(directory))), expected);
    }
  }
}

TEST(RecordLogTest, ADamagedLineInTheMiddleIsLeftOutAndTold) {
  const std::string directory = FreshDirectory("damaged");
  {
    auto log = OpenLog(directory);
    for (int i = 1; i <= 4; ++i) ASSERT_TRUE(log->Append(i, absl::StrCat("text ", i)).ok());
  }
  const std::filesystem::path path = directory + "/00000000000000000001.log";
  std::string content = Content(path);
  content[content.find("text 2")] = 'T';
  SetContent(path, content);
  std::vector<std::string> notes;
  auto log = OpenLog(directory, {}, &notes);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("1 damaged")));
  EXPECT_THAT(Texts(ReadAll(*log)), ElementsAre("text 1", "text 3", "text 4"));
  EXPECT_EQ(log->next_sequence(), 5);
}

TEST(RecordLogTest, ALineWhoseNumberWasThereBeforeIsNoRecord) {
  const std::string directory = FreshDirectory("repeated");
  {
    auto log = OpenLog(directory);
    for (int i = 1; i <= 2; ++i) ASSERT_TRUE(log->Append(i, absl::StrCat("text ", i)).ok());
  }
  const std::filesystem::path path = directory + "/00000000000000000001.log";
  const std::string content = Content(path);
  SetContent(path, content + EncodeRecord(LogRecord::Kind::kText, 2, 2, "text 2"));
  std::vector<std::string> notes;
  auto log = OpenLog(directory, {}, &notes);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("no whole record")));
  EXPECT_EQ(log->next_sequence(), 3);
  EXPECT_EQ(Content(path), content);
}

TEST(RecordLogTest, DamageAtTheEndOfAnOlderSegmentIsTold) {
  const std::string directory = FreshDirectory("damaged_end");
  {
    auto log = OpenLog(directory, {.segment_bytes = 1});  // a record each
    for (int i = 1; i <= 2; ++i) ASSERT_TRUE(log->Append(i, absl::StrCat("text ", i)).ok());
  }
  const std::filesystem::path path = directory + "/00000000000000000001.log";
  std::string content = Content(path);
  content[content.find("text 1")] = 'T';
  SetContent(path, content);
  std::vector<std::string> notes;
  auto log = OpenLog(directory, {}, &notes);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("1 damaged")));
  EXPECT_THAT(Texts(ReadAll(*log)), ElementsAre("text 2"));
}

TEST(RecordLogTest, ATornEndOfAnOlderSegmentTakesNothingFromTheNext) {
  const std::string directory = FreshDirectory("torn_end");
  {
    auto log = OpenLog(directory, {.segment_bytes = 1});  // a record each
    for (int i = 1; i <= 4; ++i) ASSERT_TRUE(log->Append(i, absl::StrCat("text ", i)).ok());
  }
  for (const char* name : {"/00000000000000000001.log", "/00000000000000000003.log"}) {
    const std::string content = Content(directory + name);
    SetContent(directory + name, content.substr(0, content.size() - 3));
  }
  auto log = OpenLog(directory);
  EXPECT_THAT(Texts(ReadAll(*log)), ElementsAre("text 2", "text 4"));
  EXPECT_THAT(Texts(ReadAll(*log, 3)), ElementsAre("text 4"));
}

TEST(RecordLogTest, AReaderStopsWhereSomebodyCutTheFile) {
  const std::string directory = FreshDirectory("cut_by_others");
  auto log = OpenLog(directory);
  for (int i = 1; i <= 3; ++i) ASSERT_TRUE(log->Append(i, absl::StrCat("text ", i)).ok());
  const std::filesystem::path path = directory + "/00000000000000000001.log";
  std::filesystem::resize_file(path, Content(path).find('\n') + 4);
  std::vector<LogRecord> records;
  EXPECT_TRUE(log->Read(1)->Next(10, &records).ok());
  EXPECT_THAT(Texts(records), ElementsAre("text 1"));
}

// A power cut may leave a segment's name without its content.
TEST(RecordLogTest, NumbersGoOnFromTheNameOfAnEmptySegment) {
  const std::string directory = FreshDirectory("empty_segment");
  {
    auto log = OpenLog(directory, {.segment_bytes = 1});
    for (int i = 1; i <= 3; ++i) ASSERT_TRUE(log->Append(i, absl::StrCat("text ", i)).ok());
  }
  for (const char* name : {"/00000000000000000001.log", "/00000000000000000002.log"}) {
    std::filesystem::remove(directory + name);
  }
  SetContent(directory + "/00000000000000000003.log", "");
  auto log = OpenLog(directory);
  EXPECT_EQ(log->next_sequence(), 3) << "no number is given twice";
  ASSERT_TRUE(log->Append(3, "again").ok());
  EXPECT_THAT(Texts(ReadAll(*log)), ElementsAre("again"));
}

// A child appends until it is killed; what it was told is written must be there.
TEST(RecordLogTest, SurvivesKill) {
  const std::string directory = FreshDirectory("killed");
  int64_t told = 0;
  for (int round = 0; round < 10; ++round) {
    int pipe_fds[2];
    ASSERT_EQ(pipe(pipe_fds), 0);
    const pid_t child = fork();
    if (child == 0) {
      std::vector<std::string> notes;
      auto log = RecordLog::Open(directory, {1 << 14, 1000}, &notes);
      if (!log.ok()) _exit(1);
      while (true) {
        const auto sequence = (*log)->Append(1, std::string(200, 'x'));
        if (!sequence.ok()) _exit(1);
        if (write(pipe_fds[1], &*sequence, sizeof(int64_t)) != sizeof(int64_t)) _exit(1);
      }
    }
    close(pipe_fds[1]);
    int64_t sequence = 0;
    for (int i = 0; i < 100 + round * 37; ++i) {
      ASSERT_EQ(read(pipe_fds[0], &sequence, sizeof(sequence)), int{sizeof(sequence)});
    }
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    while (read(pipe_fds[0], &sequence, sizeof(sequence)) == int{sizeof(sequence)}) {
    }
    close(pipe_fds[0]);
    told = sequence;
    auto log = OpenLog(directory, {1 << 14, 1000});
    EXPECT_GE(log->next_sequence(), told + 1);
    EXPECT_EQ(static_cast<int64_t>(ReadAll(*log).size()), log->next_sequence() - 1);
  }
}

// A power cut would take the new segment with all that is in it.
TEST(RecordLogTest, ADirectoryThatCouldNotBeSyncedIsSyncedLater) {
  const TestDirectory directory;
  const std::unique_ptr<RecordLog> log = OpenLog(directory.path(), {.segment_bytes = 1});
  ASSERT_TRUE(log->Append(1, "first").ok());
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int last = dup(STDERR_FILENO);
  close(last);
  rlimit small = before;
  small.rlim_cur = static_cast<rlim_t>(last) + 1;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &small), 0);
  // The new segment takes the last descriptor, and none is left for the directory.
  const absl::Status rotated = log->Append(2, "second").status();
  const int taken = dup(STDERR_FILENO);  // the old segment's
  const absl::Status synced = log->Sync();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  close(taken);
  EXPECT_FALSE(rotated.ok());
  EXPECT_FALSE(synced.ok());
  EXPECT_TRUE(log->Append(2, "second").ok());
  EXPECT_TRUE(log->Sync().ok());
}

// A limit on the file's size fails a write in its middle, as a full disk does.
TEST(RecordLogTest, AFailedWriteLeavesTheLogAsItWas) {
  const std::string directory = FreshDirectory("full");
  auto log = OpenLog(directory);
  ASSERT_TRUE(log->Append(1, "r1").ok());
  const std::filesystem::path path = directory + "/00000000000000000001.log";
  const auto bytes = std::filesystem::file_size(path);
  signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  for (rlim_t room = 0; room < 40; room += 7) {
    rlimit small = before;
    small.rlim_cur = bytes + room;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const absl::Status status = log->Append(2, std::string(100, 'x')).status();
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr(path.string()));
    EXPECT_EQ(std::filesystem::file_size(path), bytes);
    EXPECT_EQ(log->next_sequence(), 2);
  }
  ASSERT_TRUE(log->Append(2, "r2").ok());
  EXPECT_THAT(Texts(ReadAll(*log)), ElementsAre("r1", "r2"));
}

}  // namespace
}  // namespace megatrain
