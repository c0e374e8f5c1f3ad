// A daemon whose disks run full: training waits with its reason and goes on when there is room, and
// nothing that was told is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/small_disk.h"
#include "tests/e2e/workplace.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Room for some checkpoints of 12 MiB, beside what the daemon wants free for itself.
constexpr int64_t kDiskBytes = int64_t{160} << 20;

class ServeDiskTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto place = Workplace::Make(fs::absolute("server/megatraind").string(), "llama-tiny");
    ASSERT_TRUE(place.ok()) << place.status();
    place_ = *std::move(place);
    auto options = place_->NewDaemon("d");
    ASSERT_TRUE(options.ok()) << options.status();
    options_ = *std::move(options);
  }

  // False: it cannot be had here, and the test is skipped.
  bool Mount(const std::string& directory) {
    fs::create_directories(directory);
    auto disk = SmallDisk::Mount(directory, kDiskBytes);
    EXPECT_TRUE(disk.ok() || absl::IsPermissionDenied(disk.status())) << disk.status();
    if (disk.ok()) disk_ = *std::move(disk);
    return disk.ok();
  }

  void Start() {
    auto daemon = DaemonProcess::Start(options_);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
  }

  std::string Create(const std::vector<std::string>& overrides) {
    v1::CreateJobRequest request = place_->Request(shape_, "");
    for (const std::string& each : overrides) {
      request.mutable_job()->mutable_file()->add_overrides(each);
    }
    const auto job = daemon_->Create(request);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? job->name() : "";
  }

  v1::Job Get(const std::string& name) {
    const auto job = daemon_->Get(name);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *job : v1::Job();
  }

  void ExpectWhole(const std::string& name) {
    StepSeries series;
    const absl::Status read = daemon_->ReadSteps(name, shape_.steps + 1, false, &series);
    EXPECT_TRUE(read.ok()) << read;
    std::vector<int64_t> all;
    for (int64_t step = 1; step <= shape_.steps; ++step) all.push_back(step);
    EXPECT_EQ(series.Numbers(), all);
    EXPECT_TRUE(daemon_->Events(name).ok());
  }

  const JobShape shape_{
      .steps = 120, .checkpoint_every_steps = 10, .threads = 1, .link_gigabytes_per_second = 0.1};
  std::unique_ptr<Workplace> place_;
  std::unique_ptr<SmallDisk> disk_;  // outlives the daemon
  DaemonProcess::Options options_;
  std::unique_ptr<DaemonProcess> daemon_;
};

TEST_F(ServeDiskTest, AFullDiskUnderTheCheckpointsPausesUntilThereIsRoom) {
  const std::string checkpoints = place_->directory() + "/small";
  if (!Mount(checkpoints)) GTEST_SKIP() << "needs the right to mount";
  Start();
  const std::string name = Create({"checkpoint.directory=" + checkpoints + "/c"});
  ASSERT_TRUE(daemon_->WaitForStep(name, 11).ok());
  ASSERT_TRUE(disk_->Fill().ok());
  ASSERT_TRUE(daemon_->WaitForState(name, v1::Job::PAUSED).ok());
  const v1::Job paused = Get(name);
  EXPECT_EQ(paused.reason(), v1::Job::DISK_FULL);
  EXPECT_THAT(paused.reason_text(), HasSubstr(checkpoints));
  EXPECT_TRUE(paused.host_memory_kept());
  disk_->MakeRoom();
  const absl::Status finished = daemon_->WaitForState(name, v1::Job::SUCCEEDED);
  EXPECT_TRUE(finished.ok()) << finished;
  ExpectWhole(name);
}

TEST_F(ServeDiskTest, AFullDiskUnderStoreAndLogsLosesNothingThatWasTold) {
  if (!Mount(options_.directory)) GTEST_SKIP() << "needs the right to mount";
  Start();
  const std::string name = Create({});
  ASSERT_TRUE(daemon_->WaitForStep(name, 11).ok());
  ASSERT_TRUE(disk_->Fill().ok());
  // What cannot be stored is refused, and says why.
  absl::Status refused;
  const absl::Status tried = daemon_->WaitFor([&] {
    refused = daemon_->Create(place_->Request(shape_, "")).status();
    return !refused.ok();
  });
  ASSERT_TRUE(tried.ok()) << tried;
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("disk"));
  // Training stands still, rather than making steps that nobody can be told of.
  const absl::Status still = daemon_->WaitFor([&] {
    const int64_t before = Get(name).progress().step();
    std::this_thread::sleep_for(std::chrono::seconds(1));
    return Get(name).progress().step() == before;
  });
  EXPECT_TRUE(still.ok()) << still;
  const std::vector<v1::JobEvent> told = daemon_->Events(name).value();
  disk_->MakeRoom();
  const absl::Status finished = daemon_->WaitForState(name, v1::Job::SUCCEEDED);
  EXPECT_TRUE(finished.ok()) << finished;
  ExpectWhole(name);
  const std::vector<v1::JobEvent> events = daemon_->Events(name).value();
  ASSERT_GE(events.size(), told.size());
  for (size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(events[i].SerializeAsString(), told[i].SerializeAsString());
  }
}

TEST_F(ServeDiskTest, ADaemonThatIsKilledWithItsDiskFullGoesOnWhenThereIsRoom) {
  if (!Mount(options_.directory)) GTEST_SKIP() << "needs the right to mount";
  Start();
  const std::string name = Create({});
  ASSERT_TRUE(daemon_->WaitForStep(name, 11).ok());
  ASSERT_TRUE(disk_->Fill().ok());
  ASSERT_TRUE(daemon_->WaitForStep(name, 12).ok());
  daemon_->process().Signal(SIGKILL);
  daemon_->process().Wait();
  // One that cannot write says so and ends, rather than serve what it cannot keep.
  daemon_ = DaemonProcess::Launch(options_);
  const bool serves = daemon_->WaitUntilReady().ok();
  if (!serves) {
    EXPECT_THAT(daemon_->process().Output(), HasSubstr("state"));
    disk_->MakeRoom();
    Start();
  } else {
    EXPECT_EQ(Get(name).name(), name);
    disk_->MakeRoom();
  }
  const absl::Status finished = daemon_->WaitForState(name, v1::Job::SUCCEEDED);
  EXPECT_TRUE(finished.ok()) << finished;
  ExpectWhole(name);
}

}  // namespace
}  // namespace megatrain
