#include "engine/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "engine/base/processors.h"

namespace megatrain {
namespace {

TEST(ThreadPoolTest, RunsEveryBlockOnce) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t blocks : {0, 1, 2, 3, 7, 1000}) {
      std::vector<int> runs(static_cast<size_t>(blocks), 0);
      pool.ParallelFor(blocks, [&](int64_t block) { ++runs[static_cast<size_t>(block)]; });
      for (int count : runs) EXPECT_EQ(count, 1);
    }
  }
}

TEST(ThreadPoolTest, NoMoreThreadsWorkThanTheLoopAllows) {
  ThreadPool pool(4);
  for (const int threads_max : {1, 2, 3, 9}) {
    std::mutex mutex;
    std::set<std::thread::id> seen;
    std::vector<int> runs(64, 0);
    pool.ParallelFor(
        64,
        [&](int64_t block) {
          std::this_thread::sleep_for(std::chrono::microseconds(200));
          std::lock_guard<std::mutex> lock(mutex);
          seen.insert(std::this_thread::get_id());
          ++runs[static_cast<size_t>(block)];
        },
        threads_max);
    EXPECT_LE(static_cast<int>(seen.size()), threads_max);
    for (int count : runs) EXPECT_EQ(count, 1);
  }
}

TEST(ThreadPoolTest, WhatBlocksWroteIsSeenAfterTheLoop) {
  ThreadPool pool(3);
  std::vector<int64_t> values(64, 0);
  for (int round = 0; round < 2000; ++round) {
    pool.ParallelFor(64, [&](int64_t block) { values[static_cast<size_t>(block)] += block; });
  }
  for (int64_t i = 0; i < 64; ++i) EXPECT_EQ(values[static_cast<size_t>(i)], 2000 * i);
}

TEST(ThreadPoolTest, SleepingWorkersWake) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::atomic<int> sum{0};
    pool.ParallelFor(8, [&](int64_t) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      sum.fetch_add(1);
    });
    EXPECT_EQ(sum.load(), 8);
  }
}

TEST(ThreadPoolTest, ConcurrentCallersAreServedOneAtATime) {
  ThreadPool pool(3);
  int64_t unguarded = 0;  // only ever touched inside a loop of one block: the pool serialises
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        std::vector<int> runs(16, 0);
        pool.ParallelFor(16, [&](int64_t block) { ++runs[static_cast<size_t>(block)]; });
        for (int count : runs) ASSERT_EQ(count, 1);
        pool.ParallelFor(1, [&](int64_t) { ++unguarded; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(unguarded, 4 * 200);
}

// This machine's processors as if they were on two nodes, in turn.
std::vector<Processor> OnTwoNodes() {
  std::vector<Processor> processors = AllowedProcessors();
  if (processors.size() == 1) processors.push_back(processors[0]);
  for (size_t i = 0; i < processors.size(); ++i) processors[i].node = static_cast<int>(i % 2);
  return processors;
}

TEST(ThreadPoolTest, BoundWorkersStayOnTheirProcessors) {
  const std::vector<Processor> processors = OnTwoNodes();
  ThreadPool pool(2, processors);
  const std::thread::id caller = std::this_thread::get_id();
  for (int round = 0; round < 50; ++round) {
    pool.ParallelFor(8, [&](int64_t) {
      if (std::this_thread::get_id() == caller) return;
      EXPECT_EQ(CurrentProcessor(), processors[1].number);
    });
  }
}

TEST(ThreadPoolTest, ThreadsTakeTheBlocksOfTheirNodeFirst) {
  constexpr int64_t kBlocks = 64;
  constexpr int kNode[] = {1, 0, -1, 1, 7};  // of blocks; we have no nodes -1 and 7
  for (int threads : {1, 2, 3}) {
    ThreadPool pool(threads, OnTwoNodes());
    ASSERT_TRUE(pool.on_several_nodes());
    for (int round = 0; round < 100; ++round) {
      std::vector<int> runs(kBlocks, 0);
      std::vector<int64_t> of_worker;
      std::mutex mutex;
      const std::thread::id caller = std::this_thread::get_id();
      pool.ParallelForNear(
          kBlocks, [&](int64_t block) { return kNode[block % 5]; },
          [&](int64_t block) {
            ++runs[static_cast<size_t>(block)];
            if (threads != 2 || std::this_thread::get_id() == caller) return;
            const std::lock_guard<std::mutex> lock(mutex);
            of_worker.push_back(block);
          });
      for (int count : runs) ASSERT_EQ(count, 1);
      // The worker is on node 1: none of that node's blocks comes after one of node 0's.
      bool left = false;
      for (const int64_t block : of_worker) {
        const int node = kNode[block % 5];
        left = left || node == 0;
        EXPECT_FALSE(left && node == 1) << block;
      }
      // The next loop goes by numbers again.
      std::vector<int> plain(kBlocks, 0);
      pool.ParallelFor(kBlocks, [&](int64_t block) { ++plain[static_cast<size_t>(block)]; });
      for (int count : plain) ASSERT_EQ(count, 1);
    }
  }
}

TEST(ThreadPoolTest, OneNodeIsNone) {
  EXPECT_FALSE(ThreadPool(3).on_several_nodes());
  ThreadPool pool(2, {{0, 4}, {1, 4}});
  EXPECT_FALSE(pool.on_several_nodes());
  std::vector<int> runs(9, 0);
  pool.ParallelForNear(
      9, [](int64_t) { return 4; }, [&](int64_t block) { ++runs[static_cast<size_t>(block)]; });
  for (int count : runs) EXPECT_EQ(count, 1);
}

TEST(ThreadPoolTest, FlushesDenormalsInsideAndRestoresTheCaller) {
  volatile float tiny = std::numeric_limits<float>::min();
  ThreadPool pool(2);
  std::vector<float> halves(64, 1.0f);
  pool.ParallelFor(64, [&](int64_t block) { halves[static_cast<size_t>(block)] = tiny * 0.5f; });
  for (float half : halves) EXPECT_EQ(half, 0.0f);
  volatile float outside = tiny * 0.5f;
  EXPECT_GT(outside, 0.0f);
  FlushDenormalsInThisThread();
  volatile float flushed = tiny * 0.5f;
  EXPECT_EQ(flushed, 0.0f);
}

}  // namespace
}  // namespace megatrain
