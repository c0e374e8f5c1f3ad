// RunTraining of engine.h: prepares a run, goes through its steps, saves and exports.
#include <cstdint>
#include <memory>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/checkpoint/checkpoint_writer.h"
#include "engine/engine.h"
#include "engine/run/checkpoint_saver.h"
#include "engine/run/pause_handler.h"
#include "engine/run/prepare_run.h"
#include "engine/run/run_context.h"
#include "engine/run/trainer.h"
#include "engine/run/training_loop.h"

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
                        spec.checkpoint.directory, [&saver] { return saver.SaveNow(); }));
  if (ending.has_value() || spec.output.directory.empty()) return ending;
  return pause.WriteOrWait(prepared.plan.parameters * DTypeBytes(dtype), spec.output.directory,
                           [&saver] { return saver.Export(); });
}

absl::StatusOr<TrainingOutcome> PrepareAndTrain(RunContext& run) {
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<PreparedRun> prepared, PrepareRun(run));
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer, LoadTrainer(run, *prepared));
  run.EndPreparing();
  const int64_t done = prepared->start.step, total = prepared->total_steps;
  RunProgress progress = {done + 1, done, prepared->start.input_tokens,
                          prepared->start.input_tokens};
  CheckpointSaver saver(run, *prepared, progress, *trainer);
  PauseHandler pause(run, progress, total, *trainer, saver);
  if (done >= total) run.Say(absl::StrCat("finished already: step ", done, " of ", total));
  run.Tell(StepsBegin{done + 1, total});
  if (done < total) {
    TrainingLoop loop({run, *prepared, progress, *trainer, saver, pause});
    MT_ASSIGN_OR_RETURN(const Ending ending, loop.Run());
    if (ending.has_value()) return *ending;
  }
  MT_ASSIGN_OR_RETURN(const Ending ending, SaveAndExport(run, *prepared, saver, pause));
  return ending.value_or(TrainingOutcome::kFinished);
}

}  // namespace

absl::StatusOr<TrainingOutcome> RunTraining(EngineHost& host, const JobSpec& spec,
                                            const TrainingOptions& options,
                                            TrainingControl* control, const RunSink& tell) {
  RunContext run(host, spec, options, *control, tell);
  absl::StatusOr<TrainingOutcome> outcome = PrepareAndTrain(run);
  // A run that was told to end has not failed.
  if (!outcome.ok() && !run.GoOn().ok()) return *run.AskedToEnd();
  return outcome;
}

}  // namespace megatrain
