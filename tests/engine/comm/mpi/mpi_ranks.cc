// A rank of a job that mpirun starts for mpi_communicator_test:
//
//   mpi_ranks SCENARIO SEED DEADLINE_SECONDS DIRECTORY MACHINES
//
// MACHINES has a character for each rank, the same for ranks that take themselves to share a
// machine. Writes to DIRECTORY/RANK what became of it, an absl::Status as text.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/status.h"
#include "engine/comm/collective_call.h"
#include "engine/comm/launch_environment.h"
#include "engine/comm/mpi/mpi_communicator.h"
#include "engine/comm/mpi/mpi_session.h"
#include "tests/engine/comm/communicator_checks.h"
#include "tests/support/wait_until.h"

namespace megatrain {
namespace {

struct Arguments {
  std::string scenario;
  uint64_t seed = 0;
  absl::Duration deadline;
  std::filesystem::path directory;
  std::string machines;
};

void WriteResult(const Arguments& arguments, int rank, const std::string& text) {
  const std::filesystem::path path = arguments.directory / absl::StrCat(rank);
  std::ofstream(path.string() + ".new") << text;
  std::filesystem::rename(path.string() + ".new", path);
}

// Waits until all other ranks have written what became of them.
void AwaitOthers(const Arguments& arguments, int rank, int ranks) {
  WaitUntil([&] {
    for (int other = 0; other < ranks; ++other) {
      const std::filesystem::path path = arguments.directory / absl::StrCat(other);
      if (other != rank && !std::filesystem::exists(path)) return false;
    }
    return true;
  });
}

absl::Status ReduceForEver(Communicator& communicator) {
  ImmediateStream stream;
  std::vector<float> data(3'000'000, 1.0f);
  std::vector<int64_t> cuts = {0};
  for (int rank = 1; rank <= communicator.ranks(); ++rank) {
    cuts.push_back(static_cast<int64_t>(data.size()) * rank / communicator.ranks());
  }
  absl::Status status;
  while (status.ok()) status = communicator.ReduceScatter(stream, data.data(), cuts);
  return status;
}

// What the last rank does instead of what the others do.
absl::Status DoOtherwise(const Arguments& arguments, CommunicatorSet* set) {
  const int rank = set->tiles->rank(), ranks = set->tiles->ranks();
  if (arguments.scenario == "abort") {
    set->control->Abort(absl::DataLossError("the disk is gone"));
    return set->values->Barrier();
  }
  if (arguments.scenario == "die" || arguments.scenario == "die_unawaited") std::raise(SIGKILL);
  if (arguments.scenario == "die_reducing") {
    std::thread([] {
      absl::SleepFor(absl::Milliseconds(300));
      std::raise(SIGKILL);
    }).detach();
    return ReduceForEver(*set->tiles);
  }
  if (arguments.scenario == "abort_reducing") {
    std::thread aborts([&] {
      absl::SleepFor(absl::Milliseconds(300));
      set->control->Abort(absl::DataLossError("the disk is gone"));
    });
    const absl::Status status = ReduceForEver(*set->tiles);
    aborts.join();
    return status;
  }
  if (arguments.scenario == "exit") std::_Exit(0);
  if (arguments.scenario == "leave") {
    *set = {};
    return absl::OkStatus();
  }
  if (arguments.scenario == "hang") {
    const pid_t self = getpid();
    if (fork() == 0) {
      AwaitOthers(arguments, rank, ranks);
      kill(self, SIGCONT);
      _exit(0);
    }
    std::raise(SIGSTOP);
    return absl::OkStatus();
  }
  if (arguments.scenario == "slow") {
    absl::SleepFor(3 * arguments.deadline);
    return set->tiles->Barrier();
  }
  if (arguments.scenario == "mismatch") return set->tiles->GatherValues({1.0}).status();
  return absl::InvalidArgumentError("no such scenario");
}

// Returns, as an error, whether this rank is the one that tells people of a cause.
absl::Status Teller(Communicator& communicator) {
  bool told = false;
  communicator.TellOnce([&] { told = true; });
  return absl::DataLossError(told ? "told" : "silent");
}

// The last rank may be at work, and then stands still as the others have all the time.
absl::Status ShareAllowances(CommunicatorSet* set) {
  Communicator& control = *set->control;
  const bool last = control.rank() == control.ranks() - 1;
  double told = 0;
  const auto share = [&](double own) { return told = control.ShareAllowance(last ? own : -1); };
  if (!WaitUntil([&] { return share(1e6) < 2e6; }) || told < 1e5) {
    return absl::InternalError(absl::StrCat("may stand still for ", told, " s"));
  }
  MT_RETURN_IF_ERROR(set->tiles->Barrier());
  if (!WaitUntil([&] { return share(-1e6) < 0; })) {
    return absl::InternalError(absl::StrCat("may still stand still for ", told, " s"));
  }
  return set->tiles->Barrier();
}

// The last rank may be at work for long, and leaves. From then on its allowance counts no more,
// though it gives signs of life until all have left.
absl::Status ForgetAllowance(const Arguments& arguments, CommunicatorSet* set) {
  if (set->control->rank() == set->control->ranks() - 1) {
    (void)set->control->ShareAllowance(1e6);
    MT_RETURN_IF_ERROR(set->tiles->Barrier());
    *set = {};
    return absl::OkStatus();
  }
  const auto told = [&] { return set->control->ShareAllowance(-1e6); };
  if (!WaitUntil([&] { return told() > 1e5 && told() < 2e6; })) {
    return absl::InternalError("has not heard of the last rank's allowance");
  }
  MT_RETURN_IF_ERROR(set->tiles->Barrier());
  if (!WaitUntil([&] { return told() < 0; })) return absl::InternalError("still counts it");
  absl::SleepFor(arguments.deadline / 2);  // three signs of life
  if (told() >= 0) return absl::InternalError("counts it again");
  return absl::OkStatus();
}

// The others wait for the last rank, and know it.
absl::Status AwaitLast(const Arguments& arguments, Communicator& communicator) {
  const int rank = communicator.rank(), ranks = communicator.ranks();
  const auto seen_file = [&](int of) { return arguments.directory / absl::StrCat("seen", of); };
  if (rank == ranks - 1) {
    WaitUntil([&] {
      for (int other = 0; other < rank; ++other) {
        if (!std::filesystem::exists(seen_file(other))) return false;
      }
      return true;
    });
    return communicator.Barrier();
  }
  std::string seen;
  std::thread watcher([&] {
    WaitUntil([&] { return !(seen = communicator.DescribeWaits()).empty(); });
    std::ofstream(seen_file(rank)) << seen;
  });
  const absl::Status status = communicator.Barrier();
  watcher.join();
  MT_RETURN_IF_ERROR(status);
  if (const std::string after = communicator.DescribeWaits(); !after.empty()) {
    seen = "still " + after;
  }
  return absl::DataLossError(seen);
}

// What mpirun says must be what MPI says.
absl::Status CheckEnvironment(const Communicator& communicator) {
  MT_ASSIGN_OR_RETURN(const LaunchEnvironment environment, ReadLaunchEnvironment(std::getenv, ""));
  if (environment.launcher == Launcher::kOpenMpi && environment.rank == communicator.rank() &&
      environment.ranks == communicator.ranks() && environment.local_rank == environment.rank &&
      environment.local_ranks == environment.ranks) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("the environment has rank ", environment.rank, " of ",
                                          environment.ranks, ", rank ", environment.local_rank,
                                          " of ", environment.local_ranks, " of this machine"));
}

absl::Status Run(const Arguments& arguments, CommunicatorSet* set) {
  Communicator& tiles = *set->tiles;
  MT_RETURN_IF_ERROR(CheckEnvironment(tiles));
  if (arguments.scenario == "operations") {
    ImmediateStream stream;
    // 20 MB: several pieces for each rank.
    const int outside = tiles.ranks() / set->group_ranks - 1;
    return CheckOperations(tiles, stream, HostBuffers(), arguments.seed, 5'000'003,
                           {.gathers = outside, .reductions = outside});
  }
  if (arguments.scenario == "at_once") {
    absl::Status values;
    std::thread lane([&] {
      for (int i = 0; i < 200; ++i) values.Update(set->values->GatherValues({1.0 * i}).status());
    });
    ImmediateStream stream;
    absl::Status status = CheckOperations(tiles, stream, HostBuffers(), arguments.seed, 100'003);
    lane.join();
    status.Update(values);
    return status;
  }
  if (absl::Status together = tiles.Barrier(); !together.ok()) return together;
  if (arguments.scenario == "allowances") return ShareAllowances(set);
  if (arguments.scenario == "leave_allowed") return ForgetAllowance(arguments, set);
  if (arguments.scenario == "await_last") return AwaitLast(arguments, *set->control);
  if (arguments.scenario == "tell" || arguments.scenario == "tell_without_first") {
    if (arguments.scenario == "tell_without_first" && tiles.rank() == 0) std::raise(SIGKILL);
    // All find out by themselves, but for a rank that is the first to. It waits until all have
    // begun: one that does not have its communicators yet would not come here.
    absl::Status status = tiles.Barrier();
    if (status.ok() && tiles.rank() == 1) tiles.Abort(absl::DataLossError("x"));
    if (status.ok()) status = tiles.Barrier();
    if (status.ok()) return absl::InternalError("no cause");
    return Teller(*set->control);
  }
  if (tiles.rank() == tiles.ranks() - 1) return DoOtherwise(arguments, set);
  if (absl::EndsWith(arguments.scenario, "_reducing")) return ReduceForEver(tiles);
  if (arguments.scenario == "die_unawaited") {
    WaitUntil([&] { return !tiles.status().ok(); });
    return tiles.status();
  }
  return tiles.Barrier();
}

// Rank 1 sends more than rank 0 receives. MPI ends that receive with an error, and rank 0 must end
// the one that still waits.
absl::Status SendTooMuch(MpiSession& session) {
  MT_ASSIGN_OR_RETURN(const MegatrainMpiHandle communicator, session.CreateCommunicator());
  const CollectiveCall call;
  std::vector<MpiTransfer> transfers;
  char data[16] = {};
  if (session.rank() == 0) {
    for (const int tag : {0, 1}) {
      MT_RETURN_IF_ERROR(
          session.Receive(communicator, data, sizeof(data) / 2, /*peer=*/1, tag, &transfers));
    }
    return session.Wait(call, &transfers);
  }
  MT_RETURN_IF_ERROR(
      session.Send(communicator, data, sizeof(data), /*peer=*/0, /*tag=*/0, &transfers));
  MT_RETURN_IF_ERROR(session.Wait(call, &transfers));
  WaitUntil([&] { return !session.status().ok(); });
  return session.status();
}

absl::StatusOr<CommunicatorSet> Open(const Arguments& arguments) {
  MT_ASSIGN_OR_RETURN(const LaunchEnvironment environment, ReadLaunchEnvironment(std::getenv, ""));
  return CreateMpiCommunicators(
      {.deadline = arguments.deadline,
       .machine = arguments.machines.substr(static_cast<size_t>(environment.rank), 1)});
}

int Main(const Arguments& arguments) {
  if (arguments.scenario == "too_much") {
    const auto session = MpiSession::Open(std::getenv("MEGATRAIN_MPI"), arguments.deadline);
    if (!session.ok()) return 1;
    WriteResult(arguments, (*session)->rank(), SendTooMuch(**session).ToString());
    AwaitOthers(arguments, (*session)->rank(), (*session)->ranks());
    return 0;
  }
  absl::StatusOr<CommunicatorSet> set = Open(arguments);
  if (!set.ok()) {
    WriteResult(arguments, 0, set.status().ToString());
    return 1;
  }
  const int rank = set->tiles->rank(), ranks = set->tiles->ranks();
  const absl::Status status = Run(arguments, &*set);
  WriteResult(arguments, rank, status.ToString());
  // mpirun may end all when one ends without MPI's end. The odd rank may be gone without a word.
  const int odd = arguments.scenario == "tell_without_first" ? 0 : ranks - 1;
  if (!status.ok()) AwaitOthers(arguments, odd, ranks);
  return 0;
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  if (argc != 6) return 2;
  return megatrain::Main({.scenario = argv[1],
                          .seed = std::strtoull(argv[2], nullptr, 10),
                          .deadline = absl::Seconds(std::atoi(argv[3])),
                          .directory = argv[4],
                          .machines = argv[5]});
}
