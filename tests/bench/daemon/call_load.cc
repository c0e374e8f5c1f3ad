#include "tests/bench/daemon/call_load.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

using Clock = std::chrono::system_clock;  // as gRPC's deadlines

double Milliseconds(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

// A call under way; owned by the completion queue as its tag.
struct Call {
  bool get = false;
  Clock::time_point due;
  grpc::ClientContext context;
  grpc::Status status;
  v1::Job job;
  v1::ListJobsResponse jobs;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::Job>> get_reader;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::ListJobsResponse>> list_reader;
};

class CallLoad {
 public:
  CallLoad(const DaemonProcess& daemon, const std::string& job, const CallLoadOptions& options)
      : options_(options) {
    get_.set_name(job);
    for (int i = 0; i < options.connections; ++i) {
      stubs_.push_back(v1::JobService::NewStub(daemon.NewChannel()));
    }
  }
  ~CallLoad() {
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) delete static_cast<Call*>(tag);
  }

  absl::StatusOr<CallLoadResult> Run() {
    const Clock::time_point start = Clock::now();
    const Clock::time_point end = start + std::chrono::duration_cast<Clock::duration>(
                                              std::chrono::duration<double>(options_.seconds));
    const bool open = options_.calls_per_second > 0;
    if (!open) {
      for (int i = 0; i < options_.outstanding; ++i) Begin(Clock::now());
    }
    for (;;) {
      const Clock::time_point due = open ? Due(start, begun_) : end;
      if (open && due <= Clock::now() && due < end) {
        Begin(due);
        continue;
      }
      void* tag = nullptr;
      bool ok = false;
      const auto next = queue_.AsyncNext(&tag, &ok, std::min(due, end));
      const Clock::time_point now = Clock::now();
      if (next == grpc::CompletionQueue::GOT_EVENT) {
        const std::unique_ptr<Call> call(static_cast<Call*>(tag));
        if (!call->status.ok()) {
          return absl::InternalError(absl::StrCat("a call failed: ", call->status.error_message()));
        }
        if (now < end) Count(*call, now);
        if (!open && now < end) Begin(now);
      }
      if (now >= end) break;
    }
    result_.seconds = options_.seconds;
    return std::move(result_);
  }

 private:
  Clock::time_point Due(Clock::time_point start, int64_t call) const {
    return start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                       static_cast<double>(call) / options_.calls_per_second));
  }

  void Begin(Clock::time_point due) {
    auto* const call = new Call;
    call->due = due;
    call->get = begun_ % 2 == 0;
    call->context.set_deadline(Clock::now() + std::chrono::seconds(60));
    v1::JobService::Stub& stub = *stubs_[static_cast<size_t>(begun_ / 2) % stubs_.size()];
    ++begun_;
    if (call->get) {
      call->get_reader = stub.AsyncGetJob(&call->context, get_, &queue_);
      call->get_reader->Finish(&call->job, &call->status, call);
    } else {
      call->list_reader = stub.AsyncListJobs(&call->context, list_, &queue_);
      call->list_reader->Finish(&call->jobs, &call->status, call);
    }
  }

  void Count(const Call& call, Clock::time_point now) {
    (call.get ? result_.gets : result_.lists) += 1;
    (call.get ? result_.get_milliseconds : result_.list_milliseconds)
        .push_back(Milliseconds(now - call.due));
  }

  const CallLoadOptions options_;
  v1::GetJobRequest get_;
  const v1::ListJobsRequest list_;
  std::vector<std::unique_ptr<v1::JobService::Stub>> stubs_;
  grpc::CompletionQueue queue_;
  int64_t begun_ = 0;
  CallLoadResult result_;
};

}  // namespace

absl::StatusOr<CallLoadResult> RunCallLoad(const DaemonProcess& daemon, const std::string& job,
                                           const CallLoadOptions& options) {
  return CallLoad(daemon, job, options).Run();
}

}  // namespace megatrain
