#include "engine/host/hardware_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(HardwareRatesTest, GivenRatesTakeThePlaceOfTheOthers) {
  HardwareRates rates;
  rates.launch_seconds = 1;
  ASSERT_TRUE(SetRates({"dram=80", "link=50", "products=700", "attention_forward=500",
                        "attention_backward=350", "memory=4.0", "launch=2.5", "products=650.5",
                        "collective=360", "network=45"},
                       &rates)
                  .ok());
  for (const PrecisionRates& precision : {rates.fp32, rates.bf16}) {
    EXPECT_DOUBLE_EQ(precision.update_bytes_per_second, 80e9 * kUpdateShareOfHostMemory);
    EXPECT_DOUBLE_EQ(precision.matmul_flops_per_second, 650.5e12) << "the last one counts";
    EXPECT_DOUBLE_EQ(precision.attention_flops_per_second, 500e12);
    EXPECT_DOUBLE_EQ(precision.attention_backward_flops_per_second, 350e12);
    EXPECT_DOUBLE_EQ(precision.element_bytes_per_second, 4e12);
  }
  for (const double link :
       {rates.h2d_bytes_per_second, rates.d2h_bytes_per_second,
        rates.h2d_beside_d2h_bytes_per_second, rates.d2h_beside_h2d_bytes_per_second}) {
    EXPECT_DOUBLE_EQ(link, 50e9);
  }
  EXPECT_DOUBLE_EQ(rates.launch_seconds, 2.5e-6);
  EXPECT_DOUBLE_EQ(rates.collective_bytes_per_second, 360e9);
  EXPECT_DOUBLE_EQ(rates.network_bytes_per_second, 45e9);
  ASSERT_TRUE(SetRate("host_memory=140", &rates).ok());
  EXPECT_DOUBLE_EQ(rates.host_memory_bytes_per_second, 140e9);
  ASSERT_TRUE(SetRate("dram=300", &rates).ok());
  EXPECT_EQ(rates.host_memory_bytes_per_second, 0) << "copies do not reduce it";
  EXPECT_EQ(rates.threads, 0) << "given rates are not measured ones";
}

TEST(HardwareRatesTest, WhatIsNoRateIsRefusedWithThoseThereAre) {
  for (const char* wrong : {"drum=80", "dram", "dram=", "dram=0", "dram=-1", "dram=nan", "dram=inf",
                            "dram=8x", "=80", "", "link=1e400"}) {
    HardwareRates rates;
    const absl::Status status = SetRate(wrong, &rates);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("--rate: "), HasSubstr(wrong), HasSubstr("dram (GB/s)"),
                      HasSubstr("memory (TB/s)"), HasSubstr("launch (microseconds)")));
    EXPECT_EQ(rates, HardwareRates()) << wrong;
  }
}

TEST(HardwareRatesTest, OfTwoMeasurementsTheFasterRatesAreKept) {
  HardwareRates rates, other;
  rates.h2d_bytes_per_second = 2;
  other.h2d_bytes_per_second = 1;
  rates.d2h_beside_h2d_bytes_per_second = 1;
  other.d2h_beside_h2d_bytes_per_second = 2;
  rates.host_memory_bytes_per_second = 3;
  other.host_memory_bytes_per_second = 4;
  rates.fp32.matmul_flops_per_second = 6;
  other.fp32.matmul_flops_per_second = 5;
  rates.bf16.update_bytes_per_second = 7;
  other.bf16.update_bytes_per_second = 8;
  other.collective_bytes_per_second = 9;
  rates.launch_seconds = 4e-6;
  other.launch_seconds = 3e-6;
  MergeFaster(other, &rates);
  EXPECT_EQ(rates.h2d_bytes_per_second, 2);
  EXPECT_EQ(rates.d2h_beside_h2d_bytes_per_second, 2);
  EXPECT_EQ(rates.host_memory_bytes_per_second, 4);
  EXPECT_EQ(rates.fp32.matmul_flops_per_second, 6);
  EXPECT_EQ(rates.bf16.update_bytes_per_second, 8);
  EXPECT_EQ(rates.collective_bytes_per_second, 0) << "that between devices stays";
  EXPECT_EQ(rates.launch_seconds, 3e-6);
  other.launch_seconds = 5e-6;
  MergeFaster(other, &rates);
  EXPECT_EQ(rates.launch_seconds, 3e-6);
  HardwareRates none;
  MergeFaster(other, &none);
  EXPECT_EQ(none.launch_seconds, 5e-6) << "the first one that is measured";
}

}  // namespace
}  // namespace megatrain
