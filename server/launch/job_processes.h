// JobProcesses connects this process to the others of a job that a launcher (mpirun, srun,
// torchrun) has started. It owns the communicators, shares the machine out among its processes, and
// decides which process reports to people.
//
// Torchrun starts a process for each GPU of a machine, but does not start MPI. If all processes are
// on one machine, the first trains on as many devices as there are processes. If they are on
// several machines, the first of each machine starts those of MPI (torchrun_machine.h). The others
// end at once.
//
// A process calls Read, and ends at once if stands_by(), or with Launch if launches(). Otherwise it
// calls Join, CheckSameProgram, TakeDevices and ShareMachine, and trains with communicators(). Then
// it calls AbortAndReport if there was an error, and at last Leave.
//
// Thread safety: one thread at a time. EndHanging may be called from any thread until Leave.
#ifndef MEGATRAIN_SERVER_LAUNCH_JOB_PROCESSES_H_
#define MEGATRAIN_SERVER_LAUNCH_JOB_PROCESSES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/comm/communicator.h"
#include "engine/comm/launch_environment.h"
#include "engine/host/engine_host.h"
#include "server/launch/local_processes.h"

namespace megatrain {

// Divides each machine among the processes of the job that are on it. All processes must call it.
// `machine` names this process's machine (MachineId), and `processors` names the set of processors
// that it may use. Processes that give the same two texts divide the set equally, and get at least
// one thread each. Sets `sharers`, `process` (this process's number on its machine, which selects
// its GPU), `threads` and `first_processor` of `options`. Returns the errors of ExchangeBytes, and
// then leaves `options` alone. REQUIRES: neither text has a zero byte.
absl::Status DivideMachine(Communicator& control, const std::string& machine,
                           const std::string& processors, EngineHostOptions& options);

// Returns the same text for all processes on a machine, also for those in containers with names of
// their own, and another text on another machine.
std::string MachineId();

class JobProcesses {
 public:
  // Reads the environment variables that the launcher has set. If they are wrong, Join returns the
  // error.
  static JobProcesses Read();

  // Returns true if the processes train the job together.
  bool several() const { return launched_.ranks > 1 && !of_torchrun(); }
  // Returns true if another process of this machine does all the work, or starts those that do it,
  // so that this one must not train.
  bool stands_by() const { return torchrun() && launched_.local_rank > 0; }
  // Returns true if this process must not train, but call Launch.
  bool launches() const {
    return torchrun() && launched_.local_rank == 0 && launched_.local_ranks < launched_.ranks;
  }
  // Runs the processes of this machine (RunTorchrunMachine), reports an error if it cannot, and
  // returns the exit code. To be called before this process has a thread. REQUIRES: launches().
  int Launch(absl::Duration timeout) const;
  // Returns true in the process that shows progress and writes files of its own.
  bool leads() const { return launched_.rank == 0; }

  // Connects to the other processes if several(), and ignores SIGPIPE from then on. Ends this
  // process with kExitFailed if a process of this machine has not begun within `timeout` (as far as
  // LocalProcesses can tell), or if MPI has not connected all processes within three times that.
  // Later, a process from which nothing is heard for `timeout` counts as gone. To be called once.
  // Errors:
  // - InvalidArgument: ReadLaunchEnvironment found wrong variables.
  // - FailedPrecondition: the launcher has started no MPI, or MPI has another number of processes.
  // - The errors of CreateMpiCommunicators; the message names this machine.
  absl::Status Join(absl::Duration timeout);
  // Compares the programs of all processes, which exchange bytes without converting them. Returns
  // FailedPrecondition, on all processes, if one runs another program than the first process. Also
  // returns errors of reading the program's file and of the communicator. All processes must call
  // it. A process alone gets OK. REQUIRES: Join succeeded.
  absl::Status CheckSameProgram();
  // Returns the communicators, which are valid until Leave, or null for a process alone. REQUIRES:
  // Join succeeded.
  CommunicatorSet* communicators() { return set_.has_value() ? &*set_ : nullptr; }
  // Returns the function for WatchdogOptions::share, which must not be called after Leave. It is
  // empty for a process alone. REQUIRES: Join succeeded.
  std::function<double(double seconds)> Share();

  // Reports `error` and returns the exit code. REQUIRES: !error.ok().
  // - If the processes are connected, aborts the operations of all. The lowest rank that is left
  //   reports the error that came first, which gives the exit code of all. Reports `error` and ends
  //   this process with kExitFailed if MPI keeps it for three times the timeout of Join.
  // - For a process alone, or if Join has failed, rank 0 reports. If the error may concern one
  //   machine alone, the first process of each other machine reports too, two seconds later.
  int AbortAndReport(const absl::Status& error);
  // Ends the job because this process hangs, and this process with kExitFailed within half a
  // minute, whatever hangs. Reports `why`, or the error that ended the processes before. A process
  // that waits for others lets them report first.
  [[noreturn]] void EndHanging(const std::string& why);
  // Disconnects from the other processes and destroys the communicators. Ends this process with
  // `exit_code` if that takes longer than three times the timeout of Join. Does nothing if there
  // are no communicators.
  void Leave(int exit_code);

  // If torchrun has started several processes, all on this machine, sets `devices` (engine.devices,
  // 1 by default, 0 for all) to their number, or returns InvalidArgument if it is above 1 and
  // another number. Changes nothing otherwise.
  absl::Status TakeDevices(int64_t& devices) const;
  // Calls DivideMachine for the machine that this process is on, and returns its errors. All
  // processes must call it. Changes nothing for a process alone. REQUIRES: Join succeeded.
  absl::Status ShareMachine(EngineHostOptions& options);

 private:
  // Torchrun has started several processes, all on this machine.
  bool of_torchrun() const { return torchrun() && launched_.local_ranks == launched_.ranks; }
  // Torchrun has started several processes.
  bool torchrun() const { return launched_.launcher == Launcher::kTorchrun && launched_.ranks > 1; }
  absl::Status CheckStartedWithMpi() const;
  // Reports `error` before MPI has connected the processes. A process that is `first` reports at
  // once. Each other waits until the first has had time to end the job, and reports if it is
  // `later`.
  static void TellUnmet(const absl::Status& error, bool first, bool later);
  // Ends this process if another of this machine has not begun.
  void EndUnlessAllBegan() const;
  // Ends this process because MPI has not brought all together.
  [[noreturn]] void EndUnmet() const;

  LaunchEnvironment launched_;
  absl::Status read_;        // of the launcher's variables
  bool of_machine_ = false;  // an error before the processes have met may be this machine's alone
  absl::Duration timeout_;
  // Announces this process on its machine, from Join on. Null if the process is alone.
  std::unique_ptr<LocalProcesses> here_;
  std::optional<CommunicatorSet> set_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_LAUNCH_JOB_PROCESSES_H_
