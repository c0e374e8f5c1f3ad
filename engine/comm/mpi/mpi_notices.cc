// The notices of an MpiSession: signs of life, the first cause, and who leaves.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/comm/mpi/mpi_session.h"

namespace megatrain {
namespace {

using namespace std::chrono_literals;

// An aborted rank waits so long for the others to hear of it and to leave.
constexpr auto kLeavePatience = 3s;
// A rank waits so long for each lower one to tell people of a cause; less where the deadline is
// short.
constexpr absl::Duration kTellPatience = absl::Seconds(5);

double SecondsOf(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

}  // namespace

bool MpiSession::StoodStill(Clock::time_point now) const {
  return now - told_ > absl::ToChronoNanoseconds(deadline_ / 2);
}

void MpiSession::TellOfLife() {
  MutexLock lock(&mutex_);
  for (told_ = Clock::now(); !ending_;) {
    ReadNotices();
    const Clock::time_point now = Clock::now();
    if (StoodStill(now)) {
      // Either the others were stopped too and are soon heard of, or they gave up this one and are
      // gone.
      std::fill(heard_.begin(), heard_.end(),
                now - absl::ToChronoNanoseconds(deadline_ - deadline_ / 4));
    }
    told_ = now;
    // A rank that waits in an operation finds out earlier, and says what it waits for.
    const std::vector<int> silent = Silent(absl::ToChronoNanoseconds(deadline_ + period_));
    if (!silent.empty()) AbortLocked(SilentRanksError(rank_, silent, deadline_));
    if (cause_.ok()) {
      Notice notice{.kind = Notice::kAlive, .rank = rank_};
      {
        MutexLock allowances(&allowances_mutex_);
        notice.allowance =
            static_cast<float>(allowed_until_[static_cast<size_t>(rank_)] - SecondsOf(now));
      }
      SendNotices(notice);
    }
    ends_.WaitFor(&mutex_, absl::ToDoubleSeconds(period_));
  }
}

void MpiSession::NoteWait(const CollectiveCall& call, const std::vector<MpiTransfer>* transfers) {
  std::set<int> peers;
  for (const MpiTransfer& transfer : *transfers) peers.insert(transfer.peer);
  const std::string text =
      absl::StrCat(RankList({peers.begin(), peers.end()}), " in ", call.Describe());
  MutexLock lock(&mutex_);
  waits_[transfers] = text;
}

void MpiSession::ForgetWait(const std::vector<MpiTransfer>* transfers) {
  MutexLock lock(&mutex_);
  waits_.erase(transfers);
}

std::string MpiSession::DescribeWaits() {
  MutexLock lock(&mutex_);
  return absl::StrJoin(
      waits_, ", ", [](std::string* out, const auto& wait) { absl::StrAppend(out, wait.second); });
}

double MpiSession::ShareAllowance(double seconds) {
  const double now = SecondsOf(Clock::now());
  // The last notice of a rank may be a period old, and so may what it tells.
  const double age = 2 * absl::ToDoubleSeconds(period_);
  MutexLock lock(&allowances_mutex_);
  allowed_until_[static_cast<size_t>(rank_)] = now + seconds;
  double most = seconds;
  for (size_t peer = 0; peer < allowed_until_.size(); ++peer) {
    if (static_cast<int>(peer) != rank_) most = std::max(most, allowed_until_[peer] - now + age);
  }
  return most;
}

void MpiSession::Allow(int rank, double until) {
  MutexLock lock(&allowances_mutex_);
  allowed_until_[static_cast<size_t>(rank)] = until;
}

int MpiSession::LowerRanksLeft(Clock::time_point now) const {
  int lower = 0;
  for (size_t peer = 0; static_cast<int>(peer) < rank_; ++peer) {
    const bool heard = now - heard_[peer] <= absl::ToChronoNanoseconds(deadline_);
    lower += heard && !left_[peer].has_value() ? 1 : 0;
  }
  return lower;
}

void MpiSession::TellOnce(absl::FunctionRef<void()> tell) {
  const absl::Duration patience = std::min(kTellPatience, deadline_);
  for (const Clock::time_point start = Clock::now();; Pause(Clock::now() - start)) {
    const Clock::time_point now = Clock::now();
    MutexLock lock(&mutex_);
    ReadNotices();
    if (cause_told_) return;
    if (now - start < absl::ToChronoNanoseconds(patience * LowerRanksLeft(now))) continue;
    cause_told_ = true;
    break;
  }
  tell();
  MutexLock lock(&mutex_);
  SendNotices({.kind = Notice::kTold, .rank = rank_});
}

std::vector<int> MpiSession::Silent(Clock::duration time) {
  std::vector<int> silent;
  for (int peer = 0; peer < ranks_; ++peer) {
    const auto at = static_cast<size_t>(peer);
    if (peer != rank_ && !left_[at].has_value() && Clock::now() - heard_[at] > time) {
      silent.push_back(peer);
    }
  }
  return silent;
}

void MpiSession::Abort(const absl::Status& cause) {
  MutexLock lock(&mutex_);
  AbortLocked(cause);
}

void MpiSession::AbortLocked(const absl::Status& cause) {
  if (!cause_.ok()) return;
  cause_ = cause;
  Notice notice{
      .kind = Notice::kAborted, .rank = rank_, .code = static_cast<int32_t>(cause.code())};
  cause.message().copy(notice.message, sizeof(notice.message) - 1);
  SendNotices(notice);
}

absl::Status MpiSession::status() {
  MutexLock lock(&mutex_);
  ReadNotices();
  return cause_;
}

absl::Status MpiSession::ListenForNotices() {
  return Receive(notices_, &incoming_, sizeof(incoming_), MEGATRAIN_MPI_ANY_RANK, 0,
                 &incoming_transfer_);
}

void MpiSession::ReadNotices() {
  while (!incoming_transfer_.empty()) {  // it is after an error below
    const absl::Status tested = Test(&incoming_transfer_).status();
    if (tested.ok() && !incoming_transfer_.empty()) return;
    if (tested.ok()) {
      const size_t peer = static_cast<size_t>(incoming_.rank);
      heard_[peer] = Clock::now();
      if (incoming_.kind == Notice::kLeft) {
        left_[peer] = heard_[peer];
        Allow(incoming_.rank, -std::numeric_limits<double>::infinity());
      }
      // One that has left gives signs of life until all have.
      if (incoming_.kind == Notice::kAlive && !left_[peer].has_value()) {
        Allow(incoming_.rank, SecondsOf(heard_[peer]) + incoming_.allowance);
      }
      if (incoming_.kind == Notice::kTold) cause_told_ = true;
      if (incoming_.kind == Notice::kAborted && cause_.ok()) {
        cause_ = absl::Status(static_cast<absl::StatusCode>(incoming_.code), incoming_.message);
      }
    } else {
      AbortLocked(tested);
    }
    if (const absl::Status listens = ListenForNotices(); !listens.ok()) AbortLocked(listens);
    if (!tested.ok()) return;  // the next receive may have the same error
  }
}

void MpiSession::SendNotices(const Notice& notice) {
  // Notices are kept until all peers have read them.
  if (Test(&outgoing_transfers_).ok() && outgoing_transfers_.empty()) outgoing_.clear();
  outgoing_.push_back(notice);
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    // A peer that cannot be told finds out by its own deadline.
    (void)Send(notices_, &outgoing_.back(), sizeof(Notice), peer, 0, &outgoing_transfers_);
  }
}

bool MpiSession::LeaveTogether() {
  {
    MutexLock lock(&mutex_);
    // A session that could not be opened has no receive.
    if (incoming_transfer_.empty()) return false;
    SendNotices({.kind = Notice::kLeft, .rank = rank_});
    left_[static_cast<size_t>(rank_)] = Clock::now();
  }
  for (const Clock::time_point start = Clock::now();; Pause(Clock::now() - start)) {
    const bool good = status().ok();
    MutexLock lock(&mutex_);
    const bool sent = Test(&outgoing_transfers_).ok() && outgoing_transfers_.empty();
    if (sent && std::all_of(left_.begin(), left_.end(),
                            [](const auto& left) { return left.has_value(); })) {
      return good;
    }
    // TellOfLife ends this too if another is gone.
    if (!good && Clock::now() - start > kLeavePatience) return false;
  }
}

}  // namespace megatrain
