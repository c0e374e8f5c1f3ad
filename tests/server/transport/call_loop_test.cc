#include "server/transport/call_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/server/api/service_fixture.h"

namespace megatrain {
namespace {

class CallLoopTest : public ServiceTest {
 protected:
  void Restart(const CallLoop::Options& options) {
    StopDaemon();
    options_.loop = options;
    StartDaemon();
  }
  bool Ask() {
    v1::ListJobsResponse jobs;
    return jobs_->ListJobs(As("anna").get(), v1::ListJobsRequest(), &jobs).ok();
  }

  std::atomic<int> asked_{0};  // whether calls are to gather
};

TEST_F(CallLoopTest, CallsThatGatherAreAllAnswered) {
  CallLoop::Options options;
  options.gather = [this] { return ++asked_ > 0; };
  options.nap = std::chrono::microseconds(200);
  options.calls_per_second_max = 1'000'000;
  Restart(options);
  std::vector<std::thread> callers;
  std::atomic<int> answered{0};
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&] {
      for (int call = 0; call < 50; ++call) answered += Ask() ? 1 : 0;
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(answered, 400);
  WaitUntil([this] { return asked_ > 0; });
}

TEST_F(CallLoopTest, NothingNapsWhereNothingIsToGather) {
  CallLoop::Options options;
  options.gather = [this] { return ++asked_ == 0; };
  options.nap = std::chrono::hours(1);
  Restart(options);
  EXPECT_TRUE(Ask());
  WaitUntil([this] { return asked_ > 0; });  // it may nap now, and does not
  EXPECT_TRUE(Ask());
}

TEST_F(CallLoopTest, CallersWhoCallOftenAreNotHeldUp) {
  CallLoop::Options options;
  options.gather = [this] { return ++asked_ > 0; };
  options.nap = std::chrono::hours(1);
  options.calls_per_second_max = 0;
  Restart(options);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(Ask());
  EXPECT_EQ(asked_, 0);
}

TEST_F(CallLoopTest, StreamsAndCallsThatWaitForADiskDoNotMakeItNap) {
  CallLoop::Options options;
  options.gather = [this] { return ++asked_ > 0; };
  options.nap = std::chrono::hours(1);
  Restart(options);
  Create();
  Create();
  v1::WatchNodeRequest request;
  request.set_name("nodes/local");
  const auto context = As("anna");
  const auto watch = nodes_->WatchNode(context.get(), request);
  v1::WatchNodeResponse response;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(watch->Read(&response));  // the node, then heartbeats
  context->TryCancel();
  watch->Finish();
  EXPECT_EQ(asked_, 0);
}

}  // namespace
}  // namespace megatrain
