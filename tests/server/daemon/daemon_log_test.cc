#include "server/daemon/daemon_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

namespace megatrain {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

RunRequest TheRun() {
  RunRequest run;
  run.job_id = "a1";
  run.spec.name = "demo";
  return run;
}

// Takes the entries in the journal's place.
class DaemonLogTest : public testing::Test {
 protected:
  DaemonLog ToJournal(int result = 0) {
    return DaemonLog([this, result](const iovec* fields, int count) {
      entry_.clear();
      for (int i = 0; i < count; ++i) {
        entry_.emplace_back(static_cast<const char*>(fields[i].iov_base), fields[i].iov_len);
      }
      return result;
    });
  }
  std::vector<std::string> entry_;  // the last one
};

TEST_F(DaemonLogTest, AnEntryHasFields) {
  const DaemonLog log = ToJournal();
  log.Write("ready");
  EXPECT_THAT(entry_, ElementsAre("MESSAGE=ready", "PRIORITY=6", "SYSLOG_IDENTIFIER=megatraind"));
  const RunRequest run = TheRun();
  log.Write(LogPriority::kWarning, "is slow", &run);
  EXPECT_THAT(entry_, ElementsAre("MESSAGE=job a1 (demo) is slow", "PRIORITY=4",
                                  "SYSLOG_IDENTIFIER=megatraind", "MEGATRAIN_JOB=jobs/a1",
                                  "MEGATRAIN_JOB_NAME=demo"));
}

TEST_F(DaemonLogTest, NamesAndMessagesStayInTheirLine) {
  const DaemonLog log = ToJournal();
  RunRequest run = TheRun();
  run.spec.name = "demo\nPRIORITY=0\x1b[2J";
  log.Write(LogPriority::kInfo, "ends\r\nhere", &run);
  EXPECT_THAT(entry_, Contains("MESSAGE=job a1 (demo PRIORITY=0 [2J) ends  here"));
  EXPECT_THAT(entry_, Contains("MEGATRAIN_JOB_NAME=demo PRIORITY=0 [2J"));
}

TEST_F(DaemonLogTest, WhatMattersLessThanTheLevelIsLeftOut) {
  DaemonLog log = ToJournal();
  log.SetLevel(LogPriorityOf("warning"));
  log.Write("ready");
  EXPECT_THAT(entry_, IsEmpty());
  log.Write(LogPriority::kWarning, "is slow", nullptr);
  EXPECT_THAT(entry_, Contains("MESSAGE=is slow"));
  entry_.clear();
  log.SetLevel(LogPriorityOf("error"));
  log.Write(LogPriority::kWarning, "is slow", nullptr);
  EXPECT_THAT(entry_, IsEmpty());
  log.Write(LogPriority::kError, "hangs", nullptr);
  EXPECT_THAT(entry_, Contains("PRIORITY=3"));
  log.SetLevel(LogPriorityOf("info"));
  log.Write("ready");
  EXPECT_THAT(entry_, Contains("MESSAGE=ready"));
}

TEST_F(DaemonLogTest, WhatBecomesOfJobs) {
  const DaemonLog log = ToJournal();
  RunLog runs(&log);
  const RunRequest run = TheRun();
  runs.Tell(run, StepsBegin{11, 200});
  EXPECT_THAT(entry_, Contains("MESSAGE=job a1 (demo) trains from step 11 of 200"));
  runs.Tell(run, CheckpointSaved{100, "", 2.25});
  EXPECT_THAT(entry_, Contains("MESSAGE=job a1 (demo) is saved at step 100, in 2.2 s"));
  runs.Tell(run, CheckpointFailed{150, absl::UnavailableError("the disk does not answer")});
  EXPECT_THAT(entry_, Contains("MESSAGE=job a1 (demo) could not be saved at step 150, the "
                               "checkpoint before is kept: the disk does not answer"));
  EXPECT_THAT(entry_, Contains("PRIORITY=4"));
  TrainingPause pause;
  runs.Tell(run, pause);
  EXPECT_THAT(entry_, Contains("PRIORITY=6"));
  pause.status = absl::ResourceExhaustedError("/data is full");
  runs.Tell(run, pause);
  EXPECT_THAT(entry_, Contains("MESSAGE=job a1 (demo) is paused: /data is full"));
  EXPECT_THAT(entry_, Contains("PRIORITY=4"));
  RunEnd end;
  end.kind = RunEnd::Kind::kFailed;
  end.status = absl::AbortedError("loss is NaN");
  runs.Tell(run, end);
  EXPECT_THAT(entry_, Contains("MESSAGE=job a1 (demo) has failed: loss is NaN"));
  EXPECT_THAT(entry_, Contains("PRIORITY=3"));
  end.kind = RunEnd::Kind::kLost;
  runs.Tell(run, end);
  EXPECT_THAT(entry_, Contains("MESSAGE=job a1 (demo) is lost: loss is NaN"));
  EXPECT_THAT(entry_, Contains("PRIORITY=3"));
  end.kind = RunEnd::Kind::kStopped;
  runs.Tell(run, end);
  EXPECT_THAT(entry_, Contains("PRIORITY=4")) << "it was not saved";
  end.kind = RunEnd::Kind::kFinished;
  end.status = absl::OkStatus();
  runs.Tell(run, end);
  EXPECT_THAT(entry_, Contains("MESSAGE=job a1 (demo) has finished"));
  EXPECT_THAT(entry_, Contains("MEGATRAIN_JOB=jobs/a1"));
}

TEST_F(DaemonLogTest, WithoutAJournalThereAreLines) {
  const RunRequest run = TheRun();
  testing::internal::CaptureStderr();
  DaemonLog(DaemonLog::SendToJournal()).Write(LogPriority::kInfo, "has\nfinished", &run);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "megatraind: job a1 (demo) has finished\n");
  // What the journal does not take is not lost.
  testing::internal::CaptureStderr();
  ToJournal(-ENOBUFS).Write("ready");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "megatraind: ready\n");
}

// The environment says where standard error leads; that of another stream is not believed.
TEST_F(DaemonLogTest, AnotherStreamIsNotTheJournals) {
  setenv("JOURNAL_STREAM", "1:2", 1);
  testing::internal::CaptureStderr();
  DaemonLog().Write("ready");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "megatraind: ready\n");
  unsetenv("JOURNAL_STREAM");
  testing::internal::CaptureStderr();
  DaemonLog().Write("ready");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "megatraind: ready\n");
}

}  // namespace
}  // namespace megatrain
