#include "server/daemon/node_reporter.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "engine/host/engine_host.h"
#include "tests/engine/device/cuda/emulated_gpu.h"
#include "tests/server/jobs/test_job.h"

namespace megatrain {
namespace {

v1::Node NodeOf(const EngineHostOptions& options) {
  const auto host = EngineHost::Create(options);
  EXPECT_TRUE(host.ok()) << host.status();
  const JobTable jobs;
  return NodeReporter(host->get(), &jobs, testing::TempDir()).Read();
}

TEST(NodeReporterTest, EachDeviceHasItsOwnMemory) {
  const auto pinned = std::make_shared<EmulatedPinned>();
  EmulatedGpu large({.devices = 2, .pinned = pinned});
  EmulatedGpu small({.devices = 2, .memory_bytes = int64_t{3} << 30, .pinned = pinned});
  EngineHostOptions options;
  options.device = "cuda";
  options.devices = 2;
  options.threads = 2;
  options.open_gpu = [&](int ordinal) { return (ordinal == 0 ? large : small).opener()(ordinal); };
  const v1::Node node = NodeOf(options);
  ASSERT_EQ(node.devices_size(), 2);
  EXPECT_EQ(node.devices(0).memory_bytes(), int64_t{4} << 30);
  EXPECT_EQ(node.devices(1).memory_bytes(), int64_t{3} << 30);
  EXPECT_EQ(node.device().memory_bytes(), int64_t{4} << 30);
}

TEST(NodeReporterTest, PartsOfTheCpuHaveNone) {
  EngineHostOptions options;
  options.device = "cpu";
  options.devices = 2;
  const v1::Node node = NodeOf(options);
  ASSERT_EQ(node.devices_size(), 2);
  EXPECT_EQ(node.devices(1).memory_bytes(), 0);
}

TEST(NodeReporterTest, ThePoolIsToldWhileItIsPinnedAndUsed) {
  constexpr int64_t kMiBytes = int64_t{1} << 20;
  EngineHostOptions options;
  options.device = "cpu";
  options.threads = 3;
  const auto host = EngineHost::Create(options);
  ASSERT_TRUE(host.ok()) << host.status();
  const JobTable jobs;
  NodeReporter reporter(host->get(), &jobs, testing::TempDir());
  reporter.SetPinning(2 * kMiBytes, 8 * kMiBytes);
  v1::Node node = reporter.Read();
  EXPECT_EQ(node.threads(), 3);
  EXPECT_EQ(node.host_pool().size_bytes(), 8 * kMiBytes);
  EXPECT_EQ(node.host_pool().pinned_bytes(), 2 * kMiBytes);
  EXPECT_EQ(node.host_pool().used_bytes(), 0);
  EXPECT_GT(node.state_disk().size_bytes(), 0);
  EXPECT_LE(node.state_disk().free_bytes(), node.state_disk().size_bytes());
  ASSERT_TRUE((*host)->ReservePool(8 * kMiBytes, nullptr, nullptr).ok());
  const auto pool = (*host)->GetOrReservePool(0, nullptr, nullptr);
  ASSERT_TRUE(pool.ok()) << pool.status();
  const auto lease = (*pool)->Lease(HostKind::kOther, 3 * kMiBytes);
  ASSERT_TRUE(lease.ok()) << lease.status();
  node = reporter.Read();
  EXPECT_EQ(node.host_pool().size_bytes(), 8 * kMiBytes);
  EXPECT_EQ(node.host_pool().pinned_bytes(), 8 * kMiBytes);
  EXPECT_EQ(node.host_pool().used_bytes(), 3 * kMiBytes);
}

TEST(NodeReporterTest, JobsAreCountedByWhatTheyDo) {
  EngineHostOptions options;
  options.device = "cpu";
  const auto host = EngineHost::Create(options);
  ASSERT_TRUE(host.ok()) << host.status();
  JobTable jobs;
  int64_t number = 0;
  const auto add = [&](JobState state, int count) {
    for (int i = 0; i < count; ++i) {
      Job job = TestJob(++number);
      job.state = state;
      jobs.Put(job, {});
    }
  };
  add(JobState::kRunning, 1);
  add(JobState::kQueued, 2);
  add(JobState::kPaused, 3);
  add(JobState::kSucceeded, 4);
  const v1::Node node = NodeReporter(host->get(), &jobs, testing::TempDir()).Read();
  EXPECT_EQ(node.jobs().running(), 1);
  EXPECT_EQ(node.jobs().queued(), 2);
  EXPECT_EQ(node.jobs().paused(), 3);
}

TEST(NodeReporterTest, ADeviceIsBusyWhileAJobIsActiveOnIt) {
  EngineHostOptions options;
  options.device = "cpu";
  options.devices = 3;
  options.threads = 3;
  const auto host = EngineHost::Create(options);
  ASSERT_TRUE(host.ok()) << host.status();
  JobTable jobs;
  Job active = TestJob(1), paused = TestJob(2), ended = TestJob(3);
  active.state = JobState::kPreparing;
  active.devices = {(*host)->devices().Name(1)};
  paused.state = JobState::kPaused;
  paused.devices = {(*host)->devices().Name(2)};
  ended.state = JobState::kSucceeded;
  ended.devices = {(*host)->devices().Name(0)};
  for (const Job& job : {active, paused, ended}) jobs.Put(job, {});
  const NodeReporter reporter(host->get(), &jobs, testing::TempDir());
  const v1::Node node = reporter.Read();
  ASSERT_EQ(node.devices_size(), 3);
  EXPECT_FALSE(node.devices(0).busy());
  EXPECT_TRUE(node.devices(1).busy());
  EXPECT_FALSE(node.devices(2).busy());
  EXPECT_FALSE(node.device().busy());
  active.devices.insert(active.devices.begin(), (*host)->devices().Name(0));
  jobs.Put(active, {});
  EXPECT_TRUE(reporter.Read().device().busy()) << "as the first of them is";
}

TEST(NodeReporterTest, RatesAreThoseThatWereMeasured) {
  EngineHostOptions options;
  options.device = "cpu";
  options.threads = 1;
  const auto host = EngineHost::Create(options);
  ASSERT_TRUE(host.ok()) << host.status();
  const JobTable jobs;
  const NodeReporter reporter(host->get(), &jobs, testing::TempDir());
  EXPECT_FALSE(reporter.Read().has_rates());
  ASSERT_TRUE((*host)->MeasureRates().ok());
  const HardwareRates rates = (*host)->rates();
  const v1::MeasuredRates told = reporter.Read().rates();
  EXPECT_EQ(told.fp32_flops_per_second(), rates.fp32.matmul_flops_per_second);
  EXPECT_EQ(told.bf16_flops_per_second(), rates.bf16.matmul_flops_per_second);
  EXPECT_EQ(told.h2d_bytes_per_second(), rates.h2d_bytes_per_second);
  EXPECT_EQ(told.d2h_bytes_per_second(), rates.d2h_bytes_per_second);
  EXPECT_EQ(told.fp32_update_bytes_per_second(), rates.fp32.update_bytes_per_second);
  EXPECT_EQ(told.bf16_update_bytes_per_second(), rates.bf16.update_bytes_per_second);
}

}  // namespace
}  // namespace megatrain
