// Jobs for tests.
#ifndef MEGATRAIN_TESTS_SERVER_JOBS_TEST_JOB_H_
#define MEGATRAIN_TESTS_SERVER_JOBS_TEST_JOB_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "engine/engine.h"
#include "server/jobs/job.h"
#include "tests/support/test_directory.h"

namespace megatrain {

inline absl::Time TestTime(int64_t seconds) { return absl::FromUnixSeconds(1700000000 + seconds); }

// A job file that parses; relative paths are refused in it.
inline JobFile TestFile(const std::string& name = "demo") {
  return {.yaml = "name: " + name +
                  "\nmodel: {path: /models/tiny}\n"
                  "data: {train: [{path: /data/train.jsonl, format: alpaca}]}\n"
                  "training: {steps: 100}\n",
          .file_name = "job.yaml",
          .overrides = {},
          .base_directory = ""};
}

// A queued job with every stored field set to something of its own.
inline Job TestJob(int64_t number, const std::string& request_id = "") {
  Job job;
  job.id = "job" + std::to_string(number);
  job.number = number;
  job.display_name = "demo " + std::to_string(number);
  job.user = "anna";
  job.uid = 1000;
  job.request_id = request_id;
  JobFile file = TestFile();
  file.overrides = {"training.steps=7", "name='a=b\nc'"};
  file.base_directory = "/srv";
  job.file = std::make_shared<const JobFile>(file);
  job.priority = -3;
  job.pool_bytes = int64_t{5} << 40;
  job.checkpoint_bytes = 77;
  job.created = TestTime(number);
  job.updated = TestTime(number);
  job.version = 1;
  return job;
}

inline PlanReport TestPlan(bool fits, int64_t pool_bytes, const std::string& table = "") {
  PlanReport plan;
  plan.fits = fits;
  plan.table = table;
  plan.pool_bytes = pool_bytes;
  plan.checkpoint_bytes = 77;
  return plan;
}

inline JobEvent CreatedEvent(const Job& job) {
  return {.sequence = 1,
          .time = job.created,
          .from = std::nullopt,
          .to = JobState::kQueued,
          .reason = JobReason::kUserRequest,
          .text = "submitted"};
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SERVER_JOBS_TEST_JOB_H_
