// Communicator is the interface of the operations in which all ranks of a job take part. A rank is
// a device with its part of the job's state. engine/comm has implementations for threads of one
// process, for processes (MPI) and for GPUs (NCCL).
//
// Order: each rank calls the same operations with the same sizes in the same order on its
// communicator. A job's lanes (engine/pipeline/schedule/lane.h) work beside each other, and
// therefore have a communicator each (CommunicatorSet).
//
// Reductions add in a fixed order, a tree over the ranks (SumRanks): the result depends on the
// number of ranks alone, and is the same to the bit for every implementation.
//
// Errors: after the first error of an operation on any rank, every later operation of every rank
// returns that error, which is called the first cause. Processes in which operations fail at the
// same time may each keep their own. To other processes only the code and the beginning of the
// message are told, without IsDiskFull's mark (Agree in exchange.h keeps it). InvalidArgument for
// `cuts` is an exception: it is returned to its caller alone.
//
// Waiting: an operation that waits for another process returns DeadlineExceeded, naming its rank,
// if nothing is heard of that process for the deadline (MpiOptions). An operation waits without a
// limit for a process that is alive, because a step or a checkpoint may be slow for good reasons.
// If that process hangs, the watchdog of the run ends the wait; the watchdogs of several processes
// agree by ShareAllowance. Threads and GPUs have a deadline for each operation, which training
// leaves infinite, because a thread does not vanish.
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

// The bytes that a rank has sent to others. GatherValues is not counted.
struct Traffic {
  int64_t gathered_bytes = 0;  // by AllGather and Broadcast
  int64_t reduced_bytes = 0;   // by ReduceScatter
  // The part of both that left the rank's group (RankGrid). NCCL's gathers are not counted here,
  // because NCCL chooses their routes.
  int64_t outside_bytes = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // Operations on memory of the rank's device. They are queued on `stream`, as kernels are; on the
  // cpu device they are done on return. `data` must stay valid until they are done. `cuts` has
  // ranks() + 1 numbers in ascending order, none negative: part r of `data` is [cuts[r], cuts[r +
  // 1]), and may be empty. Returns InvalidArgument for other cuts; the other ranks do not learn of
  // that. All ranks must give the same cuts.
  //
  // Fills the other ranks' parts from those ranks. Part rank() is this rank's. Cuts are in bytes.
  virtual absl::Status AllGather(Stream& stream, void* data, absl::Span<const int64_t> cuts) = 0;
  // Replaces part rank() by the sum over all ranks. The other parts are undefined afterwards. Cuts
  // are in elements.
  virtual absl::Status ReduceScatter(Stream& stream, float* data,
                                     absl::Span<const int64_t> cuts) = 0;

  // Operations on host memory, which return when they are done.
  //
  // Returns the values of all ranks, [ranks][values]. All ranks must give the same number of
  // values.
  virtual absl::StatusOr<std::vector<double>> GatherValues(absl::Span<const double> values) = 0;
  // Fills `bytes` bytes of every rank from those of rank `root`. REQUIRES: 0 <= root < ranks().
  virtual absl::Status Broadcast(void* data, int64_t bytes, int root) = 0;
  // Returns once every rank has called it.
  virtual absl::Status Barrier() = 0;

  // Ends the operations of all ranks with `cause`, unless there was an earlier error. REQUIRES:
  // !cause.ok().
  virtual void Abort(const absl::Status& cause) = 0;
  // Returns the first cause, or OK as long as there is none. An operation that was only queued
  // shows its error here or in a later operation, never on the stream. Call this before the result
  // of such an operation is used outside the rank.
  virtual absl::Status status() = 0;

  // These three methods serve the communicators of processes (MPI). Those of the other kinds have
  // the implementations below.
  //
  // Tells the others for how many seconds this rank may still go without progress. The number is
  // negative if the rank has gone without for too long. Returns the largest number of all ranks
  // that have not left. A rank that has told no number counts as infinite. The numbers of the
  // others are some seconds old, and are raised by as much. A negative result means that every rank
  // has gone without progress for too long, so that the job stands still.
  virtual double ShareAllowance(double seconds) { return seconds; }
  // Describes the waits of this rank's operations that take longer than a second, for example "rank
  // 1 in Barrier (operation 7)" if this rank waits for rank 1. Returns "" if there are none.
  virtual std::string DescribeWaits() { return ""; }
  // Calls `tell` on one rank after an error, so that people are told of the cause once. All ranks
  // should call this. The rank that tells is the lowest of those that have neither left nor fallen
  // silent. The others return when it has told. They wait a few seconds for a lower rank that does
  // not call this, and then leave it out.
  virtual void TellOnce(absl::FunctionRef<void()> tell) {
    if (rank() == 0) tell();
  }

  // Returns what this rank has sent so far. REQUIRES: no operation of this communicator runs.
  virtual Traffic traffic() const = 0;
};

// The communicators of a rank, one for each thread or lane that exchanges data. Operations on
// different ones may run at once. They may be null where a rank is alone.
struct CommunicatorSet {
  std::unique_ptr<Communicator> tiles;    // for the lane that gathers weights and reduces gradients
  std::unique_ptr<Communicator> values;   // for the lane that updates on the host
  std::unique_ptr<Communicator> control;  // for the thread that runs the loop
  std::unique_ptr<Communicator> saves;    // for the lane that writes checkpoints
  int group_ranks = 1;  // GroupRanks of `machines` (rank_grid.h); 1 without machines
  std::vector<std::string> machines = {};  // the machine of each rank, by name; empty but for MPI
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_COMM_COMMUNICATOR_H_
