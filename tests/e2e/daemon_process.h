// `megatraind serve` as a child process on a socket of its own, spoken to through its API: what
// tests and benchmarks of the whole daemon share.
#ifndef MEGATRAIN_TESTS_E2E_DAEMON_PROCESS_H_
#define MEGATRAIN_TESTS_E2E_DAEMON_PROCESS_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "megatrain/v1/job_service.grpc.pb.h"
#include "megatrain/v1/node_service.grpc.pb.h"
#include "tests/support/child_process.h"

namespace megatrain {

// Polls until `condition` holds; DeadlineExceeded after two minutes, Aborted once the process has
// ended.
absl::Status WaitFor(ChildProcess* process, const std::function<bool()>& condition);

// Waits a little for `channel` to be connected. gRPC's clients look after their connections while a
// call waits, and a call on a channel that cannot connect does not: without this an attempt that
// has succeeded is noticed up to five seconds later.
void AwaitConnection(grpc::Channel* channel);

// A job's step metrics as a reader that follows them across lives of the daemon has them.
struct StepSeries {
  int64_t next = 1;                    // sequence number of the record to come
  int64_t furthest = 0;                // step, also of those fallen back from
  std::vector<v1::StepMetrics> steps;  // that count: those fallen back from are taken out again
  std::vector<int64_t> Numbers() const;
};

// Thread safety: the calls to the daemon may be made from any thread; the rest from one.
class DaemonProcess {
 public:
  struct Options {
    std::string binary;  // megatraind
    std::string
        directory;  // of mode 0700, with a short path: socket and state lie in it, the log beside
    std::string host_memory = "256MiB";
    int threads = 1;
    std::vector<std::string> settings;   // KEY=VALUE, after those above
    std::string config;                  // the configuration's file; "" = none
    std::vector<std::string> arguments;  // of `serve`, after the settings
    ChildLimits limits;
  };

  // Has it started; it may not answer yet.
  static std::unique_ptr<DaemonProcess> Launch(const Options& options);
  // Has it started and ready for jobs.
  static absl::StatusOr<std::unique_ptr<DaemonProcess>> Start(const Options& options);

  absl::Status WaitUntilReady();
  absl::Status WaitFor(const std::function<bool()>& condition) {
    return megatrain::WaitFor(&process_, condition);
  }

  ChildProcess& process() { return process_; }
  const std::string& address() const { return address_; }
  v1::JobService::Stub& jobs() { return *jobs_; }
  v1::NodeService::Stub& nodes() { return *nodes_; }
  // A connection of its own.
  std::shared_ptr<grpc::Channel> NewChannel() const;

  absl::StatusOr<v1::Job> Create(const v1::CreateJobRequest& request);
  absl::StatusOr<v1::Job> Get(const std::string& name);
  absl::StatusOr<v1::Node> GetNode();
  absl::Status Pause(const std::string& name, bool release_host_memory);
  absl::Status Resume(const std::string& name);
  absl::Status Cancel(const std::string& name);
  // All pages.
  absl::StatusOr<std::vector<v1::Job>> List();
  // An error if the job ends in another state.
  absl::Status WaitForState(const std::string& name, v1::Job::State state);
  // At least `step` steps are done.
  absl::Status WaitForStep(const std::string& name, int64_t step);

  // Reads on in the job's series up to step `until`, or as far as it goes: to the newest record, or
  // with `follow` to the job's end. DataLoss if a number is missing or there twice.
  absl::Status ReadSteps(const std::string& name, int64_t until, bool follow, StepSeries* series);
  // Those there are. DataLoss if a number is missing or one does not follow from the one before.
  absl::StatusOr<std::vector<v1::JobEvent>> Events(const std::string& name);

  // Of the process, as its system counts it; 0 once it has ended.
  int64_t ResidentBytes() const;
  int64_t Threads() const;
  int64_t OpenFiles() const;
  double ProcessorSeconds() const;

 private:
  DaemonProcess(const Options& options, std::string address);

  // For a call with a deadline that no sound one meets.
  std::unique_ptr<grpc::ClientContext> NewCall() const;

  const std::string address_;
  ChildProcess process_;
  const std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::NodeService::Stub> nodes_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_E2E_DAEMON_PROCESS_H_
