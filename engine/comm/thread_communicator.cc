#include "engine/comm/thread_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/comm/collective_call.h"
#include "engine/comm/sum_ranks.h"

namespace megatrain {
namespace {

using Clock = std::chrono::steady_clock;

// The first error of a job's ranks. Its mutex is that of the meeting points too, which are few and
// held shortly.
struct FirstCause {
  Mutex mutex;
  CondVar changed;
  absl::Status cause ABSL_GUARDED_BY(mutex);

  void Abort(const absl::Status& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (!cause.ok()) return;
    cause = error;
    changed.NotifyAll();
  }
};

// Where the ranks of one communicator meet. An operation is a round: it starts when the last rank
// enters, and ends for all when the last one has finished its work.
//
// Invariant: from its entry until the end of the round a rank's buffers stay as they are, except
// for what its own work writes. What a rank's work writes no other reads.
class MeetingPoint {
 public:
  MeetingPoint(FirstCause* first_cause, int ranks, absl::Duration deadline)
      : abort_(*first_cause), deadline_(deadline), seats_(static_cast<size_t>(ranks)) {}

  // Waits until every rank has entered with the same call.
  absl::Status Enter(int rank, CollectiveCall call, void* data) {
    MutexLock lock(&abort_.mutex);
    if (!abort_.cause.ok()) return abort_.cause;
    const int64_t round = started_;
    call.number = round;
    Seat& seat = seats_[static_cast<size_t>(rank)];
    seat.call = call;
    seat.data = data;
    seat.taken = true;
    if (++entered_ == ranks()) {
      Start();
    } else if (const int left = LeftRank(); left >= 0) {
      abort_.Abort(RankLeftError(left, call));
    }
    const Clock::time_point begin = Clock::now();
    while (started_ == round && abort_.cause.ok()) {
      const double left = absl::ToDoubleSeconds(deadline_) -
                          std::chrono::duration<double>(Clock::now() - begin).count();
      if (left > 0) {
        abort_.changed.WaitFor(&abort_.mutex, std::min(left, 3600.0));
      } else {
        abort_.Abort(MissingRanksError(rank, call, MissingRanks(), deadline_));
      }
    }
    return started_ > round ? absl::OkStatus() : abort_.cause;
  }

  // What a rank brought to the round. Valid between Enter and Finish.
  void* data(int rank) const { return seats_[static_cast<size_t>(rank)].data; }

  // Waits until every rank has finished its work. There is no deadline, since that takes nothing
  // but reading memory.
  void Finish() {
    MutexLock lock(&abort_.mutex);
    const int64_t round = finished_;
    if (--working_ == 0) {
      ++finished_;
      abort_.changed.NotifyAll();
    }
    while (finished_ == round) abort_.changed.Wait(&abort_.mutex);
  }

  void Leave(int rank) {
    MutexLock lock(&abort_.mutex);
    seats_[static_cast<size_t>(rank)].left = true;
    if (entered_ == 0) return;
    for (const Seat& seat : seats_) {
      if (seat.taken) return abort_.Abort(RankLeftError(rank, seat.call));
    }
  }

 private:
  struct Seat {
    CollectiveCall call;
    void* data = nullptr;
    bool taken = false;
    bool left = false;
  };

  int ranks() const { return static_cast<int>(seats_.size()); }

  void Start() ABSL_EXCLUSIVE_LOCKS_REQUIRED(abort_.mutex) {
    for (int rank = 1; rank < ranks(); ++rank) {
      const absl::Status same =
          CheckSameCall(0, seats_[0].call, rank, seats_[static_cast<size_t>(rank)].call);
      if (!same.ok()) return abort_.Abort(same);
    }
    for (Seat& seat : seats_) seat.taken = false;
    entered_ = 0;
    working_ = ranks();
    ++started_;
    abort_.changed.NotifyAll();
  }

  // -1 if none has left.
  int LeftRank() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(abort_.mutex) {
    for (int rank = 0; rank < ranks(); ++rank) {
      if (seats_[static_cast<size_t>(rank)].left) return rank;
    }
    return -1;
  }

  std::vector<int> MissingRanks() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(abort_.mutex) {
    std::vector<int> missing;
    for (int rank = 0; rank < ranks(); ++rank) {
      if (!seats_[static_cast<size_t>(rank)].taken) missing.push_back(rank);
    }
    return missing;
  }

  FirstCause& abort_;
  const absl::Duration deadline_;
  // Written under the mutex by ranks that enter, and read by those that work, which is later.
  std::vector<Seat> seats_;
  int entered_ ABSL_GUARDED_BY(abort_.mutex) = 0;
  int working_ ABSL_GUARDED_BY(abort_.mutex) = 0;
  int64_t started_ ABSL_GUARDED_BY(abort_.mutex) = 0;   // rounds
  int64_t finished_ ABSL_GUARDED_BY(abort_.mutex) = 0;  // rounds
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<FirstCause> first_cause,
                     std::shared_ptr<MeetingPoint> meeting_point, int rank, int ranks)
      : abort_(std::move(first_cause)),
        meeting_(std::move(meeting_point)),
        rank_(rank),
        ranks_(ranks) {}
  ~ThreadCommunicator() override { meeting_->Leave(rank_); }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  absl::Status AllGather(Stream&, void* data, absl::Span<const int64_t> cuts) override {
    MT_ASSIGN_OR_RETURN(const CollectiveCall call,
                        PartsCall(Operation::kAllGather, cuts, ranks_, 1));
    MT_RETURN_IF_ERROR(meeting_->Enter(rank_, call, data));
    for (int from = 0; from < ranks_; ++from) {
      if (from == rank_ || Part(cuts, from) == 0) continue;
      std::memcpy(static_cast<char*>(data) + Begin(cuts, from),
                  static_cast<const char*>(meeting_->data(from)) + Begin(cuts, from),
                  static_cast<size_t>(Part(cuts, from)));
    }
    meeting_->Finish();
    traffic_.gathered_bytes += Part(cuts, rank_) * (ranks_ - 1);
    return absl::OkStatus();
  }

  absl::Status ReduceScatter(Stream&, float* data, absl::Span<const int64_t> cuts) override {
    MT_ASSIGN_OR_RETURN(const CollectiveCall call,
                        PartsCall(Operation::kReduceScatter, cuts, ranks_, sizeof(float)));
    MT_RETURN_IF_ERROR(meeting_->Enter(rank_, call, data));
    std::vector<const float*> parts;
    for (int from = 0; from < ranks_; ++from) {
      parts.push_back(static_cast<const float*>(meeting_->data(from)) + Begin(cuts, rank_));
    }
    SumRanks(parts, Part(cuts, rank_), data + Begin(cuts, rank_));
    meeting_->Finish();
    traffic_.reduced_bytes += call.bytes - Part(cuts, rank_) * int64_t{sizeof(float)};
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<double>> GatherValues(absl::Span<const double> values) override {
    const CollectiveCall call{.operation = Operation::kGatherValues,
                              .bytes = static_cast<int64_t>(values.size() * sizeof(double))};
    MT_RETURN_IF_ERROR(meeting_->Enter(rank_, call, const_cast<double*>(values.data())));
    std::vector<double> all;
    for (int from = 0; from < ranks_; ++from) {
      const double* const first = static_cast<const double*>(meeting_->data(from));
      all.insert(all.end(), first, first + values.size());
    }
    meeting_->Finish();
    return all;
  }

  absl::Status Broadcast(void* data, int64_t bytes, int root) override {
    const CollectiveCall call{.operation = Operation::kBroadcast, .root = root, .bytes = bytes};
    MT_RETURN_IF_ERROR(meeting_->Enter(rank_, call, data));
    if (rank_ != root && bytes > 0) {
      std::memcpy(data, meeting_->data(root), static_cast<size_t>(bytes));
    }
    meeting_->Finish();
    if (rank_ == root) traffic_.gathered_bytes += bytes * (ranks_ - 1);
    return absl::OkStatus();
  }

  absl::Status Barrier() override {
    MT_RETURN_IF_ERROR(meeting_->Enter(rank_, {.operation = Operation::kBarrier}, nullptr));
    meeting_->Finish();
    return absl::OkStatus();
  }

  void Abort(const absl::Status& cause) override {
    MutexLock lock(&abort_->mutex);
    abort_->Abort(cause);
  }
  absl::Status status() override {
    MutexLock lock(&abort_->mutex);
    return abort_->cause;
  }
  Traffic traffic() const override { return traffic_; }

 private:
  static int64_t Begin(absl::Span<const int64_t> cuts, int rank) {
    return cuts[static_cast<size_t>(rank)];
  }
  static int64_t Part(absl::Span<const int64_t> cuts, int rank) {
    return cuts[static_cast<size_t>(rank) + 1] - cuts[static_cast<size_t>(rank)];
  }

  const std::shared_ptr<FirstCause> abort_;
  const std::shared_ptr<MeetingPoint> meeting_;
  const int rank_;
  const int ranks_;
  Traffic traffic_;
};

}  // namespace

std::vector<CommunicatorSet> CreateThreadCommunicators(int ranks, absl::Duration deadline) {
  const auto first_cause = std::make_shared<FirstCause>();
  const auto tiles = std::make_shared<MeetingPoint>(first_cause.get(), ranks, deadline);
  const auto values = std::make_shared<MeetingPoint>(first_cause.get(), ranks, deadline);
  const auto control = std::make_shared<MeetingPoint>(first_cause.get(), ranks, deadline);
  const auto saves = std::make_shared<MeetingPoint>(first_cause.get(), ranks, deadline);
  std::vector<CommunicatorSet> sets(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    sets[static_cast<size_t>(rank)] = {
        std::make_unique<ThreadCommunicator>(first_cause, tiles, rank, ranks),
        std::make_unique<ThreadCommunicator>(first_cause, values, rank, ranks),
        std::make_unique<ThreadCommunicator>(first_cause, control, rank, ranks),
        std::make_unique<ThreadCommunicator>(first_cause, saves, rank, ranks)};
  }
  return sets;
}

}  // namespace megatrain
