// Many streams of a job at once, and how streams end.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/api/streams_fixture.h"

namespace megatrain {
namespace {

using ManyStreamsTest = StreamsTest;

int ThreadsOfThisProcess() {
  int threads = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator("/proc/self/task")) {
    ++threads;
  }
  return threads;
}

// Counts what it reads, on gRPC's own threads.
class CountingReader : public grpc::ClientReadReactor<v1::StreamStepMetricsResponse> {
 public:
  CountingReader(v1::JobService::Stub* stub, const std::string& id) : context_(As("anna")) {
    request_.set_name("jobs/" + id);
    request_.set_follow(true);
    stub->async()->StreamStepMetrics(context_.get(), &request_, this);
    StartRead(&message_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    records_ += message_.batch().records_size();
    StartRead(&message_);
  }
  void OnDone(const grpc::Status& status) override {
    ok_ = status.ok();
    done_ = true;
    done_.notify_all();
  }
  // Whether the stream ended with OK.
  bool Wait() {
    done_.wait(false);
    return ok_;
  }
  int records() const { return records_; }

 private:
  const std::unique_ptr<grpc::ClientContext> context_;
  v1::StreamStepMetricsRequest request_;
  v1::StreamStepMetricsResponse message_;
  std::atomic<int> records_{0};
  bool ok_ = false;
  std::atomic<bool> done_{false};
};

TEST_F(ManyStreamsTest, HundredsOfStreamsTakeNoMoreThreads) {
  const std::string id = Running();
  AddStep(id, 1);
  constexpr int kStreams = 400;
  std::vector<std::unique_ptr<CountingReader>> readers;
  for (int i = 0; i < kStreams; ++i) {
    readers.push_back(std::make_unique<CountingReader>(jobs_.get(), id));
  }
  WaitUntil([&] { return server_->streams() == kStreams; });
  EXPECT_LT(ThreadsOfThisProcess(), 60);
  for (int64_t step = 2; step <= 20; ++step) AddStep(id, step);
  Move(id, JobState::kSucceeded);
  for (const auto& reader : readers) {
    EXPECT_TRUE(reader->Wait());
    EXPECT_EQ(reader->records(), 20);
  }
}

TEST_F(ManyStreamsTest, OverTheLimitStreamsAreRefused) {
  StopDaemon();
  options_.streams_max = 2;
  StartDaemon();
  const std::string id = Running();
  Steps first = StreamSteps(id, 1, true);
  Steps second = StreamSteps(id, 1, true);
  ASSERT_TRUE(first.Read());
  ASSERT_TRUE(second.Read());
  Steps third = StreamSteps(id, 1, true);
  EXPECT_FALSE(third.Read());
  EXPECT_EQ(CodeAndReason(third.reader->Finish()), "RESOURCE_EXHAUSTED LIMIT_REACHED");
  for (Steps* steps : {&first, &second}) {
    steps->context->TryCancel();
    steps->reader->Finish();
  }
  WaitUntil([&] { return server_->streams() == 0; });
  Steps fourth = StreamSteps(id, 1, true);
  EXPECT_TRUE(fourth.Read());
  fourth.context->TryCancel();
  fourth.reader->Finish();
}

TEST_F(ManyStreamsTest, AStoppingDaemonTellsItsReaders) {
  const std::string id = Running();
  Steps steps = StreamSteps(id, 1, true);
  ASSERT_TRUE(steps.Read());
  server_->Stop(std::chrono::seconds(30));
  while (steps.Read()) {
  }
  EXPECT_EQ(CodeAndReason(steps.reader->Finish()), "UNAVAILABLE STOPPING");
}

TEST_F(ManyStreamsTest, ClientsThatVanishLeaveNothingBehind) {
  const std::string id = Running();
  for (int round = 0; round < 50; ++round) {
    Steps steps = StreamSteps(id, 1, true);
    if (round % 2 == 0) steps.Read();
    steps.context->TryCancel();
    steps.reader->Finish();
  }
  WaitUntil([&] { return server_->streams() == 0; });
}

}  // namespace
}  // namespace megatrain
