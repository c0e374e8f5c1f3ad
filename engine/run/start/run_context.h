// RunContext holds the arguments of a run, which all its parts share. It also receives the requests
// to the run and passes on the run's reports.
//
// Several processes of a job honour the same requests at the same points: those that any of them
// had when all called ShareRequests.
//
// Thread safety: Alive, CheckNotAbandoned, spec, options and files may be called from any thread,
// all other methods by the training thread only. Invariant: every event of a run goes through Tell,
// but for the message that TensorBoardReport has failed.
#ifndef MEGATRAIN_ENGINE_RUN_START_RUN_CONTEXT_H_
#define MEGATRAIN_ENGINE_RUN_START_RUN_CONTEXT_H_

#include <atomic>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "engine/base/watched_file_system.h"
#include "engine/comm/communicator.h"
#include "engine/engine.h"

namespace megatrain {

// The outcome of a run that was told to end, or nullopt if the run goes on.
using Ending = std::optional<TrainingOutcome>;

class RunContext {
 public:
  // All arguments must outlive this.
  RunContext(EngineHost& host, const JobSpec& spec, const TrainingOptions& options,
             TrainingControl& control, const RunSink& tell)
      : host_(host),
        spec_(spec),
        options_(options),
        own_control_(control),
        control_(options.processes == nullptr ? control : shared_control_),
        tell_(tell),
        files_(options.files != nullptr ? options.files : host.files(),
               [this] { return CheckNotAbandoned(); }) {}

  // The run's arguments and processes.

  EngineHost& host() { return host_; }
  const JobSpec& spec() const { return spec_; }
  const TrainingOptions& options() const { return options_; }
  // Returns the requests that the run honours: the caller's for a process alone, else those that
  // ShareRequests has shared.
  TrainingControl& control() { return control_; }
  // Returns TrainingOptions::processes, null for a process alone. MakeRankParts takes `tiles` and
  // `values` out of it.
  CommunicatorSet* processes() const { return options_.processes; }
  // Returns the communicator of the processes' training threads, null for a process alone.
  Communicator* process_communicator() const {
    return processes() == nullptr ? nullptr : processes()->control.get();
  }
  // Returns true in the process that does what is done once.
  bool leads() const { return processes() == nullptr || process_communicator()->rank() == 0; }
  // Makes a Stop, Checkpoint or Cancel of any process a request to all. All processes must call it.
  // Pause and Release are not shared. In a job of several processes they have no effect, but for
  // Release while preparing. Returns the errors of the communicator. Does nothing for a process
  // alone.
  absl::Status ShareRequests();
  // Returns the run's file system, valid as long as this. Reading and writing through it fails with
  // CheckNotAbandoned's error, so that a long transfer can be abandoned.
  FileSystem* files() { return &files_; }

  // Requests to end or to pause.

  // Tells the caller's watchdog that the run goes on (TrainingOptions::alive).
  void Alive() const {
    if (options_.alive) options_.alive();
  }
  // Returns Cancelled if the work under way must be abandoned: after Cancel, and until EndPreparing
  // after Stop and Release too. Calls Alive.
  absl::Status CheckNotAbandoned() const;
  // Ends the preparation. From now on Stop and Release no longer make CheckNotAbandoned fail.
  void EndPreparing() { preparing_ = false; }
  // Returns how the run was told to end. Cancel precedes Stop, and Stop precedes Release. Until
  // EndPreparing only the requests to this process count.
  Ending AskedToEnd() const;

  // Requests a pause that the run itself needs. `why` is kept for TakeOwnPause. REQUIRES: the job
  // has one process, because Resume reaches no other.
  void PauseFor(TrainingPause why);
  // Returns true if a reason given to PauseFor was not taken yet.
  bool has_own_pause() const { return own_pause_.has_value(); }
  // Returns the last reason given to PauseFor and forgets it. Returns a pause with an OK status if
  // there is none.
  TrainingPause TakeOwnPause();

  // Reports.

  // Reports an event to the caller of the run.
  void Tell(const RunEvent& event) const {
    if (tell_) tell_(event);
  }
  // Reports a line for people.
  void Say(const std::string& line) const { Tell(RunMessage{line}); }
  // Reports the run's activity, as in TrainingActivity. A negative fraction means unknown.
  void Report(TrainingPhase phase, const std::string& what = "", double fraction = -1);
  TrainingPhase phase() const { return phase_; }  // the phase reported last

 private:
  EngineHost& host_;
  const JobSpec& spec_;
  const TrainingOptions& options_;
  TrainingControl shared_control_;  // of several processes
  TrainingControl& own_control_;
  TrainingControl& control_;  // one of these
  const RunSink& tell_;
  std::atomic<bool> preparing_{true};
  TrainingPhase phase_ = TrainingPhase::kPreparing;
  std::optional<TrainingPause> own_pause_;
  WatchedFileSystem files_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_START_RUN_CONTEXT_H_
