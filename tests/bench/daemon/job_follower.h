// A watch of a job on a thread of its own, which notes when each state was heard of.
#ifndef MEGATRAIN_TESTS_BENCH_DAEMON_JOB_FOLLOWER_H_
#define MEGATRAIN_TESTS_BENCH_DAEMON_JOB_FOLLOWER_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "tests/e2e/daemon_process.h"

namespace megatrain {

// Thread safety: Await from one thread at a time.
class JobFollower {
 public:
  using Clock = std::chrono::steady_clock;

  JobFollower(const DaemonProcess& daemon, const std::string& job);
  // Ends the watch.
  ~JobFollower();
  JobFollower(const JobFollower&) = delete;
  JobFollower& operator=(const JobFollower&) = delete;

  // When the next event into `state` was heard of; events up to it count as seen. An error if none
  // comes for two minutes or the watch ends.
  absl::StatusOr<Clock::time_point> Await(v1::Job::State state);

 private:
  void Run();

  const std::unique_ptr<v1::JobService::Stub> jobs_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::WatchJobResponse>> reader_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::pair<v1::Job::State, Clock::time_point>> heard_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  size_t seen_ = 0;
  std::thread thread_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_BENCH_DAEMON_JOB_FOLLOWER_H_
