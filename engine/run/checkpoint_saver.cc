#include "engine/run/checkpoint_saver.h"

#include <cmath>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/status.h"
#include "engine/checkpoint/checkpoint_writer.h"
#include "engine/comm/exchange.h"
#include "engine/hf/hf_export.h"
#include "engine/inspect/export_checkpoint.h"

namespace megatrain {

// Its functions are called on the io lane; the training thread reads what they leave when the
// trainer has waited for that lane.
struct CheckpointSaver::Save {
  Save(int64_t step, Retention retention, std::unique_ptr<CheckpointWriter> writer)
      : step(step), retention(std::move(retention)), writer(std::move(writer)) {}

  void TakeTile(int index, const ProcessTile& tile) {
    if (!status.ok()) return;
    taken.insert(index);
    status = writer->WriteTile(index, tile);
  }
  // Also after an error: other processes may wait for this one.
  void Finish() {
    writer->SetEvaluations(evaluations);
    absl::StatusOr<std::string> finished = writer->Finish(retention);
    status = finished.status();
    if (finished.ok()) directory = *std::move(finished);
    notes = writer->notes();
    writer = nullptr;
  }

  const int64_t step;
  const absl::Time since = absl::Now();
  bool committed = false;
  // Both are up to date when the save is committed.
  Retention retention;
  Evaluations evaluations;
  std::unique_ptr<CheckpointWriter> writer;
  std::set<int> taken;  // tiles
  absl::Status status;
  std::string directory;
  std::vector<std::string> notes;  // lines for the log
};

CheckpointSaver::CheckpointSaver(RunContext& run, const PreparedRun& prepared,
                                 const RunProgress& progress, Trainer& trainer)
    : run_(run),
      prepared_(prepared),
      progress_(progress),
      trainer_(trainer),
      ranks_(prepared.directory_ranks),
      communicator_(run.processes() == nullptr ? nullptr : run.processes()->saves.get()),
      retention_(prepared.start.retention),
      kept_loss_(prepared.start.evaluations.kept_loss),
      saved_{prepared.start.step, prepared.start.checkpoint.value_or("")} {
  ranks_.communicator = communicator_;
}

bool CheckpointSaver::Due(int64_t step) const {
  const int64_t every = run_.spec().checkpoint.every_steps;
  return step == prepared_.total_steps || (every > 0 && step % every == 0);
}

bool CheckpointSaver::MustWait(int64_t step) const {
  return Due(step) && save_ != nullptr && !save_->committed;
}

bool CheckpointSaver::IsSaving(int64_t step) const {
  return save_ != nullptr && save_->step == step;
}

absl::Status CheckpointSaver::Begin(int64_t step) {
  const absl::Status status = Start(step);
  if (IsOfStep(status)) return status;
  // A save that cannot begin leaves the last good checkpoint untouched.
  if (!status.ok()) ReportFailure(step, status);
  return absl::OkStatus();
}

absl::Status CheckpointSaver::SaveBest(int64_t step) {
  if (IsSaving(step) || !IsBetterThanKept(step)) return absl::OkStatus();
  // The last step's is EnsureSaved's.
  if (step == prepared_.total_steps) return absl::OkStatus();
  run_.Say(absl::StrFormat("eval_loss %.6g is lower than any checkpoint's: step %d is saved for it",
                           progress_.evaluations.last_loss, step));
  return Begin(step);
}

absl::Status CheckpointSaver::Start(int64_t step) {
  if (save_ != nullptr) MT_RETURN_IF_ERROR(EndAndTell());
  MT_ASSIGN_OR_RETURN(
      std::unique_ptr<CheckpointWriter> writer,
      CheckpointWriter::Begin(run_.spec().checkpoint.directory, prepared_.layout,
                              prepared_.StateAt(run_.spec(), step, progress_.submitted_tokens),
                              SideFiles(), run_.files(), ranks_));
  save_ = std::make_shared<Save>(step, retention_, std::move(writer));
  trainer_.BeginSave(
      {[save = save_](int tile, const ProcessTile& parts) { save->TakeTile(tile, parts); },
       [save = save_] { save->Finish(); }});
  return absl::OkStatus();
}

void CheckpointSaver::Commit() {
  run_.Tell(BeforeCheckpoint{save_->step});
  ChooseBest(*save_);
  trainer_.CommitSave();
  save_->committed = true;
}

void CheckpointSaver::ChooseBest(Save& save) const {
  Evaluations& evaluations = save.evaluations;
  evaluations = progress_.evaluations;
  // The one before stays until this one is there.
  const bool best = IsBetterThanKept(save.step);
  save.retention.best = best ? save.step : retention_.best;
  const bool keeps = run_.spec().training.keep_best;
  evaluations.kept_step = keeps ? save.retention.best : evaluations.best_step;
  evaluations.kept_loss =
      keeps ? (best ? evaluations.last_loss : kept_loss_) : evaluations.best_loss;
}

bool CheckpointSaver::IsBetterThanKept(int64_t step) const {
  const Evaluations& now = progress_.evaluations;
  if (!run_.spec().training.keep_best || now.last_step != step) return false;
  const bool pending = save_ != nullptr && save_->committed;
  const int64_t kept = pending ? save_->evaluations.kept_step : retention_.best;
  const double kept_loss = pending ? save_->evaluations.kept_loss : kept_loss_;
  return std::isfinite(now.last_loss) && (kept == 0 || now.last_loss < kept_loss);
}

absl::Status CheckpointSaver::End() {
  const std::shared_ptr<Save> save = std::exchange(save_, nullptr);
  const bool stalled = !trainer_.save_done();
  const TrainingPhase phase = run_.phase();
  if (stalled) run_.Report(TrainingPhase::kSaving, absl::StrCat("saving step ", save->step));
  const absl::Time start = absl::Now();
  const absl::Status status = trainer_.AwaitSave();
  if (stalled) run_.Report(phase);
  for (const std::string& note : save->notes) run_.Say(note);
  step_error_.Update(status);
  MT_RETURN_IF_ERROR(status);
  MT_RETURN_IF_ERROR(save->status);
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  if (stalled && seconds > 1) {
    run_.Say(absl::StrFormat("training waited %.1f s for the disk", seconds));
  }
  NoteSaved(*save);
  return absl::OkStatus();
}

void CheckpointSaver::NoteSaved(const Save& save) {
  saved_ = {save.step, save.directory, absl::ToDoubleSeconds(absl::Now() - save.since)};
  retention_.best = save.retention.best;
  kept_loss_ = save.evaluations.kept_loss;
  // They are gone, and a damaged one of this step was replaced by a good one.
  retention_.discard.clear();
  std::erase(retention_.damaged, saved_.step);
  run_.Say(absl::StrCat("saved ", saved_.directory));
  run_.Tell(saved_);
}

absl::Status CheckpointSaver::FinishInterrupted() {
  const bool committed = save_->committed;
  if (!committed) Commit();
  trainer_.AwaitSave().IgnoreError();  // the step's error; no lane works for the save any more
  const std::shared_ptr<Save> save = std::exchange(save_, nullptr);
  const int tiles = prepared_.layout.tile_count();
  for (int tile = 0; save->writer != nullptr && tile < tiles; ++tile) {
    if (!save->taken.contains(tile)) save->TakeTile(tile, trainer_.tiles()[tile]);
  }
  if (save->writer != nullptr) save->Finish();
  for (const std::string& note : save->notes) run_.Say(note);
  MT_RETURN_IF_ERROR(save->status);
  NoteSaved(*save);
  return absl::OkStatus();
}

absl::Status CheckpointSaver::SaveTiles() {
  const int64_t step = progress_.done;
  MT_ASSIGN_OR_RETURN(
      std::unique_ptr<CheckpointWriter> writer,
      CheckpointWriter::Begin(run_.spec().checkpoint.directory, prepared_.layout,
                              prepared_.StateAt(run_.spec(), step, progress_.total_tokens),
                              SideFiles(), run_.files(), ranks_));
  Save save(step, retention_, std::move(writer));
  ChooseBest(save);
  for (int tile = 0; tile < prepared_.layout.tile_count(); ++tile) {
    save.TakeTile(tile, trainer_.tiles()[tile]);
  }
  run_.Tell(BeforeCheckpoint{step});
  save.Finish();
  for (const std::string& note : save.notes) run_.Say(note);
  MT_RETURN_IF_ERROR(save.status);
  NoteSaved(save);
  return absl::OkStatus();
}

std::string CheckpointSaver::SaveAfterFailedStep() {
  run_.Report(TrainingPhase::kSaving, "saving what is good");
  if (save_ != nullptr && save_->step <= progress_.done) {
    const int64_t step = save_->step;
    if (const absl::Status status = FinishInterrupted(); !status.ok()) ReportFailure(step, status);
  }
  const int64_t done = progress_.done;
  if (trainer_.failed_unchanged_step() == done + 1 && done > saved_.step) {
    if (const absl::Status status = SaveTiles(); !status.ok()) ReportFailure(done, status);
  }
  if (saved_.step == 0) return "no step before it was saved";
  return absl::StrCat("the run can go on from ", saved_.directory);
}

absl::Status CheckpointSaver::EndAndTell() {
  const int64_t step = save_->step;
  const absl::Status status = End();
  if (IsOfStep(status)) return status;
  if (!status.ok()) ReportFailure(step, status);
  return absl::OkStatus();
}

absl::Status CheckpointSaver::AfterStep() {
  if (save_ == nullptr) return absl::OkStatus();
  if (!save_->committed && save_->step == progress_.done) Commit();
  return save_->committed && trainer_.save_done() ? EndAndTell() : absl::OkStatus();
}

void CheckpointSaver::EndCommitted() {
  if (save_ == nullptr || !save_->committed) return;
  const int64_t step = save_->step;
  const absl::Status status = End();
  if (!status.ok()) ReportFailure(step, status);
}

absl::Status CheckpointSaver::EnsureSaved() {
  if (save_ != nullptr) {
    const int64_t step = save_->step;
    const absl::Status status = End();
    if (!status.ok() && step == progress_.done) return status;
    if (!status.ok()) ReportFailure(step, status);
  }
  if (saved_.step == progress_.done) return absl::OkStatus();
  MT_RETURN_IF_ERROR(Start(progress_.done));
  Commit();
  return End();
}

void CheckpointSaver::TrySave() {
  const absl::Status status = EnsureSaved();
  if (!status.ok()) ReportFailure(progress_.done, status);
}

void CheckpointSaver::AnswerRequest() {
  const int64_t done = progress_.done;
  if (done == 0) {
    run_.Tell(CheckpointFailed{0, absl::FailedPreconditionError("no step has been made yet")});
  } else if (saved_.step == done && save_ == nullptr) {
    run_.Tell(saved_);
  } else {
    TrySave();
  }
}

void CheckpointSaver::ReportFailure(int64_t step, const absl::Status& status) {
  if (run_.control().cancel_requested()) return;
  // The error of the exchange ends the run, which reports it.
  if (communicator_ != nullptr && !communicator_->status().ok()) return;
  run_.Say(absl::StrCat("checkpoint of step ", step,
                        " failed, the one before is kept: ", status.message()));
  run_.Tell(CheckpointFailed{step, status});
  if (IsDiskFull(status) && run_.options().pause_on_full_disk) {
    retry_ = true;
    run_.PauseFor(PauseForCheckpoint(status));
  }
}

TrainingPause CheckpointSaver::PauseForCheckpoint(const absl::Status& status) const {
  return {status, run_.spec().checkpoint.directory,
          CheckpointWriter::EstimateBytes(prepared_.layout, prepared_.plan.dimensions.dtype)};
}

void CheckpointSaver::TellBest() const {
  const int64_t step = retention_.best;
  if (step == 0 || step == saved_.step) return;
  const std::string path = JoinPath(run_.spec().checkpoint.directory, StepDirectoryName(step));
  const std::string model =
      ranks_.parts > 1
          ? "`megatraind gather` joins its parts"
          : absl::StrCat("`megatraind export ", path, " --out DIR` makes a model directory of it");
  run_.Say(
      absl::StrFormat("the lowest eval_loss of a checkpoint, %.6g, was that of step %d: %s; %s",
                      kept_loss_, step, path, model));
}

HfSideFiles CheckpointSaver::SideFiles() const {
  HfSideFiles files(run_.spec().model.path, prepared_.dataset->own_chat_template());
  files.carried_digest = prepared_.carried_digest;
  return files;
}

absl::Status CheckpointSaver::Export() {
  const std::string& directory = run_.spec().output.directory;
  run_.Report(TrainingPhase::kSaving, "writing the output");
  if (trainer_.ranks() > 1) {  // none has a whole tile
    const absl::Status own = run_.leads()
                                 ? ExportCheckpoint(saved_.directory, directory, run_.files())
                                 : absl::OkStatus();
    MT_RETURN_IF_ERROR(Agree(communicator_, own));
    run_.Say(absl::StrCat("wrote ", directory));
    return absl::OkStatus();
  }
  MT_RETURN_IF_ERROR(ExportHfDirectory(
      SideFiles(), prepared_.layout, prepared_.plan.dimensions.dtype,
      [this](int tile) -> absl::StatusOr<Tile> { return trainer_.tiles()[tile].front(); },
      directory, kHfShardBytes, run_.files()));
  run_.Say(absl::StrCat("wrote ", directory));
  return absl::OkStatus();
}

}  // namespace megatrain
