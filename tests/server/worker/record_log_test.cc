#include "server/worker/record_log.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::unique_ptr<RecordLog> OpenLog(const std::string& directory,
                                   const RecordLogOptions& options = {},
                                   std::vector<std::string>* notes = nullptr) {
  std::vector<std::string> ignored;
  auto log = RecordLog::Open(directory, options, notes != nullptr ? notes : &ignored);
  EXPECT_TRUE(log.ok()) << log.status();
  return *std::move(log);
}

std::vector<LogRecord> ReadAll(const RecordLog& log, int64_t from = 1) {
  std::vector<LogRecord> records;
  auto reader = log.Read(from);
  EXPECT_TRUE(reader->Next(1 << 20, &records).ok());
  EXPECT_EQ(reader->next_sequence(), std::max(from, log.next_sequence()));
  return records;
}

// Counts the changes of a log.
class Changes {
 public:
  explicit Changes(const RecordLog& log)
      : subscription_(log.Subscribe([this] {
          MutexLock lock(&mutex_);
          ++count_;
          changed_.NotifyAll();
        })) {}

  // Waits until `done`, which is looked at after each change.
  void WaitUntil(const std::function<bool()>& done) {
    MutexLock lock(&mutex_);
    while (!done()) changed_.Wait(&mutex_);
  }
  int count() {
    MutexLock lock(&mutex_);
    return count_;
  }
  void Leave() { subscription_.reset(); }

 private:
  Mutex mutex_;
  CondVar changed_;
  int count_ = 0;
  std::unique_ptr<RecordLog::Subscription> subscription_;
};

std::vector<std::string> Texts(const std::vector<LogRecord>& records) {
  std::vector<std::string> texts;
  for (const LogRecord& record : records) texts.push_back(record.text);
  return texts;
}

std::vector<int64_t> SupersededSteps(const std::vector<LogRecord>& records) {
  std::vector<int64_t> steps;
  for (const LogRecord& record : records) {
    if (record.superseded) steps.push_back(record.step);
  }
  return steps;
}

std::string Content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void SetContent(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

TEST(RecordFormatTest, IsWhatVersionsBeforeWrote) {
  EXPECT_EQ(SegmentName(42), "00000000000000000042.log");
  EXPECT_EQ(ParseSegmentName("00000000000000000042.log"), 42);
  for (const char* name : {"", "42.log", "00000000000000000000.log", "00000000000000000042.tmp",
                           "000000000000000000042.log", "0000000000000000004x.log"}) {
    EXPECT_EQ(ParseSegmentName(name), std::nullopt) << name;
  }
  EXPECT_EQ(EncodeRecord(LogRecord::Kind::kText, 12, 7, "a b"), "4e7b09a401f33ffc t 12 7 a b\n");
  EXPECT_EQ(EncodeRecord(LogRecord::Kind::kFellBack, 3, 0, ""), "a50f13c278a407e3 f 3 0 \n");
}

TEST(RecordFormatTest, ALineReadsBackAndAChangedOneDoesNot) {
  const std::string line = EncodeRecord(LogRecord::Kind::kText, 12, 7, "{\"step\":7} ");
  ASSERT_EQ(line.back(), '\n');
  const std::string whole = line.substr(0, line.size() - 1);
  const auto parsed = DecodeRecord(whole);
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->kind, LogRecord::Kind::kText);
  EXPECT_EQ(parsed->sequence, 12);
  EXPECT_EQ(parsed->step, 7);
  EXPECT_EQ(parsed->text, "{\"step\":7} ");
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_FALSE(DecodeRecord(whole.substr(0, i)).has_value());
    std::string changed = whole;
    changed[i] ^= 1;
    EXPECT_FALSE(DecodeRecord(changed).has_value()) << i;
  }
}

TEST(RecordLogTest, NumbersFromOneAndReadsFromAny) {
  const std::string directory = FreshDirectory("numbers");
  auto log = OpenLog(directory);
  EXPECT_EQ(log->next_sequence(), 1);
  EXPECT_THAT(ReadAll(*log), IsEmpty());
  for (int64_t i = 1; i <= 5; ++i) {
    const auto sequence = log->Append(i * 10, absl::StrCat("r", i));
    ASSERT_TRUE(sequence.ok()) << sequence.status();
    EXPECT_EQ(*sequence, i);
  }
  EXPECT_THAT(Texts(ReadAll(*log)), ElementsAre("r1", "r2", "r3", "r4", "r5"));
  EXPECT_THAT(Texts(ReadAll(*log, 4)), ElementsAre("r4", "r5"));
  EXPECT_THAT(Texts(ReadAll(*log, 6)), IsEmpty());
  EXPECT_EQ(ReadAll(*log, 3)[0].step, 30);

  // In pages, and on with what comes later.
  auto reader = log->Read(2);
  std::vector<LogRecord> records;
  ASSERT_TRUE(reader->Next(2, &records).ok());
  EXPECT_THAT(Texts(records), ElementsAre("r2", "r3"));
  EXPECT_EQ(reader->next_sequence(), 4);
  ASSERT_TRUE(reader->Next(10, &records).ok());
  ASSERT_TRUE(log->Append(60, "r6").ok());
  ASSERT_TRUE(reader->Next(10, &records).ok());
  EXPECT_THAT(Texts(records), ElementsAre("r2", "r3", "r4", "r5", "r6"));
}

TEST(RecordLogTest, IsReadAndContinuedAfterARestart) {
  const std::string directory = FreshDirectory("restart");
  {
    auto log = OpenLog(directory);
    for (int i = 1; i <= 3; ++i) ASSERT_TRUE(log->Append(i, absl::StrCat("r", i)).ok());
    ASSERT_TRUE(log->Sync().ok());
  }
  std::vector<std::string> notes;
  auto log = OpenLog(directory, {}, &notes);
  EXPECT_THAT(notes, IsEmpty());
  EXPECT_EQ(log->next_sequence(), 4);
  ASSERT_TRUE(log->Append(4, "r4").ok());
  EXPECT_THAT(Texts(ReadAll(*log, 2)), ElementsAre("r2", "r3", "r4"));
}

TEST(RecordLogTest, OneAtATimeMayAppendToADirectory) {
  const std::string directory = FreshDirectory("one");
  auto log = OpenLog(directory);
  std::vector<std::string> notes;
  EXPECT_EQ(RecordLog::Open(directory, {}, &notes).status().code(),
            absl::StatusCode::kFailedPrecondition);
  log.reset();
  EXPECT_TRUE(RecordLog::Open(directory, {}, &notes).ok());
}

TEST(RecordLogTest, RefusesWhatIsNoLine) {
  auto log = OpenLog(FreshDirectory("no_line"));
  EXPECT_EQ(log->Append(1, "two\nlines").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(log->Append(1, std::string(RecordLog::kTextBytesMax + 1, 'x')).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(log->next_sequence(), 1);
  ASSERT_TRUE(log->Append(1, std::string(RecordLog::kTextBytesMax, 'x')).ok());
  EXPECT_THAT(ReadAll(*log), SizeIs(1));
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

TEST(RecordLogTest, IsBoundedAndSaysWhatIsGone) {
  const std::string directory = FreshDirectory("bounded");
  const RecordLogOptions options = {1000, 3};
  auto log = OpenLog(directory, options);
  auto slow = log->Read(1);
  for (int i = 1; i <= 100; ++i) {
    ASSERT_TRUE(log->Append(i, absl::StrCat("text ", i, std::string(100, '.'))).ok());
    if (i == 3) {  // the slow reader holds the first segment open
      std::vector<LogRecord> records;
      ASSERT_TRUE(slow->Next(1, &records).ok());
    }
  }
  int64_t bytes = 0, files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    bytes += static_cast<int64_t>(entry.file_size());
    ++files;
  }
  EXPECT_EQ(files, 3);
  EXPECT_LE(bytes, 3000);
  std::vector<LogRecord> records = ReadAll(*log);
  const int64_t first = records.front().sequence;
  EXPECT_GT(first, 70);
  EXPECT_THAT(records, SizeIs(100 - first + 1));
  EXPECT_EQ(records.back().sequence, 100);

  // What it had open is read to its end; only what lies between is missed.
  const std::vector<LogRecord> kept = std::exchange(records, {});
  ASSERT_TRUE(slow->Next(1000, &records).ok());
  EXPECT_EQ(records.front().sequence, 2);
  EXPECT_EQ(records.back().sequence, 100);
  EXPECT_GT(records.size(), kept.size());
  EXPECT_LT(records.size(), 99u);

  log = nullptr;
  log = OpenLog(directory, options);
  EXPECT_EQ(ReadAll(*log).front().sequence, first);
  EXPECT_EQ(log->next_sequence(), 101);
}

TEST(RecordLogTest, MarksWhatAFallBackSuperseded) {
  const std::string directory = FreshDirectory("superseded");
  const RecordLogOptions options = {200, 100};  // several segments
  auto log = OpenLog(directory, options);
  const auto append = [&](int64_t from, int64_t to) {
    for (int64_t step = from; step <= to; ++step) {
      ASSERT_TRUE(log->Append(step, absl::StrCat("step ", step)).ok());
    }
  };
  append(1, 6);
  ASSERT_TRUE(log->FallBack(6).ok());
  EXPECT_EQ(log->next_sequence(), 7) << "nothing is superseded: nothing is appended";
  auto live = log->Read(5);
  ASSERT_TRUE(log->FallBack(4).ok());
  append(5, 8);
  ASSERT_TRUE(log->FallBack(7).ok());
  append(8, 9);
  for (int round = 0; round < 2; ++round) {
    EXPECT_THAT(SupersededSteps(ReadAll(*log)), ElementsAre(5, 6, 8));
    // 1..6, marker, 5..8, marker, 8, 9
    const std::vector<LogRecord> records = ReadAll(*log);
    ASSERT_THAT(records, SizeIs(14));
    EXPECT_EQ(records[6].kind, LogRecord::Kind::kFellBack);
    EXPECT_EQ(records[6].step, 4);
    EXPECT_EQ(records[6].sequence, 7);
    EXPECT_FALSE(records[7].superseded);
    EXPECT_TRUE(records[10].superseded);
    std::vector<LogRecord> rest;
    if (round == 0) {
      ASSERT_TRUE(live->Next(100, &rest).ok());
      EXPECT_THAT(rest, SizeIs(10)) << "the marker comes in its place, without a gap";
      live.reset();
    }
    log = nullptr;
    log = OpenLog(directory, options);
  }
  // Back before everything: a later, deeper fall.
  ASSERT_TRUE(log->FallBack(0).ok());
  EXPECT_THAT(SupersededSteps(ReadAll(*log)), SizeIs(12));
}

TEST(RecordLogTest, ASecondFallBackToTheSameStepIsNotTold) {
  const std::string directory = FreshDirectory("fell_back_twice");
  auto log = OpenLog(directory);
  for (int64_t step = 1; step <= 6; ++step) ASSERT_TRUE(log->Append(step, "a step").ok());
  ASSERT_TRUE(log->FallBack(4).ok());
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(log->FallBack(4).ok());
    EXPECT_EQ(log->next_sequence(), 8) << "nothing was appended since";
    log = nullptr;
    log = OpenLog(directory);
  }
}

TEST(RecordLogTest, SubscribersAreCalledUntilTheyLeaveAndAtClose) {
  auto log = OpenLog(FreshDirectory("subscribe"));
  Changes changes(*log);
  Changes other(*log);
  ASSERT_TRUE(log->Append(1, "r1").ok());
  EXPECT_EQ(changes.count(), 1);
  ASSERT_TRUE(log->FallBack(0).ok());
  EXPECT_EQ(changes.count(), 2);
  changes.Leave();
  EXPECT_FALSE(log->closed());
  log->Close();
  EXPECT_TRUE(log->closed());
  EXPECT_EQ(changes.count(), 2);
  EXPECT_EQ(other.count(), 3);
  EXPECT_EQ(log->Append(2, "r2").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Texts(ReadAll(*log)), ElementsAre("r1", ""));
}

TEST(RecordLogTest, ReadersAndAnAppenderSideBySide) {
  auto log = OpenLog(FreshDirectory("side_by_side"), {2000, 1000});
  constexpr int64_t kRecords = 2000;
  std::vector<std::thread> readers;
  for (int64_t from : {1, 1, 500, 1999}) {
    readers.emplace_back([&log, from] {
      auto reader = log->Read(from);
      Changes changes(*log);
      int64_t expected = from;
      while (expected <= kRecords) {
        changes.WaitUntil([&] { return log->next_sequence() > expected; });
        std::vector<LogRecord> records;
        ASSERT_TRUE(reader->Next(64, &records).ok());
        for (const LogRecord& record : records) {
          EXPECT_EQ(record.sequence, expected);
          EXPECT_EQ(record.text, absl::StrCat("text ", expected));
          ++expected;
        }
      }
    });
  }
  std::atomic<int64_t> calls{0};
  for (int64_t i = 1; i <= kRecords; ++i) {
    auto subscription = log->Subscribe([&calls] { ++calls; });
    ASSERT_TRUE(log->Append(i, absl::StrCat("text ", i)).ok());
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(calls, kRecords);
}

// A limit on the file's size fails a write in its middle, as a full disk does.
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
