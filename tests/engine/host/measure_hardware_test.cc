#include "engine/host/measure_hardware.h"

#include <gtest/gtest.h>

#include <cmath>

namespace megatrain {
namespace {

TEST(MeasureHardwareTest, EveryRateIsMeasured) {
  SessionSettings settings;
  settings.threads = 2;
  const auto rates = MeasureHardware(*OpenSession(settings, {}), kCpuMeasurement);
  ASSERT_TRUE(rates.ok()) << rates.status();
  EXPECT_TRUE(rates->known());
  EXPECT_EQ(rates->threads, 2);
  EXPECT_TRUE(rates->device_is_host);
  // No machine that this runs on is slower than a million or faster than 1e16 of anything.
  for (const PrecisionRates& precision : {rates->fp32, rates->bf16}) {
    for (const double rate :
         {precision.matmul_flops_per_second, precision.attention_flops_per_second,
          precision.attention_backward_flops_per_second, precision.element_bytes_per_second,
          precision.update_bytes_per_second, rates->h2d_bytes_per_second,
          rates->d2h_bytes_per_second}) {
      EXPECT_GT(rate, 1e6);
      EXPECT_LT(rate, 1e16);
    }
  }
  EXPECT_EQ(rates->launch_seconds, 0) << "a call of the cpu device is its work";
  EXPECT_FALSE(HardwareRates().known());
}

}  // namespace
}  // namespace megatrain
