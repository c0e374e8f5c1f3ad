// JobProcesses is this process's part in a job that a launcher (mpirun, srun, torchrun) has started
// as several processes: its communicators, what it shares its machine with, and whether it is the
// one that speaks to people.
//
// Torchrun starts a process for each GPU of a machine, but no MPI. There the first process trains
// with as many devices, and the others stand by.
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
// process's number there, by which it has its GPU), `threads` and `first_processor` of `options`.
// `machine` is the same text for all processes on a machine, and `processors` for those that may
// use the same processors of it; neither has a zero byte. All processes must call it. Errors are
// those of ExchangeBytes.
absl::Status DivideMachine(Communicator& control, const std::string& machine,
                           const std::string& processors, EngineHostOptions& options);

class JobProcesses {
 public:
  // Reads the launcher's variables. Join returns the errors of ReadLaunchEnvironment.
  static JobProcesses Read();

  // Returns true if the processes train the job together.
  bool several() const { return launched_.ranks > 1 && !of_torchrun(); }
  // Returns true if another process of this machine does all the work.
  bool stands_by() const { return of_torchrun() && launched_.rank > 0; }
  // Returns true in the process that shows progress and writes files of its own.
  bool leads() const { return launched_.rank == 0; }

  // Meets the other processes, if there are any. Ends this process if they do not come: if one of
  // this machine has not begun within `timeout`, and if MPI has not brought all together within
  // three times that. A process of which nothing is heard for `timeout` later counts as gone.
  // Errors:
  // - InvalidArgument: those of ReadLaunchEnvironment.
  // - Unimplemented, Unavailable: there is no MPI on this machine, which is named.
  // - FailedPrecondition: the launcher has started the processes without MPI, or MPI has another
  //   number of them; those of CreateMpiCommunicators.
  absl::Status Join(absl::Duration timeout);
  // Returns FailedPrecondition, on all processes, if another process runs another program than the
  // first one: they exchange memory as it lies. Also returns the errors of the communicator. All
  // processes must call it. REQUIRES: Join succeeded.
  absl::Status CheckSameProgram();
  // Returns null for a process alone. REQUIRES: Join succeeded.
  CommunicatorSet* communicators() { return set_.has_value() ? &*set_ : nullptr; }
  // Returns WatchdogOptions::share for these processes: empty for a process alone.
  std::function<double(double seconds)> Share();

  // Ends the operations of all processes with `error` of this one, and tells people of the error
  // that ended them first, in one process: the lowest that is left. Before they have met that is
  // the first one, and some seconds later, if nothing has ended the job meanwhile, the first one of
  // each machine, if the error may be that machine's alone. Returns the exit code. Ends this
  // process with kExitFailed if MPI keeps it for three times the timeout.
  int End(const absl::Status& error);
  // Ends the job because this process hangs, and why; ends this process with kExitFailed within
  // half a minute, whatever hangs. A process that waits for others leaves it to them to say why.
  [[noreturn]] void EndHanging(const std::string& why);
  // Takes leave of the other processes. Ends this one with `exit_code` if they keep it waiting for
  // three times the timeout. The communicators are gone then.
  void Leave(int exit_code);

  // Sets `devices` (engine.devices, 1 by default, 0 for all) if torchrun decides it. Returns
  // InvalidArgument if the job file says otherwise.
  absl::Status TakeDevices(int64_t& devices) const;
  // Does as DivideMachine for the machine that this process is on. Nothing changes for a process
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
