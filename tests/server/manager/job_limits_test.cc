#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/server/manager/job_manager_fixture.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;
using S = JobState;

class JobLimitsTest : public JobManagerTest {
 protected:
  void Limit(const UserLimits& limits) {
    limits_.Set(limits);
    Open();
  }
  absl::Status Try(const Caller& caller, bool validate_only = false) {
    CreateJobOptions options = Options();
    options.validate_only = validate_only;
    return manager_->Create(caller, options).status();
  }
};

TEST_F(JobLimitsTest, AUsersQueueIsBounded) {
  Limit({.queued_jobs = 2});
  const JobPtr first = Submit(kAnna);
  Submit(kAnna);
  const absl::Status refused = Try(kAnna);
  EXPECT_EQ(Refusal(refused), "RESOURCE_EXHAUSTED LIMIT_REACHED");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("you have 2 jobs in the queue"));
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("a user may have 2 (limits.queued_jobs_per_user"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("cancel one"));
  EXPECT_THAT(
      ReasonOf(refused)->metadata,
      UnorderedElementsAre(Pair("limit", "limits.queued_jobs_per_user"), Pair("value", "2")));
  EXPECT_EQ(Refusal(Try(kAnna, /*validate_only=*/true)), "RESOURCE_EXHAUSTED LIMIT_REACHED");
  EXPECT_THAT(ledger_->table().All(), SizeIs(2));
  // Each user for himself.
  EXPECT_TRUE(Try(kBert).ok());

  // What runs, rests or has ended is not in the queue.
  Move(first->id, {S::kPreparing});
  EXPECT_TRUE(Try(kAnna, /*validate_only=*/true).ok());
  EXPECT_TRUE(Try(kAnna).ok());
  EXPECT_FALSE(Try(kAnna).ok());
  Move(first->id, {S::kRunning, S::kPausing, S::kPaused});
  EXPECT_FALSE(Try(kAnna).ok());
  // A job that comes back to the queue is not refused, and counts.
  EXPECT_TRUE(manager_->Resume(kAnna, first->id).ok());
  EXPECT_THAT(std::string(Try(kAnna).message()), HasSubstr("you have 3 jobs"));
}

TEST_F(JobLimitsTest, AdministratorsAreBoundedTooAndSpendNobodyElsesShare) {
  Limit({.queued_jobs = 1});
  Submit(kRoot);
  EXPECT_EQ(Refusal(Try(kRoot)), "RESOURCE_EXHAUSTED LIMIT_REACHED");
  EXPECT_TRUE(Try(kAnna).ok());
}

TEST_F(JobLimitsTest, ARepeatedRequestIsAnsweredWithTheQueueFull) {
  Limit({.queued_jobs = 1});
  const JobPtr job = Submit(kAnna, "one");
  EXPECT_EQ(Submit(kAnna, "one"), job);
  EXPECT_EQ(Refusal(Try(kAnna)), "RESOURCE_EXHAUSTED LIMIT_REACHED");
}

TEST_F(JobLimitsTest, ManyAtOnceDoNotPassTheLimitTogether) {
  Limit({.queued_jobs = 3});
  std::atomic<int> taken{0}, refused{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const absl::Status status = Try(kAnna);
      ++(status.ok() ? taken : refused);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, 3);
  EXPECT_EQ(refused, 5);
  EXPECT_THAT(ledger_->table().Live(), SizeIs(3));
}

TEST_F(JobLimitsTest, AJobLargerThanAUsersMemoryIsRefused) {
  Limit({.host_bytes = 999});
  plan_ = TestPlan(true, 1000);
  const absl::Status refused = Try(kAnna);
  EXPECT_EQ(Refusal(refused), "FAILED_PRECONDITION EXCEEDS_USER_LIMIT");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("1000 bytes"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("limits.host_memory_per_user"));
  EXPECT_THAT(
      ReasonOf(refused)->metadata,
      UnorderedElementsAre(Pair("limit", "limits.host_memory_per_user"), Pair("value", "999")));
  EXPECT_EQ(Refusal(Try(kAnna, /*validate_only=*/true)), "FAILED_PRECONDITION EXCEEDS_USER_LIMIT");
  EXPECT_THAT(ledger_->table().All(), IsEmpty());
  const auto plan = manager_->Plan(kAnna, File());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->report.fits);
  EXPECT_EQ(Refusal(plan->limit_refusal), "FAILED_PRECONDITION EXCEEDS_USER_LIMIT");
  EXPECT_EQ(plan->limit_refusal.message(), refused.message());
  // Any number of jobs that fit one by one; the queue holds them apart.
  plan_ = TestPlan(true, 999);
  EXPECT_TRUE(Try(kAnna).ok());
  EXPECT_TRUE(Try(kAnna).ok());
}

// A job keeps two checkpoints of 77 bytes and writes a third.
TEST_F(JobLimitsTest, CheckpointsInTheStateDirectoryAreBounded) {
  Limit({.disk_bytes = 230});
  const absl::Status large = Try(kAnna);
  EXPECT_EQ(Refusal(large), "FAILED_PRECONDITION EXCEEDS_USER_LIMIT");
  EXPECT_THAT(std::string(large.message()), HasSubstr("take 231 bytes"));
  EXPECT_THAT(std::string(large.message()),
              HasSubstr("a user may have 230 bytes (limits.disk_per_user"));
  EXPECT_THAT(std::string(large.message()), HasSubstr("checkpoint.directory of your own"));
  EXPECT_THAT(ReasonOf(large)->metadata,
              UnorderedElementsAre(Pair("limit", "limits.disk_per_user"), Pair("value", "230")));

  CreateJobOptions endless = Options();
  endless.file.overrides.push_back("checkpoint.keep=9223372036854775807");
  EXPECT_EQ(Refusal(manager_->Create(kAnna, endless).status()),
            "FAILED_PRECONDITION EXCEEDS_USER_LIMIT");

  Limit({.disk_bytes = 231});
  EXPECT_TRUE(Try(kAnna, /*validate_only=*/true).ok()) << "exactly as much as a user may have";

  Limit({.disk_bytes = 500});
  const JobPtr first = Submit(kAnna), second = Submit(kAnna);
  const absl::Status refused = Try(kAnna, /*validate_only=*/true);
  EXPECT_EQ(Refusal(refused), "RESOURCE_EXHAUSTED LIMIT_REACHED");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("hold 0 bytes there and will take 462"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("megatrain delete JOB"));
  EXPECT_THAT(ReasonOf(refused)->metadata,
              UnorderedElementsAre(Pair("limit", "limits.disk_per_user"), Pair("value", "500")));
  EXPECT_EQ(manager_->Plan(kAnna, File())->limit_refusal.message(), refused.message());
  EXPECT_TRUE(manager_->Plan(kBert, File())->limit_refusal.ok());
  EXPECT_TRUE(Try(kBert, /*validate_only=*/true).ok());
  CreateJobOptions elsewhere = Options();
  elsewhere.file.overrides.push_back("checkpoint.directory=/big/disk");
  EXPECT_TRUE(manager_->Create(kAnna, elsewhere).ok());

  // What has ended takes no more than it holds.
  Move(first->id, {S::kCancelled});
  EXPECT_TRUE(Try(kAnna, /*validate_only=*/true).ok());
  std::filesystem::create_directories(first->spec->checkpoint.directory);
  std::ofstream(first->spec->checkpoint.directory + "/x") << std::string(38, 'x');
  disk_->Measure(*first);
  EXPECT_TRUE(Try(kAnna, /*validate_only=*/true).ok()) << "exactly as much as is left";
  std::ofstream(first->spec->checkpoint.directory + "/x") << std::string(39, 'x');
  disk_->Measure(*first);
  EXPECT_FALSE(Try(kAnna).ok());
  ASSERT_TRUE(manager_->Delete(kAnna, first->id).ok());
  disk_->Forget(first->id);
  EXPECT_TRUE(Try(kAnna).ok());
}

TEST_F(JobLimitsTest, AJobForMoreDevicesThanAUserMayHaveIsRefused) {
  limits_.Set({.devices = 2});
  JobManager manager(
      ledger_.get(),
      JobManager::Options{.plan = [this](const JobSpec&, FileSystem*) { return plan_; },
                          .devices = {.count = 4},
                          .limits = &limits_});
  const auto refusal = [&](int devices) {
    JobFile file = File();
    file.overrides.push_back(absl::StrCat("engine.devices=", devices));
    return manager.Plan(kAnna, file)->limit_refusal;
  };
  EXPECT_TRUE(refusal(2).ok()) << refusal(2);
  EXPECT_EQ(Refusal(refusal(3)), "FAILED_PRECONDITION EXCEEDS_USER_LIMIT");
  EXPECT_THAT(std::string(refusal(3).message()),
              HasSubstr("needs 3 devices; a user may have 2 (limits.devices_per_user"));
  EXPECT_THAT(ReasonOf(refusal(3))->metadata,
              UnorderedElementsAre(Pair("limit", "limits.devices_per_user"), Pair("value", "2")));
}

TEST_F(JobLimitsTest, OfAJobThatDoesNotFitNoLimitIsTold) {
  Limit({.host_bytes = 999});
  plan_ = TestPlan(false, 1000);
  const auto plan = manager_->Plan(kAnna, File());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE(plan->report.fits);
  EXPECT_TRUE(plan->limit_refusal.ok()) << plan->limit_refusal;
  EXPECT_EQ(Refusal(Try(kAnna)), "FAILED_PRECONDITION DOES_NOT_FIT");
}

TEST_F(JobLimitsTest, NoLimits) {
  for (int i = 0; i < 50; ++i) Submit(kAnna);
  EXPECT_THAT(ledger_->table().Live(), SizeIs(50));
}

}  // namespace
}  // namespace megatrain
