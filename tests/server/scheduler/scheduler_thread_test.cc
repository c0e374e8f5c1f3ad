// The scheduler on its own thread, with users and the engine on theirs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "server/manager/job_manager.h"
#include "server/scheduler/scheduler.h"
#include "tests/server/jobs/test_job.h"
#include "tests/server/scheduler/threaded_runner.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using S = JobState;

constexpr double kPatienceSeconds = 30;

class Daemon {
 public:
  Daemon(const std::string& directory, int64_t steps, std::map<std::string, int64_t>* checkpoints,
         int devices = 1)
      : directory_(directory), records_(directory + "/jobs") {
    fs::create_directories(directory_ + "/../model");
    std::ofstream(directory_ + "/../train.jsonl") << "{}";
    auto store = JobStore::Open(directory);
    EXPECT_TRUE(store.ok()) << store.status();
    ledger_ = *JobLedger::Open(
        *std::move(store),
        {.state_directory = directory,
         .reached_step = [this](const std::string& id) { return records_.LastStep(id); },
         .now = absl::Now});
    manager_ = std::make_unique<JobManager>(
        ledger_.get(),
        JobManager::Options{
            .plan = [](const JobSpec&,
                       FileSystem*) { return absl::StatusOr<PlanReport>(TestPlan(true, 10)); },
            .checkpoint =
                [this](const std::string& id) { return runner_->Ask(id, RunWish::kCheckpoint); }});
    runner_ = std::make_unique<ThreadedRunner>(steps, checkpoints, &mailbox_);
    scheduler_ = std::make_unique<Scheduler>(
        ledger_.get(), runner_.get(), &mailbox_, &records_,
        Scheduler::Options{.devices = {.count = devices},
                           .pool_bytes = 1000,
                           .free_disk_bytes = [](const Job&, const std::string&)
                               -> absl::StatusOr<int64_t> { return int64_t{1} << 40; },
                           .log = {}});
    scheduler_->Start();
  }
  JobManager& manager() { return *manager_; }
  JobLedger& ledger() { return *ledger_; }
  Scheduler& scheduler() { return *scheduler_; }

  std::string Submit(const Caller& caller, int devices = 1) {
    CreateJobOptions options;
    options.file = TestFile();
    options.file.overrides = {
        "model.path=" + directory_ + "/../model",
        "data.train=[{path: " + directory_ + "/../train.jsonl, format: alpaca}]",
        "engine.devices=" + std::to_string(devices)};
    const auto job = manager_->Create(caller, options);
    EXPECT_TRUE(job.ok()) << job.status();
    return (*job)->id;
  }

  // Until the job is as `wanted` says.
  bool Await(const std::string& id, const std::function<bool(const Job&)>& wanted) {
    Mutex mutex;
    CondVar changed;
    bool ready = false;
    const auto watch = ledger_->table().Watch(id, 1, [&] {
      MutexLock lock(&mutex);
      ready = true;
      changed.NotifyAll();
    });
    for (;;) {
      {
        // Before the look: news that come after it must not be forgotten.
        MutexLock lock(&mutex);
        ready = false;
      }
      const JobWatch::Update update = watch->Poll();
      if (update.job != nullptr && wanted(*update.job)) return true;
      if (update.more_events) continue;
      MutexLock lock(&mutex);
      while (!ready) {
        if (!changed.WaitFor(&mutex, kPatienceSeconds) && !ready) return false;
      }
    }
  }
  bool AwaitState(const std::string& id, JobState state) {
    return Await(id, [state](const Job& job) { return job.state == state; });
  }
  JobPtr Get(const std::string& id) { return ledger_->table().Find(id); }

 private:
  const std::string directory_;
  JobRecordsDirectory records_;
  std::unique_ptr<JobLedger> ledger_;
  std::unique_ptr<JobManager> manager_;
  RunMailbox mailbox_;
  std::unique_ptr<ThreadedRunner> runner_;
  std::unique_ptr<Scheduler> scheduler_;
};

const Caller kAnna = {.uid = 1000, .user = "anna", .administrator = false};

TEST(SchedulerThreadTest, JobsRunToTheirEnd) {
  const TestDirectory directory;
  std::map<std::string, int64_t> checkpoints;
  Daemon daemon(directory / "state", 50, &checkpoints);
  std::vector<std::string> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(daemon.Submit(kAnna));
  for (const std::string& id : ids) {
    ASSERT_TRUE(daemon.AwaitState(id, S::kSucceeded)) << JobStateName(daemon.Get(id)->state);
    EXPECT_EQ(daemon.Get(id)->step, 50);
    EXPECT_EQ(daemon.Get(id)->checkpoint_step, 50);
  }
}

TEST(SchedulerThreadTest, AStopSavesAndTheNextStartGoesOn) {
  const TestDirectory directory;
  std::map<std::string, int64_t> checkpoints;
  std::string paused, running, queued;
  {
    Daemon daemon(directory / "state", int64_t{1} << 40, &checkpoints);
    paused = daemon.Submit(kAnna);
    // Steps are told by the engine's thread, the state by the scheduler's: it may come after them.
    const auto under_way = [](const Job& job) { return job.state == S::kRunning && job.step > 3; };
    ASSERT_TRUE(daemon.Await(paused, under_way));
    ASSERT_TRUE(daemon.manager().Pause(kAnna, paused, false).ok());
    ASSERT_TRUE(daemon.AwaitState(paused, S::kPaused));
    running = daemon.Submit(kAnna);
    ASSERT_TRUE(daemon.Await(running, under_way));
    queued = daemon.Submit(kAnna);
    daemon.scheduler().Shutdown();
    EXPECT_EQ(daemon.Get(paused)->state, S::kPaused);
    EXPECT_FALSE(daemon.Get(paused)->host_retained);
    EXPECT_GT(daemon.Get(paused)->checkpoint_step, 3) << "what was in memory is saved";
    EXPECT_EQ(daemon.Get(running)->state, S::kQueued);
    EXPECT_EQ(daemon.Get(running)->reason, JobReason::kShutdown);
    EXPECT_THAT(daemon.Get(running)->reason_text,
                testing::HasSubstr("the daemon is stopping; goes on from step"));
    EXPECT_EQ(daemon.Get(running)->checkpoint_step, checkpoints.at(running));
    EXPECT_EQ(daemon.Get(queued)->state, S::kQueued);
    EXPECT_EQ(daemon.Get(queued)->queue.waiting, WaitingReason::kShuttingDown);
  }
  const int64_t saved = checkpoints.at(running);
  Daemon daemon(directory / "state", saved + 5, &checkpoints);
  ASSERT_TRUE(daemon.AwaitState(running, S::kSucceeded));
  EXPECT_EQ(daemon.Get(running)->deaths, 0);
  EXPECT_EQ(daemon.Get(running)->attempts, 2);
  ASSERT_TRUE(daemon.AwaitState(queued, S::kSucceeded));
  EXPECT_EQ(daemon.Get(paused)->state, S::kPaused) << "a user's pause only the user ends";
}

// Everybody does everything at once. No request gets stuck, no log shows a step that is not legal,
// and in the end every job can be brought to an end.
class SchedulerThreadDevicesTest : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Devices, SchedulerThreadDevicesTest, ::testing::Values(1, 3));

TEST_P(SchedulerThreadDevicesTest, UsersAndEngineAtOnce) {
  const TestDirectory directory;
  std::map<std::string, int64_t> checkpoints;
  Daemon daemon(directory / "state", 300, &checkpoints, GetParam());
  constexpr int kUsers = 3;
  constexpr int kJobs = 4;
  std::vector<std::vector<std::string>> ids(kUsers);
  std::vector<std::thread> users;
  for (int user = 0; user < kUsers; ++user) {
    users.emplace_back([&, user] {
      const Caller caller = {.uid = 1000 + user, .user = "user", .administrator = false};
      std::mt19937 random(static_cast<unsigned>(user));
      auto& mine = ids[static_cast<size_t>(user)];
      for (int i = 0; i < kJobs; ++i) mine.push_back(daemon.Submit(caller, 1 + i % 3));
      for (int i = 0; i < 120; ++i) {
        const std::string& id = mine[random() % mine.size()];
        absl::Status status;
        switch (random() % 8) {
          case 0:
          case 1:
            status = daemon.manager().Pause(caller, id, random() % 2 == 0).status();
            break;
          case 2:
          case 3:
          case 4:
            status = daemon.manager().Resume(caller, id).status();
            break;
          case 5:
            status = daemon.manager().Checkpoint(caller, id).status();
            break;
          case 6:
            if (random() % 12 == 0) status = daemon.manager().Cancel(caller, id).status();
            break;
          default:
            status = daemon.manager().List(caller, {}).status();
            break;
        }
        EXPECT_TRUE(status.ok() || absl::IsFailedPrecondition(status)) << status;
        std::this_thread::yield();
      }
    });
  }
  for (std::thread& user : users) user.join();
  for (int user = 0; user < kUsers; ++user) {
    const Caller caller = {.uid = 1000 + user, .user = "user", .administrator = false};
    for (const std::string& id : ids[static_cast<size_t>(user)]) {
      ASSERT_TRUE(daemon.Await(id, [&](const Job& job) {
        return IsEnded(job.state) || job.state == S::kPaused;
      })) << JobStateName(daemon.Get(id)->state);
      (void)daemon.manager().Resume(caller, id);
    }
  }
  for (const auto& mine : ids) {
    for (const std::string& id : mine) {
      ASSERT_TRUE(daemon.Await(id, [](const Job& job) { return IsEnded(job.state); }))
          << JobStateName(daemon.Get(id)->state);
      const std::vector<JobEvent> events = daemon.ledger().table().Events(id, 1, 100000);
      for (size_t i = 1; i < events.size(); ++i) {
        EXPECT_EQ(events[i].from, events[i - 1].to);
        EXPECT_TRUE(events[i].from == events[i].to ||
                    IsLegalTransition(*events[i].from, events[i].to));
      }
      if (daemon.Get(id)->state == S::kSucceeded) {
        EXPECT_EQ(daemon.Get(id)->step, 300);
      } else {
        EXPECT_EQ(daemon.Get(id)->state, S::kCancelled) << daemon.Get(id)->reason_text;
      }
    }
  }
}

}  // namespace
}  // namespace megatrain
