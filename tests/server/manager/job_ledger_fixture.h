// A ledger of jobs in a directory, and changes of its jobs.
#ifndef MEGATRAIN_TESTS_SERVER_MANAGER_JOB_LEDGER_FIXTURE_H_
#define MEGATRAIN_TESTS_SERVER_MANAGER_JOB_LEDGER_FIXTURE_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "server/manager/job_ledger.h"
#include "tests/server/jobs/test_job.h"

namespace megatrain {

inline std::unique_ptr<JobLedger> OpenLedger(
    const std::string& directory, std::function<int64_t(const std::string&)> reached = {}) {
  auto store = JobStore::Open(directory);
  EXPECT_TRUE(store.ok()) << store.status();
  auto ledger = JobLedger::Open(
      *std::move(store),
      {.state_directory = directory, .reached_step = std::move(reached), .now = absl::Now});
  EXPECT_TRUE(ledger.ok()) << ledger.status();
  return *std::move(ledger);
}

inline JobPtr AddJob(JobLedger* ledger, const std::string& request_id = "") {
  Job job;
  job.id = ledger->NewId();
  job.uid = 1000;
  job.user = "anna";
  job.request_id = request_id;
  job.file = std::make_shared<const JobFile>(TestFile());
  auto added = ledger->Add(std::move(job), "submitted");
  EXPECT_TRUE(added.ok()) << added.status();
  return *added;
}

inline absl::Status Move(JobLedger* ledger, const std::string& id, JobState to,
                         std::function<void(Job*)> edit = {}) {
  return ledger
      ->Change(id,
               [&](const Job&) -> absl::StatusOr<std::optional<JobChange>> {
                 return JobChange{
                     .to = to, .reason = JobReason::kUserRequest, .text = "moved", .edit = edit};
               })
      .status();
}

inline StepRecord StepOf(int64_t step) {
  StepRecord record;
  record.step = step;
  return record;
}

inline QueuePlace PlaceOf(int position) {
  QueuePlace place;
  place.position = position;
  return place;
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SERVER_MANAGER_JOB_LEDGER_FIXTURE_H_
