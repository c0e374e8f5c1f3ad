// The loop over steps of TrainingRun, with what happens between them: evaluation and saves.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/status.h"
#include "engine/hf/hf_directory.h"
#include "engine/optim/learning_rate.h"
#include "engine/run/training_run.h"

namespace megatrain {

bool TrainingRun::EvaluationDue(int64_t step) const {
  if (dataset_->eval_sequences() == 0) return false;
  return step == total_steps_ ||
         (spec_.training.eval_every > 0 && step % spec_.training.eval_every == 0);
}

bool TrainingRun::SaveDue(int64_t step) const {
  return step == total_steps_ ||
         (spec_.checkpoint.every_steps > 0 && step % spec_.checkpoint.every_steps == 0);
}

absl::StatusOr<double> TrainingRun::Evaluate() {
  double sum = 0;
  int64_t predictions = 0;
  const int64_t n = dataset_->eval_sequences();
  const int64_t batch_sequences = spec_.training.global_batch;
  for (int64_t first = 0; first < n; first += batch_sequences) {
    MT_RETURN_IF_ERROR(HonourAmidStep());
    std::vector<Sequence> sequences;
    for (int64_t i = first; i < std::min(n, first + batch_sequences); ++i) {
      absl::StatusOr<Sequence> sequence = dataset_->EvalSequence(i);
      if (!sequence.ok()) return AsInputError(sequence.status());
      sequences.push_back(*std::move(sequence));
    }
    const Batch batch = MakeBatch(/*step=*/0, sequences, spec_.training.micro_batch);
    predictions += batch.predictions;
    MT_ASSIGN_OR_RETURN(const double loss, trainer_->EvaluateLossSum(batch));
    sum += loss;
  }
  if (predictions == 0) {
    return absl::InvalidArgumentError("the evaluation data holds no prediction to measure");
  }
  return sum / static_cast<double>(predictions);
}

int64_t TrainingRun::CheckpointBytes() const {
  return CheckpointWriter::EstimateBytes(layout_, plan_.dimensions.dtype);
}

// Starts to write the state after the last submitted step, once the save before is over: a slow
// disk stalls training here.
absl::Status TrainingRun::BeginSave(int64_t step) {
  if (save_ != nullptr) {
    const int64_t before = saving_step_;
    const absl::Status status = EndSave();
    if (status.code() == absl::StatusCode::kAborted) return status;  // of a step
    if (!status.ok()) NoteFailedSave(before, status);
  }
  MT_ASSIGN_OR_RETURN(std::unique_ptr<CheckpointWriter> writer,
                      CheckpointWriter::Begin(spec_.checkpoint.directory, layout_, State(step),
                                              spec_.model.path, &files_));
  save_ = std::make_shared<CheckpointJob>(std::move(writer), retention_);
  trainer_->BeginSave({[save = save_](int tile, const Tile& view) { save->SaveTile(tile, view); },
                       [save = save_] { save->Finish(); }});
  saving_step_ = step;
  saving_committed_ = false;
  saving_since_ = absl::Now();
  return absl::OkStatus();
}

// REQUIRES: the record of the save's step is out: a resumed run finds it.
void TrainingRun::CommitSave() {
  Tell(BeforeCheckpoint{saving_step_});
  trainer_->CommitSave();
  saving_committed_ = true;
}

absl::Status TrainingRun::EndSave() {
  const bool stalled = !trainer_->save_done();
  if (stalled) Report(TrainingPhase::kSaving, absl::StrCat("saving step ", saving_step_));
  const absl::Time start = absl::Now();
  const absl::Status status = trainer_->AwaitSave();
  const std::shared_ptr<CheckpointJob> save = std::exchange(save_, nullptr);
  if (stalled) Report(standing_ ? TrainingPhase::kPaused : TrainingPhase::kRunning);
  for (const std::string& note : save->notes()) Say(note);
  MT_RETURN_IF_ERROR(status);
  MT_RETURN_IF_ERROR(save->status());
  saved_step_ = saving_step_;
  saved_directory_ = save->directory();
  saved_seconds_ = absl::ToDoubleSeconds(absl::Now() - saving_since_);
  // They are gone, and a damaged one of this step was replaced by a good one.
  retention_.discard.clear();
  std::erase(retention_.damaged, saved_step_);
  std::string line = absl::StrCat("saved ", saved_directory_);
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  if (stalled && seconds > 1) {
    absl::StrAppendFormat(&line, " (training waited %.1f s for the disk)", seconds);
  }
  Say(line);
  Tell(CheckpointSaved{saved_step_, saved_directory_, saved_seconds_});
  return absl::OkStatus();
}

void TrainingRun::NoteFailedSave(int64_t step, const absl::Status& status) {
  if (control_.cancel_requested()) return;
  Say(absl::StrCat("checkpoint of step ", step,
                   " failed, the one before is kept: ", status.message()));
  Tell(CheckpointFailed{step, status});
  if (IsDiskFull(status) && options_.pause_on_full_disk) {
    retry_save_ = true;
    PauseFor({status, spec_.checkpoint.directory, CheckpointBytes()});
  }
}

// A checkpoint of the last collected step is there when this returns OK. REQUIRES: no step is in
// flight.
absl::Status TrainingRun::SaveNow() {
  if (save_ != nullptr) {
    const int64_t step = saving_step_;
    const absl::Status status = EndSave();
    if (!status.ok() && step == done_) return status;
    if (!status.ok()) NoteFailedSave(step, status);
  }
  if (saved_step_ == done_) return absl::OkStatus();
  MT_RETURN_IF_ERROR(BeginSave(done_));
  CommitSave();
  return EndSave();
}

void TrainingRun::AnswerCheckpointRequest() {
  const bool there = saved_step_ == done_ && done_ > 0 && save_ == nullptr;
  if (done_ == 0) {
    Tell(CheckpointFailed{0, absl::FailedPreconditionError("no step has been made yet")});
    return;
  }
  const absl::Status status = SaveNow();
  if (!status.ok()) {
    NoteFailedSave(done_, status);
  } else if (there) {
    Tell(CheckpointSaved{saved_step_, saved_directory_, saved_seconds_});
  }
}

// One save at a time, and one whose step's record is not out yet cannot end.
bool TrainingRun::SaveInTheWay() const {
  return SaveDue(next_step_) && save_ != nullptr && !saving_committed_;
}

absl::Status TrainingRun::SubmitNext(BatchLoader& loader) {
  std::shared_ptr<const Batch> batch;
  if (!withdrawn_.empty()) {
    batch = std::move(withdrawn_.front());
    withdrawn_.pop_front();
  } else {
    absl::StatusOr<std::shared_ptr<const Batch>> next = loader.Next();
    if (!next.ok()) return AsInputError(next.status());
    batch = *std::move(next);
  }
  MT_RETURN_IF_ERROR(trainer_->Submit(
      *batch,
      LearningRate(spec_.schedule, spec_.optimizer.learning_rate, next_step_, total_steps_)));
  submitted_tokens_ += batch->input_tokens;
  submitted_.push_back(std::move(batch));
  if (SaveDue(next_step_) && next_step_ != total_steps_) {
    // A save that cannot begin leaves the last good checkpoint untouched.
    const absl::Status status = BeginSave(next_step_);
    if (status.code() == absl::StatusCode::kAborted) return status;
    if (!status.ok()) NoteFailedSave(next_step_, status);
  }
  ++next_step_;
  return absl::OkStatus();
}

void TrainingRun::WithdrawSteps() {
  while (trainer_->in_flight() > 0) {
    const int64_t step = next_step_ - 1;  // the last one
    // A save reads what it is to make.
    if (save_ != nullptr && saving_step_ == step) return;
    // A step behind another one has hardly begun. What the first one loses is a forward pass at
    // most, a third of a step: less than the request would wait for. A checkpoint may wait, a run
    // that is told to stop in its first step has something to save, and one that is paused again
    // and again still gets on.
    const bool first = trainer_->in_flight() == 1;
    const bool worth_it = control_.pause_requested() || control_.release_requested() ||
                          (control_.stop_requested() && done_ >= first_step_);
    if (first && (!worth_it || step == given_up_step_)) return;
    if (!trainer_->Withdraw(first ? OpKind::kLayerBackward : OpKind::kUpdateTile)) return;
    if (first) given_up_step_ = step;
    submitted_tokens_ -= submitted_.back()->input_tokens;
    withdrawn_.push_front(std::move(submitted_.back()));
    submitted_.pop_back();
    --next_step_;
  }
}

absl::Status TrainingRun::CollectOne() {
  MT_ASSIGN_OR_RETURN(StepRecord record, trainer_->Collect());
  submitted_.pop_front();
  done_ = record.step;
  total_tokens_ += record.input_tokens;
  record.total_tokens = total_tokens_;
  if (EvaluationDue(done_)) {
    MT_ASSIGN_OR_RETURN(record.eval_loss, Evaluate());
  }
  record.time = absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone());
  Tell(record);
  if (save_ != nullptr && saving_step_ == done_ && !saving_committed_) CommitSave();
  if (save_ != nullptr && saving_committed_ && trainer_->save_done()) {
    const absl::Status status = EndSave();
    if (status.code() == absl::StatusCode::kAborted) return status;
    if (!status.ok()) NoteFailedSave(saving_step_, status);
  }
  return absl::OkStatus();
}

absl::StatusOr<TrainingOutcome> TrainingRun::Loop() {
  if (done_ < total_steps_) {
    Report(TrainingPhase::kRunning);
    control_.TellRequests([trainer = trainer_.get()] { trainer->Interrupt(); });
    const absl::Cleanup untold = [this] { control_.TellRequests(nullptr); };
    BatchLoader loader(dataset_.get(), spec_, first_step_, total_steps_, /*ahead=*/2);
    bool barrier = false;
    while (done_ < total_steps_) {
      while (!barrier && !control_.Any() && next_step_ <= total_steps_ &&
             trainer_->in_flight() < kStepSlots && !SaveInTheWay()) {
        MT_RETURN_IF_ERROR(SubmitNext(loader));
        barrier = Barrier(next_step_ - 1);
      }
      // A request waits for the steps that go on; nothing is submitted behind them.
      const bool asked = control_.Any();
      if (asked) {
        WithdrawSteps();
        barrier = true;
      }
      if (control_.cancel_requested()) return TrainingOutcome::kCancelled;
      if (trainer_->in_flight() > 0) {
        const auto interrupted = [&] {
          return control_.cancel_requested() || (!asked && control_.Any());
        };
        if (!trainer_->AwaitStep(interrupted)) continue;
        MT_RETURN_IF_ERROR(CollectOne());
        if (trainer_->in_flight() > 0) continue;
      }
      MT_RETURN_IF_ERROR(trainer_->SettleWithdrawn());
      barrier = false;
      if (done_ == total_steps_ || !control_.Any()) continue;
      MT_ASSIGN_OR_RETURN(const Ending ending, Honour());
      if (ending.has_value()) return *ending;
    }
  }
  MT_ASSIGN_OR_RETURN(
      const Ending ending,
      WriteOrWait(CheckpointBytes(), spec_.checkpoint.directory, [this] { return SaveNow(); }));
  return ending.value_or(TrainingOutcome::kFinished);
}

absl::StatusOr<TrainingRun::Ending> TrainingRun::WriteOrWait(
    int64_t bytes, const std::string& directory, const std::function<absl::Status()>& write) {
  while (true) {
    const absl::Status status = write();
    if (status.ok()) return Ending();
    if (!IsDiskFull(status) || !options_.pause_on_full_disk) return status;
    Say(std::string(status.message()));
    PauseFor({status, directory, bytes});
    MT_ASSIGN_OR_RETURN(const Ending ending, Honour());
    if (ending.has_value()) return ending;
  }
}

absl::Status TrainingRun::Export() {
  Report(TrainingPhase::kSaving, "writing the output");
  MT_RETURN_IF_ERROR(ExportHfDirectory(
      spec_.model.path, layout_, plan_.dimensions.dtype,
      [this](int tile) -> absl::StatusOr<Tile> { return trainer_->tiles()[tile]; },
      spec_.output.directory, kHfShardBytes, &files_));
  Say(absl::StrCat("wrote ", spec_.output.directory));
  return absl::OkStatus();
}

}  // namespace megatrain
