// The operations in which all ranks of a job take part. A rank is a device with its part of the
// job's state. engine/comm has implementations for threads of one process, for processes (MPI) and
// for GPUs (NCCL); nothing else of the engine knows which one it uses.
//
// Order: each rank calls the same operations with the same sizes in the same order on its
// communicator. A job's lanes therefore have a communicator each (CommunicatorSet).
//
// Reductions add in a fixed order, a tree over the ranks (SumRanks): the result depends on the
// number of ranks alone, and is the same to the bit for every implementation.
//
// Errors: after the first error of an operation, its own or a peer's, every operation of every rank
// returns the first cause.
//
// Waiting: an operation that waits for a process of which nothing is heard for the deadline returns
// DeadlineExceeded with its rank. A process that is alive is waited for without a limit, because a
// step or a checkpoint may be slow for good reasons. The watchdog of a run ends such a wait where
// the process hangs; the watchdogs of several processes come together by ShareAllowance. Threads
// and GPUs have a deadline for each operation, which training leaves infinite: a thread does not
// vanish.
//
// Thread safety: one thread calls the operations of a communicator. Any thread may call the methods
// from Abort on.
#ifndef MEGATRAIN_ENGINE_COMM_COMMUNICATOR_H_
#define MEGATRAIN_ENGINE_COMM_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/device/device.h"

namespace megatrain {

// The bytes that a rank has sent to others.
struct Traffic {
  int64_t gathered_bytes = 0;  // by AllGather and Broadcast
  int64_t reduced_bytes = 0;   // by ReduceScatter
  // The part of both that went out of the rank's group (RankGrid). NCCL's gathers are not in it,
  // because NCCL chooses their routes.
  int64_t outside_bytes = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // Operations on memory of the rank's device. They are queued on `stream`, as kernels are; on the
  // cpu device they are done on return. `cuts` has ranks() + 1 ascending numbers: part r of `data`
  // is [cuts[r], cuts[r + 1]), and may be empty. Other cuts are InvalidArgument; the other ranks
  // are not told.
  //
  // Fills the other ranks' parts from those ranks. Part rank() is this rank's. Cuts are in bytes.
  virtual absl::Status AllGather(Stream& stream, void* data, absl::Span<const int64_t> cuts) = 0;
  // Replaces part rank() by the sum over all ranks. The other parts are undefined afterwards. Cuts
  // are in elements.
  virtual absl::Status ReduceScatter(Stream& stream, float* data,
                                     absl::Span<const int64_t> cuts) = 0;

  // Operations on host memory, which return when they are done.
  //
  // Returns the values of all ranks, [ranks][values]. Each rank gives the same number.
  virtual absl::StatusOr<std::vector<double>> GatherValues(absl::Span<const double> values) = 0;
  // Fills `bytes` bytes of every rank from those of rank `root`.
  virtual absl::Status Broadcast(void* data, int64_t bytes, int root) = 0;
  // Returns once every rank has called it.
  virtual absl::Status Barrier() = 0;

  // Ends the operations of all ranks with `cause`, unless there was an earlier one.
  // REQUIRES: !cause.ok().
  virtual void Abort(const absl::Status& cause) = 0;
  // Returns the first cause, or OK as long as there is none. Any thread may call it. An operation
  // that was only queued shows its error here or in a later operation, never on the stream: call
  // this before its result is used outside the rank.
  virtual absl::Status status() = 0;

  // These three are for the communicators of processes. A process alone, of whatever number of
  // ranks, has no use for them.
  //
  // Tells the others for how many seconds this rank may still go without progress; a negative
  // number if it has done so for too long. Returns the largest number of all ranks that have not
  // left. A rank that has told none counts as infinite. The numbers of the others are some seconds
  // old, and are raised by as much. A negative result means that no rank may be at work any more,
  // so that the job stands still.
  virtual double ShareAllowance(double seconds) { return seconds; }
  // Describes the waits of this rank's operations that take longer than a moment, for example "rank
  // 1 in Barrier (operation 7)" if it waits for rank 1. Empty if there are none.
  virtual std::string Waits() { return ""; }
  // After an error: calls `tell` on one rank, the lowest of those that are left, so that people are
  // told of the cause once. The others return when it has told. A rank that does not call this is
  // waited for a few seconds, and then left out.
  virtual void TellOnce(absl::FunctionRef<void()> tell) {
    if (rank() == 0) tell();
  }

  // Returns what this rank has sent so far. REQUIRES: no operation of this communicator runs.
  virtual Traffic traffic() const = 0;
};

// The communicators of a rank: operations on different ones may run at once.
struct CommunicatorSet {
  std::unique_ptr<Communicator> tiles;    // for the lane that gathers weights and reduces gradients
  std::unique_ptr<Communicator> values;   // for the lane that updates on the host
  std::unique_ptr<Communicator> control;  // for the thread that runs the loop
  std::unique_ptr<Communicator> saves;    // for the lane that writes checkpoints
  int group_ranks = 1;                    // of processes: GroupRanks of `machines`
  std::vector<std::string> machines = {};  // of processes: names the machine of each rank
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_COMM_COMMUNICATOR_H_
