// What all parts of a run share: what it was given, what it is asked to do, whom it tells.
//
// Thread safety: GoOn from any thread; all else from the training thread.
// Invariant: everything that a run tells goes through Tell.
#ifndef MEGATRAIN_ENGINE_RUN_RUN_CONTEXT_H_
#define MEGATRAIN_ENGINE_RUN_RUN_CONTEXT_H_

#include <atomic>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "engine/base/watched_file_system.h"
#include "engine/engine.h"

namespace megatrain {

// Why a run ends before its last step.
using Ending = std::optional<TrainingOutcome>;

class RunContext {
 public:
  // All arguments must outlive this.
  RunContext(EngineHost& host, const JobSpec& spec, const TrainingOptions& options,
             TrainingControl& control, const RunSink& tell)
      : host_(host),
        spec_(spec),
        options_(options),
        control_(control),
        tell_(tell),
        files_(options.files != nullptr ? options.files : host.files(), [this] { return GoOn(); }) {
  }

  EngineHost& host() { return host_; }
  const JobSpec& spec() const { return spec_; }
  const TrainingOptions& options() const { return options_; }
  TrainingControl& control() { return control_; }
  // Reading and writing through it fails when GoOn does.
  FileSystem* files() { return &files_; }

  // Cancelled when what is under way is to be abandoned: by Cancel, and before the first step by
  // Stop and Release too. Calls TrainingOptions::alive.
  absl::Status GoOn() const;
  // The first step is next.
  void EndPreparing() { preparing_ = false; }
  // How the run was told to end, if it was.
  Ending AskedToEnd() const;

  // Asks for a pause on the run's own account.
  void PauseFor(TrainingPause why);
  // Why it paused by itself, until that is taken.
  bool has_own_pause() const { return own_pause_.has_value(); }
  TrainingPause TakeOwnPause();

  void Tell(const RunEvent& event) const {
    if (tell_) tell_(event);
  }
  void Say(const std::string& line) const { Tell(RunMessage{line}); }
  void Report(TrainingPhase phase, const std::string& what = "", double fraction = -1);
  TrainingPhase phase() const { return phase_; }  // reported last

 private:
  EngineHost& host_;
  const JobSpec& spec_;
  const TrainingOptions& options_;
  TrainingControl& control_;
  const RunSink& tell_;
  std::atomic<bool> preparing_{true};
  TrainingPhase phase_ = TrainingPhase::kPreparing;
  std::optional<TrainingPause> own_pause_;
  WatchedFileSystem files_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_RUN_CONTEXT_H_
