// Many readers that follow a job's step metrics at once, from one thread, each checking the numbers
// of what it is sent.
//
// Thread safety: the methods may be called from any thread, one at a time.
#ifndef MEGATRAIN_TESTS_BENCH_DAEMON_STREAM_LOAD_H_
#define MEGATRAIN_TESTS_BENCH_DAEMON_STREAM_LOAD_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/daemon_process.h"

namespace megatrain {

struct StreamCounts {
  int64_t open = 0;      // streams that have not ended
  int64_t messages = 0;  // of all streams, heartbeats left out
  int64_t records = 0;
  int64_t lost = 0;     // numbers that were left out, told or not
  int64_t twice = 0;    // records that came again
  int64_t failed = 0;   // streams that ended with an error
  int64_t slowest = 0;  // the number that the stream furthest behind has come to
};

class StreamLoad {
 public:
  // `streams` readers over `connections`, from the job's first record on.
  StreamLoad(const DaemonProcess& daemon, const std::string& job, int streams, int connections);
  // Ends the streams.
  ~StreamLoad();
  StreamLoad(const StreamLoad&) = delete;
  StreamLoad& operator=(const StreamLoad&) = delete;

  StreamCounts Counts() const;

 private:
  // A reader; a completion queue's tag is one of these, and says what was begun last.
  struct Stream {
    enum class Waiting { kStart, kMessage, kEnd };
    Waiting waiting = Waiting::kStart;
    grpc::ClientContext context;
    grpc::Status status;
    v1::StreamStepMetricsResponse message;
    std::unique_ptr<grpc::ClientAsyncReader<v1::StreamStepMetricsResponse>> reader;
    std::atomic<int64_t> next{1};
  };

  void Run();
  void Take(Stream* stream);
  void Expect(Stream* stream, int64_t sequence);

  std::vector<std::unique_ptr<v1::JobService::Stub>> stubs_;
  std::vector<std::unique_ptr<Stream>> streams_;
  grpc::CompletionQueue queue_;
  std::atomic<bool> ending_{false};
  std::atomic<int64_t> open_{0}, messages_{0}, records_{0}, lost_{0}, twice_{0}, failed_{0};
  std::thread thread_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_BENCH_DAEMON_STREAM_LOAD_H_
