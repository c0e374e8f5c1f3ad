#include "server/worker/record_log.h"

#include <sys/stat.h>

#include <atomic>
#include <filesystem>
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
#include "tests/server/worker/record_log_fixture.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

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

// The hash of each of these lines is right.
TEST(RecordFormatTest, ALineOfAnotherFormIsNoRecord) {
  using Kind = LogRecord::Kind;
  const auto is_record = [](Kind kind, int64_t sequence, int64_t step) {
    std::string line = EncodeRecord(kind, sequence, step, "text");
    line.pop_back();
    return DecodeRecord(line).has_value();
  };
  EXPECT_TRUE(is_record(Kind::kText, 1, 0));
  EXPECT_FALSE(is_record(static_cast<Kind>('x'), 1, 0));
  EXPECT_FALSE(is_record(Kind::kText, 0, 0));
  EXPECT_FALSE(is_record(Kind::kText, -1, 0));
  EXPECT_FALSE(is_record(Kind::kText, 1, -1));
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

TEST(RecordLogTest, IsNotForTheEyesOfOthers) {
  const std::string directory = FreshDirectory("mode");
  auto log = OpenLog(directory);
  const mode_t before = umask(0);
  const absl::Status appended = log->Append(1, "r1").status();
  umask(before);
  ASSERT_TRUE(appended.ok()) << appended;
  struct stat info = {};
  ASSERT_EQ(stat((directory + "/" + SegmentName(1)).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
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

TEST(RecordLogTest, ASegmentIsFilledToItsLastByteAndTheNewestIsAlwaysKept) {
  const std::string line = EncodeRecord(LogRecord::Kind::kText, 1, 1, "text");
  auto log = OpenLog(FreshDirectory("filled"),
                     {.segment_bytes = 2 * static_cast<int64_t>(line.size()), .segments_max = 0});
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(log->Append(1, "text").ok());
  EXPECT_THAT(ReadAll(*log), SizeIs(2));
  ASSERT_TRUE(log->Append(1, "text").ok());
  EXPECT_THAT(ReadAll(*log), SizeIs(1));
}

TEST(RecordLogTest, ASmallerNumberOfSegmentsHoldsFromTheNextOne) {
  const std::string directory = FreshDirectory("fewer");
  {
    auto log = OpenLog(directory, {.segment_bytes = 1});  // a record each
    for (int i = 1; i <= 5; ++i) ASSERT_TRUE(log->Append(i, absl::StrCat("r", i)).ok());
  }
  auto log = OpenLog(directory, {.segment_bytes = 1, .segments_max = 2});
  ASSERT_TRUE(log->Append(6, "r6").ok());
  EXPECT_THAT(Texts(ReadAll(*log)), ElementsAre("r5", "r6"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory),
                          std::filesystem::directory_iterator()),
            2);
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

TEST(RecordLogTest, AClosedLogTakesNoMarkerEither) {
  auto log = OpenLog(FreshDirectory("closed"));
  ASSERT_TRUE(log->Append(5, "r1").ok());
  log->Close();
  EXPECT_EQ(log->FallBack(1).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(log->FallBack(5).ok()) << "there is nothing to mark";
  EXPECT_EQ(log->next_sequence(), 2);
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

}  // namespace
}  // namespace megatrain
