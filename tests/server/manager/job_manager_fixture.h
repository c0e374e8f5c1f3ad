// A JobManager over a real store, without an engine: the test moves jobs through their states.
#ifndef MEGATRAIN_TESTS_SERVER_MANAGER_JOB_MANAGER_FIXTURE_H_
#define MEGATRAIN_TESTS_SERVER_MANAGER_JOB_MANAGER_FIXTURE_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/error_reason.h"
#include "server/manager/job_manager.h"
#include "tests/server/jobs/test_job.h"

namespace megatrain {

inline const Caller kAnna = {.uid = 1000, .user = "anna", .administrator = false};
inline const Caller kBert = {.uid = 1001, .user = "bert", .administrator = false};
inline const Caller kRoot = {.uid = 0, .user = "root", .administrator = true};

class JobManagerTest : public ::testing::Test {
 protected:
  JobManagerTest() {
    std::filesystem::create_directory(directory_ / "model");
    std::ofstream(directory_ / "train.jsonl") << "{}";
    Open();
  }

  void Open() {
    manager_.reset();
    ledger_.reset();
    auto store = JobStore::Open(directory_ / "state");
    ASSERT_TRUE(store.ok()) << store.status();
    auto ledger = JobLedger::Open(
        *std::move(store),
        {.state_directory = directory_ / "state", .reached_step = {}, .now = absl::Now});
    ASSERT_TRUE(ledger.ok()) << ledger.status();
    ledger_ = *std::move(ledger);
    disk_ = std::make_unique<JobDisk>(directory_ / "state", &limits_);
    for (const JobPtr& job : ledger_->table().All()) disk_->Measure(*job);
    manager_ = std::make_unique<JobManager>(
        ledger_.get(),
        JobManager::Options{.plan = [this](const JobSpec&, FileSystem*) { return plan_; },
                            .files =
                                [this](int64_t uid, const std::string& id) {
                                  std::lock_guard<std::mutex> lock(opened_mutex_);
                                  opened_.emplace_back(uid, id);
                                  return FilesOfProcess()(uid, id);
                                },
                            .limits = &limits_,
                            .disk = disk_.get(),
                            .checkpoint =
                                [this](const std::string& id) {
                                  if (asked_.ok()) checkpointed_.push_back(id);
                                  return asked_;
                                },
                            .write_export =
                                [this](const std::string& checkpoint, const std::string& directory,
                                       const std::shared_ptr<FileSystem>&,
                                       const std::function<void(const absl::Status&)>& done) {
                                  if (!asked_.ok()) return asked_;
                                  exported_.push_back(checkpoint + " to " + directory);
                                  if (holds_exports_) {
                                    held_exports_.push_back(done);
                                  } else {
                                    done(absl::OkStatus());
                                  }
                                  return absl::OkStatus();
                                }});
  }

  JobFile File(const std::string& name = "demo") const {
    JobFile file = TestFile(name);
    file.overrides = {"model.path=" + (directory_ / "model"),
                      "data.train=[{path: " + (directory_ / "train.jsonl") + ", format: alpaca}]"};
    return file;
  }
  CreateJobOptions Options(const std::string& request_id = "") const {
    CreateJobOptions options;
    options.file = File();
    options.request_id = request_id;
    return options;
  }
  JobPtr Submit(const Caller& caller, const std::string& request_id = "") {
    auto job = manager_->Create(caller, Options(request_id));
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *job : nullptr;
  }

  void Move(const std::string& id, std::vector<JobState> way, JobReason reason = JobReason::kNone) {
    for (const JobState state : way) {
      const auto moved =
          ledger_->Change(id, [&](const Job&) -> absl::StatusOr<std::optional<JobChange>> {
            return JobChange{.to = state, .reason = reason, .text = "", .edit = {}};
          });
      ASSERT_TRUE(moved.ok()) << moved.status();
    }
  }
  JobState StateOf(const std::string& id) { return ledger_->table().Find(id)->state; }

  TestDirectory directory_;
  SharedUserLimits limits_{UserLimits()};
  absl::Status asked_;  // what asking for a checkpoint or an export comes to
  std::vector<std::string> checkpointed_, exported_;
  std::mutex opened_mutex_;
  std::vector<std::pair<int64_t, std::string>> opened_;  // whose files, and for which job
  bool holds_exports_ = false;
  std::vector<std::function<void(const absl::Status&)>> held_exports_;  // not told of their end
  absl::StatusOr<PlanReport> plan_ = TestPlan(true, 1000);
  std::unique_ptr<JobLedger> ledger_;
  std::unique_ptr<JobDisk> disk_;
  std::unique_ptr<JobManager> manager_;
};

// "CODE REASON".
inline std::string Refusal(const absl::Status& status) {
  const auto reason = ReasonOf(status);
  return absl::StrCat(absl::StatusCodeToString(status.code()), " ",
                      reason.has_value() ? reason->reason : "without reason");
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SERVER_MANAGER_JOB_MANAGER_FIXTURE_H_
