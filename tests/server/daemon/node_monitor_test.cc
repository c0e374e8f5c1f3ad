#include "server/daemon/node_monitor.h"

#include <gtest/gtest.h>

#include "engine/host/engine_host.h"
#include "tests/engine/device/cuda/emulated_gpu.h"

namespace megatrain {
namespace {

v1::Node NodeOf(const EngineHostOptions& options) {
  const auto host = EngineHost::Create(options);
  EXPECT_TRUE(host.ok()) << host.status();
  const JobTable jobs;
  return NodeMonitor(host->get(), &jobs, testing::TempDir()).Read();
}

TEST(NodeMonitorTest, EachDeviceHasItsOwnMemory) {
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

TEST(NodeMonitorTest, PartsOfTheCpuHaveNone) {
  EngineHostOptions options;
  options.device = "cpu";
  options.devices = 2;
  const v1::Node node = NodeOf(options);
  ASSERT_EQ(node.devices_size(), 2);
  EXPECT_EQ(node.devices(1).memory_bytes(), 0);
}

}  // namespace
}  // namespace megatrain
