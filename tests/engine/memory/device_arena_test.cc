#include "engine/memory/device_arena.h"

#include <gtest/gtest.h>

#include <vector>

namespace megatrain {
namespace {

TEST(DeviceArenaTest, ReservesAlignedBlocksUpToTheLimit) {
  alignas(256) static char memory[2048];
  DeviceArena arena(memory, sizeof(memory));
  const DeviceBlock weights = *arena.Reserve("weights", 1000, DeviceKind::kWeightBuffers);
  const DeviceBlock stash = *arena.Reserve("stash", 1, DeviceKind::kStash);
  EXPECT_EQ(weights.data, memory);
  EXPECT_EQ(weights.bytes, 1000);
  EXPECT_EQ(stash.data, memory + 1024);
  EXPECT_EQ(stash.offset, 1024);
  EXPECT_EQ(arena.used(), 1280);
  EXPECT_EQ(arena.bytes_in_use(DeviceKind::kStash), 256);

  const auto refused = arena.Reserve("keys", 769, DeviceKind::kActivations);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.status().message(),
            "device arena: no room for 'keys' (activations): asked 769 bytes, free 768 bytes, used "
            "1.25 KiB (1,280 bytes), limit 2.00 KiB (2,048 bytes)");
  EXPECT_FALSE(arena.Reserve("huge", INT64_MAX, DeviceKind::kOther).ok());
  EXPECT_EQ(arena.used(), 1280);
  EXPECT_TRUE(arena.Reserve("keys", 768, DeviceKind::kActivations).ok());
  EXPECT_EQ(arena.free_bytes(), 0);
  EXPECT_TRUE(arena.Reserve("nothing", 0, DeviceKind::kOther).ok());
}

TEST(DeviceArenaTest, ItemsAreWhatWasReservedInOrder) {
  DeviceArena arena(nullptr, 4096);
  ASSERT_TRUE(arena.Reserve("a", 300, DeviceKind::kStash).ok());
  ASSERT_FALSE(arena.Reserve("too large", 4096, DeviceKind::kOther).ok());
  ASSERT_TRUE(arena.Reserve("b", 256, DeviceKind::kBatches).ok());
  ASSERT_EQ(arena.items().size(), 2u);
  const DeviceArena::Item& last = arena.items().back();
  EXPECT_EQ(last.name, "b");
  EXPECT_EQ(last.kind, DeviceKind::kBatches);
  EXPECT_EQ(last.offset, 512);
  EXPECT_EQ(last.bytes, 256);
  EXPECT_EQ(arena.limit(), 4096);
  EXPECT_EQ(arena.bytes_in_use(DeviceKind::kStash), 512);
}

TEST(DeviceArenaTest, ArithmeticIsTheSameWithoutMemory) {
  DeviceArena arena(nullptr, int64_t{1} << 50);
  const DeviceBlock first = *arena.Reserve("a", (int64_t{1} << 40) + 1, DeviceKind::kOther);
  const DeviceBlock second = *arena.Reserve("b", 1, DeviceKind::kOther);
  EXPECT_EQ(first.data, nullptr);
  EXPECT_EQ(second.offset, (int64_t{1} << 40) + 256);
}

TEST(DeviceArenaTest, SealEndsPlanning) {
  DeviceArena arena(nullptr, 4096);
  EXPECT_TRUE(arena.Reserve("a", 1, DeviceKind::kOther).ok());
  arena.Seal();
  EXPECT_EQ(arena.Reserve("b", 1, DeviceKind::kOther).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(DeviceArenaTest, TableAddsUpEqualNames) {
  DeviceArena arena(nullptr, 1 << 20);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(arena.Reserve("weight buffer", 2048, DeviceKind::kWeightBuffers).ok());
  }
  ASSERT_TRUE(arena.Reserve("stash", 100, DeviceKind::kStash).ok());
  EXPECT_EQ(arena.Table(),
            "weight buffer x 2                        4.00 KiB                  4,096 bytes\n"
            "stash                                   256 bytes                    256 bytes\n"
            "total                                    4.25 KiB                  4,352 bytes\n"
            "limit                                    1.00 MiB              1,048,576 bytes\n");
}

}  // namespace
}  // namespace megatrain
