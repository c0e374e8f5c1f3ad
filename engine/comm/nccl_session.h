// NcclSession is a communicator of NCCL with a thread that watches the operations queued on it.
//
// An operation of NCCL is a kernel that waits on the GPU for the other ranks. If one of them is
// gone, the kernel waits for ever, and so does everything behind it in its stream. The thread
// therefore looks for errors of NCCL, for those of other ranks, and for operations that take too
// long. After an error it aborts the communicator, which ends the kernels. Their results are
// undefined then.
//
// NcclPatience::meeting bounds the making and the ending of the communicator, because NCCL's own
// network may be blocked where that of `bootstrap` is not. NcclPatience::operation bounds
// operations. Training leaves it infinite, because a rank comes late if its step is long or if it
// waits for a disk. The errors of `bootstrap`, which hears of ranks that are gone, then end the
// kernels.
#ifndef MEGATRAIN_ENGINE_COMM_NCCL_SESSION_H_
#define MEGATRAIN_ENGINE_COMM_NCCL_SESSION_H_

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/base/mutex.h"
#include "engine/comm/collective_call.h"
#include "engine/comm/communicator.h"
#include "engine/comm/nccl_api.h"
#include "engine/comm/nccl_communicator.h"
#include "engine/device/device.h"

namespace megatrain {

class NcclSession {
 public:
  // Makes a communicator of the ranks of `bootstrap`, which all must call this. The first error of
  // either communicator is kept in `bootstrap`, so that it reaches all ranks. `api`, `device` and
  // `bootstrap` must outlive the session. Returns FailedPrecondition if two ranks have the same
  // GPU, DeadlineExceeded if other ranks do not come within `meeting`, Internal for errors of NCCL,
  // and the errors of `device` and `bootstrap`.
  static absl::StatusOr<std::unique_ptr<NcclSession>> Open(NcclApi* api, Device* device,
                                                           Communicator* bootstrap,
                                                           const NcclPatience& patience);
  // Waits for the queued operations and for the sessions of the other ranks, at most for
  // NcclPatience::meeting. Does not wait after an error.
  ~NcclSession();
  NcclSession(const NcclSession&) = delete;
  NcclSession& operator=(const NcclSession&) = delete;

  // Calls `queue` with NCCL's communicator, and queues the operations that it begins on the stream
  // as one group. `queue` returns an ncclResult_t. `call` names the operation that the group
  // belongs to, for messages. Returns the first error of the ranks, which may be that of an earlier
  // group.
  absl::Status Group(Stream& stream, const CollectiveCall& call,
                     absl::FunctionRef<int(void* communicator)> queue);

 private:
  using Clock = std::chrono::steady_clock;

  // A group on a stream.
  struct Watched {
    CollectiveCall call;
    std::unique_ptr<Event> start, end;
    std::optional<Clock::time_point> started;  // when the GPU was seen to have reached it
  };

  NcclSession(NcclApi* api, Device* device, Communicator* bootstrap, const NcclPatience& patience)
      : api_(*api), device_(*device), bootstrap_(*bootstrap), patience_(patience) {}

  absl::Status Initialize() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits, without holding the mutex and at most for `patience`, until NCCL has finished what a
  // call began that returned `error`.
  absl::Status Settle(int error, const char* what, absl::Duration patience)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Queue(Stream& stream, absl::FunctionRef<int(void*)> queue, Watched* watched)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Watch();
  absl::Status Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the communicator, with `cause` unless there was an earlier one. Returns the first cause.
  absl::Status End(const absl::Status& cause) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Error(int error, const char* what) const;

  NcclApi& api_;
  Device& device_;
  Communicator& bootstrap_;
  const NcclPatience patience_;

  Mutex mutex_;
  CondVar changed_;
  void* communicator_ ABSL_GUARDED_BY(mutex_) = nullptr;  // null after its end
  std::deque<Watched> watched_ ABSL_GUARDED_BY(mutex_);   // in the order of their streams
  std::vector<std::unique_ptr<Event>> events_ ABSL_GUARDED_BY(mutex_);  // to be used again
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: uses the rest
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_COMM_NCCL_SESSION_H_
