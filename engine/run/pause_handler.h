// PauseHandler honours requests to a run while no step is in flight: pause, release, checkpoint,
// stop and cancel. It also waits while the disk is full.
//
// A pause gives the device's memory back and keeps the state in host memory. When the pause ends
// and steps or an evaluation go on, the device's memory is taken again. If it is no longer free,
// the run pauses again. If the device is lost, the run fails. A release saves and ends the run, so
// that all memory is given back. If the save fails, only the memory holds the state, so the run
// pauses instead.
//
// Invariant: TrainingPause is reported before the run waits, and StepsBegin before the next step.
//
// Thread safety: the training thread calls all methods.
#ifndef MEGATRAIN_ENGINE_RUN_PAUSE_HANDLER_H_
#define MEGATRAIN_ENGINE_RUN_PAUSE_HANDLER_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/run/checkpoint_saver.h"
#include "engine/run/start/prepare_run.h"
#include "engine/run/start/run_context.h"
#include "engine/trainer/trainer.h"

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

  // All methods REQUIRE that no step is in flight.

  // Honours all requests and waits while the run is paused. After a pause for a full disk it saves
  // again. Returns nullopt when steps may go on, with the device held; otherwise returns how the
  // run ends. Returns the error of saving for Stop, and of taking the device if it is lost.
  absl::StatusOr<Ending> Honour();
  // Honours Pause and Cancel before the record of the last step is reported, as between the batches
  // of its evaluation. The device is held when this returns OK. Returns Cancelled after Cancel.
  // Returns the error of taking the device if it is lost or the run ends; otherwise such an error
  // pauses the run again.
  absl::Status HonourAmidStep();
  // Returns true if the last HonourAmidStep failed because the run ends, by Stop or Release, and
  // the device cannot be taken, though it is not lost. The rest of the step's record must then be
  // left out. The state in host memory is good, and Honour saves it without the device.
  bool ends_without_device() const { return ends_without_device_; }
  // Calls `write` until it succeeds, then returns nullopt. Pauses after each attempt that finds the
  // disk full; the pause names `directory` and the `bytes` that must be free there. Returns an
  // ending if a request ended the run during a pause. Returns other errors of `write`, the errors
  // of Honour, and without TrainingOptions::pause_on_full_disk also that of a full disk.
  absl::StatusOr<Ending> WriteOrWait(int64_t bytes, const std::string& directory,
                                     absl::FunctionRef<absl::Status()> write);

 private:
  // Does what Honour does. If not `for_steps`, what goes on needs no device: it is not taken.
  absl::StatusOr<Ending> HonourRequests(bool for_steps);
  // Gives the device back and waits until the pause ends or there is another request.
  void StandStill(bool wake_for_checkpoint);
  // Takes the device, or asks for a pause if that fails. Returns an error if the device is lost.
  absl::Status RetakeDevice();
  // Reports that the run goes on, if a pause was reported or withdrawn.
  void TellGoingOn();

  RunContext& run_;
  const RunProgress& progress_;
  const int64_t total_steps_;
  Trainer& trainer_;
  CheckpointSaver& saver_;
  bool standing_ = false;  // a pause was reported, and its end was not
  bool ends_without_device_ = false;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_PAUSE_HANDLER_H_
