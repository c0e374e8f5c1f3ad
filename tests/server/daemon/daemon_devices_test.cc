// A daemon with two devices, one of whose jobs takes the process with it.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "megatrain/v1/job_service.grpc.pb.h"
#include "server/daemon/daemon.h"
#include "server/store/job_store.h"
#include "tests/e2e/workplace.h"
#include "tests/support/wait_until.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

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
    config_.device = "cpu";
    config_.devices = 2;
    config_.threads = 2;
    config_.host_memory = int64_t{64} << 20;
    config_.limits.running_jobs = 0;
  }

  std::unique_ptr<Daemon> Start(StepObserver* observer) {
    DaemonHooks hooks;
    hooks.log = hooks.warn = [](const std::string& line) { GTEST_LOG_(INFO) << line; };
    // Steps take milliseconds.
    hooks.watchdog.step_seconds_min = 3;
    hooks.watchdog.poll_seconds = 0.1;
    hooks.run_observer = observer;
    hooks.end_process = end_process_;
    hooks.restart = [this] { ++restarts_; };
    auto daemon = Daemon::Open(config_, hooks);
    EXPECT_TRUE(daemon.ok()) << daemon.status();
    if (!daemon.ok()) return nullptr;
    const absl::Status pinned = (*daemon)->BeginJobs(nullptr);
    EXPECT_TRUE(pinned.ok()) << pinned;
    return *std::move(daemon);
  }

  std::string Submit(int64_t seed) {
    JobShape shape;
    shape.steps = 1'000'000;  // without end
    shape.sequence_length = 16;
    shape.global_batch = shape.micro_batch = 1;
    shape.seed = seed;
    const v1::CreateJobRequest request = place_->Request(shape, "");
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
  std::function<void()> end_process_ = [] { FAIL() << "other jobs were not saved"; };
};

TEST_F(DaemonDevicesTest, AJobThatHangsCostsTheJobsOnOthersNothing) {
  std::string hung, other;
  {
    StepObserver observer;
    std::atomic<bool> ended{false};
    observer.on_step = [&](const RunRequest& run, int64_t step) {
      if (run.devices[0] == 0 && step == 2) WaitUntil([&] { return ended.load(); });
    };
    const auto daemon = Start(&observer);
    ASSERT_NE(daemon, nullptr);
    hung = Submit(1);
    other = Submit(2);
    EXPECT_TRUE(WaitUntil([&] { return restarts_ > 0; }));
    daemon->Stop();
    ended = true;  // a process would end without it
  }
  const Job job = Stored(hung);
  EXPECT_EQ(job.state, JobState::kQueued);
  EXPECT_EQ(job.reason, JobReason::kProcessRestart);
  EXPECT_THAT(job.reason_text, HasSubstr("it hung: "));
  EXPECT_THAT(job.reason_text, HasSubstr("; goes on from the beginning"));
  const Job saved = Stored(other);
  EXPECT_EQ(saved.state, JobState::kQueued);
  EXPECT_EQ(saved.reason, JobReason::kShutdown);
  EXPECT_GE(saved.checkpoint_step, 1);
  EXPECT_EQ(saved.deaths, 0);

  // Both go on, the other one from where it was.
  StepObserver observer;
  std::atomic<int64_t> first_step{0}, others_first_step{0};
  observer.on_step = [&](const RunRequest& run, int64_t step) {
    std::atomic<int64_t>& first = run.job_id == other ? others_first_step : first_step;
    int64_t none = 0;
    first.compare_exchange_strong(none, step);
  };
  const auto daemon = Start(&observer);
  ASSERT_NE(daemon, nullptr);
  EXPECT_TRUE(WaitUntil([&] { return first_step > 0 && others_first_step > 0; }));
  EXPECT_EQ(first_step, 1);
  EXPECT_EQ(others_first_step, saved.checkpoint_step + 1);
  daemon->Stop();
}

TEST_F(DaemonDevicesTest, AJobThatHangsAgainAndAgainFails) {
  std::string id;
  for (int life = 0; life < 5; ++life) {
    restarts_ = 0;
    StepObserver observer;
    std::atomic<bool> ended{false};
    observer.on_step = [&](const RunRequest&, int64_t) { WaitUntil([&] { return ended.load(); }); };
    const auto daemon = Start(&observer);
    ASSERT_NE(daemon, nullptr);
    if (life == 0) id = Submit(1);
    EXPECT_TRUE(WaitUntil([&] { return restarts_ > 0; })) << life;
    daemon->Stop();
    ended = true;
  }
  const Job job = Stored(id);
  EXPECT_EQ(job.state, JobState::kFailed) << job.reason_text;
  EXPECT_EQ(job.reason, JobReason::kRepeatedDeaths);
  EXPECT_THAT(job.reason_text, HasSubstr("5 times in a row without the job getting further"));
}

// A job with directories that are too deep to be measured counts as all of the limit.
TEST_F(DaemonDevicesTest, AnotherDiskLimitMeasuresTheFilesAgain) {
  config_.limits.disk_bytes = int64_t{1} << 40;
  StepObserver observer;
  const auto daemon = Start(&observer);
  ASSERT_NE(daemon, nullptr);
  const std::string id = Submit(1);
  const auto jobs = v1::JobService::NewStub(
      grpc::CreateChannel(config_.listen[0], grpc::InsecureChannelCredentials()));
  v1::Job job;
  v1::CancelJobRequest cancel;
  cancel.set_name("jobs/" + id);
  grpc::ClientContext cancels;
  ASSERT_TRUE(jobs->CancelJob(&cancels, cancel, &job).ok());
  v1::GetJobRequest get;
  get.set_name("jobs/" + id);
  ASSERT_TRUE(WaitUntil([&] {
    grpc::ClientContext context;
    return jobs->GetJob(&context, get, &job).ok() && job.state() == v1::Job::CANCELLED;
  }));
  std::string deep = config_.state_directory + "/jobs/" + id;
  for (int level = 0; level < 40; ++level) deep += "/d";
  ASSERT_TRUE(std::filesystem::create_directories(deep));

  DaemonConfig larger = config_;
  larger.limits.disk_bytes = int64_t{1} << 41;
  const absl::Status reloaded = daemon->Reload(larger);
  ASSERT_TRUE(reloaded.ok()) << reloaded;
  JobShape shape;
  shape.sequence_length = 16;
  shape.global_batch = shape.micro_batch = 1;
  grpc::ClientContext creates;
  const grpc::Status refused = jobs->CreateJob(&creates, place_->Request(shape, ""), &job);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << refused.error_message();
  EXPECT_THAT(refused.error_message(), HasSubstr(id));
  daemon->Stop();
}

// Systemd starts it again.
TEST_F(DaemonDevicesTest, OfOneDeviceAJobThatHangsEndsTheProcess) {
  config_.devices = 1;
  std::atomic<int> ends{0};
  end_process_ = [&ends] { ++ends; };
  StepObserver observer;
  std::atomic<bool> ended{false};
  observer.on_step = [&](const RunRequest&, int64_t step) {
    if (step == 2) WaitUntil([&] { return ended.load(); });
  };
  const auto daemon = Start(&observer);
  ASSERT_NE(daemon, nullptr);
  Submit(1);
  EXPECT_TRUE(WaitUntil([&] { return ends > 0; }));
  EXPECT_EQ(restarts_, 0);
  ended = true;  // a process would end without it
  daemon->Stop();
}

}  // namespace
}  // namespace megatrain
