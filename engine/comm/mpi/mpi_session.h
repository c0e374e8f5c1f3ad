// MpiSession is this process's membership in an MPI job. It loads, starts and ends the library, and
// holds the first error of the job, which the processes tell each other on an MPI communicator of
// its own.
//
// MPI moves data only during calls, and waits for ever for a process that is gone. Wait therefore
// polls MPI, and looks for errors of the other processes meanwhile. A thread tells the others now
// and then that this process is alive, and how long it may still go without progress. The processes
// wait as long as it takes for a slow process. They give up one that they have not heard of for the
// deadline.
//
// Thread safety: any thread may call all methods, each thread with a `transfers` of its own.
#ifndef MEGATRAIN_ENGINE_COMM_MPI_MPI_SESSION_H_
#define MEGATRAIN_ENGINE_COMM_MPI_MPI_SESSION_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/base/mutex.h"
#include "engine/comm/collective_call.h"
#include "engine/comm/mpi/mpi_shim.h"

namespace megatrain {

// A message between this rank and a peer that is not done yet.
struct MpiTransfer {
  int peer = 0;
  bool receives = false;
  MegatrainMpiHandle request = 0;
};

class MpiSession {
 public:
  // Loads the library `path` and initializes MPI. All processes of the job must call it, and it
  // waits for them without a limit. `deadline` is for the time after that, as above. Errors:
  // - Unimplemented: there is no such file, because the build had no MPI.
  // - Unavailable: it cannot be loaded, because MPI is not installed here, or the processes did not
  //   meet (MEGATRAIN_MPI_NOT_MET).
  // - FailedPrecondition: the library is of another version than this program, this MPI does not
  //   let several threads call it, or MPI was used in this process before, which it allows once.
  // - Internal: other errors of MPI.
  static absl::StatusOr<std::shared_ptr<MpiSession>> Open(const std::string& path,
                                                          absl::Duration deadline);
  // Tells the others that this rank takes no part any more, waits until they say the same or are
  // gone, and finalizes MPI. After an error it waits a few seconds only, so that all hear of the
  // error before a launcher ends them. MPI is then not finalized, because that would wait for
  // processes that are gone; this process must end.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // Makes a communicator of all ranks, who must all call this. Returns Internal for an error of
  // MPI.
  absl::StatusOr<MegatrainMpiHandle> CreateCommunicator();

  // Begin a transfer and append it to `transfers`. The memory must stay valid until Wait returns.
  // `communicator` is from CreateCommunicator. A receive matches the sends with its `tag`, in their
  // order. Return Internal for an error of MPI. REQUIRES: bytes < 2^31.
  absl::Status Send(MegatrainMpiHandle communicator, const void* data, int64_t bytes, int peer,
                    int tag, std::vector<MpiTransfer>* transfers);
  absl::Status Receive(MegatrainMpiHandle communicator, void* data, int64_t bytes, int peer,
                       int tag, std::vector<MpiTransfer>* transfers);
  // Waits until all transfers are done, and empties the list. `call` is the operation that they
  // belong to, for messages. If the job has an error before they are done, or this call finds one,
  // cancels the receives, waits up to a second for all transfers, empties the list and returns the
  // first cause. MPI may still touch the memory of a transfer that has not ended by then.
  absl::Status Wait(const CollectiveCall& call, std::vector<MpiTransfer>* transfers);

  // Returns true if a Wait has given up a transfer that had not ended.
  bool gave_up_transfers() const { return gave_up_transfers_; }

  // Tells all ranks of `cause`, unless there was an earlier one.
  void Abort(const absl::Status& cause);
  // Returns the first cause that this rank knows, or OK if it knows none.
  absl::Status status();

  // As in communicator.h.
  double ShareAllowance(double seconds);
  std::string DescribeWaits();
  void TellOnce(absl::FunctionRef<void()> tell);

 private:
  using Clock = std::chrono::steady_clock;

  // A rank sends this many signs of life in a deadline, and one each kSignOfLifeMax at least, so
  // that the allowances that they carry are known while they count.
  static constexpr int kSignsOfLife = 6;
  static constexpr absl::Duration kSignOfLifeMax = absl::Seconds(5);

  // A message of a rank to another beside operations. It is small enough to be sent without the
  // receiver.
  struct Notice {
    enum Kind : int32_t { kAborted, kLeft, kAlive, kTold };
    Kind kind = kAborted;
    int32_t rank = 0;
    int32_t code = 0;         // of the cause
    float allowance = 0;      // of kAlive, in seconds
    char message[1008] = "";  // of the cause, ended by a zero
  };

  MpiSession(const MegatrainMpi* mpi, int rank, int ranks, absl::Duration deadline)
      : mpi_(*mpi),
        rank_(rank),
        ranks_(ranks),
        deadline_(deadline),
        period_(std::min(deadline / kSignsOfLife, kSignOfLifeMax)),
        allowed_until_(static_cast<size_t>(ranks), std::numeric_limits<double>::infinity()),
        left_(static_cast<size_t>(ranks)),
        heard_(static_cast<size_t>(ranks), Clock::now()) {}

  // Waits a little, having waited for `idle` already.
  static void Pause(Clock::duration idle);
  // Removes the transfers that are done from the list. Returns true if there were any. After an
  // error the transfer that had it is removed too, and others may be done and still in the list.
  absl::StatusOr<bool> Test(std::vector<MpiTransfer>* transfers);
  // Tells the others now and then that this process is alive, until the session ends. Ends the job
  // if another is gone for which nobody here waits in MPI, as where NCCL carries the data.
  void TellOfLife();
  // Notes until when a rank may go without progress.
  void Allow(int rank, double until);
  // Why the transfers cannot be waited for any longer, or OK.
  absl::Status GiveUp(const CollectiveCall& call, const std::vector<MpiTransfer>& transfers);
  // Notes, for DescribeWaits, what the transfers wait for.
  void NoteWait(const CollectiveCall& call, const std::vector<MpiTransfer>* transfers);
  void ForgetWait(const std::vector<MpiTransfer>* transfers);
  void End(std::vector<MpiTransfer>* transfers);

  absl::Status ListenForNotices() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReadNotices() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendNotices(const Notice& notice) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AbortLocked(const absl::Status& cause) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns true if this process was stopped, and has heard nobody meanwhile.
  bool StoodStill(Clock::time_point now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the ranks that have neither left nor been heard of for so long.
  std::vector<int> Silent(Clock::duration time) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns how many lower ranks may still tell of the cause.
  int LowerRanksLeft(Clock::time_point now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns true if all have left and there was no error.
  bool LeaveTogether();

  const MegatrainMpi& mpi_;
  const int rank_;
  const int ranks_;
  const absl::Duration deadline_;
  const absl::Duration period_;     // of the signs of life
  MegatrainMpiHandle notices_ = 0;  // the communicator of notices
  std::atomic<bool> gave_up_transfers_{false};

  // Until when the ranks, this one too, may go without progress, in seconds of Clock; for one that
  // has left, minus infinity. Has a lock of its own, which nobody holds during a call of MPI: the
  // watchdog asks also when such a call hangs.
  Mutex allowances_mutex_;
  std::vector<double> allowed_until_ ABSL_GUARDED_BY(allowances_mutex_);

  Mutex mutex_;
  absl::Status cause_ ABSL_GUARDED_BY(mutex_);
  // When this rank heard that another has left, and when it last heard of it.
  std::vector<std::optional<Clock::time_point>> left_ ABSL_GUARDED_BY(mutex_);
  std::vector<Clock::time_point> heard_ ABSL_GUARDED_BY(mutex_);
  // The waits of transfers that are longer than a moment, by the address of their list.
  std::map<const void*, std::string> waits_ ABSL_GUARDED_BY(mutex_);
  bool cause_told_ ABSL_GUARDED_BY(mutex_) = false;  // to people, by this rank or another
  Clock::time_point told_ ABSL_GUARDED_BY(mutex_) = Clock::now();  // that this rank is alive
  Notice incoming_ ABSL_GUARDED_BY(mutex_);
  std::vector<MpiTransfer> incoming_transfer_ ABSL_GUARDED_BY(mutex_);
  std::deque<Notice> outgoing_ ABSL_GUARDED_BY(mutex_);  // each stays where it is
  std::vector<MpiTransfer> outgoing_transfers_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar ends_;
  std::thread teller_;  // last: uses the rest
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_COMM_MPI_MPI_SESSION_H_
