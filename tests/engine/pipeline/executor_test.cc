// The executor over a device whose operations take random times: order, errors, timing, many steps.
#include "engine/pipeline/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <initializer_list>
#include <map>
#include <thread>

#include "tests/engine/pipeline/fake_device.h"

namespace megatrain {
namespace {

// The operation is known by its `bytes`.
Op MakeOp(Lane lane, int id, std::vector<int> reads, std::vector<int> writes) {
  Op op(StoreLossesOp{}, lane);
  op.bytes = id;
  for (int r : reads) op.reads.push_back({ResourceKind::kTileWeights, r});
  for (int w : writes) op.writes.push_back({ResourceKind::kTileWeights, w});
  return op;
}

// Each operation adds its number to what it writes, unordered access would lose or reorder some;
// the values are plain integers, so that the thread sanitizer sees a missing wait.
TEST(ExecutorTest, ConflictingOperationsOfDifferentLanesRunInSerialOrder) {
  constexpr int kResources = 5;
  std::vector<std::vector<int>> written(kResources);
  std::vector<std::vector<int>> expected(kResources);
  FunctionRunner runner([&](const Op& op) {
    if (op.bytes % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
    for (const Resource& r : op.writes) written[r.index].push_back(static_cast<int>(op.bytes));
    return absl::OkStatus();
  });
  FakeDevice device;
  auto executor = *Executor::Create(&device, &runner);
  uint32_t random = 1;
  auto next = [&random](int n) {
    random = random * 1664525u + 1013904223u;
    return static_cast<int>((random >> 16) % n);
  };
  int id = 0;
  for (int step = 0; step < 20; ++step) {
    Schedule schedule;
    for (int i = 0; i < 50; ++i, ++id) {
      const int read = next(kResources), write = next(kResources);
      schedule.ops.push_back(MakeOp(static_cast<Lane>(next(kLanes)), id, {read}, {write}));
      expected[write].push_back(id);
    }
    auto ticket = executor->Submit(std::move(schedule));
    ASSERT_TRUE(executor->Wait(ticket).ok());
  }
  EXPECT_EQ(written, expected);
}

TEST(ExecutorTest, AnErrorStopsWhatFollowsAndIsReturned) {
  std::atomic<int> ran{0};
  FunctionRunner runner([&](const Op& op) {
    if (op.bytes == 1) return absl::AbortedError("step 3: broken");
    ++ran;
    return absl::OkStatus();
  });
  FakeDevice device;
  auto executor = *Executor::Create(&device, &runner);
  Schedule schedule;
  schedule.ops = {MakeOp(Lane::kH2D, 0, {}, {0}), MakeOp(Lane::kCompute, 1, {0}, {1}),
                  MakeOp(Lane::kUpdate, 2, {1}, {2}), MakeOp(Lane::kIo, 3, {2}, {3})};
  auto ticket = executor->Submit(std::move(schedule));
  const auto timing = executor->Wait(ticket);
  EXPECT_EQ(timing.status().message(), "step 3: broken");
  EXPECT_EQ(ran, 1);
  Schedule later;
  later.ops = {MakeOp(Lane::kIo, 4, {}, {9})};
  EXPECT_FALSE(executor->Wait(executor->Submit(std::move(later))).ok());
  EXPECT_EQ(ran, 1);
}

// The error of an operation, and one that the device tells of while a lane waits for an operation.
TEST(ExecutorTest, ErrorsAreToldBeforeAnybodyWaits) {
  for (const bool of_device : {false, true}) {
    const absl::Status lost = absl::InternalError("the GPU is gone");
    FunctionRunner runner([&](const Op& op) {
      return !of_device && op.lane == Lane::kUpdate ? lost : absl::OkStatus();
    });
    FakeDevice device;
    if (of_device) device.synchronized = lost;
    std::promise<absl::Status> told;
    auto executor = *Executor::Create(&device, &runner,
                                      [&](const absl::Status& status) { told.set_value(status); });
    Schedule schedule;
    schedule.ops = {MakeOp(Lane::kCompute, 0, {}, {0}), MakeOp(Lane::kUpdate, 1, {0}, {1}),
                    MakeOp(Lane::kIo, 2, {1}, {2})};
    auto ticket = executor->Submit(std::move(schedule));
    EXPECT_EQ(told.get_future().get(), lost) << of_device;
    EXPECT_EQ(executor->Wait(ticket).status(), lost) << of_device;
  }
}

// It is waited for after the one behind it has failed.
TEST(ExecutorTest, WhatWasCarriedOutIsNotTouchedByALaterError) {
  FunctionRunner runner([](const Op& op) {
    return op.bytes == 2 ? absl::AbortedError("step 4: broken") : absl::OkStatus();
  });
  FakeDevice device;
  auto executor = *Executor::Create(&device, &runner);
  Schedule first, second;
  first.ops = {MakeOp(Lane::kCompute, 0, {}, {0}), MakeOp(Lane::kUpdate, 1, {0}, {1})};
  second.ops = {MakeOp(Lane::kCompute, 2, {1}, {0}), MakeOp(Lane::kUpdate, 3, {0}, {1})};
  const auto carried_out = executor->Submit(std::move(first));
  const auto failed = executor->Submit(std::move(second));
  while (executor->status().ok()) std::this_thread::yield();
  const auto timing = executor->Wait(carried_out);
  ASSERT_TRUE(timing.ok()) << timing.status();
  EXPECT_DOUBLE_EQ(timing->busy.compute, 0.25);
  EXPECT_EQ(executor->Wait(failed).status().message(), "step 4: broken");
}

TEST(ExecutorTest, BusyTimeIsByLane) {
  FunctionRunner runner([](const Op&) { return absl::OkStatus(); });
  FakeDevice device;
  auto executor = *Executor::Create(&device, &runner);
  Schedule schedule;
  schedule.ops = {
      MakeOp(Lane::kH2D, 0, {}, {0}),           MakeOp(Lane::kH2D, 1, {}, {1}),
      MakeOp(Lane::kCompute, 2, {0}, {2}),      MakeOp(Lane::kCompute, 3, {0}, {3}),
      MakeOp(Lane::kUpdate, 4, {2}, {0}),       MakeOp(Lane::kD2H, 5, {}, {4}),
      MakeOp(Lane::kDeviceUpdate0, 6, {}, {5}), MakeOp(Lane::kDeviceUpdate1, 7, {}, {6}),
      MakeOp(Lane::kDeviceUpdate1, 8, {}, {7}), MakeOp(Lane::kCollective, 9, {}, {8}),
      MakeOp(Lane::kCollective, 10, {}, {9}),   MakeOp(Lane::kCollective, 11, {}, {10}),
      MakeOp(Lane::kCollective, 12, {}, {11})};
  schedule.ops[2].what = LayerForwardOp{};
  schedule.ops[3].what = LayerBackwardOp{};
  auto timing = executor->Wait(executor->Submit(std::move(schedule)));
  ASSERT_TRUE(timing.ok());
  EXPECT_DOUBLE_EQ(timing->busy.h2d, 0.5);  // the fake's events are 0.25 s apart
  EXPECT_DOUBLE_EQ(timing->busy.compute, 0.5);
  EXPECT_DOUBLE_EQ(timing->forward, 0.25);
  EXPECT_EQ(timing->compute,
            (std::map<std::string, double>{{"layer backward", 0.25}, {"layer forward", 0.25}}));
  EXPECT_GE(timing->busy.update, 0);
  EXPECT_DOUBLE_EQ(timing->busy.d2h, 0.25);
  EXPECT_DOUBLE_EQ(timing->busy.device_update, 0.75);
  EXPECT_DOUBLE_EQ(timing->busy.collective, 1.0);
  EXPECT_EQ(timing->busy.io, 0);
  EXPECT_GE(timing->finished - timing->started, std::chrono::milliseconds(250))
      << "an operation ends no earlier than its duration after it was queued";
}

// What a stream runs is over at the second of an operation's two records, and what a host lane has
// run is over when its turn ends.
TEST(ExecutorTest, LanesWaitForTheEndOfWhatAStreamRuns) {
  FakeDevice device;
  int synchronized_before_update = -1;
  FunctionRunner runner([&](const Op& op) {
    if (op.bytes == 3) synchronized_before_update = device.last_synchronized;
    return absl::OkStatus();
  });
  const auto run = [&](std::initializer_list<Op> ops) {
    auto executor = *Executor::Create(&device, &runner);
    Schedule schedule;
    schedule.ops = ops;
    return executor->Wait(executor->Submit(std::move(schedule))).status();
  };
  EXPECT_TRUE(run({MakeOp(Lane::kUpdate, 0, {}, {0}), MakeOp(Lane::kIo, 0, {0}, {1})}).ok());
  EXPECT_EQ(device.last_waited, 0);
  EXPECT_EQ(device.last_synchronized, 0);
  EXPECT_TRUE(run({MakeOp(Lane::kH2D, 1, {}, {0}), MakeOp(Lane::kCompute, 2, {0}, {1})}).ok());
  EXPECT_EQ(device.last_waited, 2) << "the load's end";
  EXPECT_TRUE(run({MakeOp(Lane::kD2H, 2, {}, {0}), MakeOp(Lane::kUpdate, 3, {0}, {1})}).ok());
  EXPECT_EQ(synchronized_before_update, 6) << "the store's end";
}

// The first operation begins before all others and ends after them.
TEST(ExecutorTest, AScheduleTakesFromItsFirstStartToItsLastEnd) {
  using Clock = std::chrono::steady_clock;
  std::atomic<bool> under_way{false}, let_go{false};
  Clock::time_point began, ended;
  FunctionRunner runner([&](const Op& op) {
    if (op.bytes == 0) {
      began = Clock::now();
      under_way = true;
      while (!let_go) std::this_thread::yield();
      ended = Clock::now();
    }
    if (op.bytes == 1) {
      while (!under_way) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    if (op.bytes == 3) let_go = true;
    return absl::OkStatus();
  });
  FakeDevice device;
  auto executor = *Executor::Create(&device, &runner);
  Schedule schedule, later;
  schedule.ops = {MakeOp(Lane::kIo, 0, {}, {0}), MakeOp(Lane::kUpdate, 1, {}, {1}),
                  MakeOp(Lane::kUpdate, 2, {}, {2})};
  later.ops = {MakeOp(Lane::kCompute, 3, {2}, {3})};  // behind the last operation
  const auto first = executor->Submit(std::move(schedule));
  const auto second = executor->Submit(std::move(later));
  const auto timing = executor->Wait(first);
  ASSERT_TRUE(timing.ok()) << timing.status();
  EXPECT_LE(timing->started, began);
  EXPECT_GE(timing->finished, ended);
  EXPECT_TRUE(executor->Wait(second).ok());
}

TEST(ExecutorTest, DestroyedWithWorkQueuedItStops) {
  std::atomic<int> ran{0};
  std::promise<void> under_way;
  FunctionRunner runner([&](const Op&) {
    if (++ran == 5) under_way.set_value();
    // From here on all of them would take four seconds: the executor is destroyed amid them.
    if (ran >= 5) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return absl::OkStatus();
  });
  FakeDevice device;
  auto executor = *Executor::Create(&device, &runner);
  Schedule schedule;
  for (int i = 0; i < 200; ++i) schedule.ops.push_back(MakeOp(Lane::kCompute, i, {}, {0}));
  const auto ticket = executor->Submit(std::move(schedule));
  under_way.get_future().wait();
  executor.reset();
  EXPECT_LT(ran, 200);
}

// A schedule that is taken back at any moment: its operations run to a point and no further, or to
// the end; what is submitted later runs in order behind both.
TEST(ExecutorTest, ATicketIsWithdrawnUntilItsFinalOperationStarts) {
  std::vector<int> ran;  // guarded by the serial order of the operations
  std::atomic<int> reached{-1}, hold{-1};
  FunctionRunner runner([&](const Op& op) {
    reached = static_cast<int>(op.bytes);
    while (hold == op.bytes) std::this_thread::yield();
    ran.push_back(static_cast<int>(op.bytes));
    return absl::OkStatus();
  });
  FakeDevice device;
  auto executor = *Executor::Create(&device, &runner);
  const auto schedule = [](int first) {
    Schedule made;
    made.ops = {MakeOp(Lane::kH2D, first, {}, {0}), MakeOp(Lane::kCompute, first + 1, {0}, {1}),
                MakeOp(Lane::kUpdate, first + 2, {1}, {2}),
                MakeOp(Lane::kH2D, first + 3, {2}, {0})};
    made.ops[2].what = UpdateTileOp{};
    return made;
  };
  for (int at = 0; at < 4; ++at) {
    ran.clear();
    reached = -1;
    hold = at;
    auto ticket = executor->Submit(schedule(0));
    while (reached != at) std::this_thread::yield();
    std::thread release([&] {
      std::this_thread::yield();
      hold = -1;
    });
    const bool withdrawn = executor->Withdraw(ticket, /*during_backward=*/true);
    release.join();
    // Whether it came in time is the threads' affair; that it came too late is not.
    if (at >= 2) {
      EXPECT_FALSE(withdrawn);
    }
    if (withdrawn) {
      ASSERT_TRUE(executor->Settle(ticket).ok());
      EXPECT_LE(ran.size(), 2u) << "the final operation was not started";
    } else {
      ASSERT_TRUE(executor->Wait(ticket).ok());
      EXPECT_EQ(ran.size(), 4u);
    }
    std::vector<int> expected;
    for (int i = 0; i < static_cast<int>(ran.size()); ++i) expected.push_back(i);
    EXPECT_EQ(ran, expected);
    ASSERT_TRUE(executor->Wait(executor->Submit(schedule(10))).ok());
    expected.insert(expected.end(), {10, 11, 12, 13});
    EXPECT_EQ(ran, expected);
  }
}

// The first of two goes on to its end, and what is submitted afterwards runs behind both.
TEST(ExecutorTest, ATicketIsWithdrawnWhileTheOneBeforeRuns) {
  std::vector<int> ran;
  std::atomic<bool> reached{false}, hold{true};
  FunctionRunner runner([&](const Op& op) {
    if (op.bytes == 0) {
      reached = true;
      while (hold) std::this_thread::yield();
    }
    ran.push_back(static_cast<int>(op.bytes));
    return absl::OkStatus();
  });
  FakeDevice device;
  auto executor = *Executor::Create(&device, &runner);
  const auto schedule = [](int first) {
    Schedule made;
    made.ops = {MakeOp(Lane::kCompute, first, {}, {0}), MakeOp(Lane::kD2H, first + 1, {0}, {1}),
                MakeOp(Lane::kUpdate, first + 2, {1}, {0})};
    made.ops[2].what = UpdateTileOp{};
    return made;
  };
  auto first = executor->Submit(schedule(0));
  auto second = executor->Submit(schedule(10));
  while (!reached) std::this_thread::yield();
  EXPECT_TRUE(executor->Withdraw(second, /*during_backward=*/true));
  hold = false;
  const auto timing = executor->Wait(first);
  ASSERT_TRUE(timing.ok()) << timing.status();
  EXPECT_GT(timing->busy.compute, 0);
  ASSERT_TRUE(executor->Settle(second).ok());
  ASSERT_TRUE(executor->Wait(executor->Submit(schedule(20))).ok());
  EXPECT_EQ(ran, (std::vector<int>{0, 1, 2, 20, 21, 22}));
}

TEST(ExecutorTest, ABackwardPassThatHasBegunIsGivenUpOnlyIfTheCallerAllowsThat) {
  std::atomic<int> ran{0};
  std::atomic<bool> hold{true};
  FunctionRunner runner([&](const Op&) {
    ++ran;
    while (hold) std::this_thread::yield();
    return absl::OkStatus();
  });
  FakeDevice device;
  auto executor = *Executor::Create(&device, &runner);
  Schedule schedule;
  schedule.ops = {MakeOp(Lane::kCompute, 0, {}, {0}), MakeOp(Lane::kUpdate, 1, {0}, {1})};
  schedule.ops[0].what = LayerBackwardOp{};
  schedule.ops[1].what = UpdateTileOp{};
  auto ticket = executor->Submit(std::move(schedule));
  while (ran == 0) std::this_thread::yield();
  EXPECT_FALSE(executor->Withdraw(ticket, /*during_backward=*/false));
  EXPECT_TRUE(executor->Withdraw(ticket, /*during_backward=*/true));
  hold = false;
  EXPECT_TRUE(executor->Settle(ticket).ok());
  EXPECT_EQ(ran, 1) << "the update was taken back";
}

TEST(ExecutorTest, WaitingIsInterrupted) {
  std::atomic<bool> hold{true}, asked{false}, waits{false};
  FunctionRunner runner([&](const Op&) {
    while (hold) std::this_thread::yield();
    return absl::OkStatus();
  });
  FakeDevice device;
  auto executor = *Executor::Create(&device, &runner);
  Schedule schedule;
  schedule.ops = {MakeOp(Lane::kUpdate, 0, {}, {0})};
  auto ticket = executor->Submit(std::move(schedule));
  std::thread asker([&] {
    while (!waits) std::this_thread::yield();
    executor->Interrupt();  // of no consequence
    asked = true;
    executor->Interrupt();
  });
  EXPECT_FALSE(executor->AwaitDone(ticket, [&] {
    waits = true;
    return asked.load();
  }));
  asker.join();
  EXPECT_FALSE(executor->Done(ticket));
  hold = false;
  EXPECT_TRUE(executor->AwaitDone(ticket, [] { return false; }));
  EXPECT_TRUE(executor->AwaitDone(ticket, [] { return true; })) << "it is done";
  EXPECT_TRUE(executor->Wait(ticket).ok());
}

TEST(ExecutorTest, AfterAnErrorNothingIsWithdrawn) {
  FunctionRunner runner([&](const Op&) { return absl::AbortedError("broken"); });
  FakeDevice device;
  auto executor = *Executor::Create(&device, &runner);
  Schedule schedule;
  schedule.ops = {MakeOp(Lane::kH2D, 0, {}, {0})};
  auto ticket = executor->Submit(std::move(schedule));
  while (executor->status().ok()) std::this_thread::yield();
  EXPECT_FALSE(executor->Withdraw(ticket, /*during_backward=*/true));
  EXPECT_EQ(executor->Wait(ticket).status().message(), "broken");
}

TEST(ExecutorTest, SettlingTellsTheErrorOfWhatRanBefore) {
  std::atomic<bool> hold{true};
  FunctionRunner runner([&](const Op&) {
    while (hold) std::this_thread::yield();
    return absl::AbortedError("broken");
  });
  FakeDevice device;
  auto executor = *Executor::Create(&device, &runner);
  Schedule first, second;
  first.ops = {MakeOp(Lane::kCompute, 0, {}, {0})};
  second.ops = {MakeOp(Lane::kCompute, 1, {0}, {1})};
  const auto failed = executor->Submit(std::move(first));
  const auto withdrawn = executor->Submit(std::move(second));
  EXPECT_TRUE(executor->Withdraw(withdrawn, /*during_backward=*/true));
  hold = false;
  EXPECT_EQ(executor->Wait(failed).status().message(), "broken");
  EXPECT_EQ(executor->Settle(withdrawn).message(), "broken");
}

}  // namespace
}  // namespace megatrain
