#include "engine/comm/mpi_session.h"

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

using namespace std::chrono_literals;

// A rank that has left may have sent what a transfer waits for on another path of the network than
// the notice came on.
constexpr auto kLastMessages = 1s;
// How long an aborted rank lets MPI move what was under way.
constexpr auto kAbortPatience = 1s;
// How long an aborted rank waits for the others to have heard of it and to leave.
constexpr auto kLeavePatience = 3s;
// How long a rank leaves it to each lower one to tell people of a cause; less where the deadline is
// short.
constexpr absl::Duration kTellPatience = absl::Seconds(5);
// Waits tells of waits that are longer.
constexpr auto kMoment = 1s;
// A rank that waits asks MPI again and again. Its naps are a part of the time that it has waited:
// so a short wait is noticed at once, and a long one leaves the processor to others.
constexpr auto kYielding = 50us;
constexpr int kNapPart = 4;
constexpr auto kNapMax = 300us;

double SecondsOf(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

void Pause(std::chrono::steady_clock::duration idle) {
  if (idle < kYielding) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(
        std::min<std::chrono::steady_clock::duration>(idle / kNapPart, kNapMax));
  }
}

absl::StatusOr<const MegatrainMpi*> Load(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0) {
    return absl::UnimplementedError(absl::StrCat(
        "a job on several processes needs MPI, which this installation was built without (there is "
        "no library ",
        path, "); run deploy/install-deps.sh --mpi and build again"));
  }
  // It is never closed: MPI's own threads may outlive everything here.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("a job on several processes needs MPI, which cannot be loaded; install it, "
                     "on Debian 12 as the package openmpi-bin: ",
                     dlerror()));
  }
  const auto function =
      reinterpret_cast<MegatrainMpiFunction>(dlsym(library, MEGATRAIN_MPI_FUNCTION));
  const MegatrainMpi* const mpi = function != nullptr ? function() : nullptr;
  if (mpi == nullptr || mpi->version != MEGATRAIN_MPI_VERSION) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is of another version than this program; install both anew"));
  }
  return mpi;
}

// OK for 0, else Internal with MPI's words.
absl::Status Checked(const MegatrainMpi& mpi, int error, const char* call) {
  if (error == 0) return absl::OkStatus();
  char words[512];
  mpi.describe(error, words, sizeof(words));
  return absl::InternalError(absl::StrCat("MPI: ", call, ": ", words, " (", error, ")"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<MpiSession>> MpiSession::Open(const std::string& path,
                                                             absl::Duration deadline) {
  MT_ASSIGN_OR_RETURN(const MegatrainMpi* const mpi, Load(path));
  int rank = 0, ranks = 1;
  const int error = mpi->initialize(&rank, &ranks);
  if (error == MEGATRAIN_MPI_USED) {
    return absl::FailedPreconditionError(
        "MPI was used in this process before, which it allows once; start another process");
  }
  if (error == MEGATRAIN_MPI_SINGLE_THREADED) {
    char library[256];
    mpi->describe_library(library, sizeof(library));
    return absl::FailedPreconditionError(
        absl::StrCat("this MPI does not let several threads call it (MPI_THREAD_MULTIPLE); "
                     "install one that does: ",
                     library));
  }
  MT_RETURN_IF_ERROR(Checked(*mpi, error, "MPI_Init_thread"));
  std::shared_ptr<MpiSession> session(new MpiSession(mpi, rank, ranks, deadline));
  MT_ASSIGN_OR_RETURN(session->notices_, session->CreateCommunicator());
  {
    MutexLock lock(&session->mutex_);
    MT_RETURN_IF_ERROR(session->ListenForNotices());
  }
  session->teller_ = std::thread([raw = session.get()] { raw->TellOfLife(); });
  return session;
}

MpiSession::~MpiSession() {
  const bool together = LeaveTogether();
  {
    MutexLock lock(&mutex_);
    ending_ = true;
    ends_.NotifyAll();
  }
  if (teller_.joinable()) teller_.join();
  if (!together) return;
  {
    MutexLock lock(&mutex_);
    End(&incoming_transfer_);
    End(&outgoing_transfers_);
  }
  (void)mpi_.finalize();  // nobody is left who could be told
}

bool MpiSession::StoodStill(Clock::time_point now) const {
  return now - told_ > absl::ToChronoNanoseconds(deadline_ / 2);
}

void MpiSession::TellOfLife() {
  MutexLock lock(&mutex_);
  for (told_ = Clock::now(); !ending_;) {
    ReadNotices();
    const Clock::time_point now = Clock::now();
    if (StoodStill(now)) {
      // The others were stopped too and are soon heard of, or they are gone, because they gave up
      // this one.
      std::fill(heard_.begin(), heard_.end(),
                now - absl::ToChronoNanoseconds(deadline_ - deadline_ / 4));
    }
    told_ = now;
    // Later than one that waits would find out, which says what it waits for.
    const absl::Duration patience = deadline_ + deadline_ / kSignsOfLife;
    const std::vector<int> silent = Silent(absl::ToChronoNanoseconds(patience));
    if (!silent.empty()) AbortLocked(SilentRanksError(rank_, silent, patience));
    if (cause_.ok()) {
      const double allowance = allowed_until_[static_cast<size_t>(rank_)] - SecondsOf(now);
      SendNotices(
          {.kind = Notice::kAlive, .rank = rank_, .allowance = static_cast<float>(allowance)});
    }
    ends_.WaitFor(&mutex_, absl::ToDoubleSeconds(period_));
  }
}

absl::StatusOr<MegatrainMpiHandle> MpiSession::CreateCommunicator() {
  MegatrainMpiHandle communicator = 0;
  MT_RETURN_IF_ERROR(Checked(mpi_, mpi_.create_communicator(&communicator), "MPI_Comm_dup"));
  return communicator;
}

absl::Status MpiSession::Send(MegatrainMpiHandle communicator, const void* data, int64_t bytes,
                              int peer, int tag, std::vector<MpiTransfer>* transfers) {
  MpiTransfer transfer{.peer = peer, .receives = false};
  MT_RETURN_IF_ERROR(Checked(
      mpi_, mpi_.send(communicator, data, static_cast<int>(bytes), peer, tag, &transfer.request),
      "MPI_Isend"));
  transfers->push_back(transfer);
  return absl::OkStatus();
}

absl::Status MpiSession::Receive(MegatrainMpiHandle communicator, void* data, int64_t bytes,
                                 int peer, int tag, std::vector<MpiTransfer>* transfers) {
  MpiTransfer transfer{.peer = peer, .receives = true};
  MT_RETURN_IF_ERROR(Checked(
      mpi_, mpi_.receive(communicator, data, static_cast<int>(bytes), peer, tag, &transfer.request),
      "MPI_Irecv"));
  transfers->push_back(transfer);
  return absl::OkStatus();
}

absl::Status MpiSession::Wait(const CollectiveCall& call, std::vector<MpiTransfer>* transfers) {
  Clock::time_point since = Clock::now();
  bool noted = false;
  const absl::Cleanup over = [&] {
    if (noted) ForgetWait(transfers);
  };
  while (true) {
    const absl::StatusOr<bool> moved = Test(transfers);
    if (moved.ok() && transfers->empty()) return absl::OkStatus();
    if (!moved.ok()) Abort(moved.status());
    if (moved.ok() && *moved) {
      since = Clock::now();
      if (noted) ForgetWait(transfers);
      noted = false;
    } else if (!noted && Clock::now() - since > kMoment) {
      NoteWait(call, transfers);
      noted = true;
    }
    if (const absl::Status first = status(); !first.ok()) {
      End(transfers);
      return first;
    }
    if (const absl::Status given_up = GiveUp(call, *transfers); !given_up.ok()) Abort(given_up);
    Pause(Clock::now() - since);
  }
}

absl::Status MpiSession::GiveUp(const CollectiveCall& call,
                                const std::vector<MpiTransfer>& transfers) {
  const Clock::time_point now = Clock::now();
  MutexLock lock(&mutex_);
  if (StoodStill(now)) return absl::OkStatus();  // TellOfLife decides whom to wait for
  std::set<int> missing;
  for (const MpiTransfer& transfer : transfers) {
    const auto& left = left_[static_cast<size_t>(transfer.peer)];
    if (left.has_value() && now - *left > kLastMessages) {
      return RankLeftError(transfer.peer, call);
    }
    if (now - heard_[static_cast<size_t>(transfer.peer)] > absl::ToChronoNanoseconds(deadline_)) {
      missing.insert(transfer.peer);
    }
  }
  if (missing.empty()) return absl::OkStatus();
  return MissingRanksError(rank_, call, {missing.begin(), missing.end()}, deadline_);
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

std::string MpiSession::Waits() {
  MutexLock lock(&mutex_);
  return absl::StrJoin(
      waits_, ", ", [](std::string* out, const auto& wait) { absl::StrAppend(out, wait.second); });
}

double MpiSession::ShareAllowance(double seconds) {
  const double now = SecondsOf(Clock::now());
  // What a rank told may be a period old, as it may have been when the rank told it.
  const double age = 2 * absl::ToDoubleSeconds(period_);
  MutexLock lock(&mutex_);
  allowed_until_[static_cast<size_t>(rank_)] = now + seconds;
  double most = seconds;
  for (size_t peer = 0; peer < allowed_until_.size(); ++peer) {
    if (static_cast<int>(peer) == rank_ || left_[peer].has_value()) continue;
    most = std::max(most, allowed_until_[peer] - now + age);
  }
  return most;
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
  const absl::Duration patience = std::min(kTellPatience, deadline_ / 4);
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

absl::StatusOr<bool> MpiSession::Test(std::vector<MpiTransfer>* transfers) {
  bool moved = false;
  for (size_t i = 0; i < transfers->size();) {
    MpiTransfer& transfer = (*transfers)[i];
    int done = 0;
    const absl::Status tested = Checked(mpi_, mpi_.test(&transfer.request, &done), "MPI_Test");
    if (!tested.ok()) {
      return transfer.peer < 0 ? tested : LostRankError(rank_, transfer.peer, tested);
    }
    if (done == 0) {
      ++i;
      continue;
    }
    moved = true;
    transfer = transfers->back();
    transfers->pop_back();
  }
  return moved;
}

void MpiSession::End(std::vector<MpiTransfer>* transfers) {
  for (MpiTransfer& transfer : *transfers) {
    // A message that is being received already goes on in spite of it.
    if (transfer.receives) (void)mpi_.cancel(&transfer.request);
  }
  const Clock::time_point begin = Clock::now();
  while (Test(transfers).ok() && !transfers->empty() && Clock::now() - begin < kAbortPatience) {
    Pause(Clock::now() - begin);
  }
  transfers->clear();
}

void MpiSession::Abort(const absl::Status& cause) {
  MutexLock lock(&mutex_);
  AbortLocked(cause);
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
  absl::Status status;
  while (status.ok()) {
    status = Test(&incoming_transfer_).status();
    if (status.ok() && !incoming_transfer_.empty()) return;
    if (status.ok()) {
      const size_t peer = static_cast<size_t>(incoming_.rank);
      heard_[peer] = Clock::now();
      if (incoming_.kind == Notice::kLeft) left_[peer] = heard_[peer];
      if (incoming_.kind == Notice::kAlive) {
        allowed_until_[peer] = SecondsOf(heard_[peer]) + incoming_.allowance;
      }
      if (incoming_.kind == Notice::kTold) cause_told_ = true;
      if (incoming_.kind == Notice::kAborted && cause_.ok()) {
        cause_ = absl::Status(static_cast<absl::StatusCode>(incoming_.code), incoming_.message);
      }
      status = ListenForNotices();
    }
  }
  if (cause_.ok()) cause_ = status;
}

void MpiSession::SendNotices(const Notice& notice) {
  // Those that were sent before are not needed any more, unless a peer does not read them.
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
    // Without a receive the session was not opened.
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
