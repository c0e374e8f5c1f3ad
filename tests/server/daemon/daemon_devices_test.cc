// A daemon with two GPUs, emulated ones, that loses one of them.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "megatrain/v1/job_service.grpc.pb.h"
#include "server/daemon/daemon.h"
#include "server/store/job_store.h"
#include "tests/e2e/workplace.h"
#include "tests/engine/device/cuda/emulated_gpu.h"
#include "tests/support/wait_until.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

// What the driver gives after a kernel has read where it must not: the context is lost.
constexpr int kIllegalAddress = 700;

// Calls `on_step` when a step of a run is done, on the run's thread.
struct StepObserver : RunObserver {
  void Tell(const RunRequest& run, const JobRunEvent& event) override {
    const auto* const record = std::get_if<StepRecord>(&event);
    if (record != nullptr && on_step) on_step(run, record->step);
  }
  std::function<void(const RunRequest& run, int64_t step)> on_step;
};

class DaemonDevicesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto place = Workplace::Make("server/megatraind", "llama-tiny");
    ASSERT_TRUE(place.ok()) << place.status();
    place_ = *std::move(place);
    auto options = place_->NewDaemon("d");
    ASSERT_TRUE(options.ok()) << options.status();
    config_.state_directory = options->directory + "/state";
    config_.listen = {"unix:" + options->directory + "/s"};
    config_.metrics_listen = "";
    config_.device = "cuda";
    config_.devices = 0;
    config_.threads = 2;
    config_.host_memory = int64_t{64} << 20;
    config_.limits.running_jobs = 0;
  }

  // The daemon's life on new GPUs.
  std::unique_ptr<Daemon> Start(EmulatedGpu* gpu, StepObserver* observer) {
    DaemonHooks hooks;
    hooks.log = hooks.warn = [](const std::string& line) { GTEST_LOG_(INFO) << line; };
    hooks.open_gpu = gpu->opener();
    hooks.run_observer = observer;
    hooks.end_process = [] { FAIL() << "other jobs were not saved"; };
    hooks.restart = [this] { ++restarts_; };
    auto daemon = Daemon::Open(config_, hooks);
    EXPECT_TRUE(daemon.ok()) << daemon.status();
    if (!daemon.ok()) return nullptr;
    const absl::Status pinned = (*daemon)->PinPool(nullptr);
    EXPECT_TRUE(pinned.ok()) << pinned;
    return *std::move(daemon);
  }

  std::string Submit(int64_t seed) {
    JobShape shape;
    shape.steps = 12;
    shape.sequence_length = 16;
    shape.global_batch = shape.micro_batch = 1;
    shape.seed = seed;
    v1::CreateJobRequest request = place_->Request(shape, "");
    request.mutable_job()->mutable_file()->add_overrides("engine.device=auto");
    const auto jobs = v1::JobService::NewStub(
        grpc::CreateChannel(config_.listen[0], grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    v1::Job job;
    const grpc::Status status = jobs->CreateJob(&context, request, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job.name().substr(std::string("jobs/").size());
  }
  // As it is stored. REQUIRES: no daemon is there.
  Job Stored(const std::string& id) {
    const auto store = JobStore::Open(config_.state_directory);
    EXPECT_TRUE(store.ok()) << store.status();
    const auto jobs = (*store)->ReadAll();
    EXPECT_TRUE(jobs.ok()) << jobs.status();
    for (const StoredJob& stored : *jobs) {
      if (stored.job.id == id) return stored.job;
    }
    ADD_FAILURE() << id << " is not there";
    return {};
  }

  std::unique_ptr<Workplace> place_;
  DaemonConfig config_;
  std::atomic<int> restarts_{0};
};

TEST_F(DaemonDevicesTest, AGpuThatIsLostCostsTheJobsOnOthersNothing) {
  std::string lost, other;
  {
    EmulatedGpu gpu({.devices = 2});
    StepObserver observer;
    std::atomic<int64_t> others_step{0};
    observer.on_step = [&](const RunRequest& run, int64_t step) {
      if (run.devices[0] == 1) {
        others_step = step;
        // It is in the midst of its steps when the other is lost.
        if (step == 3) WaitUntil([&] { return restarts_ > 0; });
      } else if (step == 2) {
        WaitUntil([&] { return others_step >= 1; });
        gpu.edge(0).Fail("EventSynchronize", kIllegalAddress, 1, /*sticky=*/true);
      }
    };
    const auto daemon = Start(&gpu, &observer);
    ASSERT_NE(daemon, nullptr);
    lost = Submit(1);
    other = Submit(2);
    ASSERT_TRUE(WaitUntil([&] { return restarts_ > 0; }));
    daemon->Stop();
  }
  const Job job = Stored(lost);
  EXPECT_EQ(job.state, JobState::kQueued);
  EXPECT_EQ(job.reason, JobReason::kProcessRestart);
  EXPECT_THAT(job.reason_text, HasSubstr("emulated error 700"));
  EXPECT_THAT(job.reason_text, HasSubstr("; goes on from the beginning"));
  const Job saved = Stored(other);
  EXPECT_EQ(saved.state, JobState::kQueued);
  EXPECT_EQ(saved.reason, JobReason::kShutdown);
  EXPECT_GE(saved.checkpoint_step, 3) << "nothing is lost";
  EXPECT_EQ(saved.deaths, 0);

  EmulatedGpu gpu({.devices = 2});
  StepObserver observer;
  const auto daemon = Start(&gpu, &observer);
  ASSERT_NE(daemon, nullptr);
  std::atomic<int> done{0};
  observer.on_step = [&](const RunRequest&, int64_t step) { done += step == 12 ? 1 : 0; };
  EXPECT_TRUE(WaitUntil([&] { return done == 2; }));
  daemon->Stop();
}

// Each time before it has got further.
TEST_F(DaemonDevicesTest, AJobThatLosesItsGpuAgainAndAgainFails) {
  std::string id;
  for (int death = 1; death <= 5; ++death) {
    restarts_ = 0;
    EmulatedGpu gpu({.devices = 2});
    StepObserver observer;
    observer.on_step = [&](const RunRequest&, int64_t) {
      gpu.edge(0).Fail("EventSynchronize", kIllegalAddress, 1, /*sticky=*/true);
    };
    const auto daemon = Start(&gpu, &observer);
    ASSERT_NE(daemon, nullptr);
    if (death == 1) id = Submit(1);
    ASSERT_TRUE(WaitUntil([&] { return restarts_ > 0; })) << death;
    daemon->Stop();
  }
  // The first one had made steps.
  Job job = Stored(id);
  EXPECT_EQ(job.deaths, 4) << job.reason_text;
  EXPECT_EQ(job.state, JobState::kQueued);
  EXPECT_THAT(job.reason_text, HasSubstr("(death 4 of 5 without getting further)"));
}

}  // namespace
}  // namespace megatrain
