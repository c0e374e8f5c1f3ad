// JobProcesses is this process's part in a job that a launcher (mpirun, srun, torchrun) has started
// as several processes: its communicators, what it shares its machine with, and whether it is the
// one that speaks to people.
//
// Torchrun starts a process for each GPU of a machine, but no MPI. There the first process trains
// with as many devices, and the others stand by.
#ifndef MEGATRAIN_SERVER_COMMANDS_JOB_PROCESSES_H_
#define MEGATRAIN_SERVER_COMMANDS_JOB_PROCESSES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/comm/communicator.h"
#include "engine/comm/launch_environment.h"
#include "engine/host/engine_host.h"

namespace megatrain {

// Divides a machine among the processes of a job that are on it: sets `sharers`, `process` (the
// process's number there, by which it has its GPU) and `threads` of `options`. `machine` is the
// same text for all processes on a machine, and `processors` for those that may use the same
// processors of it; neither has a zero byte. All processes must call it. Errors are those of
// ExchangeBytes.
absl::Status DivideMachine(Communicator& control, const std::string& machine,
                           const std::string& processors, EngineHostOptions& options);

class JobProcesses {
 public:
  // Reads the launcher's variables. Returns the errors of ReadLaunchEnvironment.
  static absl::StatusOr<JobProcesses> Read();

  // Returns true if the processes train the job together.
  bool several() const { return launched_.ranks > 1 && !of_torchrun(); }
  // Returns true if another process of this machine does all the work.
  bool stands_by() const { return of_torchrun() && launched_.rank > 0; }
  // Returns true in the process that shows progress and writes files of its own.
  bool leads() const { return launched_.rank == 0; }
  // Returns true in the process that tells people of `error`: the one that leads or, before the
  // processes have met, one of each machine. If `error` is that the one that leads is missing, all
  // that found out tell.
  bool Tells(const absl::Status& error) const;

  // Meets the other processes, if there are any. Ends this process if they do not all start within
  // ten times `timeout`. A process of which nothing is heard for `timeout` later counts as gone.
  // Errors:
  // - Unimplemented, Unavailable: there is no MPI.
  // - FailedPrecondition: the launcher has started the processes without MPI, or another process
  //   runs another program.
  absl::Status Join(absl::Duration timeout);
  // Returns null for a process alone. REQUIRES: Join succeeded.
  CommunicatorSet* communicators() { return set_.has_value() ? &*set_ : nullptr; }
  // Ends the operations of all processes with `error` of this one. Returns the error that ended
  // them first, which is `error` for a process alone.
  absl::Status EndAll(const absl::Status& error);
  // Sets `devices` (engine.devices, 1 by default) if torchrun decides it. Returns InvalidArgument
  // if the job file says otherwise.
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

  LaunchEnvironment launched_;
  std::optional<CommunicatorSet> set_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_COMMANDS_JOB_PROCESSES_H_
