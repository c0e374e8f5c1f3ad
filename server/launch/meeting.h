// Meeting lets the launchers of a job's machines (torchrun_machine.h) exchange data before there is
// MPI. The machine with rank 0 listens, and the others connect to it. Neither side proves who it
// is, and nothing is encrypted, as with MPI itself: the network must be one that is trusted.
//
// Thread safety: one thread at a time calls Exchange. Any thread may call Leave.
#ifndef MEGATRAIN_SERVER_LAUNCH_MEETING_H_
#define MEGATRAIN_SERVER_LAUNCH_MEETING_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/base/mutex.h"
#include "proto/megatrain/launch/v1/meeting.grpc.pb.h"

namespace megatrain {

struct MeetingPlace {
  std::string job;      // the same text on all machines of a job, and another for another job
  std::string address;  // of the machine with rank 0: a name or an address
  int port = 0;
  int ranks = 1;        // of the job
  int first_rank = 0;   // of this machine
  int local_ranks = 1;  // of this machine
};

class Meeting {
 public:
  // With first_rank 0 it listens on all addresses of this machine, or only on place.address if that
  // is one of the loopback interface. Returns Unavailable if the port is in use or forbidden.
  static absl::StatusOr<std::unique_ptr<Meeting>> Open(const MeetingPlace& place);
  // Leaves. On the machine with rank 0 it gives the others a moment for their last replies.
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  // Gives `data` to the other machines, and returns what each machine gave, in the order of their
  // ranks. The first calls of all machines belong together, then the second ones, and so on. Waits
  // until each machine has made its call. Errors:
  // - DeadlineExceeded, with the ranks that are missing, after `patience`;
  // - Unavailable, if the machine with rank 0 cannot be reached within `patience` (at once, if that
  //   is infinite), if the job has begun without this machine, or if one of the machines has ended
  //   while it waited, or by LeaveFailed;
  // - Cancelled, if this machine has left;
  // - FailedPrecondition, if another job meets there, or the machines' ranks do not go together.
  // The machines that take part in the first exchange are the job's. An error of the first exchange
  // or of one of these machines ends the exchanges of all.
  absl::StatusOr<std::vector<std::string>> Exchange(const std::string& data,
                                                    absl::Duration patience);
  // Ends a call of Exchange that is under way, and lets later ones fail.
  void Leave();
  // Leaves, and tells the other machines that this one has failed, if they can be reached.
  void LeaveFailed();

  // Returns the number of ranks of each machine, in their order; valid until the next Exchange.
  // REQUIRES: an Exchange succeeded.
  const std::vector<int>& machine_ranks() const { return machine_ranks_; }
  // Returns the index of this machine in machine_ranks().
  int machine() const { return machine_; }

 private:
  class Table;
  // Calls the first machine once, and fills `reply`. Without a deadline it fails at once if that
  // cannot be reached.
  grpc::Status Call(const launch::v1::ExchangeRequest& request, absl::Duration deadline,
                    launch::v1::ExchangeReply* reply);
  explicit Meeting(const MeetingPlace& place);

  const MeetingPlace place_;
  std::unique_ptr<Table> table_;          // on the machine with rank 0
  std::unique_ptr<grpc::Server> server_;  // of table_
  std::unique_ptr<launch::v1::Meeting::Stub> stub_;
  std::atomic<int64_t> round_ = 0;  // Exchange counts it, and LeaveFailed reads it beside
  std::vector<int> machine_ranks_;
  int machine_ = 0;

  Mutex mutex_;
  bool left_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mutex_) = nullptr;  // under way
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_LAUNCH_MEETING_H_
