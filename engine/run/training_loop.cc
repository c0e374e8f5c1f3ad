#include "engine/run/training_loop.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/status.h"
#include "engine/optim/learning_rate.h"

namespace megatrain {

TrainingLoop::TrainingLoop(const RunParts& parts)
    : run_(parts.run),
      prepared_(parts.prepared),
      progress_(parts.progress),
      trainer_(parts.trainer),
      saver_(parts.saver),
      pause_(parts.pause),
      loader_(prepared_.dataset.get(), run_.spec(), prepared_.first_step(), prepared_.total_steps,
              /*ahead=*/2) {}

absl::StatusOr<Ending> TrainingLoop::Run() {
  TrainingControl& control = run_.control();
  run_.Report(TrainingPhase::kRunning);
  control.TellRequests([this] { trainer_.Interrupt(); });
  const absl::Cleanup untold = [&control] { control.TellRequests(nullptr); };
  while (progress_.done < prepared_.total_steps) {
    MT_RETURN_IF_ERROR(SubmitSteps());
    // A request waits for the steps that go on; nothing is submitted behind them.
    const bool asked = control.Any();
    if (asked) {
      WithdrawSteps();
      barrier_ = true;
    }
    if (control.cancel_requested()) return Ending(TrainingOutcome::kCancelled);
    if (trainer_.in_flight() > 0) {
      const auto interrupted = [&] {
        return control.cancel_requested() || (!asked && control.Any());
      };
      if (!trainer_.AwaitStep(interrupted)) continue;
      MT_RETURN_IF_ERROR(CollectOne());
      if (trainer_.in_flight() > 0) continue;
    }
    MT_RETURN_IF_ERROR(trainer_.SettleWithdrawn());
    barrier_ = false;
    if (progress_.done == prepared_.total_steps || !control.Any()) continue;
    MT_ASSIGN_OR_RETURN(const Ending ending, pause_.Honour());
    if (ending.has_value()) return ending;
  }
  return Ending();
}

absl::Status TrainingLoop::SubmitSteps() {
  while (!barrier_ && !run_.control().Any() && progress_.next_step <= prepared_.total_steps &&
         trainer_.in_flight() < kStepSlots && !saver_.MustWait(progress_.next_step)) {
    const int64_t step = progress_.next_step;
    MT_RETURN_IF_ERROR(SubmitNext());
    barrier_ = EvaluationDue(step) || step == prepared_.total_steps;
  }
  return absl::OkStatus();
}

absl::Status TrainingLoop::SubmitNext() {
  std::shared_ptr<const Batch> batch;
  if (!withdrawn_.empty()) {
    batch = std::move(withdrawn_.front());
    withdrawn_.pop_front();
  } else {
    absl::StatusOr<std::shared_ptr<const Batch>> next = loader_.Next();
    if (!next.ok()) return AsInputError(next.status());
    batch = *std::move(next);
  }
  const JobSpec& spec = run_.spec();
  const int64_t step = progress_.next_step;
  MT_RETURN_IF_ERROR(trainer_.Submit(
      *batch,
      LearningRate(spec.schedule, spec.optimizer.learning_rate, step, prepared_.total_steps)));
  progress_.submitted_tokens += batch->input_tokens;
  submitted_.push_back(std::move(batch));
  // The last step's is SaveNow's.
  if (saver_.Due(step) && step != prepared_.total_steps) MT_RETURN_IF_ERROR(saver_.Begin(step));
  ++progress_.next_step;
  return absl::OkStatus();
}

void TrainingLoop::WithdrawSteps() {
  const TrainingControl& control = run_.control();
  while (trainer_.in_flight() > 0) {
    const int64_t step = progress_.next_step - 1;  // the last one
    if (saver_.Saves(step)) return;
    // A step behind another one has hardly begun. What the first one loses is a forward pass at
    // most, a third of a step: less than the request would wait for. A checkpoint may wait, a run
    // that is told to stop in its first step has something to save, and one that is paused again
    // and again still gets on.
    const bool first = trainer_.in_flight() == 1;
    const bool worth_it = control.pause_requested() || control.release_requested() ||
                          (control.stop_requested() && progress_.done >= prepared_.first_step());
    if (first && (!worth_it || step == given_up_step_)) return;
    if (!trainer_.Withdraw(first ? OpKind::kLayerBackward : OpKind::kUpdateTile)) return;
    if (first) given_up_step_ = step;
    progress_.submitted_tokens -= submitted_.back()->input_tokens;
    withdrawn_.push_front(std::move(submitted_.back()));
    submitted_.pop_back();
    --progress_.next_step;
  }
}

absl::Status TrainingLoop::CollectOne() {
  MT_ASSIGN_OR_RETURN(StepRecord record, trainer_.Collect());
  submitted_.pop_front();
  progress_.done = record.step;
  progress_.total_tokens += record.input_tokens;
  record.total_tokens = progress_.total_tokens;
  if (EvaluationDue(record.step)) {
    MT_ASSIGN_OR_RETURN(record.eval_loss, Evaluate());
  }
  record.time = absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone());
  run_.Tell(record);
  return saver_.AfterStep();
}

bool TrainingLoop::EvaluationDue(int64_t step) const {
  if (prepared_.dataset->eval_sequences() == 0) return false;
  const int64_t every = run_.spec().training.eval_every;
  return step == prepared_.total_steps || (every > 0 && step % every == 0);
}

absl::StatusOr<double> TrainingLoop::Evaluate() {
  double sum = 0;
  int64_t predictions = 0;
  const int64_t n = prepared_.dataset->eval_sequences();
  const int64_t batch_sequences = run_.spec().training.global_batch;
  for (int64_t first = 0; first < n; first += batch_sequences) {
    MT_RETURN_IF_ERROR(pause_.HonourAmidStep());
    std::vector<Sequence> sequences;
    for (int64_t i = first; i < std::min(n, first + batch_sequences); ++i) {
      absl::StatusOr<Sequence> sequence = prepared_.dataset->EvalSequence(i);
      if (!sequence.ok()) return AsInputError(sequence.status());
      sequences.push_back(*std::move(sequence));
    }
    const Batch batch = MakeBatch(/*step=*/0, sequences, run_.spec().training.micro_batch);
    predictions += batch.predictions;
    MT_ASSIGN_OR_RETURN(const double loss, trainer_.EvaluateLossSum(batch));
    sum += loss;
  }
  if (predictions == 0) {
    return absl::InvalidArgumentError("the evaluation data holds no prediction to measure");
  }
  return sum / static_cast<double>(predictions);
}

}  // namespace megatrain
