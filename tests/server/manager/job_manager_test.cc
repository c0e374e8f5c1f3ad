#include "server/manager/job_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "tests/server/manager/job_manager_fixture.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using S = JobState;

// ---- Create ----

TEST_F(JobManagerTest, CreateFillsTheJobIn) {
  CreateJobOptions options = Options("3b241101-e2bb-4255-8caf-4136c566a962");
  options.priority = -7;
  const auto created = manager_->Create(kAnna, options);
  ASSERT_TRUE(created.ok()) << created.status();
  const Job& job = **created;
  EXPECT_EQ(job.id.size(), 10u);
  EXPECT_EQ(job.id.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789"), std::string::npos);
  EXPECT_EQ(job.display_name, "demo");
  EXPECT_EQ(job.user, "anna");
  EXPECT_EQ(job.uid, 1000);
  EXPECT_EQ(job.priority, -7);
  EXPECT_EQ(job.pool_bytes, 1000);
  EXPECT_EQ(job.checkpoint_bytes, 77);
  EXPECT_EQ(job.state, JobState::kQueued);
  EXPECT_EQ(job.version, 1);
  EXPECT_EQ(*job.file, options.file);
  EXPECT_EQ(job.spec->checkpoint.directory,
            directory_.path() + "/state/jobs/" + job.id + "/checkpoints");
  EXPECT_EQ(*manager_->Get(kAnna, job.id), *created);
}

TEST_F(JobManagerTest, AnExplicitCheckpointDirectoryIsKept) {
  CreateJobOptions options = Options();
  options.file.overrides.push_back("checkpoint.directory=/big/disk");
  EXPECT_EQ((*manager_->Create(kAnna, options))->spec->checkpoint.directory, "/big/disk");
}

TEST_F(JobManagerTest, TheSameRequestIsTheSameJob) {
  const JobPtr job = Submit(kAnna, "one");
  plan_ = absl::InternalError("not asked again");
  EXPECT_EQ(Submit(kAnna, "one")->id, job->id);
  Open();
  EXPECT_EQ(Submit(kAnna, "one")->id, job->id) << "after a restart";
  plan_ = TestPlan(true, 0);
  Move(job->id, {S::kFailed});
  EXPECT_EQ(Submit(kAnna, "one")->id, job->id) << "whatever became of it";
  EXPECT_NE(Submit(kBert, "one")->id, job->id) << "another user's";
  EXPECT_NE(Submit(kAnna)->id, Submit(kAnna)->id) << "without one";
}

TEST_F(JobManagerTest, ARequestIdForAnotherSpecIsRefused) {
  const JobPtr job = Submit(kAnna, "one");
  CreateJobOptions other = Options("one");
  other.file.overrides.push_back("training.steps=7");
  const absl::Status status = manager_->Create(kAnna, other).status();
  EXPECT_EQ(Refusal(status), "ALREADY_EXISTS REQUEST_ID_REUSED");
  EXPECT_EQ(ReasonOf(status)->metadata[0].second, job->id);
  other = Options("one");
  other.priority = -1;
  EXPECT_EQ(Refusal(manager_->Create(kAnna, other).status()), "ALREADY_EXISTS REQUEST_ID_REUSED");
}

TEST_F(JobManagerTest, TheSameRequestFromManyThreadsIsOneJob) {
  std::vector<std::string> ids(8);
  std::vector<std::thread> threads;
  for (std::string& id : ids) {
    threads.emplace_back([&] { id = Submit(kAnna, "one")->id; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), 1u);
  EXPECT_EQ(ledger_->table().Counts().queued, 1);
}

TEST_F(JobManagerTest, AnotherJobThatWasFasterWithTheRequestIdIsNotTheAnswer) {
  CreateJobOptions faster = Options("one");
  faster.priority = -1;
  JobManager manager(ledger_.get(), JobManager::Options{.plan = [&](const JobSpec&, FileSystem*) {
                       EXPECT_TRUE(manager_->Create(kAnna, faster).ok());
                       return plan_;
                     }});
  EXPECT_EQ(Refusal(manager.Create(kAnna, Options("one")).status()),
            "ALREADY_EXISTS REQUEST_ID_REUSED");
  EXPECT_EQ(ledger_->table().Counts().queued, 1);
}

TEST_F(JobManagerTest, ValidateOnlyChecksAndKeepsNothing) {
  CreateJobOptions options = Options("one");
  options.validate_only = true;
  const auto job = manager_->Create(kAnna, options);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ((*job)->id, "");
  EXPECT_EQ((*job)->display_name, "demo");
  EXPECT_EQ(ledger_->table().Counts().queued, 0);
  options.file.yaml += "nonsense: 1\n";
  EXPECT_EQ(Refusal(manager_->Create(kAnna, options).status()),
            "INVALID_ARGUMENT INVALID_JOB_FILE");
}

TEST_F(JobManagerTest, ValidateOnlyChecksAnewWhatWasSubmittedBefore) {
  Submit(kAnna, "one");
  CreateJobOptions options = Options("one");
  options.validate_only = true;
  const auto again = manager_->Create(kAnna, options);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->id, "") << "it is no job";
  plan_ = TestPlan(false, 1, "host 9 TiB of 1 TiB");
  EXPECT_EQ(Refusal(manager_->Create(kAnna, options).status()), "FAILED_PRECONDITION DOES_NOT_FIT");
  EXPECT_EQ(ledger_->table().Counts().queued, 1);
}

TEST_F(JobManagerTest, WhatCanNeverFitIsRefusedWithThePlan) {
  plan_ = TestPlan(false, 1, "host 9 TiB of 1 TiB");
  const absl::Status status = manager_->Create(kAnna, Options()).status();
  EXPECT_EQ(Refusal(status), "FAILED_PRECONDITION DOES_NOT_FIT");
  EXPECT_EQ(status.message(), "host 9 TiB of 1 TiB");
  EXPECT_EQ(ledger_->table().Counts().queued, 0);
  // As a question it is no error.
  const auto plan = manager_->Plan(kAnna, File());
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(plan->report.fits);
}

TEST_F(JobManagerTest, BadRequestsAreRefused) {
  const auto refusal = [&](const std::function<void(CreateJobOptions*)>& spoil) {
    CreateJobOptions options = Options();
    spoil(&options);
    return Refusal(manager_->Create(kAnna, options).status());
  };
  EXPECT_EQ(refusal([](auto* o) { o->request_id = std::string(65, 'a'); }),
            "INVALID_ARGUMENT INVALID_FIELD");
  EXPECT_EQ(refusal([](auto* o) { o->request_id = "a b"; }), "INVALID_ARGUMENT INVALID_FIELD");
  EXPECT_EQ(refusal([](auto* o) { o->request_id = "ä"; }), "INVALID_ARGUMENT INVALID_FIELD");
  EXPECT_EQ(refusal([](auto* o) { o->priority = 101; }), "INVALID_ARGUMENT INVALID_FIELD");
  EXPECT_EQ(refusal([](auto* o) { o->priority = -101; }), "INVALID_ARGUMENT INVALID_FIELD");
  EXPECT_EQ(refusal([](auto* o) { o->priority = 1; }), "PERMISSION_DENIED NOT_PERMITTED");
  EXPECT_EQ(refusal([](auto* o) { o->file.base_directory = "here"; }),
            "INVALID_ARGUMENT INVALID_FIELD");
  EXPECT_EQ(refusal([](auto* o) {
              o->file.yaml = "";
              o->file.overrides.clear();
            }),
            "INVALID_ARGUMENT INVALID_JOB_FILE");
  EXPECT_EQ(refusal([](auto* o) { o->file.yaml = ": ["; }), "INVALID_ARGUMENT INVALID_JOB_FILE");
  EXPECT_EQ(refusal([](auto* o) { o->file.overrides.push_back("output.directory=out"); }),
            "INVALID_ARGUMENT INVALID_JOB_FILE");
  EXPECT_EQ(refusal([](auto* o) { o->file.overrides.push_back("model.path=/no/where"); }),
            "INVALID_ARGUMENT INVALID_JOB_FILE");
  EXPECT_EQ(refusal([](auto* o) {
              o->file.overrides.push_back("data.eval=[{path: /no/where, format: text}]");
            }),
            "INVALID_ARGUMENT INVALID_JOB_FILE");
  EXPECT_EQ(ledger_->table().Counts().queued, 0);

  CreateJobOptions urgent = Options();
  urgent.priority = kPriorityMax;
  EXPECT_TRUE(manager_->Create(kRoot, urgent).ok());
  CreateJobOptions longest = Options("A-z_0.9" + std::string(57, 'a'));
  longest.priority = kPriorityMin;
  EXPECT_TRUE(manager_->Create(kAnna, longest).ok());
}

TEST_F(JobManagerTest, ErrorsOfThePlan) {
  plan_ = absl::NotFoundError("/m/config.json: no such file");
  EXPECT_EQ(Refusal(manager_->Create(kAnna, Options()).status()),
            "INVALID_ARGUMENT INVALID_JOB_FILE");
  EXPECT_EQ(Refusal(manager_->Plan(kAnna, File()).status()), "INVALID_ARGUMENT INVALID_JOB_FILE");
  for (const absl::StatusCode code :
       {absl::StatusCode::kInvalidArgument, absl::StatusCode::kFailedPrecondition,
        absl::StatusCode::kOutOfRange, absl::StatusCode::kUnimplemented,
        absl::StatusCode::kDataLoss}) {
    plan_ = absl::Status(code, "/m/config.json: cannot be used");
    EXPECT_EQ(Refusal(manager_->Create(kAnna, Options()).status()),
              "INVALID_ARGUMENT INVALID_JOB_FILE")
        << absl::StatusCodeToString(code);
  }
  plan_ = absl::InternalError("the daemon's fault");
  EXPECT_EQ(manager_->Create(kAnna, Options()).status().code(), absl::StatusCode::kInternal);
}

TEST_F(JobManagerTest, APlanCountsWhatIsAhead) {
  EXPECT_EQ(manager_->Plan(kAnna, File())->jobs_ahead, 0);
  Submit(kBert);
  Move(Submit(kBert)->id, {S::kPreparing});
  Move(Submit(kBert)->id, {S::kCancelled});
  CreateJobOptions later = Options();
  later.priority = -1;
  ASSERT_TRUE(manager_->Create(kBert, later).ok());
  EXPECT_EQ(manager_->Plan(kAnna, File())->jobs_ahead, 2);
}

// ---- Who sees what ----

TEST_F(JobManagerTest, AnotherUsersJobDoesNotExist) {
  const std::string id = Submit(kAnna)->id;
  Move(id, {S::kPreparing, S::kRunning});
  const auto expect_missing = [&](const Caller& caller, const std::string& job) {
    std::vector<absl::Status> answers = {
        manager_->Get(caller, job).status(),
        manager_->Pause(caller, job, false).status(),
        manager_->Resume(caller, job).status(),
        manager_->Cancel(caller, job).status(),
        manager_->Checkpoint(caller, job).status(),
        manager_->ListCheckpoints(caller, job).status(),
        manager_->Export(caller, job, 0, directory_ / "out", [](const absl::Status&) {}).status(),
        manager_->Watch(caller, job, 1, [] {}).status()};
    for (const absl::Status& status : answers) {
      EXPECT_EQ(Refusal(status), "NOT_FOUND JOB_NOT_FOUND");
      EXPECT_EQ(status.message(), "there is no job " + job);
    }
  };
  expect_missing(kBert, id);  // the same words as for one that there is not
  expect_missing(kAnna, "none");
  expect_missing(kAnna, "");
  expect_missing(kRoot, "../" + id);
  EXPECT_EQ(StateOf(id), JobState::kRunning);
  EXPECT_THAT(checkpointed_, IsEmpty());

  EXPECT_TRUE(manager_->Get(kRoot, id).ok());
  EXPECT_TRUE(manager_->Watch(kRoot, id, 1, [] {}).ok());
  EXPECT_TRUE(manager_->Pause(kRoot, id, false).ok());
  EXPECT_EQ(ledger_->table().Counts().active, 1) << "for everybody";
}

TEST_F(JobManagerTest, ListsAreFilteredAndPaged) {
  std::vector<std::string> annas;
  for (int i = 0; i < 7; ++i) {
    annas.push_back(Submit(kAnna)->id);
    Submit(kBert);
  }
  Move(annas[2], {S::kCancelled});
  const auto list = [&](const Caller& caller, ListJobsOptions options) {
    std::vector<std::string> ids;
    for (;;) {
      const auto page = manager_->List(caller, options);
      EXPECT_TRUE(page.ok());
      EXPECT_LE(page->jobs.size(), static_cast<size_t>(options.page_size));
      for (const JobPtr& job : page->jobs) ids.push_back(job->id);
      if (page->next == 0) return ids;
      options.after_number = page->next;
    }
  };
  EXPECT_EQ(list(kAnna, {.filter = {}, .newest_first = false, .page_size = 3}), annas);
  EXPECT_EQ(list(kAnna, {.filter = {}, .newest_first = true, .page_size = 2}),
            std::vector<std::string>(annas.rbegin(), annas.rend()));
  EXPECT_EQ(list(kRoot, {.filter = {}, .newest_first = true, .page_size = 1}).size(), 14u);
  EXPECT_EQ(list(kRoot, {.filter = {}, .newest_first = true, .page_size = 14}).size(), 14u);
  const auto cancelled = [](const Job& job) { return job.state == JobState::kCancelled; };
  EXPECT_THAT(list(kAnna, {.filter = cancelled}), ElementsAre(annas[2]));
  EXPECT_THAT(list(kBert, {.filter = cancelled}), IsEmpty());
  EXPECT_EQ(Refusal(manager_->List(kAnna, {.filter = {}, .page_size = 0}).status()),
            "INVALID_ARGUMENT INVALID_FIELD");
}

TEST_F(JobManagerTest, PagesAreStableWhileJobsCome) {
  std::vector<std::string> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(Submit(kAnna)->id);
  ListJobsOptions options = {.filter = {}, .newest_first = true, .page_size = 2};
  const auto first = manager_->List(kAnna, options);
  Submit(kAnna);
  options.after_number = first->next;
  const auto second = manager_->List(kAnna, options);
  ASSERT_EQ(second->jobs.size(), 2u);
  EXPECT_EQ(second->jobs[0]->id, ids[1]);
  EXPECT_EQ(second->jobs[1]->id, ids[0]);
  EXPECT_EQ(second->next, 0);
}

TEST_F(JobManagerTest, WatchesBeginWhereAsked) {
  const std::string id = Submit(kAnna)->id;
  Move(id, {S::kPreparing, S::kRunning});
  EXPECT_EQ((*manager_->Watch(kAnna, id, 0, [] {}))->Poll().events.size(), 3u);
  EXPECT_EQ((*manager_->Watch(kAnna, id, 1, [] {}))->Poll().events.size(), 3u);
  EXPECT_EQ((*manager_->Watch(kAnna, id, 3, [] {}))->Poll().events.size(), 1u);
  EXPECT_EQ((*manager_->Watch(kAnna, id, 4, [] {}))->Poll().events.size(), 0u);
  EXPECT_EQ(Refusal(manager_->Watch(kAnna, id, 5, [] {}).status()),
            "INVALID_ARGUMENT INVALID_FIELD");
  EXPECT_EQ(Refusal(manager_->Watch(kAnna, id, -1, [] {}).status()),
            "INVALID_ARGUMENT INVALID_FIELD");
}

// ---- Control ----

// What each call makes of a job in each state.
TEST_F(JobManagerTest, ControlInEveryState) {
  struct Row {
    std::vector<JobState> way;
    std::string pause, resume, cancel;
  };
  const std::string no = "FAILED_PRECONDITION ILLEGAL_TRANSITION";
  const std::vector<Row> rows = {
      {{}, no, "QUEUED", "CANCELLED"},
      {{S::kPreparing}, no, "PREPARING", "CANCELLING"},
      {{S::kPreparing, S::kRunning}, "PAUSING", "RUNNING", "CANCELLING"},
      {{S::kPreparing, S::kRunning, S::kPausing}, "PAUSING", "RUNNING", "CANCELLING"},
      {{S::kPreparing, S::kRunning, S::kPausing, S::kPaused}, "PAUSED", "QUEUED", "CANCELLING"},
      {{S::kPreparing, S::kCancelling}, no, no, "CANCELLING"},
      {{S::kPreparing, S::kRunning, S::kSucceeded}, no, no, no},
      {{S::kFailed}, no, no, no},
      {{S::kCancelled}, no, no, "CANCELLED"},
  };
  const auto outcome = [&](const Row& row, auto call) -> std::string {
    const std::string id = Submit(kAnna)->id;
    Move(id, row.way);
    const JobPtr before = *manager_->Get(kAnna, id);
    const absl::StatusOr<JobPtr> after = call(id);
    if (!after.ok()) {
      EXPECT_EQ(*manager_->Get(kAnna, id), before);
      EXPECT_THAT(std::string(after.status().message()), HasSubstr(JobStateName(before->state)));
      return Refusal(after.status());
    }
    return JobStateName((*after)->state);
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.way.empty() ? "QUEUED" : JobStateName(row.way.back()));
    EXPECT_EQ(outcome(row, [&](const auto& id) { return manager_->Pause(kAnna, id, false); }),
              row.pause);
    EXPECT_EQ(outcome(row, [&](const auto& id) { return manager_->Pause(kAnna, id, true); }),
              row.pause);
    EXPECT_EQ(outcome(row, [&](const auto& id) { return manager_->Resume(kAnna, id); }),
              row.resume);
    EXPECT_EQ(outcome(row, [&](const auto& id) { return manager_->Cancel(kAnna, id); }),
              row.cancel);
  }
}

TEST_F(JobManagerTest, RepeatedCallsChangeNothing) {
  const std::string id = Submit(kAnna)->id;
  Move(id, {S::kPreparing, S::kRunning});
  const JobPtr pausing = *manager_->Pause(kAnna, id, true);
  EXPECT_TRUE(pausing->release_host);
  EXPECT_EQ(*manager_->Pause(kAnna, id, true), pausing);
  EXPECT_EQ(*manager_->Pause(kAnna, id, false), pausing) << "what was asked for stays asked for";
  const JobPtr cancelling = *manager_->Cancel(kAnna, id);
  EXPECT_EQ(*manager_->Cancel(kAnna, id), cancelling);
}

TEST_F(JobManagerTest, APauseMayBeExtended) {
  const std::string id = Submit(kAnna)->id;
  Move(id, {S::kPreparing, S::kRunning});
  EXPECT_FALSE((*manager_->Pause(kAnna, id, false))->release_host);
  EXPECT_TRUE((*manager_->Pause(kAnna, id, true))->release_host);
  const absl::Status status = manager_->Resume(kAnna, id).status();
  EXPECT_EQ(Refusal(status), "FAILED_PRECONDITION ILLEGAL_TRANSITION");
  EXPECT_THAT(std::string(status.message()), HasSubstr("being saved"));
  Move(id, {S::kPaused}, JobReason::kUserRequest);
  const JobPtr queued = *manager_->Resume(kAnna, id);
  EXPECT_EQ(queued->state, JobState::kQueued);
  EXPECT_FALSE(queued->release_host);
}

TEST_F(JobManagerTest, ReleasingIsForWhatIsHeld) {
  const std::string id = Submit(kAnna)->id;
  Move(id, {S::kPreparing, S::kRunning, S::kPausing, S::kPaused}, JobReason::kUserRequest);
  EXPECT_FALSE((*manager_->Pause(kAnna, id, true))->release_host) << "nothing is held";
}

TEST_F(JobManagerTest, AUsersPauseTakesOverTheDaemons) {
  const std::string id = Submit(kAnna)->id;
  Move(id, {S::kPreparing, S::kRunning, S::kPausing, S::kPaused}, JobReason::kDiskFull);
  const JobPtr job = *manager_->Pause(kAnna, id, false);
  EXPECT_EQ(job->state, JobState::kPaused);
  EXPECT_EQ(job->reason, JobReason::kUserRequest);
  EXPECT_EQ(job->reason_text, "paused by anna");
  EXPECT_EQ(ledger_->table().Events(id, 6, 1)[0].from, JobState::kPaused);
  EXPECT_EQ(ledger_->table().Events(id, 6, 1)[0].text, "paused by anna");
  const Caller nameless = {.uid = 0, .user = "", .administrator = true};
  EXPECT_EQ((*manager_->Cancel(nameless, id))->reason_text, "cancelled by user 0");
}

// Whoever comes first: every answer is one that the state at that moment allows, and the job ends
// where the table allows.
TEST_F(JobManagerTest, ControlFromManyThreads) {
  std::vector<std::string> ids;
  for (int i = 0; i < 8; ++i) {
    ids.push_back(Submit(kAnna)->id);
    Move(ids.back(), {S::kPreparing, S::kRunning});
  }
  std::vector<std::thread> threads;
  for (int kind = 0; kind < 3; ++kind) {
    threads.emplace_back([&, kind] {
      for (int round = 0; round < 5; ++round) {
        for (const std::string& id : ids) {
          const absl::Status status = kind == 0   ? manager_->Pause(kAnna, id, false).status()
                                      : kind == 1 ? manager_->Resume(kAnna, id).status()
                                                  : manager_->Cancel(kAnna, id).status();
          if (!status.ok()) {
            EXPECT_EQ(Refusal(status), "FAILED_PRECONDITION ILLEGAL_TRANSITION");
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& id : ids) {
    EXPECT_EQ(StateOf(id), JobState::kCancelling);
    const std::vector<JobEvent> events = ledger_->table().Events(id, 1, 1000);
    for (size_t i = 1; i < events.size(); ++i) {
      EXPECT_EQ(events[i].from, events[i - 1].to);
      EXPECT_TRUE(events[i].from == events[i].to ||
                  IsLegalTransition(*events[i].from, events[i].to));
    }
  }
}

TEST_F(JobManagerTest, WhereCheckpointsAreIsKnownAfterARestart) {
  CreateJobOptions elsewhere = Options();
  elsewhere.file.overrides.push_back("checkpoint.directory=" + (directory_ / "big"));
  const std::string own = Submit(kAnna)->id;
  const auto created = manager_->Create(kAnna, elsewhere);
  ASSERT_TRUE(created.ok()) << created.status();
  const std::string other = (*created)->id;
  Open();
  EXPECT_TRUE(ledger_->table().Find(own)->own_checkpoints);
  EXPECT_FALSE(ledger_->table().Find(other)->own_checkpoints);
}

}  // namespace
}  // namespace megatrain
