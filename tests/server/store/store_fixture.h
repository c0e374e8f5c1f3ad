// Job stores for tests.
#ifndef MEGATRAIN_TESTS_SERVER_STORE_STORE_FIXTURE_H_
#define MEGATRAIN_TESTS_SERVER_STORE_STORE_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/store/job_store.h"
#include "tests/server/jobs/test_job.h"

namespace megatrain {

inline std::unique_ptr<JobStore> OpenStore(const std::string& directory) {
  auto store = JobStore::Open(directory);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

inline std::vector<StoredJob> ReadJobs(JobStore* store) {
  auto jobs = store->ReadAll();
  EXPECT_TRUE(jobs.ok()) << jobs.status();
  return jobs.ok() ? *std::move(jobs) : std::vector<StoredJob>();
}

inline Job RunningJob(Job job) {
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
  job.allow_change = {"optimizer", "schedule"};
  return job;
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SERVER_STORE_STORE_FIXTURE_H_
