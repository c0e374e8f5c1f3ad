#include "server/store/job_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "server/store/job_store_schema.h"
#include "tests/server/store/store_fixture.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

void ExpectSameJob(const Job& read, const Job& written) {
  EXPECT_EQ(read.id, written.id);
  EXPECT_EQ(read.number, written.number);
  EXPECT_EQ(read.display_name, written.display_name);
  EXPECT_EQ(read.user, written.user);
  EXPECT_EQ(read.uid, written.uid);
  EXPECT_EQ(read.request_id, written.request_id);
  EXPECT_EQ(*read.file, *written.file);
  EXPECT_EQ(read.priority, written.priority);
  EXPECT_EQ(read.pool_bytes, written.pool_bytes);
  EXPECT_EQ(read.checkpoint_bytes, written.checkpoint_bytes);
  EXPECT_EQ(read.state, written.state);
  EXPECT_EQ(read.reason, written.reason);
  EXPECT_EQ(read.reason_text, written.reason_text);
  EXPECT_EQ(read.created, written.created);
  EXPECT_EQ(read.updated, written.updated);
  EXPECT_EQ(read.started, written.started);
  EXPECT_EQ(read.ended, written.ended);
  EXPECT_EQ(read.version, written.version);
  EXPECT_EQ(read.attempts, written.attempts);
  EXPECT_EQ(read.step, written.step);
  EXPECT_EQ(read.total_steps, written.total_steps);
  EXPECT_EQ(read.checkpoint_step, written.checkpoint_step);
  EXPECT_EQ(read.release_host, written.release_host);
  EXPECT_EQ(read.host_retained, written.host_retained);
  EXPECT_EQ(read.deaths, written.deaths);
  EXPECT_EQ(read.death_step, written.death_step);
  EXPECT_EQ(read.death_checkpoint_step, written.death_checkpoint_step);
  EXPECT_EQ(read.allow_change, written.allow_change);
}

// The database as another program sees it.
void ExecuteSql(const std::string& path, const std::string& sql) {
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  char* error = nullptr;
  EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
  sqlite3_close(database);
}

TEST(JobStoreTest, JobsAndEventsAreReadBackAsWritten) {
  const TestDirectory directory;
  const Job first = TestJob(1, "3b241101-e2bb-4255-8caf-4136c566a962");
  const Job changed = RunningJob(first);
  Job second = TestJob(2);
  JobFile nul_file = *second.file;
  nul_file.yaml = std::string("a\0b", 3);
  nul_file.overrides.clear();
  second.file = std::make_shared<const JobFile>(nul_file);
  const JobEvent started = {.sequence = 2,
                            .time = TestTime(50),
                            .from = JobState::kPreparing,
                            .to = JobState::kRunning,
                            .reason = JobReason::kNone,
                            .text = "from step 41"};
  {
    const auto store = OpenStore(directory.path());
    ASSERT_TRUE(store->Insert(first, CreatedEvent(first)).ok());
    ASSERT_TRUE(store->Insert(second, CreatedEvent(second)).ok());
    ASSERT_TRUE(store->Update(changed, {started}).ok());
    EXPECT_EQ(ReadJobs(store.get()).size(), 2u);
  }
  const auto store = OpenStore(directory.path());
  const std::vector<StoredJob> jobs = ReadJobs(store.get());
  ASSERT_EQ(jobs.size(), 2u);
  ExpectSameJob(jobs[0].job, changed);
  EXPECT_EQ(jobs[0].events, (std::vector<JobEvent>{CreatedEvent(first), started}));
  ExpectSameJob(jobs[1].job, second);
  EXPECT_EQ(jobs[1].events, std::vector<JobEvent>{CreatedEvent(second)});
}

TEST(JobStoreTest, WhatMustBeUniqueIs) {
  const TestDirectory directory;
  const auto store = OpenStore(directory.path());
  const Job job = TestJob(1, "request");
  ASSERT_TRUE(store->Insert(job, CreatedEvent(job)).ok());

  Job other = TestJob(2, "request");
  EXPECT_TRUE(absl::IsAlreadyExists(store->Insert(other, CreatedEvent(other)))) << "same user";
  other.uid = 1001;
  EXPECT_TRUE(store->Insert(other, CreatedEvent(other)).ok()) << "another user";
  Job same_id = TestJob(3);
  same_id.id = job.id;
  EXPECT_TRUE(absl::IsAlreadyExists(store->Insert(same_id, CreatedEvent(same_id))));
  Job same_number = TestJob(1);
  same_number.id = "new";
  EXPECT_TRUE(absl::IsAlreadyExists(store->Insert(same_number, CreatedEvent(same_number))));
  for (int i = 4; i < 6; ++i) {  // without a request_id
    const Job free = TestJob(i);
    EXPECT_TRUE(store->Insert(free, CreatedEvent(free)).ok());
  }
  EXPECT_EQ(ReadJobs(store.get()).size(), 4u);
}

TEST(JobStoreTest, AnUnknownJobOrAnEventTwiceChangesNothing) {
  const TestDirectory directory;
  const auto store = OpenStore(directory.path());
  const Job job = TestJob(1);
  EXPECT_TRUE(absl::IsNotFound(store->Update(job, {})));
  ASSERT_TRUE(store->Insert(job, CreatedEvent(job)).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(store->Update(RunningJob(job), {CreatedEvent(job)})));
  const std::vector<StoredJob> jobs = ReadJobs(store.get());
  ASSERT_EQ(jobs.size(), 1u);
  ExpectSameJob(jobs[0].job, job);
}

TEST(JobStoreTest, ADeletedJobIsRememberedUntilItIsRemoved) {
  const TestDirectory directory;
  const Job first = TestJob(1, "request"), second = TestJob(2);
  {
    const auto store = OpenStore(directory.path());
    ASSERT_TRUE(store->Insert(first, CreatedEvent(first)).ok());
    ASSERT_TRUE(store->Insert(second, CreatedEvent(second)).ok());
    ASSERT_TRUE(store->MarkDeleted(first.id).ok());
    EXPECT_TRUE(absl::IsNotFound(store->MarkDeleted("nosuchjob")));
  }
  const auto store = OpenStore(directory.path());
  std::vector<StoredJob> jobs = ReadJobs(store.get());
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_TRUE(jobs[0].deleted);
  EXPECT_EQ(jobs[0].job.uid, first.uid);
  EXPECT_EQ(jobs[0].events.size(), 1u);
  EXPECT_FALSE(jobs[1].deleted);
  const Job again = TestJob(3, "request");
  EXPECT_TRUE(store->Insert(again, CreatedEvent(again)).ok()) << "its request_id is free";

  ASSERT_TRUE(store->Remove(first.id).ok());
  EXPECT_TRUE(store->Remove(first.id).ok());
  jobs = ReadJobs(store.get());
  ASSERT_EQ(jobs.size(), 2u);
  ExpectSameJob(jobs[0].job, second);
  EXPECT_EQ(jobs[0].events.size(), 1u);
  // Nothing of it is left, so that its number can be taken.
  const Job reused = TestJob(1);
  EXPECT_TRUE(store->Insert(reused, CreatedEvent(reused)).ok());
}

TEST(JobStoreTest, TheNewestEventsAreKept) {
  const TestDirectory directory;
  const Job job = TestJob(1), other = TestJob(2);
  const auto store = OpenStore(directory.path());
  for (const Job& each : {job, other}) {
    ASSERT_TRUE(store->Insert(each, CreatedEvent(each)).ok());
  }
  std::vector<JobEvent> events(kJobEventsKept + 4, CreatedEvent(job));
  for (size_t i = 0; i < events.size(); ++i) events[i].sequence = static_cast<int64_t>(i) + 2;
  ASSERT_TRUE(store->Update(job, {events.begin(), events.end() - 5}).ok());
  EXPECT_EQ(ReadJobs(store.get())[0].events.front().sequence, 1);
  ASSERT_TRUE(store->Update(job, {events.end() - 5, events.end()}).ok());
  const std::vector<StoredJob> jobs = ReadJobs(store.get());
  EXPECT_EQ(jobs[0].events.size(), static_cast<size_t>(kJobEventsKept));
  EXPECT_EQ(jobs[0].events.front().sequence, 6);
  EXPECT_EQ(jobs[0].events.back().sequence, kJobEventsKept + 5);
  EXPECT_EQ(jobs[1].events.size(), 1u);
}

// What version 1 wrote: jobs and events are read as they were.
TEST(JobStoreTest, AStoreOfVersion1IsBroughtUpToDate) {
  const TestDirectory directory;
  const std::string path = directory / kJobStoreFileName;
  ExecuteSql(path, R"sql(
CREATE TABLE jobs (
  number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, display_name TEXT NOT NULL,
  user TEXT NOT NULL, uid INTEGER NOT NULL, request_id TEXT, file_yaml TEXT NOT NULL,
  file_name TEXT NOT NULL, base_directory TEXT NOT NULL, priority INTEGER NOT NULL,
  pool_bytes INTEGER NOT NULL, checkpoint_bytes INTEGER NOT NULL, state TEXT NOT NULL,
  reason TEXT NOT NULL, reason_text TEXT NOT NULL, created INTEGER, updated INTEGER,
  started INTEGER, ended INTEGER, version INTEGER NOT NULL, attempts INTEGER NOT NULL,
  step INTEGER NOT NULL, total_steps INTEGER NOT NULL, checkpoint_step INTEGER NOT NULL,
  release_host INTEGER NOT NULL, host_retained INTEGER NOT NULL, deaths INTEGER NOT NULL,
  death_step INTEGER NOT NULL, death_checkpoint_step INTEGER NOT NULL,
  UNIQUE (uid, request_id)) STRICT;
CREATE TABLE overrides (
  job INTEGER NOT NULL REFERENCES jobs (number), position INTEGER NOT NULL, text TEXT NOT NULL,
  PRIMARY KEY (job, position)) STRICT, WITHOUT ROWID;
CREATE TABLE events (
  job INTEGER NOT NULL REFERENCES jobs (number), sequence INTEGER NOT NULL, time INTEGER NOT NULL,
  from_state TEXT, to_state TEXT NOT NULL, reason TEXT NOT NULL, text TEXT NOT NULL,
  PRIMARY KEY (job, sequence)) STRICT, WITHOUT ROWID;
INSERT INTO jobs VALUES (7, 'abc', 'demo', 'anna', 1000, 'r-1', 'name: demo', 'job.yaml', '/srv',
  -3, 1000, 77, 'PAUSED', 'DISK_FULL', 'no room', 1700000000000000, 1700000005000000,
  1700000001000000, NULL, 5, 2, 41, 100, 40, 1, 1, 3, 12, 10);
INSERT INTO overrides VALUES (7, 0, 'training.steps=7'), (7, 1, 'name=x');
INSERT INTO events VALUES (7, 1, 1700000000000000, NULL, 'QUEUED', 'USER_REQUEST', 'submitted'),
  (7, 2, 1700000001000000, 'QUEUED', 'PREPARING', 'NONE', 'attempt 1');
PRAGMA application_id=1298617458;
PRAGMA user_version=1;
)sql");
  for (int round = 0; round < 2; ++round) {  // brought up to date, and found so
    const auto store = OpenStore(directory.path());
    ASSERT_NE(store, nullptr);
    const std::vector<StoredJob> jobs = ReadJobs(store.get());
    ASSERT_EQ(jobs.size(), 1u);
    EXPECT_FALSE(jobs[0].deleted);
    const Job& job = jobs[0].job;
    EXPECT_EQ(job.number, 7);
    EXPECT_EQ(job.id, "abc");
    EXPECT_EQ(job.request_id, "r-1");
    EXPECT_EQ(job.file->overrides, (std::vector<std::string>{"training.steps=7", "name=x"}));
    EXPECT_EQ(job.state, JobState::kPaused);
    EXPECT_EQ(job.reason, JobReason::kDiskFull);
    EXPECT_EQ(job.started, TestTime(1));
    EXPECT_EQ(job.ended, absl::InfinitePast());
    EXPECT_EQ(job.version, 5);
    EXPECT_EQ(job.death_checkpoint_step, 10);
    EXPECT_TRUE(job.allow_change.empty());
    ASSERT_EQ(jobs[0].events.size(), 2u);
    EXPECT_EQ(jobs[0].events[1].text, "attempt 1");
  }
}

TEST(JobStoreTest, FilesAreForTheOwnerOnly) {
  const TestDirectory directory;
  const std::string state = directory / "new/state";
  const auto store = OpenStore(state);
  for (const std::string& path : {state, state + "/jobs.sqlite3", state + "/jobs.sqlite3-wal",
                                  state + "/jobs.sqlite3-shm", state + "/megatraind.lock"}) {
    struct stat info;
    ASSERT_EQ(stat(path.c_str(), &info), 0) << path;
    EXPECT_EQ(info.st_mode & 077, 0u) << path;
  }
}

TEST(JobStoreTest, OneHolderAtATime) {
  const TestDirectory directory;
  {
    const auto store = OpenStore(directory.path());
    const absl::Status second = JobStore::Open(directory.path()).status();
    EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(second.message()), HasSubstr("another megatraind"));
    EXPECT_THAT(std::string(second.message()), HasSubstr(directory.path()));
  }
  EXPECT_NE(OpenStore(directory.path()), nullptr);
}

TEST(JobStoreTest, AProgramThatHoldsTheFileForAMomentIsWaitedFor) {
  const TestDirectory directory;
  const auto store = OpenStore(directory.path());
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open((directory / kJobStoreFileName).c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  std::thread ending([other] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(sqlite3_exec(other, "COMMIT", nullptr, nullptr, nullptr), SQLITE_OK);
  });
  const Job job = TestJob(1);
  const absl::Status status = store->Insert(job, CreatedEvent(job));
  EXPECT_TRUE(status.ok()) << status;
  ending.join();
  sqlite3_close(other);
}

TEST(JobStoreTest, AStateDirectoryThatCannotBe) {
  const TestDirectory directory;
  std::ofstream(directory / "file") << "x";
  const absl::Status status = JobStore::Open(directory / "file/state").status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(directory / "file/state"));
}

// ---- Damage ----

TEST(JobStoreTest, ANewerVersionIsRefused) {
  const TestDirectory directory;
  OpenStore(directory.path());
  ExecuteSql(directory / kJobStoreFileName, "PRAGMA user_version=99");
  const absl::Status status = JobStore::Open(directory.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(directory / kJobStoreFileName));
  EXPECT_THAT(std::string(status.message()), HasSubstr("schema version 99"));
  // It was left as it is.
  ExecuteSql(directory / kJobStoreFileName,
             "PRAGMA user_version=" + std::to_string(kJobStoreVersion));
  EXPECT_NE(OpenStore(directory.path()), nullptr);
}

TEST(JobStoreTest, ADatabaseOfAnotherProgramIsRefused) {
  const TestDirectory directory;
  ExecuteSql(directory / kJobStoreFileName, "CREATE TABLE mail (text)");
  const absl::Status status = JobStore::Open(directory.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("another program"));
  ExecuteSql(directory / kJobStoreFileName, "SELECT text FROM mail");
  const TestDirectory without_tables;
  ExecuteSql(without_tables / kJobStoreFileName, "PRAGMA application_id=7");
  EXPECT_EQ(JobStore::Open(without_tables.path()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  const TestDirectory with_version;  // of its own schema, and not of this one's
  ExecuteSql(with_version / kJobStoreFileName, "PRAGMA user_version=1");
  EXPECT_EQ(JobStore::Open(with_version.path()).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// The daemon before an upgrade that is taken back.
TEST(JobStoreTest, TheVersionAfterThisOneIsRefusedToo) {
  const TestDirectory directory;
  OpenStore(directory.path());
  ExecuteSql(directory / kJobStoreFileName,
             "PRAGMA user_version=" + std::to_string(kJobStoreVersion + 1));
  const absl::Status status = JobStore::Open(directory.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
}

void ExpectRefusedAsDamaged(const TestDirectory& directory) {
  const auto store = JobStore::Open(directory.path());
  absl::Status status = store.status();
  if (store.ok()) status = (*store)->ReadAll().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(directory / kJobStoreFileName));
  EXPECT_THAT(std::string(status.message()), HasSubstr("Move this file"));
}

TEST(JobStoreTest, AFileThatIsNoDatabaseIsRefused) {
  const TestDirectory directory;
  std::ofstream(directory / kJobStoreFileName) << std::string(8192, 'x');
  ExpectRefusedAsDamaged(directory);
  EXPECT_EQ(fs::file_size(directory / kJobStoreFileName), 8192u) << "it was touched";
}

TEST(JobStoreTest, DamagedPagesAreRefused) {
  const TestDirectory directory;
  {
    const auto store = OpenStore(directory.path());
    for (int i = 1; i <= 50; ++i) {
      const Job job = TestJob(i, "request" + std::to_string(i));
      ASSERT_TRUE(store->Insert(job, CreatedEvent(job)).ok());
    }
  }
  const std::string path = directory / kJobStoreFileName;
  const int64_t bytes = static_cast<int64_t>(fs::file_size(path));
  const std::string good = directory / "good";
  fs::copy_file(path, good);
  for (int64_t page = 1; page * 4096 < bytes; ++page) {  // page 0 holds the header
    fs::copy_file(good, path, fs::copy_options::overwrite_existing);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(page * 4096);
    file << std::string(2048, '\xa5');
    file.close();
    SCOPED_TRACE(page);
    ExpectRefusedAsDamaged(directory);
  }
  fs::copy_file(good, path, fs::copy_options::overwrite_existing);
  fs::resize_file(path, static_cast<uintmax_t>(bytes / 2));
  ExpectRefusedAsDamaged(directory);
}

TEST(JobStoreTest, ValuesThatNoVersionWroteAreRefused) {
  for (const char* sql : {"UPDATE jobs SET state = 'SLEEPING'", "UPDATE jobs SET reason = 'WHIM'",
                          "UPDATE events SET to_state = ''", "UPDATE events SET reason = 'none'",
                          "UPDATE events SET from_state = 'X'", "UPDATE events SET sequence = 2",
                          "DELETE FROM events"}) {
    SCOPED_TRACE(sql);
    const TestDirectory directory;
    {
      const auto store = OpenStore(directory.path());
      const Job job = TestJob(1);
      ASSERT_TRUE(store->Insert(job, CreatedEvent(job)).ok());
    }
    ExecuteSql(directory / kJobStoreFileName, sql);
    ExpectRefusedAsDamaged(directory);
  }
}

TEST(JobStoreTest, AnEventThatIsMissingBetweenOthersIsDamage) {
  const TestDirectory directory;
  {
    const auto store = OpenStore(directory.path());
    const Job job = TestJob(1);
    ASSERT_TRUE(store->Insert(job, CreatedEvent(job)).ok());
    std::vector<JobEvent> events(2, CreatedEvent(job));
    events[0].sequence = 2;
    events[1].sequence = 3;
    ASSERT_TRUE(store->Update(job, events).ok());
  }
  ExecuteSql(directory / kJobStoreFileName, "DELETE FROM events WHERE sequence = 2");
  ExpectRefusedAsDamaged(directory);
}

}  // namespace
}  // namespace megatrain
