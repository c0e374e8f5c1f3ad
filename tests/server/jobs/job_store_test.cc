#include "server/jobs/job_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/server/jobs/faulty_vfs.h"
#include "tests/server/jobs/test_job.h"

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
}

std::unique_ptr<JobStore> OpenStore(const std::string& directory) {
  auto store = JobStore::Open(directory);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

std::vector<StoredJob> ReadJobs(JobStore* store) {
  auto jobs = store->ReadAll();
  EXPECT_TRUE(jobs.ok()) << jobs.status();
  return jobs.ok() ? *std::move(jobs) : std::vector<StoredJob>();
}

// The database as another program sees it.
void ExecuteSql(const std::string& path, const std::string& sql) {
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  char* error = nullptr;
  EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
  sqlite3_close(database);
}

Job RunningJob(Job job) {
  job.state = JobState::kRunning;
  job.reason = JobReason::kUserRequest;
  job.reason_text = "läuft";
  job.updated = TestTime(100);
  job.started = TestTime(99);
  job.ended = TestTime(98);
  job.version = 9;
  job.attempts = 2;
  job.step = 41;
  job.total_steps = 100;
  job.checkpoint_step = 40;
  job.release_host = true;
  job.host_retained = true;
  job.deaths = 3;
  job.death_step = 12;
  job.death_checkpoint_step = 10;
  return job;
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

TEST(JobStoreTest, FilesAreForTheOwnerOnly) {
  const TestDirectory directory;
  const std::string state = directory / "new/state";
  const auto store = OpenStore(state);
  for (const std::string& path : {state, state + "/jobs.sqlite3", state + "/jobs.sqlite3-wal"}) {
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
  ExecuteSql(directory / kJobStoreFileName, "PRAGMA user_version=1");
  EXPECT_NE(OpenStore(directory.path()), nullptr);
}

TEST(JobStoreTest, ADatabaseOfAnotherProgramIsRefused) {
  const TestDirectory directory;
  ExecuteSql(directory / kJobStoreFileName, "CREATE TABLE mail (text)");
  const absl::Status status = JobStore::Open(directory.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("another program"));
  ExecuteSql(directory / kJobStoreFileName, "SELECT text FROM mail");
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
                          "UPDATE events SET from_state = 'X'", "UPDATE events SET sequence = 2"}) {
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

// ---- Crashes and full disks ----

TEST(JobStoreTest, WhatIsAcknowledgedOutlivesTheProcess) {
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

TEST(JobStoreTest, WhatIsAcknowledgedOutlivesAPowerCut) {
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
TEST(JobStoreTest, AFailedWriteLeavesTheStoreUsable) {
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
        EXPECT_THAT(std::string(status.message()), HasSubstr(store->path()));
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

TEST(JobStoreTest, AFullDiskWhenOpening) {
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
