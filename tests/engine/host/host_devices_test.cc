#include "engine/host/host_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace megatrain {
namespace {

using ::testing::HasSubstr;

DeviceClaim Claim(const std::string& device, int64_t devices, const HostDevices& host) {
  const auto claim = ClaimDevices(device, devices, host);
  EXPECT_TRUE(claim.ok()) << claim.status();
  return claim.value_or(DeviceClaim{-1, -1});
}

std::string Refusal(const std::string& device, int64_t devices, const HostDevices& host) {
  const absl::Status status = ClaimDevices(device, devices, host).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(HostDevicesTest, Names) {
  EXPECT_EQ((HostDevices{"cpu", 1}.Name(0)), "cpu");
  EXPECT_EQ((HostDevices{"cpu", 3}.Name(2)), "cpu:2");
  EXPECT_EQ((HostDevices{"cuda:0", 1}.Name(0)), "cuda:0");
  EXPECT_EQ((HostDevices{"cuda:2", 3}.Name(1)), "cuda:3");
}

TEST(HostDevicesTest, DevicesOfAboutEqualMemoryAreOneGroupInTheirOrder) {
  using Groups = std::vector<std::vector<int>>;
  EXPECT_EQ((HostDevices{"cpu", 3}.ByMemory()), (Groups{{0, 1, 2}}));
  EXPECT_EQ((HostDevices{"cuda:0", 3, {100, 91, 99}}.ByMemory()), (Groups{{0, 1, 2}}));
  EXPECT_EQ((HostDevices{"cuda:0", 5, {80, 24, 81, 46, 22}}.ByMemory()),
            (Groups{{1, 4}, {3}, {0, 2}}));
}

TEST(HostDevicesTest, JobsGetTheHostsDeviceOrNone) {
  for (const auto& [name, host] : std::initializer_list<std::pair<const char*, const char*>>{
           {"auto", "cpu"}, {"cpu", "cpu"}, {"auto", "cuda:1"}, {"cuda", "cuda:1"}}) {
    EXPECT_EQ(Claim(name, 1, {host, 1}).first, -1) << name;
  }
  EXPECT_EQ(Claim("cuda:1", 1, {"cuda:1", 1}).first, 0);
  for (const auto& [name, host] : std::initializer_list<std::pair<const char*, const char*>>{
           {"cpu", "cuda:0"}, {"cuda", "cpu"}, {"cuda:0", "cpu"}, {"cuda:0", "cuda:1"}}) {
    EXPECT_THAT(Refusal(name, 1, {host, 1}),
                HasSubstr(std::string("which is ") + host + "; write auto or " + host));
  }
}

TEST(HostDevicesTest, AGpuThatIsNamedIsThatOneOfSeveral) {
  const HostDevices host{"cuda:2", 4};
  EXPECT_EQ(Claim("cuda:4", 1, host).first, 2);
  EXPECT_EQ(Claim("cuda:4", 0, host).count, 2) << "all from there on";
  EXPECT_THAT(Refusal("cuda:1", 1, host), HasSubstr("here, cuda:2 to cuda:5; write auto or"));
  EXPECT_THAT(Refusal("cuda:6", 1, host), HasSubstr("engine.device: cuda:6 is not among"));
  EXPECT_THAT(Refusal("cuda:4", 3, host),
              HasSubstr("a job has at most 2 GPUs here, from cuda:4 on, not 3"));
}

TEST(HostDevicesTest, AJobHasNoMoreGpusThanThereAre) {
  EXPECT_EQ(Claim("auto", 4, {"cuda:0", 4}).count, 4);
  EXPECT_EQ(Claim("auto", 0, {"cuda:0", 4}).count, 4);
  EXPECT_THAT(Refusal("auto", 5, {"cuda:0", 4}), HasSubstr("at most 4 GPUs here"));
  EXPECT_THAT(Refusal("auto", 2, {"cuda:0", 1}), HasSubstr("at most one GPU here"));
  EXPECT_EQ(Claim("auto", 7, {"cuda:0", kUnknownDevices}).count, 7);
  EXPECT_THAT(Refusal("auto", 0, {"cuda:0", kUnknownDevices}), HasSubstr("engine.devices: all:"));
}

TEST(HostDevicesTest, TheCpusPartsAreDividedFurther) {
  EXPECT_EQ(Claim("auto", 1, {"cpu", 3}).count, 1);
  EXPECT_EQ(Claim("auto", 2, {"cpu", 3}).count, 2);
  EXPECT_EQ(Claim("auto", 8, {"cpu", 3}).count, 3);
  EXPECT_EQ(Claim("auto", 0, {"cpu", 3}).count, 3);
  EXPECT_EQ(Claim("auto", 4, {"cpu", 1}).count, 1);
  EXPECT_EQ(Claim("auto", 4, {"cpu", kUnknownDevices}).count, 1);
}

}  // namespace
}  // namespace megatrain
