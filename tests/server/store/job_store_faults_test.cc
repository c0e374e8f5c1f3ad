// The job store through crashes, power cuts and full disks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/store/faulty_vfs.h"
#include "tests/server/store/store_fixture.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(JobStoreFaultsTest, WhatIsAcknowledgedOutlivesTheProcess) {
  const TestDirectory directory;
  const pid_t child = fork();
  if (child == 0) {
    auto store = JobStore::Open(directory.path());
    if (!store.ok()) _exit(1);
    const Job job = TestJob(1);
    if (!(*store)->Insert(job, CreatedEvent(job)).ok()) _exit(2);
    if (!(*store)->Update(RunningJob(job), {}).ok()) _exit(3);
    _exit(0);  // nothing is closed
  }
  int result = 0;
  ASSERT_EQ(waitpid(child, &result, 0), child);
  ASSERT_EQ(result, 0);
  const std::vector<StoredJob> jobs = ReadJobs(OpenStore(directory.path()).get());
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0].job.state, JobState::kRunning);
  EXPECT_EQ(jobs[0].job.step, 41);
}

TEST(JobStoreFaultsTest, WhatIsAcknowledgedOutlivesAPowerCut) {
  const TestDirectory directory;
  FaultyVfs* const vfs = FaultyVfs::Install();
  fs::create_directory(directory / "durable");
  vfs->set_durable_directory(directory / "durable");
  const auto store = OpenStore(directory / "state");

  int cuts = 0;
  const auto expect_durable = [&](const std::vector<JobState>& states, int64_t events) {
    vfs->set_durable_directory("");
    const std::string cut = directory / ("cut" + std::to_string(cuts++));
    fs::copy(directory / "durable", cut);
    const std::vector<StoredJob> jobs = ReadJobs(OpenStore(cut).get());
    ASSERT_EQ(jobs.size(), states.size());
    for (size_t i = 0; i < states.size(); ++i) EXPECT_EQ(jobs[i].job.state, states[i]);
    EXPECT_EQ(static_cast<int64_t>(jobs[0].events.size()), events);
    vfs->set_durable_directory(directory / "durable");
  };
  Job first = TestJob(1);
  ASSERT_TRUE(store->Insert(first, CreatedEvent(first)).ok());
  expect_durable({JobState::kQueued}, 1);
  const Job second = TestJob(2);
  ASSERT_TRUE(store->Insert(second, CreatedEvent(second)).ok());
  expect_durable({JobState::kQueued, JobState::kQueued}, 1);
  // Enough for the log to be carried over into the database several times.
  for (int64_t sequence = 2; sequence < 400; ++sequence) {
    first.state = sequence % 2 == 0 ? JobState::kPreparing : JobState::kQueued;
    JobEvent event = CreatedEvent(first);
    event.sequence = sequence;
    ASSERT_TRUE(store->Update(first, {event}).ok());
    if (sequence % 100 < 2) expect_durable({first.state, JobState::kQueued}, sequence);
  }
  vfs->set_durable_directory("");
}

// Every write and sync of a change fails once, as on a full disk or a broken one: the change is
// refused, nothing of it is there, and the store goes on when it can.
TEST(JobStoreFaultsTest, AFailedWriteLeavesTheStoreUsable) {
  FaultyVfs* const vfs = FaultyVfs::Install();
  for (const int code : {SQLITE_FULL, SQLITE_IOERR_WRITE}) {
    const TestDirectory directory;
    auto store = OpenStore(directory.path());
    Job job = TestJob(1);
    ASSERT_TRUE(store->Insert(job, CreatedEvent(job)).ok());
    // A log long enough that the change is followed by carrying it over into the database.
    JobEvent event = CreatedEvent(job);
    int64_t failures = 0;
    for (int64_t operation = 0; operation < 40; ++operation) {
      for (int i = 0; i < 10; ++i) {
        ++event.sequence;
        ASSERT_TRUE(store->Update(job, {event}).ok());
      }
      Job changed = job;
      changed.state = JobState::kPreparing;
      ++event.sequence;
      vfs->FailAfter(operation, code);
      const absl::Status status = store->Update(changed, {event});
      vfs->Heal();
      const std::vector<StoredJob> jobs = ReadJobs(store.get());
      ASSERT_EQ(jobs.size(), 1u);
      EXPECT_EQ(jobs[0].job.state, status.ok() ? JobState::kPreparing : JobState::kQueued);
      EXPECT_EQ(static_cast<int64_t>(jobs[0].events.size()),
                status.ok() ? event.sequence : event.sequence - 1);
      if (!status.ok()) {
        ++failures;
        --event.sequence;
        EXPECT_THAT(std::string(status.message()), HasSubstr(directory.path()));
        EXPECT_EQ(status.code(), code == SQLITE_FULL ? absl::StatusCode::kResourceExhausted
                                                     : absl::StatusCode::kInternal);
      }
      ASSERT_TRUE(store->Update(job, {}).ok()) << "operation " << operation;
    }
    EXPECT_GT(failures, 5);
    store.reset();
    EXPECT_EQ(static_cast<int64_t>(ReadJobs(OpenStore(directory.path()).get())[0].events.size()),
              event.sequence);
  }
}

// The same for a deletion, which has two parts.
TEST(JobStoreFaultsTest, AFailedDeletionIsNoneAndMayBeTriedAgain) {
  FaultyVfs* const vfs = FaultyVfs::Install();
  for (const int code : {SQLITE_FULL, SQLITE_IOERR_FSYNC, SQLITE_READONLY}) {
    const TestDirectory directory;
    auto store = OpenStore(directory.path());
    int failures = 0;
    for (int64_t operation = 0; operation < 8; ++operation) {
      const Job job = TestJob(operation + 1);
      ASSERT_TRUE(store->Insert(job, CreatedEvent(job)).ok());
      vfs->FailAfter(operation, code);
      const absl::Status marked = store->MarkDeleted(job.id);
      vfs->Heal();
      EXPECT_EQ(ReadJobs(store.get()).back().deleted, marked.ok());
      ASSERT_TRUE(store->MarkDeleted(job.id).ok());
      vfs->FailAfter(operation, code);
      const absl::Status removed = store->Remove(job.id);
      vfs->Heal();
      const std::vector<StoredJob> jobs = ReadJobs(store.get());
      ASSERT_EQ(jobs.size(), removed.ok() ? 0u : 1u);
      if (!removed.ok()) {
        EXPECT_TRUE(jobs[0].deleted);
        EXPECT_EQ(jobs[0].events.size(), 1u);
        EXPECT_EQ(jobs[0].job.file->overrides.size(), 2u);
      }
      failures += !marked.ok() + !removed.ok();
      ASSERT_TRUE(store->Remove(job.id).ok());
    }
    EXPECT_GT(failures, 3);
    store.reset();
    EXPECT_TRUE(ReadJobs(OpenStore(directory.path()).get()).empty());
  }
}

// A file system tells some of its full disks, and quotas, by the system's error alone.
TEST(JobStoreFaultsTest, AQuotaThatIsUsedUpIsAFullDisk) {
  FaultyVfs* const vfs = FaultyVfs::Install();
  const TestDirectory directory;
  const auto store = OpenStore(directory.path());
  const Job job = TestJob(1);
  for (const auto& [error, code] : {std::pair{ENOSPC, absl::StatusCode::kResourceExhausted},
                                    std::pair{EDQUOT, absl::StatusCode::kResourceExhausted},
                                    std::pair{EIO, absl::StatusCode::kInternal}}) {
    vfs->FailAfter(0, SQLITE_IOERR_WRITE);
    vfs->set_system_error(error);
    const absl::Status status = store->Insert(job, CreatedEvent(job));
    vfs->Heal();
    EXPECT_EQ(status.code(), code) << error << ": " << status;
    EXPECT_TRUE(ReadJobs(store.get()).empty());
  }
  EXPECT_TRUE(store->Insert(job, CreatedEvent(job)).ok());
}

TEST(JobStoreFaultsTest, AFullDiskWhenOpening) {
  const TestDirectory directory;
  FaultyVfs* const vfs = FaultyVfs::Install();
  vfs->FailAfter(0, SQLITE_FULL);
  const absl::Status status = JobStore::Open(directory.path()).status();
  vfs->Heal();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(OpenStore(directory.path()), nullptr);
}

}  // namespace
}  // namespace megatrain
