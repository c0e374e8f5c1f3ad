// Full disks: under checkpoints, and under the store.
#include <sqlite3.h>

#include <chrono>
#include <filesystem>
#include <future>

#include "engine/memory/pool_busy.h"
#include "server/manager/job_remover.h"
#include "tests/server/scheduler/scheduler_fixture.h"
#include "tests/server/store/faulty_vfs.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using S = JobState;

// ---- A full disk ----

TrainingPause DiskFull(int64_t bytes) {
  return {DiskFullError("disk full writing /big/step-00000020.tmp"), "/big", bytes};
}

TEST_F(SchedulerTest, AFullDiskPausesAndRoomResumes) {
  const std::string id = Train(20);
  free_disk_bytes_ = 499 + kDiskMarginBytes;
  runner_->Paused(id, DiskFull(500));
  Round();
  EXPECT_EQ(State(id), S::kPaused);
  EXPECT_EQ(Get(id)->reason, JobReason::kDiskFull);
  EXPECT_THAT(Get(id)->reason_text, HasSubstr("disk full writing /big"));
  EXPECT_TRUE(Get(id)->host_retained);
  EXPECT_EQ(History(id), "QUEUED PREPARING RUNNING PAUSING PAUSED");
  now_ += absl::Hours(1);
  Round();
  EXPECT_EQ(State(id), S::kPaused) << "no room";
  free_disk_bytes_ = 500 + kDiskMarginBytes;
  now_ += kDiskWaitMax;
  Round();
  EXPECT_EQ(State(id), S::kPreparing);
  EXPECT_THAT(runner_->Asked(), ElementsAre("resume " + id));
  runner_->Running(id, 21, 100);
  Round();
  EXPECT_EQ(State(id), S::kRunning);
}

// The margin beside what is written is for records itself.
TEST_F(SchedulerTest, RecordsNeedWhatTheRunSaysAndNoMargin) {
  const std::string id = Train(20);
  free_disk_bytes_ = 500;
  runner_->Paused(id, {DiskFullError("disk full"), (*records_->Open(id))->directory(), 500});
  Round();
  ASSERT_EQ(State(id), S::kPaused);
  now_ += kDiskWaitMin;
  Round();
  EXPECT_EQ(State(id), S::kPreparing);
}

TEST_F(SchedulerTest, ADiskThatStaysFullIsTriedLessAndLess) {
  const std::string id = Train(20);
  std::vector<absl::Duration> waits;
  for (int i = 0; i < 4; ++i) {
    runner_->Paused(id, DiskFull(500));  // there is room, but not for this user
    Round();
    ASSERT_EQ(State(id), S::kPaused);
    EXPECT_EQ(Get(id)->reason, JobReason::kDiskFull);
    EXPECT_TRUE(Get(id)->host_retained);
    const absl::Time since = now_;
    while (State(id) == S::kPaused) {
      now_ += absl::Seconds(1);
      Round();
    }
    ASSERT_EQ(State(id), S::kPreparing);
    EXPECT_THAT(runner_->Asked(), ElementsAre("resume " + id));
    waits.push_back(now_ - since);
  }
  EXPECT_THAT(waits, ElementsAre(absl::Seconds(10), absl::Seconds(20), absl::Seconds(40),
                                 absl::Seconds(80)));
}

TEST_F(SchedulerTest, AUsersPauseIsNotEndedByTheDaemon) {
  const std::string id = Train(20);
  runner_->Paused(id, DiskFull(500));
  Round();
  ASSERT_TRUE(manager_->Pause(kAnna, id, false).ok());
  now_ += absl::Hours(1);
  Round();
  EXPECT_EQ(State(id), S::kPaused);
  ASSERT_TRUE(manager_->Resume(kAnna, id).ok());
  Round();
  EXPECT_EQ(State(id), S::kPreparing);
}

TEST_F(SchedulerTest, AUserMayResumeAtOnce) {
  const std::string id = Train(20);
  free_disk_bytes_ = 0;
  runner_->Paused(id, DiskFull(500));
  Round();
  ASSERT_TRUE(manager_->Resume(kAnna, id).ok());
  Round();
  EXPECT_EQ(State(id), S::kPreparing);
}

TEST_F(SchedulerTest, ADiskFullPauseOutlivesARestart) {
  const std::string id = Train(20);
  runner_->Paused(id, DiskFull(500));
  Round();
  free_disk_bytes_ = 0;
  Restart();
  Round();
  EXPECT_EQ(State(id), S::kPaused);
  EXPECT_EQ(Get(id)->reason, JobReason::kDiskFull);
  EXPECT_FALSE(Get(id)->host_retained);
  now_ += absl::Minutes(1);
  Round();
  EXPECT_EQ(State(id), S::kPaused);
  free_disk_bytes_ = int64_t{1} << 40;
  now_ += absl::Minutes(1);
  Round();
  EXPECT_EQ(State(id), S::kPreparing);
  EXPECT_THAT(runner_->Asked(), ElementsAre("start " + id));
}

TEST_F(SchedulerTest, ARunThatEndsForAFullDisk) {
  // In preparing: back to the queue, where it waits for room.
  const std::string id = Submit();
  Round();
  free_disk_bytes_ = 0;
  runner_->End(id, RunEnd::Kind::kFailed, DiskFullError("no room for the cache"));
  Round();
  EXPECT_EQ(State(id), S::kQueued);
  EXPECT_EQ(Get(id)->reason, JobReason::kDiskFull);
  EXPECT_EQ(Get(id)->queue.waiting, WaitingReason::kDiskFull);
  const std::string other = Submit();
  Round();
  EXPECT_EQ(State(other), S::kPreparing) << "others may have room";
  runner_->Running(other, 1, 100);
  // In training: paused.
  runner_->End(other, RunEnd::Kind::kFailed, DiskFullError("no room for the output"));
  Round();
  EXPECT_EQ(State(other), S::kPaused);
  EXPECT_EQ(Get(other)->reason, JobReason::kDiskFull);
  EXPECT_FALSE(Get(other)->host_retained);
  free_disk_bytes_ = int64_t{1} << 40;
  now_ += absl::Seconds(10);
  Round();
  EXPECT_EQ(State(id), S::kPreparing);
  EXPECT_EQ(State(other), S::kQueued);
}

TEST_F(SchedulerTest, APoolThatIsBusyIsNoFailure) {
  const std::string paused = Train(1);
  ASSERT_TRUE(manager_->Pause(kAnna, paused, false).ok());
  Round();
  runner_->Paused(paused);
  const std::string id = Submit();
  Round();
  runner_->End(id, RunEnd::Kind::kFailed, PoolBusyError("the pool is in pieces"));
  Round();
  EXPECT_EQ(State(id), S::kQueued);
  EXPECT_EQ(Get(id)->queue.waiting, WaitingReason::kHostMemory);
  EXPECT_EQ(Get(id)->queue.text, "the pool is in pieces");
  now_ += absl::Hours(1);
  Round();
  EXPECT_EQ(State(id), S::kQueued) << "nothing has changed";
  ASSERT_TRUE(manager_->Pause(kAnna, paused, true).ok());
  Round();
  runner_->End(paused, RunEnd::Kind::kReleased);
  Round();
  EXPECT_EQ(State(id), S::kPreparing);
}

// No other job has memory that it could wait for.
TEST_F(SchedulerTest, APoolThatIsBusyThoughNoOtherJobIsThereIsTriedAgain) {
  const std::string id = Submit();
  Round();
  runner_->End(id, RunEnd::Kind::kFailed, PoolBusyError("the pool is in pieces"));
  Round();
  EXPECT_EQ(State(id), S::kQueued);
  EXPECT_EQ(Get(id)->reason, JobReason::kNone);
  EXPECT_EQ(Get(id)->queue.waiting, WaitingReason::kHostMemory);
  now_ += absl::Seconds(10);
  Round();
  EXPECT_EQ(State(id), S::kPreparing);
}

// The other job has nothing that it waits for.
TEST_F(SchedulerTest, AJobThatCouldNotBeginIsTriedAgainBesideOthers) {
  const std::string paused = Train(1);
  ASSERT_TRUE(manager_->Pause(kAnna, paused, false).ok());
  Round();
  runner_->Paused(paused);
  const std::string id = Submit();
  const absl::Time submitted = now_;
  Round();
  now_ += absl::Seconds(5);
  runner_->End(id, RunEnd::Kind::kNotStarted, absl::UnavailableError("no account database"));
  Round();
  EXPECT_EQ(State(id), S::kQueued);
  EXPECT_EQ(Get(id)->queue.waiting, WaitingReason::kNotStarted);
  EXPECT_EQ(Get(id)->queue.text, "no account database");
  EXPECT_EQ(Get(id)->queued, submitted) << "it has waited since";
  now_ += absl::Seconds(9);
  Round();
  EXPECT_EQ(State(id), S::kQueued) << "not at once";
  now_ += absl::Seconds(1);
  Round();
  EXPECT_EQ(State(id), S::kPreparing);
}

// A job that lacks what no other job can give back would wait in vain.
TEST_F(SchedulerTest, AMissingLibraryFailsTheJob) {
  const std::string id = Submit();
  Round();
  runner_->End(id, RunEnd::Kind::kFailed, absl::UnavailableError("libnccl.so.2 is not found"));
  Round();
  EXPECT_EQ(State(id), S::kFailed);
  EXPECT_EQ(Get(id)->reason, JobReason::kTrainingError);
}

// ---- The store cannot be written ----

TEST_F(SchedulerTest, WhatCannotBeStoredIsNotToldAndTriedAgain) {
  FaultyVfs* const vfs = FaultyVfs::Install();
  Restart();
  const std::string id = Submit();
  vfs->FailAfter(0, SQLITE_FULL);
  Round();
  EXPECT_EQ(State(id), S::kQueued);
  EXPECT_THAT(runner_->Asked(), IsEmpty()) << "nothing is started that the store does not know";
  EXPECT_EQ(log_.size(), 1u);
  EXPECT_THAT(log_[0], HasSubstr("disk is full"));
  Round();
  EXPECT_EQ(log_.size(), 1u) << "said once";
  vfs->Heal();
  Round();
  EXPECT_EQ(State(id), S::kPreparing);
  runner_->Running(id, 1, 100);
  vfs->FailAfter(0, SQLITE_FULL);
  Round();
  EXPECT_EQ(State(id), S::kPreparing);
  runner_->End(id, RunEnd::Kind::kFinished);
  Round();
  EXPECT_EQ(State(id), S::kPreparing);
  EXPECT_EQ(manager_->Cancel(kAnna, id).status().code(), absl::StatusCode::kResourceExhausted);
  vfs->Heal();
  Round();
  EXPECT_EQ(History(id), "QUEUED PREPARING RUNNING SUCCEEDED");
  EXPECT_GE(log_.size(), 2u);
}

// ---- A user's limit ----

class DiskLimitTest : public SchedulerTest {
 protected:
  // Checkpoints take 77 bytes by the plan.
  void Limit(int64_t bytes) {
    limits_.Set({.disk_bytes = bytes});
    Restart();
  }
  // Of `id`, in its own directory.
  void Write(const std::string& id, const std::string& name, size_t bytes) {
    const std::string directory = directory_ / ("state/jobs/" + id + "/checkpoints");
    std::filesystem::create_directories(directory);
    std::ofstream(directory + "/" + name) << std::string(bytes, 'x');
  }
  void Delete(const std::string& id) {
    ASSERT_TRUE(manager_->Delete(kAnna, id).ok());
    JobRemover(ledger_.get(), records_.get(), {.disk = disk_.get()}).RunRound();
  }
  // A job that has ended and holds that much.
  std::string Ended(size_t bytes) {
    const std::string id = Train(1);
    Write(id, "step-00000001", bytes);
    runner_->End(id, RunEnd::Kind::kFinished);
    Round();
    EXPECT_EQ(State(id), S::kSucceeded);
    return id;
  }
};

TEST_F(DiskLimitTest, ARunningJobStopsShortOfItAndGoesOnWhenThereIsRoom) {
  Limit(1000);
  const std::string old = Ended(400);
  const int64_t records = disk_->UserBytes(1000) - 400;  // metrics and logs count
  ASSERT_LT(records, 100);
  const std::string id = Train(10);
  Write(id, "step-00000010", 400);
  Round();
  EXPECT_EQ(State(id), S::kRunning) << "not measured before it has saved";
  Write(id, "cache", 150);
  runner_->Checkpointed(id, 10);
  Round();
  EXPECT_EQ(State(id), S::kPausing);
  EXPECT_THAT(runner_->Asked(), ElementsAre("pause " + id));
  runner_->Paused(id);
  Round();
  EXPECT_EQ(State(id), S::kPaused);
  EXPECT_EQ(Get(id)->reason, JobReason::kDiskLimit);
  EXPECT_EQ(Get(id)->checkpoint_step, 10);
  EXPECT_TRUE(Get(id)->host_retained);
  EXPECT_THAT(ledger_->table().Events(id, 4, 1).at(0).text,
              HasSubstr("a user may have 1000 bytes (limits.disk_per_user)"));
  Round();
  EXPECT_EQ(State(id), S::kPaused);
  Delete(old);
  Round();
  EXPECT_EQ(State(id), S::kPreparing);
  EXPECT_THAT(runner_->Asked(), ElementsAre("resume " + id));
}

TEST_F(DiskLimitTest, PreparedDataCountsFromTheFirstStepOn) {
  Limit(1000);
  const std::string id = Submit();
  Round();
  Write(id, "cache", 950);
  runner_->Running(id, 1, 100);
  Round();
  Round();
  EXPECT_EQ(State(id), S::kPausing);
  EXPECT_EQ(Get(id)->reason, JobReason::kDiskLimit);
}

TEST_F(DiskLimitTest, AJobThatHasMadeItsLastStepIsLeftToEnd) {
  Limit(1000);
  const std::string id = Train(100);
  Write(id, "step-00000100", 950);
  runner_->Checkpointed(id, 100);
  Round();
  EXPECT_EQ(State(id), S::kRunning);
  runner_->End(id, RunEnd::Kind::kFinished);
  Round();
  EXPECT_EQ(State(id), S::kSucceeded);
}

TEST_F(DiskLimitTest, AQueuedJobWaitsAndOthersPass) {
  const std::string old = Ended(950);
  const std::string waits = Submit();
  Limit(1000);
  const std::string passes = Submit(kBert);
  Round();
  EXPECT_EQ(Get(waits)->queue.waiting, WaitingReason::kUserLimit);
  EXPECT_THAT(Get(waits)->queue.text, HasSubstr("megatrain delete JOB"));
  EXPECT_EQ(State(passes), S::kPreparing);
  runner_->Running(passes, 1, 100);
  runner_->End(passes, RunEnd::Kind::kFinished);
  Round();
  EXPECT_EQ(State(waits), S::kQueued);
  Delete(old);
  Round();
  EXPECT_EQ(State(waits), S::kPreparing);
}

TEST_F(DiskLimitTest, AUsersPauseIsTheUsersAndARestartForgetsNothing) {
  Limit(1000);
  const std::string id = Train(10);
  Write(id, "step-00000010", 950);
  runner_->Checkpointed(id, 10);
  Round();
  runner_->Paused(id);
  Round();
  ASSERT_EQ(State(id), S::kPaused);
  Restart();
  Round();
  EXPECT_EQ(State(id), S::kPaused);
  EXPECT_EQ(Get(id)->reason, JobReason::kDiskLimit);
  ASSERT_TRUE(manager_->Pause(kAnna, id, false).ok());
  std::filesystem::remove_all(directory_ / ("state/jobs/" + id + "/checkpoints"));
  Restart();
  Round();
  EXPECT_EQ(State(id), S::kPaused);
  EXPECT_EQ(Get(id)->reason, JobReason::kUserRequest);
  Kill();
}

TEST_F(SchedulerTest, AStoreThatCannotBeWrittenDoesNotHoldUpTheEnd) {
  FaultyVfs* const vfs = FaultyVfs::Install();
  Restart();
  const std::string id = Train(10);
  vfs->FailAfter(0, SQLITE_FULL);
  runner_->End(id, RunEnd::Kind::kStopped);
  scheduler_->Start();
  auto end = std::async(std::launch::async, [this] { scheduler_->Shutdown(); });
  EXPECT_EQ(end.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  vfs->Heal();
  end.wait();
  Restart();
  EXPECT_EQ(State(id), S::kQueued);
}

TEST_F(SchedulerTest, ADaemonThatStopsAsksItsRunsToStopThoughTheStoreCannotBeWritten) {
  FaultyVfs* const vfs = FaultyVfs::Install();
  Restart();
  const std::string id = Submit();
  Round();
  runner_->Running(id, 1, 100);
  vfs->FailAfter(0, SQLITE_FULL);
  Round();
  ASSERT_EQ(State(id), S::kPreparing) << "that it runs cannot be stored";
  runner_->Asked();
  scheduler_->BeginShutdown();
  Round();
  EXPECT_THAT(runner_->Asked(), ElementsAre("stop " + id));
  Round();
  EXPECT_THAT(runner_->Asked(), IsEmpty()) << "once is enough";
  vfs->Heal();
}

}  // namespace
}  // namespace megatrain
