// `megatraind serve` with several devices: jobs side by side, killed and started again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/e2e/workplace.h"
#include "tests/server/metrics/http_request.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kBinary[] = "server/megatraind";

class ServeDevicesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto place = Workplace::Make(kBinary, "llama-tiny");
    ASSERT_TRUE(place.ok()) << place.status();
    place_ = *std::move(place);
    auto options = place_->NewDaemon("daemon");
    ASSERT_TRUE(options.ok()) << options.status();
    options_ = *std::move(options);
    options_.threads = 2;
    options_.settings = {"devices=2", "limits.running_jobs_per_user=0",
                         "metrics_listen=127.0.0.1:0"};
    StartDaemon();
  }
  void StartDaemon() {
    auto daemon = DaemonProcess::Start(options_);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
  }

  static JobShape Shape(int64_t seed, int devices = 1) {
    JobShape shape;
    shape.steps = 90;
    shape.seed = seed;
    shape.checkpoint_every_steps = 40;
    shape.devices = devices;
    return shape;
  }
  std::string Output(int64_t seed) const {
    return absl::StrCat(place_->directory(), "/out-", seed);
  }
  std::string Submit(const JobShape& shape) {
    const auto job = daemon_->Create(place_->Request(shape, Output(shape.seed)));
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? job->name() : "";
  }
  v1::Job Get(const std::string& name) {
    const auto job = daemon_->Get(name);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.value_or(v1::Job());
  }
  void ExpectSameBits(const JobShape& shape) {
    const std::string undisturbed = Output(shape.seed) + "-undisturbed";
    ASSERT_TRUE(place_->RunUndisturbed(shape, undisturbed).ok());
    EXPECT_NE(DirectoryContents(undisturbed), "");
    EXPECT_TRUE(DirectoryContents(undisturbed) == DirectoryContents(Output(shape.seed)))
        << shape.seed << ": other bits";
  }
  std::string MetricsPage() {
    const std::string log = daemon_->process().Output(), before = "metrics on http://";
    const size_t begin = log.rfind(before) + before.size();
    return HttpGet(log.substr(begin, log.find("/metrics", begin) - begin), "/metrics").body;
  }

  std::unique_ptr<Workplace> place_;
  DaemonProcess::Options options_;
  std::unique_ptr<DaemonProcess> daemon_;
};

TEST_F(ServeDevicesTest, JobsSideBySideEndInTheBitsOfRunsAlone) {
  const JobShape a = Shape(1), b = Shape(2), both = Shape(3, 2), after = Shape(4);
  const std::string first = Submit(a), second = Submit(b), third = Submit(both),
                    last = Submit(after);
  // At the same time.
  ASSERT_TRUE(daemon_
                  ->WaitFor([&] {
                    return Get(first).progress().step() > 2 && Get(second).progress().step() > 2;
                  })
                  .ok());
  EXPECT_EQ(Get(first).state(), v1::Job::RUNNING);
  EXPECT_EQ(Get(second).state(), v1::Job::RUNNING);
  EXPECT_THAT(Get(first).devices(), ElementsAre("cpu:0"));
  EXPECT_THAT(Get(second).devices(), ElementsAre("cpu:1"));
  EXPECT_EQ(Get(third).queue().text(), "is next; waits for 2 of the 2 devices");
  const auto node = daemon_->GetNode();
  ASSERT_TRUE(node.ok()) << node.status();
  ASSERT_EQ(node->devices_size(), 2);
  for (const v1::Device& device : node->devices()) {
    EXPECT_THAT(device.description(), HasSubstr("cpu, 1 threads"));
    EXPECT_TRUE(device.busy()) << device.id();
  }
  const std::string page = MetricsPage();
  for (const char* text : {"megatrain_step{device=\"cpu:0\"} ", "megatrain_step{device=\"cpu:1\"} ",
                           "megatrain_device_busy{device=\"cpu:1\"} 1\n",
                           "model=\"llama\",device=\"cpu:0\",devices=\"cpu:0\"} 1\n"}) {
    EXPECT_THAT(page, HasSubstr(text));
  }

  // Both go on from their checkpoints, and the one that waits is not passed.
  ASSERT_TRUE(daemon_->WaitForStep(first, 50).ok());
  ASSERT_TRUE(daemon_->WaitForStep(second, 50).ok());
  daemon_->process().Signal(SIGKILL);
  daemon_->process().Wait();
  StartDaemon();
  for (const std::string& name : {first, second, third}) {
    const absl::Status ended = daemon_->WaitForState(name, v1::Job::SUCCEEDED);
    ASSERT_TRUE(ended.ok()) << ended;
  }
  const auto events = daemon_->Events(third);
  ASSERT_TRUE(events.ok()) << events.status();
  EXPECT_THAT((*events)[1].text(), HasSubstr(" on cpu:0, cpu:1"));
  // Of the two devices of one job it is told which was slower.
  const v1::Job two = Get(third);
  EXPECT_EQ(two.progress().last_step().ranks(), 2);
  EXPECT_TRUE(two.progress().last_step().has_slowest_rank());
  EXPECT_LT(two.progress().last_step().slowest_rank(), 2);
  EXPECT_GT(two.progress().last_step().lane_mean_seconds().compute(), 0);
  EXPECT_FALSE(Get(first).progress().last_step().has_slowest_rank());
  ASSERT_TRUE(daemon_->WaitForState(last, v1::Job::SUCCEEDED).ok());
  for (const JobShape& shape : {a, b, both, after}) ExpectSameBits(shape);
}

TEST_F(ServeDevicesTest, AFreeDeviceTakesTheNextJobWhileAnotherTrainsOn) {
  const std::string first = Submit(Shape(1)), second = Submit(Shape(2)), third = Submit(Shape(3));
  ASSERT_TRUE(daemon_->WaitForStep(first, 1).ok());
  ASSERT_TRUE(daemon_->WaitForStep(second, 1).ok());
  ASSERT_TRUE(daemon_->Cancel(second).ok());
  ASSERT_TRUE(daemon_->WaitForState(second, v1::Job::CANCELLED).ok());
  ASSERT_TRUE(daemon_->WaitForStep(third, 1).ok());
  EXPECT_THAT(Get(third).devices(), ElementsAre("cpu:1"));
  // Paused in place, a job leaves its device and gets it back.
  ASSERT_TRUE(daemon_->Pause(first, /*release_host_memory=*/false).ok());
  ASSERT_TRUE(daemon_->WaitForState(first, v1::Job::PAUSED).ok());
  EXPECT_THAT(Get(first).devices(), ElementsAre("cpu:0"));
  const auto node = daemon_->GetNode();
  ASSERT_TRUE(node.ok()) << node.status();
  EXPECT_FALSE(node->devices(0).busy());
  ASSERT_TRUE(daemon_->Resume(first).ok());
  for (const std::string& name : {first, third}) {
    ASSERT_TRUE(daemon_->WaitForState(name, v1::Job::SUCCEEDED).ok());
  }
  ExpectSameBits(Shape(1));
  ExpectSameBits(Shape(3));
}

TEST_F(ServeDevicesTest, AFreeDeviceIsNotForAUserAtItsLimit) {
  daemon_->process().Signal(SIGKILL);
  daemon_->process().Wait();
  options_.settings[1] = "limits.running_jobs_per_user=1";
  StartDaemon();
  const std::string first = Submit(Shape(1)), second = Submit(Shape(2));
  ASSERT_TRUE(daemon_->WaitForStep(first, 2).ok());
  EXPECT_EQ(Get(second).queue().waiting(), v1::QueueStatus::USER_LIMIT);
}

TEST_F(ServeDevicesTest, AJobOfMoreDevicesThanAUserMayHaveIsRefused) {
  daemon_->process().Signal(SIGKILL);
  daemon_->process().Wait();
  options_.settings.push_back("limits.devices_per_user=1");
  ASSERT_NO_FATAL_FAILURE(StartDaemon());
  const absl::Status refused = daemon_->Create(place_->Request(Shape(1, 2), "")).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("limits.devices_per_user"));
  const absl::Status one = daemon_->Create(place_->Request(Shape(2), "")).status();
  EXPECT_TRUE(one.ok()) << one;
}

}  // namespace
}  // namespace megatrain
