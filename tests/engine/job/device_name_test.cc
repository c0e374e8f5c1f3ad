#include "engine/job/device_name.h"

#include <gtest/gtest.h>

namespace megatrain {
namespace {

using Kind = DeviceName::Kind;

TEST(DeviceNameTest, ReadsEveryForm) {
  EXPECT_EQ(ParseDeviceName("auto")->kind, Kind::kAuto);
  EXPECT_EQ(ParseDeviceName("cpu")->kind, Kind::kCpu);
  EXPECT_EQ(ParseDeviceName("cuda")->kind, Kind::kCuda);
  EXPECT_EQ(ParseDeviceName("cuda")->ordinal, -1);
  EXPECT_EQ(ParseDeviceName("cuda:0")->ordinal, 0);
  EXPECT_EQ(ParseDeviceName("cuda:17")->ordinal, 17);
  EXPECT_EQ(ParseDeviceName("cuda:999")->ordinal, 999);
}

TEST(DeviceNameTest, RefusesAllElse) {
  for (const char* text : {"", "gpu", "CUDA", "cpu:0", "cuda:", "cuda:x", "cuda:-1", "cuda:+1",
                           "cuda: 1", "cuda:01", "cuda:1 ", "cuda:1000", "cuda0"}) {
    EXPECT_FALSE(ParseDeviceName(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace megatrain
