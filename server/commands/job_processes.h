// JobProcesses connects this process to the others of a job that a launcher (mpirun, srun,
// torchrun) has started. It owns the communicators, shares the machine out among its processes, and
// decides which process reports to people.
//
// Torchrun starts a process for each GPU of a machine, but does not start MPI. Then the first
// process trains with as many devices, and the others stand by.
#ifndef MEGATRAIN_SERVER_COMMANDS_JOB_PROCESSES_H_
#define MEGATRAIN_SERVER_COMMANDS_JOB_PROCESSES_H_

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
#include "server/commands/local_processes.h"

namespace megatrain {

// Divides a machine among the processes of a job that are on it: sets `sharers`, `process` (the
// process's number there, which selects its GPU), `threads` and `first_processor` of `options`.
// Processes on one machine must pass the same `machine`, and those of them that may use the same
// processors the same `processors`; neither has a zero byte. All processes must call it. Returns
// the errors of ExchangeBytes.
absl::Status DivideMachine(Communicator& control, const std::string& machine,
                           const std::string& processors, EngineHostOptions& options);

class JobProcesses {
 public:
  // Reads the launcher's variables. Join returns the error if they are wrong.
  static JobProcesses Read();

  // Returns true if the processes train the job together.
  bool several() const { return launched_.ranks > 1 && !of_torchrun(); }
  // Returns true if another process of this machine does all the work.
  bool stands_by() const { return of_torchrun() && launched_.rank > 0; }
  // Returns true in the process that shows progress and writes files of its own.
  bool leads() const { return launched_.rank == 0; }

  // Connects to the other processes, if there are any. Ends this process with kExitFailed if a
  // process of this machine has not begun within `timeout`, or if MPI has not connected all
  // processes within three times that. Later, a process from which nothing is heard for `timeout`
  // counts as gone. Errors:
  // - InvalidArgument: ReadLaunchEnvironment found wrong variables.
  // - FailedPrecondition: the launcher has started no MPI, or MPI has another number of processes.
  // - The errors of CreateMpiCommunicators; the message names this machine.
  absl::Status Join(absl::Duration timeout);
  // Returns FailedPrecondition, on all processes, if another process runs another program than the
  // first one, because they exchange memory as it lies. Also returns errors of reading the program
  // and of the communicator. All processes must call it. REQUIRES: Join succeeded.
  absl::Status CheckSameProgram();
  // Returns null for a process alone. Valid until Leave. REQUIRES: Join succeeded.
  CommunicatorSet* communicators() { return set_.has_value() ? &*set_ : nullptr; }
  // Returns WatchdogOptions::share for these processes, which must not be called after Leave. Empty
  // for a process alone.
  std::function<double(double seconds)> Share();

  // Reports `error` and returns the exit code. If Join has succeeded, End aborts the operations of
  // all processes. The lowest rank that is left reports the error that came first, which gives the
  // exit code of all. Ends this process with kExitFailed if MPI keeps it for three times the
  // timeout. If Join has not succeeded, rank 0 reports. If the error may concern one machine alone,
  // the first process of each machine reports too, two seconds later.
  int End(const absl::Status& error);
  // Ends the job because this process hangs, and reports `why`. Ends this process with kExitFailed
  // within half a minute, whatever hangs. A process that waits for others lets them report first.
  [[noreturn]] void EndHanging(const std::string& why);
  // Disconnects from the other processes and destroys the communicators. Ends this process with
  // `exit_code` if that takes longer than three times the timeout.
  void Leave(int exit_code);

  // Sets `devices` (engine.devices, 1 by default, 0 for all) if torchrun decides it. Returns
  // InvalidArgument if the job file says otherwise.
  absl::Status TakeDevices(int64_t& devices) const;
  // Calls DivideMachine for the machine that this process is on. Changes nothing for a process
  // alone. REQUIRES: Join succeeded.
  absl::Status ShareMachine(EngineHostOptions& options);

 private:
  // Torchrun has started several processes, all on this machine.
  bool of_torchrun() const {
    return launched_.launcher == Launcher::kTorchrun && launched_.ranks > 1 &&
           launched_.local_ranks == launched_.ranks;
  }
  absl::Status CheckStartedWithMpi() const;
  // Tells people of `error` before the processes have met: at once in those that are `first`, in
  // those that are `later` once the first have had time to end the job.
  static void TellUnmet(const absl::Status& error, bool first, bool later);
  // Ends this process if another of this machine has not begun.
  void EndUnlessAllBegan() const;
  // Ends this process because MPI has not brought all together.
  [[noreturn]] void EndUnmet() const;

  LaunchEnvironment launched_;
  absl::Status read_;        // of the launcher's variables
  bool of_machine_ = false;  // an error before the processes have met may be this machine's alone
  absl::Duration timeout_;
  // Of several processes, from Join on: this one shows as long as it lives.
  std::unique_ptr<LocalProcesses> here_;
  std::optional<CommunicatorSet> set_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_COMMANDS_JOB_PROCESSES_H_
