#include "server/manager/job_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "server/base/error_reason.h"
#include "tests/server/manager/job_ledger_fixture.h"
#include "tests/server/store/faulty_vfs.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A legal way from QUEUED to `state`.
std::vector<JobState> WayTo(JobState state) {
  using S = JobState;
  switch (state) {
    case S::kQueued:
      return {};
    case S::kPreparing:
      return {S::kPreparing};
    case S::kRunning:
      return {S::kPreparing, S::kRunning};
    case S::kPausing:
      return {S::kPreparing, S::kRunning, S::kPausing};
    case S::kPaused:
      return {S::kPreparing, S::kRunning, S::kPausing, S::kPaused};
    case S::kCancelling:
      return {S::kPreparing, S::kCancelling};
    case S::kSucceeded:
      return {S::kPreparing, S::kRunning, S::kSucceeded};
    case S::kFailed:
      return {S::kFailed};
    case S::kCancelled:
      return {S::kCancelled};
  }
  return {};
}

TEST(JobLedgerTest, EveryTransitionIsCheckedAndRecorded) {
  const TestDirectory directory;
  const auto ledger = OpenLedger(directory.path());
  for (const JobState from : AllJobStates()) {
    for (const JobState to : AllJobStates()) {
      const std::string id = AddJob(ledger.get())->id;
      for (const JobState step : WayTo(from)) ASSERT_TRUE(Move(ledger.get(), id, step).ok());
      const JobPtr before = ledger->table().Find(id);
      const absl::Status status = Move(ledger.get(), id, to);
      const JobPtr after = ledger->table().Find(id);
      SCOPED_TRACE(std::string(JobStateName(from)) + " " + JobStateName(to));
      ASSERT_EQ(status.ok(), IsLegalTransition(from, to));
      if (status.ok()) {
        EXPECT_EQ(after->state, to);
        EXPECT_EQ(after->version, before->version + 1);
        const std::vector<JobEvent> events =
            ledger->table().Events(id, ledger->table().LastEvent(id), 5);
        ASSERT_EQ(events.size(), 1u);
        EXPECT_EQ(events[0].from, from);
        EXPECT_EQ(events[0].to, to);
        EXPECT_EQ(events[0].reason, JobReason::kUserRequest);
        EXPECT_EQ(events[0].text, "moved");
        EXPECT_EQ(events[0].time, after->updated);
        EXPECT_EQ(after->reason_text, "moved");
        EXPECT_EQ(after->ended != absl::InfinitePast(), IsEnded(to));
      } else {
        EXPECT_EQ(after, before) << "something changed";
        EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_EQ(ReasonOf(status)->reason, "ILLEGAL_TRANSITION");
      }
    }
  }
}

TEST(JobLedgerTest, AJobHasWaitedSinceItWasQueuedLast) {
  const TestDirectory directory;
  absl::Time now = absl::FromUnixSeconds(1000);
  const auto open = [&] {
    return *JobLedger::Open(
        *JobStore::Open(directory.path()),
        {.state_directory = directory.path(), .reached_step = nullptr, .now = [&] { return now; }});
  };
  std::string id;
  {
    const auto ledger = open();
    id = AddJob(ledger.get())->id;
    const auto queued = [&] { return absl::ToUnixSeconds(ledger->table().Find(id)->queued); };
    EXPECT_EQ(queued(), 1000);
    now += absl::Seconds(10);
    ASSERT_TRUE(ledger
                    ->Change(id,
                             [](const Job&) -> absl::StatusOr<std::optional<JobChange>> {
                               JobChange change;
                               change.edit = [](Job* job) { job->priority = -1; };
                               return change;
                             })
                    .ok());
    EXPECT_EQ(ledger->table().LastEvent(id), 1) << "without a text it is no event";
    EXPECT_EQ(ledger->table().Find(id)->reason, JobReason::kUserRequest);
    ASSERT_TRUE(Move(ledger.get(), id, JobState::kPreparing).ok());
    now += absl::Seconds(10);
    ASSERT_TRUE(Move(ledger.get(), id, JobState::kQueued).ok());
    EXPECT_EQ(queued(), 1000) << "it could not be started";
    for (const JobState state : {JobState::kPreparing, JobState::kRunning, JobState::kQueued}) {
      now += absl::Seconds(10);
      ASSERT_TRUE(Move(ledger.get(), id, state).ok());
    }
    EXPECT_EQ(queued(), 1050);
  }
  now += absl::Seconds(10);
  EXPECT_EQ(open()->table().Find(id)->queued, absl::FromUnixSeconds(1050)) << "the last change";
}

// A kill at each point: what a reader was told is what is found after it.
TEST(JobLedgerTest, WhatWasAnnouncedOutlivesAKillAtEveryTransition) {
  const TestDirectory directory;
  const auto ledger = OpenLedger(directory / "state");
  int kills = 0;
  for (const JobState last : AllJobStates()) {
    const std::string id = AddJob(ledger.get())->id;
    std::vector<JobState> way = WayTo(last);
    std::string copy;
    // The copy is taken when the announcement arrives, in the middle of the change.
    const auto watch = ledger->table().Watch(id, 1, [&] {
      copy = directory / ("kill" + std::to_string(kills++));
      fs::copy(directory / "state", copy);
    });
    watch->Poll();
    for (const JobState state : way) {
      ASSERT_TRUE(Move(ledger.get(), id, state).ok());
      const JobWatch::Update update = watch->Poll();
      ASSERT_NE(update.job, nullptr);
      ASSERT_EQ(update.events.size(), 1u);

      const auto reopened = OpenLedger(copy);
      const JobPtr job = reopened->table().Find(id);
      ASSERT_NE(job, nullptr);
      EXPECT_EQ(job->state, StateAfterRestart(state));
      const std::vector<JobEvent> events = reopened->table().Events(id, 1, 100);
      const auto told = static_cast<size_t>(update.events[0].sequence);
      ASSERT_GE(events.size(), told);
      EXPECT_EQ(events[told - 1], update.events[0]);
      EXPECT_EQ(events.size(), told + (IsActive(state) ? 1 : 0)) << "the restart is an event";
      // And once more: a second restart changes nothing.
      const int64_t version = job->version;
      fs::copy(copy, copy + "again");
      const auto again = OpenLedger(copy + "again");
      EXPECT_EQ(again->table().Find(id)->version, version);
    }
  }
}

TEST(JobLedgerTest, DeathsAreCountedAcrossRestarts) {
  const TestDirectory directory;
  int64_t reached = 0;
  const auto open = [&] {
    return OpenLedger(directory.path(), [&](const std::string&) { return reached; });
  };
  std::string id;
  {
    const auto ledger = open();
    id = AddJob(ledger.get())->id;
  }
  const auto run_and_die = [&](int64_t step) {
    const auto ledger = open();
    EXPECT_EQ(ledger->table().Find(id)->state, JobState::kQueued);
    EXPECT_TRUE(Move(ledger.get(), id, JobState::kPreparing).ok());
    EXPECT_TRUE(Move(ledger.get(), id, JobState::kRunning).ok());
    reached = step;  // as the records have it; the store is not told
  };
  run_and_die(10);  // further than the beginning
  run_and_die(12);  // further
  for (int i = 0; i < 5; ++i) run_and_die(12);
  const auto ledger = open();
  EXPECT_EQ(ledger->table().Find(id)->state, JobState::kFailed);
  EXPECT_EQ(ledger->table().Find(id)->reason, JobReason::kRepeatedDeaths);
  EXPECT_EQ(ledger->table().Find(id)->deaths, 5);
}

TEST(JobLedgerTest, AJobGotAsFarAsTheStoreOrItsRecordsSay) {
  const TestDirectory directory;
  std::string running, cancelled;
  {
    const auto ledger = OpenLedger(directory.path());
    running = AddJob(ledger.get())->id;
    cancelled = AddJob(ledger.get())->id;
    const auto at_step_7 = [](Job* job) { job->step = 7; };
    ASSERT_TRUE(Move(ledger.get(), running, JobState::kPreparing, at_step_7).ok());
    ASSERT_TRUE(Move(ledger.get(), cancelled, JobState::kCancelled, at_step_7).ok());
  }
  std::vector<std::string> asked;
  const auto ledger = OpenLedger(directory.path(), [&](const std::string& id) {
    asked.push_back(id);
    return 3;  // the newest records were lost
  });
  EXPECT_THAT(asked, ElementsAre(running)) << "the others did not die";
  EXPECT_EQ(ledger->table().Find(running)->death_step, 7);
  EXPECT_EQ(ledger->table().Find(cancelled)->step, 7);
}

TEST(JobLedgerTest, AStoreThatCannotWriteChangesNothing) {
  const TestDirectory directory;
  FaultyVfs* const vfs = FaultyVfs::Install();
  const auto ledger = OpenLedger(directory.path());
  const JobPtr job = AddJob(ledger.get());
  bool told = false;
  const auto watch = ledger->table().Watch(job->id, 1, [&] { told = true; });
  watch->Poll();
  vfs->FailAfter(0, SQLITE_FULL);
  const absl::Status status = Move(ledger.get(), job->id, JobState::kPreparing);
  Job second = *job;
  second.id = "second";
  const absl::Status added = ledger->Add(second, "").status();
  vfs->FailAfter(0, SQLITE_IOERR_WRITE);
  const absl::Status broken = Move(ledger.get(), job->id, JobState::kPreparing);
  vfs->Heal();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(status)->reason, "DISK_FULL");
  EXPECT_EQ(ReasonOf(added)->reason, "DISK_FULL");
  EXPECT_EQ(ReasonOf(broken)->reason, "INTERNAL_ERROR");
  EXPECT_EQ(ledger->store_errors(), 3);
  EXPECT_FALSE(told);
  EXPECT_EQ(ledger->table().Find(job->id), job);
  EXPECT_EQ(ledger->table().Find("second"), nullptr);
  EXPECT_TRUE(Move(ledger.get(), job->id, JobState::kPreparing).ok());
  EXPECT_TRUE(told);
  EXPECT_EQ((*ledger->Add(second, ""))->number, job->number + 1);
}

TEST(JobLedgerTest, AStoreThatCannotWriteDeletesNothing) {
  const TestDirectory directory;
  FaultyVfs* const vfs = FaultyVfs::Install();
  const auto ledger = OpenLedger(directory.path());
  const std::string id = AddJob(ledger.get())->id;
  ASSERT_TRUE(Move(ledger.get(), id, JobState::kCancelled).ok());
  const auto anyone = [](const Job&) { return absl::OkStatus(); };
  vfs->FailAfter(0, SQLITE_FULL);
  const absl::Status refused = ledger->Delete(id, anyone);
  vfs->Heal();
  EXPECT_EQ(ReasonOf(refused)->reason, "DISK_FULL");
  EXPECT_NE(ledger->table().Find(id), nullptr);
  EXPECT_TRUE(ledger->Deleted().empty());
  ASSERT_TRUE(ledger->Delete(id, anyone).ok());
  vfs->FailAfter(0, SQLITE_FULL);
  const absl::Status kept = ledger->RemoveRow(id);
  vfs->Heal();
  EXPECT_EQ(ReasonOf(kept)->reason, "DISK_FULL");
  EXPECT_EQ(ledger->Deleted().size(), 1u) << "its row is there still";
  EXPECT_EQ(ledger->store_errors(), 2);
}

TEST(JobLedgerTest, ARequestIdMakesOneJobAlsoAfterARestart) {
  const TestDirectory directory;
  std::string id;
  {
    const auto ledger = OpenLedger(directory.path());
    id = AddJob(ledger.get(), "one")->id;
    EXPECT_EQ(AddJob(ledger.get(), "one")->id, id);
    EXPECT_NE(AddJob(ledger.get(), "two")->id, id);
  }
  const auto ledger = OpenLedger(directory.path());
  EXPECT_EQ(AddJob(ledger.get(), "one")->id, id);
  EXPECT_EQ(ledger->table().All().size(), 2u);
}

TEST(JobLedgerTest, SpecsAreParsedAgain) {
  const TestDirectory directory;
  std::string good, bad;
  {
    const auto ledger = OpenLedger(directory.path());
    good = AddJob(ledger.get())->id;
    Job job;
    job.id = bad = ledger->NewId();
    JobFile file = TestFile();
    file.yaml += "future_key: 1\n";
    job.file = std::make_shared<const JobFile>(file);
    ASSERT_TRUE(ledger->Add(job, "").ok());
  }
  const auto ledger = OpenLedger(directory.path());
  const JobPtr job = ledger->table().Find(good);
  EXPECT_EQ(job->queue.waiting, WaitingReason::kNotConsidered);
  ASSERT_NE(job->spec, nullptr);
  EXPECT_EQ(job->spec->training.steps, 100);
  EXPECT_EQ(job->spec->checkpoint.directory, directory.path() + "/jobs/" + good + "/checkpoints");
  EXPECT_EQ(ledger->table().Find(bad)->spec, nullptr);
}

TEST(JobLedgerTest, ListenersAreCalledAfterEveryStoredChange) {
  const TestDirectory directory;
  const auto ledger = OpenLedger(directory.path());
  int calls = 0;
  ledger->AddListener(&calls, [&calls] { ++calls; });
  const std::string id = AddJob(ledger.get())->id;
  EXPECT_EQ(calls, 1);
  ASSERT_TRUE(Move(ledger.get(), id, JobState::kCancelled).ok());
  EXPECT_EQ(calls, 2);
  ASSERT_TRUE(ledger->Delete(id, [](const Job&) { return absl::OkStatus(); }).ok());
  EXPECT_EQ(calls, 3);
  ASSERT_TRUE(ledger->RemoveRow(id).ok());
  EXPECT_EQ(calls, 4) << "there is more room on the disk";
  ledger->RemoveListener(&calls);
  AddJob(ledger.get());
  EXPECT_EQ(calls, 4);
}

TEST(JobLedgerTest, UnknownJobsAndRefusedDecisions) {
  const TestDirectory directory;
  const auto ledger = OpenLedger(directory.path());
  EXPECT_EQ(ReasonOf(Move(ledger.get(), "none", JobState::kFailed))->reason, "JOB_NOT_FOUND");
  const JobPtr job = AddJob(ledger.get());
  EXPECT_EQ(ledger
                ->Change(job->id,
                         [](const Job&) -> absl::StatusOr<std::optional<JobChange>> {
                           return absl::AbortedError("no");
                         })
                .status(),
            absl::AbortedError("no"));
  const auto unchanged = ledger->Change(
      job->id, [](const Job&) -> absl::StatusOr<std::optional<JobChange>> { return std::nullopt; });
  EXPECT_EQ(*unchanged, job);
}

TEST(JobLedgerTest, ProgressIsShownAndStoredWithTheNextChange) {
  const TestDirectory directory;
  std::string id;
  {
    const auto ledger = OpenLedger(directory.path());
    id = AddJob(ledger.get())->id;
    StepRecord record;
    record.step = 7;
    record.loss = 2.5;
    ledger->SetProgress(id, record, 0.25);
    ledger->SetProgress("none", record, 0.25);
    EXPECT_EQ(ledger->table().Find(id)->last_step->loss, 2.5);
    EXPECT_EQ(ledger->table().Find(id)->step_seconds, 0.25);
    ASSERT_TRUE(Move(ledger.get(), id, JobState::kPreparing).ok());
    ASSERT_TRUE(Move(ledger.get(), id, JobState::kQueued).ok());
  }
  EXPECT_EQ(OpenLedger(directory.path())->table().Find(id)->step, 7);
}

TEST(JobLedgerTest, AnEndedJobKeepsNoHostMemory) {
  const TestDirectory directory;
  const auto ledger = OpenLedger(directory.path());
  const std::string id = AddJob(ledger.get())->id;
  for (const JobState state : {JobState::kPreparing, JobState::kRunning, JobState::kPausing}) {
    ASSERT_TRUE(Move(ledger.get(), id, state).ok());
  }
  const auto keep = [](Job* job) { job->host_retained = job->release_host = true; };
  ASSERT_TRUE(Move(ledger.get(), id, JobState::kPaused, keep).ok());
  ASSERT_TRUE(Move(ledger.get(), id, JobState::kCancelling).ok());
  EXPECT_TRUE(ledger->table().Find(id)->host_retained);
  ASSERT_TRUE(Move(ledger.get(), id, JobState::kCancelled).ok());
  EXPECT_FALSE(ledger->table().Find(id)->host_retained);
  EXPECT_FALSE(ledger->table().Find(id)->release_host);
}

TEST(JobLedgerTest, QueuePlacesAreForTheQueued) {
  const TestDirectory directory;
  const auto ledger = OpenLedger(directory.path());
  const std::string id = AddJob(ledger.get())->id;
  EXPECT_EQ(ledger->table().Find(id)->queue.waiting, WaitingReason::kNotConsidered);
  const QueuePlace place = {2, WaitingReason::kBehindOthers, "behind", std::nullopt};
  ledger->SetQueuePlaces({{id, place}, {"none", place}});
  EXPECT_EQ(ledger->table().Find(id)->queue, place);
  ASSERT_TRUE(Move(ledger.get(), id, JobState::kPreparing).ok());
  EXPECT_EQ(ledger->table().Find(id)->queue, QueuePlace{});
  ledger->SetQueuePlaces({{id, place}});
  EXPECT_EQ(ledger->table().Find(id)->queue, QueuePlace{});
}

TEST(JobLedgerTest, ReadersWritersAndWatchesAtOnce) {
  const TestDirectory directory;
  const auto ledger = OpenLedger(directory.path());
  std::vector<std::string> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(AddJob(ledger.get())->id);
  std::atomic<int> changes{0};
  ledger->AddListener(&changes, [&] { ++changes; });
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {  // a writer a job, and one that interferes
    threads.emplace_back([&, i] {
      for (int round = 0; round < 25; ++round) {
        (void)Move(ledger.get(), ids[static_cast<size_t>(i)], JobState::kPreparing);
        (void)Move(ledger.get(), ids[static_cast<size_t>((i + 1) % 4)], JobState::kQueued);
        ledger->SetProgress(ids[static_cast<size_t>(i)], StepOf(round), 1.0);
        ledger->SetQueuePlaces({{ids[static_cast<size_t>(i)], PlaceOf(round)}});
      }
    });
  }
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&, i] {
      std::map<std::string, int64_t> versions;
      while (!done) {
        std::atomic<int> rings{0};
        const auto watch = ledger->table().Watch(ids[static_cast<size_t>(i)], 1, [&] { ++rings; });
        int64_t next = 1;
        for (const JobEvent& event : watch->Poll(1000).events) EXPECT_EQ(event.sequence, next++);
        for (const JobPtr& job : ledger->table().All()) {
          EXPECT_GE(job->version, versions[job->id]);
          versions[job->id] = job->version;
        }
        (void)ledger->table().Counts();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  done = true;
  for (std::thread& reader : readers) reader.join();
  ledger->RemoveListener(&changes);
  int64_t events = 0;
  for (const std::string& id : ids) events += ledger->table().LastEvent(id) - 1;
  EXPECT_EQ(events, changes.load());
  const JobCounts counts = ledger->table().Counts();
  EXPECT_EQ(counts.queued + counts.active, 4);
}

}  // namespace
}  // namespace megatrain
