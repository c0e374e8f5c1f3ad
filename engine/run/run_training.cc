// RunTraining of engine.h: prepares a run, goes through its steps, saves and exports.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/checkpoint/checkpoint_writer.h"
#include "engine/comm/exchange.h"
#include "engine/engine.h"
#include "engine/run/checkpoint_saver.h"
#include "engine/run/early_stopping.h"
#include "engine/run/pause_handler.h"
#include "engine/run/start/prepare_run.h"
#include "engine/run/start/run_context.h"
#include "engine/run/tensorboard_report.h"
#include "engine/run/training_loop.h"
#include "engine/trainer/trainer.h"

namespace megatrain {
namespace {

// Makes what the steps have changed lasting: the last checkpoint, and the output if one is asked
// for.
absl::StatusOr<Ending> SaveAndExport(RunContext& run, const PreparedRun& prepared,
                                     CheckpointSaver& saver, PauseHandler& pause) {
  const JobSpec& spec = run.spec();
  const DType dtype = prepared.plan.dimensions.dtype;
  MT_ASSIGN_OR_RETURN(
      const Ending ending,
      pause.WriteOrWait(CheckpointWriter::EstimateBytes(prepared.layout, dtype),
                        spec.checkpoint.directory, [&saver] { return saver.EnsureSaved(); }));
  if (ending.has_value() || spec.output.directory.empty()) return ending;
  const int64_t output_bytes =
      prepared.plan.parameters * DTypeBytes(dtype) + prepared.layout.model.wrapper.carried_bytes;
  return pause.WriteOrWait(output_bytes, spec.output.directory,
                           [&saver] { return saver.Export(); });
}

// Saves what is good, and adds to the error of `step` how the run can go on.
absl::Status NotFinite(const absl::Status& status, int64_t step, CheckpointSaver& saver) {
  const std::string from = saver.SaveAfterFailedStep();
  return absl::Status(
      status.code(),
      absl::StrCat(status.message(), "; ", from, ". To leave this step's batch out, set ",
                   "training.skip_steps: [", step,
                   "]; to go on with another learning rate, change it and resume with "
                   "--allow-change optimizer,schedule"));
}

absl::StatusOr<TrainingOutcome> Train(RunContext& run, const PreparedRun& prepared,
                                      Trainer& trainer) {
  const int64_t done = prepared.start.step, total = prepared.total_steps;
  RunProgress progress = {done + 1, done, prepared.start.input_tokens, prepared.start.input_tokens,
                          prepared.start.evaluations};
  progress.stopped_early = done < total && StopsEarly(run.spec(), progress.evaluations);
  CheckpointSaver saver(run, prepared, progress, trainer);
  PauseHandler pause(run, progress, total, trainer, saver);
  if (done >= total) run.Say(absl::StrCat("finished already: step ", done, " of ", total));
  run.Tell(StepsBegin{done + 1, total});
  if (done < total && !progress.stopped_early) {
    TrainingLoop loop({run, prepared, progress, trainer, saver, pause});
    const absl::StatusOr<Ending> ending = loop.Run();
    if (absl::IsAborted(ending.status())) {
      return NotFinite(ending.status(), progress.done + 1, saver);
    }
    MT_RETURN_IF_ERROR(ending.status());
    if (ending->has_value()) return **ending;
  }
  if (progress.stopped_early) {
    run.Say(absl::StrFormat(
        "stopped at step %d of %d by training.stop_after_worse: %d evaluations in a row were no "
        "better than eval_loss %.6g of step %d",
        progress.done, total, progress.evaluations.since_best, progress.evaluations.best_loss,
        progress.evaluations.best_step));
  }
  MT_ASSIGN_OR_RETURN(const Ending ending, SaveAndExport(run, prepared, saver, pause));
  if (ending.has_value()) return *ending;
  saver.TellBest();
  return progress.stopped_early ? TrainingOutcome::kStoppedEarly : TrainingOutcome::kFinished;
}

absl::StatusOr<TrainingOutcome> PrepareAndTrain(RunContext& run) {
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<PreparedRun> prepared, PrepareRun(run));
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer, LoadTrainer(run, *prepared));
  run.EndPreparing();
  absl::StatusOr<TrainingOutcome> outcome = Train(run, *prepared, *trainer);
  // Before the trainer ends, which waits for operations under way: other processes may not come.
  if (!outcome.ok()) AbortAll(run.process_communicator(), outcome.status()).IgnoreError();
  return outcome;
}

}  // namespace

absl::StatusOr<TrainingOutcome> RunTraining(EngineHost& host, const JobSpec& given,
                                            const TrainingOptions& options,
                                            TrainingControl* control, const RunSink& tell) {
  JobSpec spec = given;
  // From here on all devices are a number, which is planned, told and saved.
  if (spec.engine.devices == 0) {
    spec.engine.devices = options.processes != nullptr ? 1
                          : options.devices.empty()    ? host.devices().count
                                                    : static_cast<int64_t>(options.devices.size());
  }
  TensorBoardReport tensorboard(spec, options.files != nullptr ? options.files : host.files());
  const bool leads = options.processes == nullptr || options.processes->control->rank() == 0;
  const RunSink observed = [&](const RunEvent& event) {
    const bool is_progress = std::holds_alternative<StepsBegin>(event) ||
                             std::holds_alternative<TrainingActivity>(event) ||
                             std::holds_alternative<StepRecord>(event);
    if (tell && (leads || is_progress)) tell(event);
    if (!leads) return;
    const absl::Status status = tensorboard.Note(event);
    if (!status.ok() && tell) {
      tell(RunMessage{absl::StrCat("report.tensorboard: ", status.message(),
                                   "; training goes on, and no more is written there")});
    }
  };
  RunContext run(host, spec, options, *control, observed);
  absl::StatusOr<TrainingOutcome> outcome = PrepareAndTrain(run);
  if (run.processes() != nullptr && !outcome.ok()) {
    const absl::Status first = AbortAll(run.process_communicator(), outcome.status());
    // A process that was told to end while it prepared.
    if (absl::IsCancelled(first)) return TrainingOutcome::kInterrupted;
    return first;
  }
  // A run that was told to end has not failed.
  if (!outcome.ok() && !run.CheckNotAbandoned().ok()) return *run.AskedToEnd();
  return outcome;
}

}  // namespace megatrain
