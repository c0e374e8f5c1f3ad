#include "engine/run/training_loop.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/status.h"
#include "engine/optim/learning_rate.h"
#include "engine/run/answer_wave.h"
#include "engine/run/early_stopping.h"
#include "engine/run/evaluation.h"
#include "engine/run/start/open_data.h"
#include "engine/run/start/reference_pass.h"

namespace megatrain {

absl::StatusOr<Ending> TrainingLoop::Run() {
  TrainingControl& control = p_.run.control();
  p_.run.Report(TrainingPhase::kRunning);
  control.TellRequests([this] { p_.trainer.Interrupt(); });
  const absl::Cleanup untold = [&control] { control.TellRequests(nullptr); };
  while (p_.progress.done < p_.prepared.total_steps && !p_.progress.stopped_early) {
    MT_RETURN_IF_ERROR(p_.run.ShareRequests());
    if (p_.trainer.in_flight() == 0 && Skips(p_.progress.next_step)) {
      MT_RETURN_IF_ERROR(SkipNext());
      continue;
    }
    MT_RETURN_IF_ERROR(SubmitSteps());
    // A request waits for the steps that go on; nothing is submitted behind them.
    const bool asked = control.Any();
    if (asked) {
      WithdrawSteps();
      barrier_ = true;
    }
    if (control.cancel_requested()) return Ending(TrainingOutcome::kCancelled);
    if (p_.trainer.in_flight() > 0) {
      const auto interrupted = [&] {
        return control.cancel_requested() || (!asked && control.Any());
      };
      if (!AwaitOldest(interrupted)) continue;
      MT_RETURN_IF_ERROR(CollectOne());
      if (p_.trainer.in_flight() > 0) continue;
    }
    MT_RETURN_IF_ERROR(p_.trainer.SettleWithdrawn());
    barrier_ = false;
    if (p_.progress.done == p_.prepared.total_steps || p_.progress.stopped_early ||
        !control.Any()) {
      continue;
    }
    MT_ASSIGN_OR_RETURN(const Ending ending, p_.pause.Honour());
    if (ending.has_value()) return ending;
  }
  return Ending();
}

bool TrainingLoop::AwaitOldest(absl::FunctionRef<bool()> interrupted) {
  // How long later steps may take is known from the first one.
  const bool is_first = p_.progress.done < p_.prepared.first_step();
  while (true) {
    bool woken = false;  // AwaitStep asks at first, and then when operations have ended
    if (p_.trainer.AwaitStep(
            [&] { return interrupted() || (std::exchange(woken, true) && is_first); })) {
      return true;
    }
    if (interrupted()) return false;
    p_.run.Alive();
  }
}

absl::Status TrainingLoop::SubmitSteps() {
  while (!barrier_ && !p_.run.control().Any() && p_.progress.next_step <= p_.prepared.total_steps &&
         !Skips(p_.progress.next_step) && p_.trainer.in_flight() < kStepSlots &&
         !p_.saver.MustWait(p_.progress.next_step)) {
    const int64_t step = p_.progress.next_step;
    MT_RETURN_IF_ERROR(SubmitNext());
    barrier_ = EvaluationDue(step) || step == p_.prepared.total_steps;
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
  const JobSpec& spec = p_.run.spec();
  const int64_t step = p_.progress.next_step;
  const auto rate = [&](double peak) {
    return LearningRate(spec.schedule, peak, step, p_.prepared.total_steps);
  };
  std::vector<double> group_rates;
  for (const JobSpec::Optimizer::Group& group : spec.optimizer.groups) {
    group_rates.push_back(rate(group.learning_rate.value_or(spec.optimizer.learning_rate)));
  }
  MT_RETURN_IF_ERROR(p_.trainer.Submit(*batch, rate(spec.optimizer.learning_rate), group_rates));
  p_.progress.submitted_tokens += batch->input_tokens;
  submitted_.push_back(std::move(batch));
  // The last step's is EnsureSaved's.
  if (p_.saver.Due(step) && step != p_.prepared.total_steps)
    MT_RETURN_IF_ERROR(p_.saver.Begin(step));
  ++p_.progress.next_step;
  return absl::OkStatus();
}

bool TrainingLoop::Skips(int64_t step) const {
  const std::vector<int64_t>& skipped = p_.run.spec().training.skip_steps;
  return std::find(skipped.begin(), skipped.end(), step) != skipped.end();
}

// Steps that were taken back come before any that is left out.
absl::Status TrainingLoop::SkipNext() {
  const absl::StatusOr<std::shared_ptr<const Batch>> batch = loader_.Next();
  if (!batch.ok()) return AsInputError(batch.status());
  p_.progress.done = p_.progress.next_step++;
  p_.run.Say(absl::StrCat("step ", p_.progress.done,
                          ": no update, its batch is left out (training.skip_steps)"));
  // The last step's is EnsureSaved's.
  if (p_.saver.Due(p_.progress.done) && p_.progress.done != p_.prepared.total_steps) {
    MT_RETURN_IF_ERROR(p_.saver.Begin(p_.progress.done));
  }
  // The run before, which failed in a step that is left out now, did not know its last update.
  const int64_t last = LastUpdate(), every = p_.run.spec().training.eval_every;
  if (p_.progress.done == p_.prepared.total_steps && last <= p_.prepared.start.step &&
      (every == 0 || last % every != 0) && p_.prepared.dataset->eval_sequences() > 0) {
    StepRecord record;  // of no update: it is not told
    record.step = p_.progress.done;
    MT_RETURN_IF_ERROR(Evaluate(record));
    if (record.eval_loss.has_value()) {
      p_.run.Say(absl::StrCat("after step ", record.step, ": eval_loss ", *record.eval_loss));
    }
  }
  return p_.saver.AfterStep();
}

void TrainingLoop::WithdrawSteps() {
  const TrainingControl& control = p_.run.control();
  while (p_.trainer.in_flight() > 0) {
    const int64_t step = p_.progress.next_step - 1;  // the last one
    if (p_.saver.IsSaving(step)) return;
    // A step behind another one has hardly begun. What the first one loses is a forward pass at
    // most, a third of a step: less than the request would wait for. A checkpoint may wait, a run
    // that is told to stop in its first step has something to save, and one that is paused again
    // and again still gets on.
    const bool first = p_.trainer.in_flight() == 1;
    const bool worth_it =
        control.pause_requested() || control.release_requested() ||
        (control.stop_requested() && p_.progress.done >= p_.prepared.first_step());
    if (first && (!worth_it || step == given_up_step_)) return;
    if (!p_.trainer.Withdraw(/*during_backward=*/!first)) return;
    if (first) given_up_step_ = step;
    p_.progress.submitted_tokens -= submitted_.back()->input_tokens;
    withdrawn_.push_front(std::move(submitted_.back()));
    submitted_.pop_back();
    --p_.progress.next_step;
  }
}

absl::Status TrainingLoop::CollectOne() {
  MT_ASSIGN_OR_RETURN(StepRecord record, p_.trainer.Collect());
  submitted_.pop_front();
  p_.progress.done = record.step;
  p_.progress.total_tokens += record.input_tokens;
  record.total_tokens = p_.progress.total_tokens;
  if (EvaluationDue(record.step)) MT_RETURN_IF_ERROR(Evaluate(record));
  record.time = absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone());
  p_.run.Tell(record);
  return p_.saver.AfterStep();
}

int64_t TrainingLoop::LastUpdate() const {
  int64_t last = p_.prepared.total_steps;
  while (last > 0 && Skips(last)) --last;
  return last;
}

bool TrainingLoop::EvaluationDue(int64_t step) const {
  if (p_.prepared.dataset->eval_sequences() == 0) return false;
  const int64_t every = p_.run.spec().training.eval_every;
  return step == LastUpdate() || (every > 0 && step % every == 0);
}

absl::Status TrainingLoop::Evaluate(StepRecord& record) {
  RewardSums rewards;
  const absl::StatusOr<EvaluationReport> report = EvaluateDataset(
      *p_.prepared.dataset, [this](int64_t index) { return ReadEvalSequence(p_.prepared, index); },
      p_.run.spec(), p_.trainer, [this] { return p_.pause.HonourAmidStep(); }, &rewards);
  if (!report.ok() && p_.pause.ends_without_device()) {
    p_.run.Say(absl::StrCat("step ", record.step, ": its evaluation was not finished, for the run ",
                            "ends and cannot have the device: ", report.status().message()));
    return absl::OkStatus();
  }
  MT_RETURN_IF_ERROR(report.status());
  for (const EvaluatedSet& set : report->sets) record.eval_losses[set.name] = set.loss();
  record.eval_loss = report->all.loss();
  if (rewards.pairs > 0) record.eval_rewards = RewardsOf(rewards);
  MT_RETURN_IF_ERROR(AnswerSamplePrompts(record.step));
  Evaluations& evaluations = p_.progress.evaluations;
  evaluations.Add(record.step, *record.eval_loss);
  MT_RETURN_IF_ERROR(p_.saver.SaveBest(record.step));
  p_.progress.stopped_early =
      record.step < p_.prepared.total_steps && StopsEarly(p_.run.spec(), evaluations);
  return absl::OkStatus();
}

absl::Status TrainingLoop::AnswerSamplePrompts(int64_t step) {
  const std::vector<EncodedPrompt>& prompts = p_.prepared.sample_prompts;
  AnswerSettings settings;
  settings.tokens = p_.run.spec().training.sample_tokens;
  settings.sampling.temperature = 0;
  if (!prompts.empty()) settings.stop.ids = p_.prepared.tokenizer->end_ids();
  for (size_t done = 0; done < prompts.size();) {
    // A pause takes the cache with the device, so that it waits for the wave's end.
    const absl::Status honoured = p_.pause.HonourAmidStep();
    if (p_.pause.ends_without_device()) return absl::OkStatus();
    MT_RETURN_IF_ERROR(honoured);
    bool ending = false;  // a run that is told to stop needs no answers
    const auto go_on = [&]() -> absl::Status {
      MT_RETURN_IF_ERROR(p_.run.CheckNotAbandoned());
      ending = p_.run.AskedToEnd().has_value();
      return ending ? absl::CancelledError("asked to end") : absl::OkStatus();
    };
    const absl::StatusOr<std::vector<GeneratedText>> answers =
        AnswerWave(p_.trainer, *p_.prepared.session->first().compute_pool, *p_.prepared.tokenizer,
                   settings, absl::MakeConstSpan(prompts).subspan(done), go_on, nullptr);
    if (ending) return absl::OkStatus();
    MT_RETURN_IF_ERROR(answers.status());
    for (const GeneratedText& answer : *answers)
      p_.run.Tell(SampledAnswer{step, done++, answer.text});
  }
  return absl::OkStatus();
}

}  // namespace megatrain
