#include "engine/host/memory_budget.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>

namespace megatrain {
namespace {

TEST(MemoryBudgetTest, HugePagesThatAreSetAsideAreAPoolWhereTheyAreMore) {
  MemoryBudget budget;
  budget.SetHost({.free_bytes = 100, .set_aside_bytes = 101});
  EXPECT_EQ(budget.host_bytes, 201);
  EXPECT_EQ(budget.pool_bytes, 101);
  for (const int64_t set_aside : {0, 99, 100}) {
    budget.SetHost({.free_bytes = 100, .set_aside_bytes = set_aside});
    EXPECT_EQ(budget.host_bytes, 100) << set_aside;
    EXPECT_EQ(budget.pool_bytes, -1) << "not divided, though " << set_aside << " are set aside";
  }
}

TEST(MemoryBudgetTest, DevicesDivideWhatIsBesideThePool) {
  MemoryBudget budget;
  budget.SetPool(1000, 120);
  EXPECT_EQ(budget.host_bytes, 1120);
  EXPECT_EQ(budget.pool_bytes, 1000);
  const auto share = [&budget](int part, int of) {
    MemoryBudget divided = budget;
    divided.KeepPart(part, of);
    EXPECT_EQ(divided.pool_bytes, budget.pool_bytes);
    return divided.host_bytes;
  };
  EXPECT_EQ(share(1, 4), 1030);
  EXPECT_EQ(share(3, 4), 1090);
  EXPECT_EQ(share(4, 4), 1120);
  EXPECT_EQ(share(0, 4), 1000);
  // Without a pool all is divided.
  budget.SetHost({.free_bytes = 120, .set_aside_bytes = 0});
  EXPECT_EQ(share(1, 4), 30);
  EXPECT_EQ(share(1, 1), 120);
}

TEST(MemoryBudgetTest, WhatStaysFreeOfADeviceIsNotPlannedWith) {
  MemoryBudget budget;
  budget.SetDevice(100, /*reserve_bytes=*/30);
  EXPECT_FALSE(budget.device_shares_host);
  EXPECT_EQ(budget.device_bytes, 70);
  EXPECT_EQ(budget.device_reserve_bytes, 30);
  budget.KeepFree(50);
  EXPECT_EQ(budget.device_bytes, 20);
  EXPECT_EQ(budget.device_reserve_bytes, 80);
  budget.KeepFree(50);
  EXPECT_EQ(budget.device_bytes, 0) << "no less";
  EXPECT_EQ(budget.device_reserve_bytes, 130);
  budget.SetDevice(100);
  EXPECT_EQ(budget.device_bytes, 100);
  EXPECT_EQ(budget.device_reserve_bytes, 0);
  budget.SetDevice(20, /*reserve_bytes=*/30);
  EXPECT_EQ(budget.device_bytes, 0);
  EXPECT_FALSE(budget.device_shares_host) << "it has its own memory, and none of it is free";
}

TEST(MemoryBudgetTest, ADeviceThatUsesHostMemoryHasNoneToKeepFree) {
  MemoryBudget budget;
  budget.SetDevice(100, /*reserve_bytes=*/30);
  budget.SetDevice(std::nullopt);
  EXPECT_TRUE(budget.device_shares_host);
  EXPECT_EQ(budget.device_bytes, 0);
  budget.KeepFree(50);
  EXPECT_EQ(budget.device_bytes, 0);
  EXPECT_EQ(budget.device_reserve_bytes, 0);
}

}  // namespace
}  // namespace megatrain
