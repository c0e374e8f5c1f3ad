#include "engine/comm/mpi/mpi_session.h"

#include <sched.h>

#include <algorithm>
#include <set>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/comm/mpi/mpi_library.h"

namespace megatrain {
namespace {

using namespace std::chrono_literals;

// A rank that has left may have sent what a transfer waits for on another path of the network than
// the notice came on.
constexpr auto kLastMessages = 1s;
// DescribeWaits tells of waits that are longer.
constexpr auto kMoment = 1s;
// How long an aborted rank lets MPI move what was under way.
constexpr auto kAbortPatience = 1s;
// A rank that waits asks MPI again and again. Its naps are a part of the time that it has waited:
// so a short wait is noticed at once, and a long one leaves the processor to others.
constexpr auto kYielding = 50us;
constexpr int kNapPart = 4;
constexpr auto kNapMax = 300us;

absl::StatusOr<const MegatrainMpi*> Load(const std::string& path) {
  MT_ASSIGN_OR_RETURN(void* const address, MpiLibraryFunction(path, MEGATRAIN_MPI_FUNCTION));
  const auto function = reinterpret_cast<MegatrainMpiFunction>(address);
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
  if (error == MEGATRAIN_MPI_NOT_MET) {
    return absl::UnavailableError(
        "the launcher's PMIx did not bring the processes of the job together (PMIx_Fence failed); "
        "has one of them ended?");
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

void MpiSession::Pause(Clock::duration idle) {
  if (idle < kYielding) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(
        std::min<std::chrono::steady_clock::duration>(idle / kNapPart, kNapMax));
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

absl::StatusOr<bool> MpiSession::Test(std::vector<MpiTransfer>* transfers) {
  bool moved = false;
  for (size_t i = 0; i < transfers->size();) {
    MpiTransfer& transfer = (*transfers)[i];
    const int peer = transfer.peer;
    int done = 0;
    const absl::Status tested = Checked(mpi_, mpi_.test(&transfer.request, &done), "MPI_Test");
    if (tested.ok() && done == 0) {
      ++i;
      continue;
    }
    transfer = transfers->back();
    transfers->pop_back();
    if (!tested.ok()) return peer < 0 ? tested : LostRankError(rank_, peer, tested);
    moved = true;
  }
  return moved;
}

void MpiSession::End(std::vector<MpiTransfer>* transfers) {
  for (MpiTransfer& transfer : *transfers) {
    // A message that is being received already goes on in spite of it.
    if (transfer.receives) (void)mpi_.cancel(&transfer.request);
  }
  const Clock::time_point begin = Clock::now();
  while (true) {
    // An error ends one of them, as where the message for a cancelled receive came to another one.
    (void)Test(transfers);
    if (transfers->empty() || Clock::now() - begin > kAbortPatience) break;
    Pause(Clock::now() - begin);
  }
  if (!transfers->empty()) gave_up_transfers_ = true;
  transfers->clear();
}

}  // namespace megatrain
