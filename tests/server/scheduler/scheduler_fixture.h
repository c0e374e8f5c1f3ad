// The daemon but for the engine and RPC, for tests that say what the engine tells.
#ifndef MEGATRAIN_TESTS_SERVER_SCHEDULER_SCHEDULER_FIXTURE_H_
#define MEGATRAIN_TESTS_SERVER_SCHEDULER_SCHEDULER_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/manager/job_manager.h"
#include "server/scheduler/scheduler.h"
#include "tests/server/jobs/test_job.h"
#include "tests/server/scheduler/fake_runner.h"

namespace megatrain {

inline const Caller kAnna = {.uid = 1000, .user = "anna", .administrator = false};
inline const Caller kBert = {.uid = 1001, .user = "bert", .administrator = false};

// On a state directory that outlives the daemon.
class SchedulerTest : public ::testing::Test {
 protected:
  SchedulerTest() {
    std::filesystem::create_directory(directory_ / "model");
    std::ofstream(directory_ / "train.jsonl") << "{}";
    Open(directory_ / "state");
  }

  void Open(const std::string& state) {
    records_ = std::make_unique<JobRecordsDirectory>(state + "/jobs");
    auto store = JobStore::Open(state);
    ASSERT_TRUE(store.ok()) << store.status();
    auto ledger = JobLedger::Open(
        *std::move(store),
        {.state_directory = state,
         .reached_step = [this](const std::string& id) { return records_->LastStep(id); },
         .now = [this] { return now_; }});
    ASSERT_TRUE(ledger.ok()) << ledger.status();
    ledger_ = *std::move(ledger);
    disk_ = std::make_unique<JobDisk>(state, &limits_);
    for (const JobPtr& job : ledger_->table().All()) disk_->Measure(*job);
    manager_ = std::make_unique<JobManager>(
        ledger_.get(),
        JobManager::Options{
            .plan =
                [this](const JobSpec&, FileSystem*) {
                  return absl::StatusOr<PlanReport>(TestPlan(true, job_pool_bytes_));
                },
            .checkpoint =
                [this](const std::string& id) { return runner_->Ask(id, RunWish::kCheckpoint); }});
    mailbox_ = std::make_unique<RunMailbox>();
    runner_ = std::make_unique<FakeRunner>(mailbox_.get());
    scheduler_ = std::make_unique<Scheduler>(
        ledger_.get(), runner_.get(), mailbox_.get(), records_.get(),
        Scheduler::Options{.devices = {.first = first_device_, .count = devices_},
                           .pool_bytes = 10000,
                           .limits = &limits_,
                           .disk = disk_.get(),
                           .free_disk_bytes = [this](const Job&, const std::string&)
                               -> absl::StatusOr<int64_t> { return free_disk_bytes_; },
                           .forecast = [this](const Job&) -> std::optional<JobForecast> {
                             ++predictions_;
                             if (!files_are_readable_) return std::nullopt;
                             return JobForecast{.step_seconds = predicted_step_seconds_,
                                                .pool_bytes = planned_pool_bytes_,
                                                .fits_on = fits_on_,
                                                .misfit = "device memory is too small"};
                           },
                           .log = [this](const std::string& line) { log_.push_back(line); }});
  }
  // As a kill -9: nobody is told, nothing is saved.
  void Kill() {
    if (runner_ != nullptr) runner_->Die();
    scheduler_.reset();
    runner_.reset();
    mailbox_.reset();
    manager_.reset();
    disk_.reset();
    ledger_.reset();
    records_.reset();
  }
  void Restart() {
    Kill();
    Open(directory_ / "state");
  }

  std::string Submit(const Caller& caller = kAnna, int priority = 0, int devices = 1) {
    CreateJobOptions options;
    options.file = TestFile();
    options.file.overrides = {
        "model.path=" + (directory_ / "model"),
        "data.train=[{path: " + (directory_ / "train.jsonl") + ", format: alpaca}]",
        "engine.devices=" + std::to_string(devices)};
    options.priority = priority;
    const auto job = manager_->Create(caller, options);
    EXPECT_TRUE(job.ok()) << job.status();
    return (*job)->id;
  }
  // A job that trains, step `step` of 100 done.
  std::string Train(int64_t step = 0) {
    const std::string id = Submit();
    Round();
    runner_->Running(id, 1, 100);
    if (step > 0) runner_->Step(id, step);
    Round();
    EXPECT_EQ(State(id), JobState::kRunning);
    runner_->Asked();
    return id;
  }

  void Round() { scheduler_->RunRound(); }
  JobPtr Get(const std::string& id) { return ledger_->table().Find(id); }
  JobState State(const std::string& id) { return Get(id)->state; }
  std::string History(const std::string& id) {
    std::string history;
    for (const JobEvent& event : ledger_->table().Events(id, 1, 1000)) {
      if (event.from == event.to) continue;
      absl::StrAppend(&history, history.empty() ? "" : " ", JobStateName(event.to));
    }
    return history;
  }

  TestDirectory directory_;
  absl::Time now_ = TestTime(0);
  double predicted_step_seconds_ = 0;  // 0 = not known
  int predictions_ = 0;                // that were asked for
  bool files_are_readable_ = true;     // by predictions
  int64_t free_disk_bytes_ = int64_t{1} << 40;
  int64_t job_pool_bytes_ = 4000;                 // by the plan at submission
  int64_t planned_pool_bytes_ = 0;                // JobForecast's, of jobs not planned yet
  SharedUserLimits limits_{UserLimits()};         // of the disk alone
  int devices_ = 1;                               // from the next start on
  std::string first_device_ = "cpu";              // likewise
  std::optional<std::vector<int>> fits_on_ = {};  // JobForecast's, of jobs not planned yet
  std::vector<std::string> log_;
  std::unique_ptr<JobRecordsDirectory> records_;
  std::unique_ptr<JobLedger> ledger_;
  std::unique_ptr<JobDisk> disk_;
  std::unique_ptr<JobManager> manager_;
  std::unique_ptr<RunMailbox> mailbox_;
  std::unique_ptr<FakeRunner> runner_;
  std::unique_ptr<Scheduler> scheduler_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SERVER_SCHEDULER_SCHEDULER_FIXTURE_H_
