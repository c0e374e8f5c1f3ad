// Jobs that are deleted, by their users and by the daemon, and what is left of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/watched_file_system.h"
#include "server/manager/job_remover.h"
#include "tests/server/manager/job_manager_fixture.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pointee;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;
using S = JobState;

class StubbornFileSystem : public WatchedFileSystem {
 public:
  StubbornFileSystem() : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }) {}
  absl::Status RemoveTree(const std::string& path) override {
    if (refuse) return absl::InternalError(path + ": busy");
    return WatchedFileSystem::RemoveTree(path);
  }
  absl::Status SyncDirectory(const std::string& path) override {
    if (refuse_sync) return absl::InternalError(path + ": cannot be synced");
    return WatchedFileSystem::SyncDirectory(path);
  }
  bool refuse = false;
  bool refuse_sync = false;
};

class JobDeletionTest : public JobManagerTest {
 protected:
  JobDeletionTest() { OpenRemover(); }
  ~JobDeletionTest() override { remover_.reset(); }

  void OpenRemover(int64_t keep_ended_jobs = 0, double turn_seconds = 60) {
    remover_.reset();
    records_ = std::make_unique<JobRecordsDirectory>(directory_ / "state/jobs");
    remover_ = std::make_unique<JobRemover>(
        ledger_.get(), records_.get(),
        JobRemover::Options{.keep_ended_jobs = keep_ended_jobs,
                            .turn_seconds = turn_seconds,
                            .files = &files_,
                            .disk = disk_.get(),
                            .log = [this](const std::string& line) { log_.push_back(line); }});
  }
  // As a kill -9.
  void Restart() {
    remover_.reset();
    Open();
    OpenRemover();
  }

  std::string Directory(const std::string& id) { return directory_ / ("state/jobs/" + id); }
  // A job that has ended, with a log, metrics and, if wanted, a checkpoint.
  JobPtr Ended(const Caller& caller, bool checkpoint = false, const std::string& request_id = "") {
    const JobPtr job = Submit(caller, request_id);
    auto records = records_->Open(job->id);
    EXPECT_TRUE(records.ok() && (*records)->AddLine(0, "a line").ok());
    if (checkpoint) {
      fs::create_directories(job->spec->checkpoint.directory + "/step-00000010");
      std::ofstream(job->spec->checkpoint.directory + "/step-00000010/manifest.json") << "{}";
    }
    Move(job->id, {S::kCancelled});
    return job;
  }
  bool IsThere(const std::string& id) { return ledger_->table().Find(id) != nullptr; }

  StubbornFileSystem files_;
  std::vector<std::string> log_;
  std::unique_ptr<JobRecordsDirectory> records_;
  std::unique_ptr<JobRemover> remover_;
};

TEST_F(JobDeletionTest, AnEndedJobGoesWithWhatTheDaemonKeeps) {
  const JobPtr job = Ended(kAnna, /*checkpoint=*/true, "request");
  const JobPtr other = Ended(kAnna);
  ASSERT_TRUE(manager_->Delete(kAnna, job->id).ok());
  EXPECT_EQ(Refusal(manager_->Get(kAnna, job->id).status()), "NOT_FOUND JOB_NOT_FOUND");
  EXPECT_EQ(Refusal(manager_->Delete(kAnna, job->id)), "NOT_FOUND JOB_NOT_FOUND");
  EXPECT_THAT(manager_->List(kAnna, {})->jobs, ElementsAre(ledger_->table().Find(other->id)));
  EXPECT_EQ(ledger_->table().Counts().ended, 1);
  remover_->RunRound();
  EXPECT_FALSE(fs::exists(Directory(job->id)));
  EXPECT_TRUE(fs::exists(Directory(other->id)));
  EXPECT_THAT(ledger_->Deleted(), IsEmpty());
  EXPECT_THAT(log_, IsEmpty());
  EXPECT_TRUE(absl::IsNotFound(records_->Open(job->id).status()))
      << "nobody makes the directory again";
  // The request_id is free, also after a restart.
  EXPECT_NE(Submit(kAnna, "request")->id, job->id);
  Restart();
  EXPECT_FALSE(IsThere(job->id));
  EXPECT_THAT(ledger_->table().All(), SizeIs(2));
}

TEST_F(JobDeletionTest, OnlyWhatHasEndedAndOnlyByWhoMay) {
  const JobPtr job = Submit(kAnna);
  for (const S state : {S::kQueued, S::kPreparing, S::kRunning, S::kPausing, S::kPaused}) {
    if (state != S::kQueued) Move(job->id, {state});
    const absl::Status refused = manager_->Delete(kAnna, job->id);
    EXPECT_EQ(Refusal(refused), "FAILED_PRECONDITION ILLEGAL_TRANSITION");
    EXPECT_THAT(std::string(refused.message()), HasSubstr("cancel it first"));
    EXPECT_EQ(Refusal(manager_->Delete(kBert, job->id)), "NOT_FOUND JOB_NOT_FOUND");
  }
  Move(job->id, {S::kCancelling});
  EXPECT_FALSE(manager_->Delete(kAnna, job->id).ok());
  Move(job->id, {S::kCancelled});
  EXPECT_EQ(Refusal(manager_->Delete(kBert, job->id)), "NOT_FOUND JOB_NOT_FOUND");
  EXPECT_TRUE(manager_->Delete(kRoot, job->id).ok());
  EXPECT_EQ(Refusal(manager_->Delete(kAnna, "nosuchjob")), "NOT_FOUND JOB_NOT_FOUND");
}

TEST_F(JobDeletionTest, DirectoriesThatTheFileNamesAreLeftAlone) {
  CreateJobOptions options = Options();
  options.file.overrides.push_back("checkpoint.directory=" + (directory_ / "mine"));
  const JobPtr job = *manager_->Create(kAnna, options);
  fs::create_directories(directory_ / "mine/step-00000010");
  Move(job->id, {S::kCancelled});
  ASSERT_TRUE(manager_->Delete(kAnna, job->id).ok());
  remover_->RunRound();
  EXPECT_TRUE(fs::exists(directory_ / "mine/step-00000010"));
}

TEST_F(JobDeletionTest, ADeathInBetweenIsMadeUpForAtTheNextStart) {
  const JobPtr job = Ended(kAnna, /*checkpoint=*/true);
  ASSERT_TRUE(manager_->Delete(kAnna, job->id).ok());
  Restart();  // before anything was removed
  EXPECT_FALSE(IsThere(job->id));
  EXPECT_TRUE(fs::exists(Directory(job->id)));
  const JobPtr next = Submit(kAnna);
  ASSERT_NE(next, nullptr);
  EXPECT_GT(next->number, job->number) << "its row has the number still";
  fs::remove_all(Directory(job->id) + "/checkpoints");
  Restart();  // half of it
  remover_->RunRound();
  EXPECT_FALSE(fs::exists(Directory(job->id)));
  Restart();
  EXPECT_THAT(ledger_->Deleted(), IsEmpty());
}

TEST_F(JobDeletionTest, WhatCannotBeRemovedIsSaidOnceAndTriedAgain) {
  const JobPtr job = Ended(kAnna, /*checkpoint=*/true);
  ASSERT_TRUE(manager_->Delete(kAnna, job->id).ok());
  files_.refuse = true;
  remover_->RunRound();
  remover_->RunRound();
  EXPECT_THAT(log_, ElementsAre(HasSubstr("job " + job->id + " was deleted, and what it left")));
  EXPECT_THAT(log_[0], HasSubstr(job->id + ": busy"));
  EXPECT_THAT(ledger_->Deleted(), SizeIs(1));
  files_.refuse = false;
  remover_->RunRound();
  EXPECT_FALSE(fs::exists(Directory(job->id)));
  EXPECT_THAT(ledger_->Deleted(), IsEmpty());
}

// A power cut could bring back files that nothing in the store tells of.
TEST_F(JobDeletionTest, AJobIsInTheStoreUntilItsFilesHaveGoneForGood) {
  const JobPtr job = Ended(kAnna);
  ASSERT_TRUE(manager_->Delete(kAnna, job->id).ok());
  files_.refuse_sync = true;
  remover_->RunRound();
  EXPECT_FALSE(fs::exists(Directory(job->id)));
  EXPECT_THAT(ledger_->Deleted(), SizeIs(1));
  EXPECT_THAT(log_, ElementsAre(HasSubstr("cannot be synced")));
  files_.refuse_sync = false;
  remover_->RunRound();
  EXPECT_THAT(ledger_->Deleted(), IsEmpty());
}

TEST_F(JobDeletionTest, AUsersBytesAreFreeOnlyWhenTheFilesAreGone) {
  limits_.Set({.disk_bytes = 1 << 20});
  const JobPtr job = Ended(kAnna, /*checkpoint=*/true);
  disk_->Measure(*job);
  const int64_t held = disk_->UserBytes(kAnna.uid);
  ASSERT_GT(held, 0);
  ASSERT_TRUE(manager_->Delete(kAnna, job->id).ok());
  files_.refuse = true;
  remover_->RunRound();
  EXPECT_EQ(disk_->UserBytes(kAnna.uid), held);
  files_.refuse = false;
  remover_->RunRound();
  EXPECT_EQ(disk_->UserBytes(kAnna.uid), 0);
}

TEST_F(JobDeletionTest, UsersTakeTurns) {
  OpenRemover(/*keep_ended_jobs=*/0, /*turn_seconds=*/0);
  for (const Caller& caller : {kAnna, kAnna, kAnna, kBert}) {
    ASSERT_TRUE(manager_->Delete(caller, Ended(caller)->id).ok());
  }
  remover_->RunRound();
  EXPECT_THAT(ledger_->Deleted(), AllOf(SizeIs(2), Each(Pointee(Field(&Job::uid, kAnna.uid)))));
  remover_->RunRound();
  remover_->RunRound();
  EXPECT_THAT(ledger_->Deleted(), IsEmpty());
}

TEST_F(JobDeletionTest, LinksAreRemovedNotFollowed) {
  const JobPtr job = Ended(kAnna);
  fs::create_directories(directory_ / "elsewhere/data");
  fs::create_symlink(directory_ / "elsewhere", Directory(job->id) + "/checkpoints");
  fs::create_symlink(directory_ / "elsewhere", Directory(job->id) + "/link");
  ASSERT_TRUE(manager_->Delete(kAnna, job->id).ok());
  remover_->RunRound();
  EXPECT_FALSE(fs::exists(Directory(job->id)));
  EXPECT_TRUE(fs::exists(directory_ / "elsewhere/data"));
}

TEST_F(JobDeletionTest, AWatcherIsToldAndAStreamOfRecordsEnds) {
  const JobPtr job = Ended(kAnna);
  int rings = 0;
  const auto watch = *manager_->Watch(kAnna, job->id, 1, [&] { ++rings; });
  EXPECT_TRUE(watch->Poll().ended);
  const auto late = *manager_->Watch(kAnna, job->id, 1, {});
  const auto records = *records_->Open(job->id);
  ASSERT_TRUE(manager_->Delete(kAnna, job->id).ok());
  EXPECT_EQ(rings, 1);
  EXPECT_TRUE(watch->Poll().deleted);
  EXPECT_TRUE(watch->Poll().deleted);
  EXPECT_TRUE(late->Poll().deleted);
  EXPECT_FALSE(records->log().closed());
  remover_->RunRound();
  EXPECT_TRUE(records->log().closed());
}

TEST_F(JobDeletionTest, EndedJobsBeyondTheNumberAreForgotten) {
  OpenRemover(/*keep_ended_jobs=*/2);
  std::vector<std::string> anna;
  for (int i = 0; i < 4; ++i) anna.push_back(Ended(kAnna)->id);
  const JobPtr bert = Ended(kBert);
  const JobPtr live = Submit(kAnna);
  remover_->RunRound();
  EXPECT_FALSE(IsThere(anna[0]) || IsThere(anna[1]));
  EXPECT_FALSE(fs::exists(Directory(anna[0])));
  EXPECT_TRUE(IsThere(anna[2]) && IsThere(anna[3]) && IsThere(bert->id) && IsThere(live->id));
  EXPECT_THAT(ledger_->Deleted(), IsEmpty());
  EXPECT_THAT(log_, UnorderedElementsAre(
                        AllOf(HasSubstr(anna[0]), HasSubstr("keep_ended_jobs_per_user is 2")),
                        HasSubstr(anna[1])));
}

TEST_F(JobDeletionTest, ASmallerNumberCountsAtOnce) {
  OpenRemover(/*keep_ended_jobs=*/3);
  const JobPtr first = Ended(kAnna), second = Ended(kAnna), third = Ended(kAnna);
  remover_->RunRound();
  EXPECT_TRUE(IsThere(first->id));
  remover_->SetKeepEndedJobs(1);
  remover_->RunRound();
  EXPECT_FALSE(IsThere(first->id) || IsThere(second->id));
  EXPECT_TRUE(IsThere(third->id));
}

TEST_F(JobDeletionTest, AJobThatEndsAsAnotherIsDeletedCounts) {
  OpenRemover(/*keep_ended_jobs=*/2);
  const JobPtr anna = Ended(kAnna);
  std::vector<std::string> bert;
  for (int i = 0; i < 2; ++i) bert.push_back(Ended(kBert)->id);
  remover_->RunRound();
  ASSERT_TRUE(IsThere(bert[0]));
  ASSERT_TRUE(manager_->Delete(kAnna, anna->id).ok());
  bert.push_back(Ended(kBert)->id);
  remover_->RunRound();
  EXPECT_FALSE(IsThere(bert[0]));
  EXPECT_TRUE(IsThere(bert[1]) && IsThere(bert[2]));
}

TEST_F(JobDeletionTest, AJobThatEndsAfterTheFilesOfAnotherAreRemovedCounts) {
  OpenRemover(/*keep_ended_jobs=*/2);
  const JobPtr anna = Ended(kAnna);
  const JobPtr first = Ended(kBert);
  Ended(kBert);
  remover_->RunRound();
  ASSERT_TRUE(manager_->Delete(kAnna, anna->id).ok());
  remover_->RunRound();
  ASSERT_TRUE(IsThere(first->id));
  Ended(kBert);
  remover_->RunRound();
  EXPECT_FALSE(IsThere(first->id));
}

TEST_F(JobDeletionTest, AJobFromWhoseCheckpointsAnotherGoesOnStaysUntilThatOneHasEnded) {
  const JobPtr job = Ended(kAnna, /*checkpoint=*/true);
  CreateJobOptions options = Options();
  options.file.overrides.push_back("checkpoint.directory=" + job->spec->checkpoint.directory);
  const auto next = manager_->Create(kAnna, options);
  ASSERT_TRUE(next.ok()) << next.status();
  const absl::Status refused = manager_->Delete(kAnna, job->id);
  EXPECT_EQ(Refusal(refused), "FAILED_PRECONDITION ILLEGAL_TRANSITION");
  EXPECT_THAT(std::string(refused.message()), HasSubstr((*next)->id));
  EXPECT_TRUE(IsThere(job->id));
  Move((*next)->id, {S::kCancelled});
  EXPECT_TRUE(manager_->Delete(kAnna, job->id).ok());
  // Its files may be removed at any time.
  EXPECT_EQ(Refusal(manager_->Create(kAnna, options).status()), "NOT_FOUND JOB_NOT_FOUND");
}

TEST_F(JobDeletionTest, CheckpointsAreNeverForgotten) {
  OpenRemover(/*keep_ended_jobs=*/1);
  // The daemon died before it knew of this one.
  const JobPtr unknown = Ended(kAnna, /*checkpoint=*/true);
  const JobPtr known = Submit(kAnna);
  ASSERT_TRUE(ledger_
                  ->Change(known->id,
                           [](const Job&) -> absl::StatusOr<std::optional<JobChange>> {
                             JobChange change;
                             change.to = S::kCancelled;
                             change.edit = [](Job* job) { job->checkpoint_step = 10; };
                             return change;
                           })
                  .ok());
  const JobPtr empty = Ended(kAnna), last = Ended(kAnna);
  remover_->RunRound();
  EXPECT_TRUE(IsThere(unknown->id) && IsThere(known->id) && IsThere(last->id));
  EXPECT_TRUE(fs::exists(Directory(unknown->id)));
  EXPECT_FALSE(IsThere(empty->id));
}

TEST_F(JobDeletionTest, WhereCheckpointsCannotBeLookedForTheJobIsKept) {
  OpenRemover(/*keep_ended_jobs=*/1);
  const JobPtr moved = Ended(kAnna, /*checkpoint=*/true);
  const JobPtr empty = Ended(kAnna), last = Ended(kAnna);
  // A link, which is not followed.
  fs::rename(Directory(moved->id), directory_ / "elsewhere");
  fs::create_directory_symlink(directory_ / "elsewhere", Directory(moved->id));
  remover_->RunRound();
  EXPECT_TRUE(IsThere(moved->id) && IsThere(last->id));
  EXPECT_FALSE(IsThere(empty->id));
  EXPECT_THAT(log_, ElementsAre(HasSubstr(empty->id)));
}

TEST_F(JobDeletionTest, TheThreadWorksByItself) {
  OpenRemover(/*keep_ended_jobs=*/1);
  remover_->Start();
  const JobPtr first = Ended(kAnna), second = Ended(kAnna);
  while (fs::exists(Directory(first->id))) std::this_thread::yield();
  ASSERT_TRUE(manager_->Delete(kAnna, second->id).ok());
  while (fs::exists(Directory(second->id))) std::this_thread::yield();
}

TEST_F(JobDeletionTest, TheThreadFinishesWhatATurnIsTooShortFor) {
  OpenRemover(/*keep_ended_jobs=*/0, /*turn_seconds=*/0.005);
  const JobPtr job = Ended(kAnna);
  fs::create_directories(job->spec->checkpoint.directory);
  for (int i = 0; i < 5000; ++i) {
    std::ofstream(job->spec->checkpoint.directory + "/" + std::to_string(i)) << "x";
  }
  ASSERT_TRUE(manager_->Delete(kAnna, job->id).ok());
  remover_->Start();
  while (fs::exists(Directory(job->id))) std::this_thread::yield();
}

}  // namespace
}  // namespace megatrain
