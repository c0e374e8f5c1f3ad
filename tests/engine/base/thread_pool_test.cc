#include "engine/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <thread>
#include <vector>

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
