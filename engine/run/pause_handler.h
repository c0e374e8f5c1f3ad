// What a run does about requests while no step is in flight: pauses, releases, checkpoints asked
// for, a full disk, the end.
//
// A pause gives the device's memory back and keeps the state in host memory. When it ends, the
// device is taken again; a device that is not free any more makes the run ask for the next pause,
// one that is lost ends the run. A release saves and ends the run, so that all memory goes back; if
// it cannot save, the memory is all that holds the state: the run pauses instead.
//
// Invariant: the run tells that a pause begins before it waits, and that steps begin again before
// the next one.
#ifndef MEGATRAIN_ENGINE_RUN_PAUSE_HANDLER_H_
#define MEGATRAIN_ENGINE_RUN_PAUSE_HANDLER_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/run/checkpoint_saver.h"
#include "engine/run/prepare_run.h"
#include "engine/run/run_context.h"
#include "engine/run/trainer.h"

namespace megatrain {

class PauseHandler {
 public:
  // All arguments must outlive this.
  PauseHandler(RunContext& run, const RunProgress& progress, int64_t total_steps, Trainer& trainer,
               CheckpointSaver& saver)
      : run_(run),
        progress_(progress),
        total_steps_(total_steps),
        trainer_(trainer),
        saver_(saver) {}

  // Does what was asked for. Returns nothing when steps may go on, else how the run ends. REQUIRES:
  // no step is in flight, here and below.
  absl::StatusOr<Ending> Honour();
  // The same in the midst of a step, whose record is not out: only a pause in place and Cancel are
  // honoured. Holds the device when it returns OK.
  absl::Status HonourAmidStep();
  // Calls `write` until it succeeds, and pauses while the disk under `directory`, where `bytes` are
  // needed, is full. Another error is returned, as is a full disk that is not to be waited for.
  absl::StatusOr<Ending> WriteOrWait(int64_t bytes, const std::string& directory,
                                     absl::FunctionRef<absl::Status()> write);

 private:
  // Gives the device back and waits until the pause ends or something else is to be done.
  void StandStill(bool wake_for_checkpoint);
  // Takes the device, or asks for a pause if it cannot be had. An error: the device is lost.
  absl::Status GoOn();

  RunContext& run_;
  const RunProgress& progress_;
  const int64_t total_steps_;
  Trainer& trainer_;
  CheckpointSaver& saver_;
  bool standing_ = false;  // a pause was told, and its end was not
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_PAUSE_HANDLER_H_
