#include "engine/memory/host_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/bytes.h"
#include "engine/memory/pool_busy.h"

namespace megatrain {
namespace {

constexpr int64_t kHuge = HostPool::kHugePageBytes;

std::unique_ptr<HostPool> MakePool(int64_t capacity, int touch_threads = 0,
                                   const std::vector<int>& numa_nodes = {}) {
  HostPoolOptions options;
  options.capacity = capacity;
  options.touch_threads = touch_threads;
  options.numa_nodes = numa_nodes;
  auto pool = HostPool::Create(options);
  EXPECT_TRUE(pool.ok()) << pool.status();
  return std::move(pool).value();
}

int64_t SumInUse(const HostPool& pool) {
  int64_t total = 0;
  for (int kind = 0; kind < kHostKinds; ++kind) {
    total += pool.bytes_in_use(static_cast<HostKind>(kind));
  }
  return total;
}

TEST(HostPoolTest, AccountsByKind) {
  static_assert(static_cast<int>(HostKind::kOther) + 1 == kHostKinds);
  auto pool = MakePool(512 * kMiB);
  {
    HostLease tiles = *pool->Lease(HostKind::kTiles, 301 * kMiB);
    HostLease batch = *pool->Lease(HostKind::kBatches, 5000);
    EXPECT_EQ(tiles.bytes(), 301 * kMiB);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tiles.data()) % kHuge, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(batch.data()) % HostPool::kPageBytes, 0u);
    EXPECT_EQ(pool->bytes_in_use(HostKind::kTiles), 302 * kMiB);
    EXPECT_EQ(pool->bytes_in_use(HostKind::kBatches), 8192);
    EXPECT_EQ(pool->bytes_in_use(HostKind::kStash), 0);
    EXPECT_EQ(pool->free_bytes(), 210 * kMiB - 8192);
    std::memset(tiles.data(), 1, 3 * kMiB);
    std::memset(batch.data(), 2, batch.bytes());
  }
  EXPECT_EQ(pool->free_bytes(), 512 * kMiB);
  EXPECT_EQ(pool->largest_free_block(), 512 * kMiB);
  EXPECT_EQ(SumInUse(*pool), 0);
}

TEST(HostPoolTest, LeasesMove) {
  auto pool = MakePool(4 * kMiB);
  HostLease first = *pool->Lease(HostKind::kStash, kMiB);
  void* const data = first.data();
  HostLease second = std::move(first);
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): the moved-from state is specified
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(pool->bytes_in_use(HostKind::kStash), kMiB);
  second = *pool->Lease(HostKind::kOther, kMiB);
  EXPECT_EQ(pool->bytes_in_use(HostKind::kStash), 0);
  EXPECT_EQ(pool->bytes_in_use(HostKind::kOther), kMiB);
  second.Release();
  EXPECT_EQ(second.data(), nullptr);
  EXPECT_EQ(pool->free_bytes(), 4 * kMiB);
}

TEST(HostPoolTest, ALeaseThatIsMovedToItselfKeepsItsBlock) {
  auto pool = MakePool(4 * kMiB);
  HostLease lease = *pool->Lease(HostKind::kTiles, kMiB);
  HostLease& same = lease;
  void* const data = lease.data();
  lease = std::move(same);
  EXPECT_EQ(lease.data(), data);
  EXPECT_EQ(lease.bytes(), kMiB);
  EXPECT_EQ(lease.kind(), HostKind::kTiles);
  EXPECT_EQ(pool->bytes_in_use(HostKind::kTiles), kMiB);
  lease.Release();
  lease.Release();
  EXPECT_EQ(pool->free_bytes(), 4 * kMiB) << "given back once";
}

// A page is at most a sixteenth of a pool that lies in such pages.
TEST(HostPoolTest, ASmallPoolLiesInSmallPages) {
  constexpr int64_t kSmall = HostPool::kPageBytes;
  EXPECT_TRUE(HostPool::MayLieIn(kSmall, kSmall));
  EXPECT_TRUE(HostPool::MayLieIn(kHuge, 16 * kHuge));
  EXPECT_FALSE(HostPool::MayLieIn(kHuge, 16 * kHuge - kSmall));
}

TEST(HostPoolTest, RefusalNamesEveryByte) {
  auto pool = MakePool(10 * kMiB);
  HostLease top = *pool->Lease(HostKind::kTiles, 4 * kMiB);
  HostLease middle = *pool->Lease(HostKind::kTiles, 2 * kMiB);
  top.Release();
  const auto refused = pool->Lease(HostKind::kGradientSlabs, 5 * kMiB + 1);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.status().message(),
            "host pool: no room for gradient slabs: asked 5.00 MiB (5,242,881 bytes), free 8.00 "
            "MiB (8,388,608 bytes), largest free block 4.00 MiB (4,194,304 bytes), capacity 10.00 "
            "MiB (10,485,760 bytes)");
  EXPECT_EQ(pool->free_bytes(), 8 * kMiB);
  EXPECT_TRUE(IsPoolBusy(refused.status())) << "it fits beside nothing";
  for (const int64_t bytes : {10 * kMiB, 10 * kMiB - 1}) {
    const absl::Status busy = pool->Lease(HostKind::kTiles, bytes).status();
    EXPECT_EQ(busy.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(IsPoolBusy(busy)) << "the whole pool has room for " << bytes;
  }
  for (const int64_t bytes : {10 * kMiB + 1, INT64_MAX}) {
    const absl::Status never = pool->Lease(HostKind::kTiles, bytes).status();
    EXPECT_EQ(never.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_FALSE(IsPoolBusy(never));
  }
}

TEST(HostPoolTest, EmptyPoolAndEmptyLease) {
  auto pool = MakePool(0);
  EXPECT_EQ(pool->capacity(), 0);
  EXPECT_FALSE(pool->Lease(HostKind::kTiles, 1).ok());
  HostLease nothing = *pool->Lease(HostKind::kTiles, 0);
  EXPECT_EQ(nothing.data(), nullptr);
  HostPoolOptions negative;
  negative.capacity = -1;
  EXPECT_EQ(HostPool::Create(negative).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(HostPoolTest, LargeLeasesAreTakenFromTheBottomAndSmallOnesFromTheTop) {
  constexpr int64_t kLarge = HostPool::kLargeLeaseBytes, kPage = HostPool::kPageBytes;
  EXPECT_EQ(HostPool::LeaseBytes(kLarge - kPage), kLarge - kPage);
  EXPECT_EQ(HostPool::LeaseBytes(kLarge), kLarge);
  EXPECT_EQ(HostPool::LeaseBytes(kLarge + 1), kLarge + kHuge);
  auto pool = MakePool(kLarge + kMiB);
  char* const base = static_cast<char*>(pool->data());
  {
    HostLease large = *pool->Lease(HostKind::kTiles, kLarge);
    EXPECT_EQ(large.data(), base);
    HostLease small = *pool->Lease(HostKind::kStash, kPage + 1);
    EXPECT_EQ(small.data(), base + kLarge + kMiB - 2 * kPage);
  }
  HostLease small = *pool->Lease(HostKind::kStash, kLarge - kPage);
  EXPECT_EQ(small.data(), base + kMiB + kPage);
}

TEST(HostPoolTest, MoreThanTheAddressSpaceIsRefused) {
  HostPoolOptions options;
  options.capacity = int64_t{1} << 61;
  options.touch_threads = 0;
  const auto pool = HostPool::Create(options);
  EXPECT_EQ(pool.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(pool.status().message()).find("2,305,843,009,213,693,952 bytes"),
            std::string::npos);
  // More than this cannot be rounded up.
  for (const int64_t capacity : {int64_t{1} << 62, INT64_MAX}) {
    options.capacity = capacity;
    EXPECT_EQ(HostPool::Create(options).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

// The planner adds up LeaseBytes and relies on it.
TEST(HostPoolTest, AFreshPoolOfTheSumGrantsAllInAnyOrder) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 40; ++round) {
    const std::vector<int> nodes = {0, 1, 2, 3};
    const int of_pool = round % 4;  // 0: any node
    std::vector<int64_t> sizes;
    int64_t sum = 0;
    for (int i = 0; i < 40; ++i) {
      sizes.push_back(1 + random() % (i % 10 == 0 ? 600 * kMiB : 300000));
      sum += HostPool::LeaseBytes(sizes.back());
    }
    std::shuffle(sizes.begin(), sizes.end(), random);
    auto pool = MakePool(sum, 0, {nodes.begin(), nodes.begin() + of_pool});
    std::vector<HostLease> leases;
    for (const int64_t size : sizes) {
      auto lease = pool->Lease(HostKind::kOther, size, static_cast<int>(random() % 5) - 1);
      ASSERT_TRUE(lease.ok()) << lease.status();
      leases.push_back(std::move(lease).value());
    }
    EXPECT_EQ(pool->free_bytes(), 0);
  }
}

// The first half of the pages is the first node's.
TEST(HostPoolTest, LeasesLieNearTheirNode) {
  auto pool = MakePool(8 * kMiB, 0, {2, 5});
  const auto place = [&](const HostLease& lease) {
    return static_cast<char*>(lease.data()) - static_cast<char*>(pool->data());
  };
  std::vector<HostLease> near_two, near_five;
  for (int64_t i = 0; i < 3; ++i) {
    near_two.push_back(*pool->Lease(HostKind::kTiles, kMiB, 2));
    near_five.push_back(*pool->Lease(HostKind::kTiles, kMiB, 5));
    EXPECT_EQ(place(near_two.back()), i * kMiB);
    EXPECT_EQ(place(near_five.back()), (7 - i) * kMiB);
  }
  const HostLease of_no_node = *pool->Lease(HostKind::kOther, 4096);
  EXPECT_EQ(place(of_no_node), 3 * kMiB);
  const HostLease beyond_its_half = *pool->Lease(HostKind::kTiles, kMiB + 4096, 5);
  EXPECT_EQ(place(beyond_its_half), 4 * kMiB - 4096);
}

// Nodes of two sockets: a lease lies in the half of its own.
TEST(HostPoolTest, LeasesLieNearTheSocketOfTheirNode) {
  auto pool = MakePool(8 * kMiB, 0, {0, 1, 2, 3});
  std::vector<HostLease> leases;
  const auto place = [&](int node) {
    leases.push_back(*pool->Lease(HostKind::kTiles, kMiB, node));
    return static_cast<char*>(leases.back().data()) - static_cast<char*>(pool->data());
  };
  for (const int64_t i : {0, 2}) {
    EXPECT_EQ(place(0), i * kMiB);
    EXPECT_EQ(place(1), (i + 1) * kMiB);
    EXPECT_EQ(place(2), (7 - i) * kMiB);
    EXPECT_EQ(place(3), (6 - i) * kMiB);
  }
  EXPECT_EQ(pool->free_bytes(), 0);
}

TEST(HostPoolTest, RandomLeasesNeverOverlapAndCoalesce) {
  auto pool = MakePool(2 * kGiB);
  std::mt19937_64 random(11);
  std::vector<HostLease> leases;
  for (int round = 0; round < 4000; ++round) {
    if (leases.empty() || random() % 2 == 0) {
      auto lease = pool->Lease(static_cast<HostKind>(random() % kHostKinds),
                               1 + random() % (round % 4 == 0 ? 700 * kMiB : 20 * kMiB));
      if (lease.ok()) leases.push_back(std::move(lease).value());
    } else {
      std::swap(leases[random() % leases.size()], leases.back());
      leases.pop_back();
    }
    std::map<char*, int64_t> taken;
    int64_t total = 0;
    for (const HostLease& lease : leases) {
      taken[static_cast<char*>(lease.data())] = HostPool::LeaseBytes(lease.bytes());
      total += HostPool::LeaseBytes(lease.bytes());
    }
    ASSERT_EQ(taken.size(), leases.size());
    char* end = nullptr;
    for (const auto& [data, bytes] : taken) {
      ASSERT_GE(data, end);
      end = data + bytes;
    }
    ASSERT_EQ(SumInUse(*pool), total);
    ASSERT_EQ(pool->free_bytes(), pool->capacity() - total);
  }
  leases.clear();
  EXPECT_EQ(pool->largest_free_block(), pool->capacity());
}

TEST(HostPoolTest, TouchesEveryPageAndReportsProgress) {
  HostPoolOptions options;
  options.capacity = 600 * kMiB + 1;
  options.touch_threads = 3;
  std::vector<int64_t> reported;
  options.progress = [&reported](int64_t touched, int64_t capacity) {
    EXPECT_EQ(capacity, 600 * kMiB + HostPool::kPageBytes);
    reported.push_back(touched);
  };
  auto pool = HostPool::Create(options);
  ASSERT_TRUE(pool.ok());
  ASSERT_EQ(reported.size(), 3u);  // chunks of 256 MiB
  EXPECT_TRUE(std::is_sorted(reported.begin(), reported.end()));
  EXPECT_EQ(reported.back(), (*pool)->capacity());
}

TEST(HostPoolTest, TouchingIsAbandonedWhenAsked) {
  HostPoolOptions options;
  options.capacity = 1024 * kMiB;
  int64_t touched_bytes = 0;
  options.progress = [&touched_bytes](int64_t touched, int64_t) { touched_bytes = touched; };
  options.cancelled = [&touched_bytes] { return touched_bytes > 0; };
  EXPECT_EQ(HostPool::Create(options).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(touched_bytes, 256 * kMiB);
}

TEST(HostPoolTest, ManyThreadsLease) {
  auto pool = MakePool(64 * kMiB);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      std::mt19937_64 random(t);
      for (int i = 0; i < 2000; ++i) {
        auto lease = pool->Lease(HostKind::kOther, 1 + random() % (3 * kMiB));
        if (lease.ok()) *static_cast<char*>(lease->data()) = static_cast<char>(t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool->largest_free_block(), 64 * kMiB);
}

}  // namespace
}  // namespace megatrain
