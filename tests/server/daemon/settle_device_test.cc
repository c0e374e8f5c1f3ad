#include "server/daemon/settle_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/host/engine_host.h"
#include "server/store/job_store.h"
#include "tests/engine/device/cuda/emulated_gpu.h"
#include "tests/server/jobs/test_job.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SettleDeviceTest : public testing::Test {
 protected:
  // One job that has begun, one that waits for its first step, one that has ended.
  void AddJobs() {
    auto store = JobStore::Open(directory_.path());
    ASSERT_TRUE(store.ok()) << store.status();
    Job begun = TestJob(1, "one"), waits = TestJob(2, "two"), ended = TestJob(3, "three");
    begun.state = JobState::kPaused;
    begun.attempts = 2;
    begun.step = 40;
    ended.state = JobState::kSucceeded;
    ended.attempts = 1;
    for (const Job& job : {begun, waits, ended}) {
      ASSERT_TRUE((*store)->Insert(job, CreatedEvent(job)).ok());
    }
  }

  // A start of the daemon: the device that `name` of the configuration means, with a GPU or
  // without.
  absl::StatusOr<std::optional<std::string>> Start(bool has_gpu, const std::string& name = "auto",
                                                   bool accepted = false) {
    EmulatedGpu gpu;
    EngineHostOptions options;
    options.device = name;
    options.threads = 1;
    if (has_gpu) options.open_gpu = gpu.opener();
    auto host = EngineHost::Create(options);
    if (!host.ok()) return host.status();
    auto store = JobStore::Open(directory_.path());
    if (!store.ok()) return store.status();
    JobLedger::Options ledger_options;
    ledger_options.state_directory = directory_.path();
    auto ledger = JobLedger::Open(*std::move(store), std::move(ledger_options));
    if (!ledger.ok()) return ledger.status();
    return SettleDevice({(*host)->devices().first, (*host)->why_cpu(), name != "auto", accepted},
                        ledger->get());
  }
  std::string Remembered() const {
    std::ifstream file(directory_ / kDeviceFileName);
    std::string text;
    std::getline(file, text);
    return text;
  }
  // Texts of the events that the job has after its first.
  std::vector<std::string> Events(int64_t number) const {
    const auto store = JobStore::Open(directory_.path());
    const auto jobs = (*store)->ReadAll();
    std::vector<std::string> texts;
    for (const StoredJob& stored : *jobs) {
      if (stored.job.number != number) continue;
      for (size_t i = 1; i < stored.events.size(); ++i) texts.push_back(stored.events[i].text);
    }
    return texts;
  }

  const TestDirectory directory_;
};

TEST_F(SettleDeviceTest, ALostGpuIsNoCpu) {
  ASSERT_EQ(*Start(true), std::nullopt);
  EXPECT_EQ(Remembered(), "cuda");
  AddJobs();
  const absl::Status refused = Start(false).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << "it may come back";
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("auto finds cpu"), HasSubstr("ran on cuda"), HasSubstr("1 of them"),
                    HasSubstr("--accept-device-change"), HasSubstr("device: cpu")));
  EXPECT_EQ(Remembered(), "cuda");
  EXPECT_THAT(Events(1), IsEmpty());
  EXPECT_EQ(*Start(true), std::nullopt) << "it is there again";
}

TEST_F(SettleDeviceTest, ALostGpuIsNoCpuForJobsToComeEither) {
  ASSERT_TRUE(Start(true).ok());
  EXPECT_EQ(Start(false).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(SettleDeviceTest, AnAcceptedChangeIsToldToJobsThatHaveBegun) {
  ASSERT_TRUE(Start(true).ok());
  AddJobs();
  EXPECT_EQ(*Start(false, "auto", /*accepted=*/true), "cuda");
  EXPECT_EQ(Remembered(), "cpu");
  EXPECT_THAT(Events(1), ElementsAre(AllOf(HasSubstr("device is cpu"), HasSubstr("was cuda"))));
  EXPECT_THAT(Events(2), IsEmpty());
  EXPECT_THAT(Events(3), IsEmpty());
  EXPECT_EQ(*Start(false), std::nullopt) << "once is enough";
  EXPECT_EQ(Events(1).size(), 1u);
}

// Each of them alone says that the job has computed something.
TEST_F(SettleDeviceTest, AnAttemptAStepOrACheckpointIsABeginning) {
  ASSERT_TRUE(Start(true).ok());
  {
    auto store = JobStore::Open(directory_.path());
    ASSERT_TRUE(store.ok()) << store.status();
    Job tried = TestJob(1, "one"), advanced = TestJob(2, "two"), saved = TestJob(3, "three");
    tried.attempts = 1;
    advanced.step = 1;
    saved.checkpoint_step = 1;
    for (const Job& job : {tried, advanced, saved}) {
      ASSERT_TRUE((*store)->Insert(job, CreatedEvent(job)).ok());
    }
  }
  EXPECT_THAT(std::string(Start(false).status().message()), HasSubstr("3 of them have begun"));
  EXPECT_EQ(*Start(false, "auto", /*accepted=*/true), "cuda");
  for (const int64_t number : {1, 2, 3}) EXPECT_EQ(Events(number).size(), 1u) << number;
}

TEST_F(SettleDeviceTest, ADeviceThatIsNamedIsADecisionAndIsTold) {
  ASSERT_TRUE(Start(true).ok());
  AddJobs();
  EXPECT_EQ(*Start(true, "cpu"), "cuda");
  EXPECT_EQ(Remembered(), "cpu");
  EXPECT_EQ(Events(1).size(), 1u);
}

TEST_F(SettleDeviceTest, AGpuThatIsNewIsTakenUnlessJobsHaveBegun) {
  ASSERT_TRUE(Start(false).ok());
  EXPECT_EQ(Remembered(), "cpu");
  EXPECT_EQ(*Start(true), "cpu");
  EXPECT_EQ(Remembered(), "cuda");
  ASSERT_EQ(*Start(false, "cpu"), "cuda");
  AddJobs();
  EXPECT_EQ(Start(true).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(*Start(true, "cuda"), "cpu");
}

TEST_F(SettleDeviceTest, AFileThatSaysNothingIsNotPassedOver) {
  std::ofstream(directory_ / kDeviceFileName) << "tpu\n";
  const absl::Status status = Start(false).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("expects cpu or cuda"));
}

TEST_F(SettleDeviceTest, WhatCannotBeReadIsNoMatterOfTheConfiguration) {
  std::ofstream(directory_ / kDeviceFileName) << std::string(100, 'x');
  absl::Status status = Start(false).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  std::filesystem::remove(directory_ / kDeviceFileName);
  std::filesystem::create_directory(directory_ / kDeviceFileName);
  status = Start(false).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is a directory, not a file; remove it"));
}

}  // namespace
}  // namespace megatrain
