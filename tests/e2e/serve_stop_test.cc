// SIGTERM at whatever a daemon does: it ends with exit code 0, and the next one goes on.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/workplace.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

class ServeStopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Large enough that reading and saving it take a while: 120 MB of state.
    auto place = Workplace::Make(fs::absolute("server/megatraind").string(), "llama-10m");
    ASSERT_TRUE(place.ok()) << place.status();
    place_ = *std::move(place);
    auto options = place_->NewDaemon("d");
    ASSERT_TRUE(options.ok()) << options.status();
    options_ = *std::move(options);
    options_.host_memory = "512MiB";
  }

  // Starts a daemon and stops it as soon as `condition` holds, which may be before it is ready.
  void StopWhen(const std::function<bool()>& condition) {
    daemon_ = DaemonProcess::Launch(options_);
    const absl::Status met = daemon_->WaitFor(condition);
    ASSERT_TRUE(met.ok()) << met;
    daemon_->process().Signal(SIGTERM);
    ASSERT_EQ(daemon_->process().Wait(), 0) << daemon_->process().Output();
  }
  // The job as it is, or one without a state while the daemon does not answer yet.
  v1::Job Get(const std::string& name) { return daemon_->Get(name).value_or(v1::Job()); }

  std::unique_ptr<Workplace> place_;
  DaemonProcess::Options options_;
  std::unique_ptr<DaemonProcess> daemon_;
};

TEST_F(ServeStopTest, WhileItReadsTheDataLoadsStepsAndSaves) {
  const std::string text = place_->directory() + "/long.txt";
  {
    std::ofstream file(text);
    for (int i = 0; i < 600'000; ++i) file << "a line of text that is number " << i << "\n";
  }
  const JobShape shape{.steps = 60, .global_batch = 2, .checkpoint_every_steps = 3, .threads = 1};
  v1::CreateJobRequest request = place_->Request(shape, place_->directory() + "/out");
  request.set_request_id("4f1d8a52-6d0e-4b7a-9a44-0f3c5c1c7a10");
  request.mutable_job()->mutable_file()->add_overrides("data.train.0.path=" + text);
  const std::string checkpoints = place_->directory() + "/c";
  request.mutable_job()->mutable_file()->add_overrides("checkpoint.directory=" + checkpoints);

  std::string name;
  int64_t step = 0;  // that the job had reached when it was seen last
  // A state that may be over when it is looked for, so that later ones do too.
  const auto prepares = [&] {
    const v1::Job job = Get(name);
    step = job.progress().step();
    return job.state() == v1::Job::PREPARING || job.state() == v1::Job::RUNNING;
  };
  // The data are read, as soon as there is a job.
  ASSERT_NO_FATAL_FAILURE(StopWhen([&] {
    if (name.empty()) {
      const auto job = daemon_->Create(request);
      if (job.ok()) name = job->name();
    }
    return !name.empty() && prepares();
  }));
  // A checkpoint is being written.
  ASSERT_NO_FATAL_FAILURE(StopWhen([&] {
    if (!fs::exists(checkpoints)) return false;
    for (const auto& entry : fs::directory_iterator(checkpoints)) {
      if (entry.path().extension() == ".tmp") return true;
    }
    return false;
  }));
  // A checkpoint is verified and loaded.
  ASSERT_NO_FATAL_FAILURE(StopWhen(prepares));
  // A step.
  ASSERT_NO_FATAL_FAILURE(StopWhen([&] { return Get(name).progress().step() > step; }));
  auto daemon = DaemonProcess::Start(options_);
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  daemon_ = *std::move(daemon);
  const absl::Status finished = daemon_->WaitForState(name, v1::Job::SUCCEEDED);
  EXPECT_TRUE(finished.ok()) << finished;
  StepSeries series;
  EXPECT_TRUE(daemon_->ReadSteps(name, shape.steps + 1, false, &series).ok());
  EXPECT_EQ(series.steps.size(), 60u);
  EXPECT_TRUE(daemon_->Events(name).ok());
}

}  // namespace
}  // namespace megatrain
