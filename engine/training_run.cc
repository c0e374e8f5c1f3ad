#include "engine/training_run.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/data/open_tokenizer.h"
#include "engine/job/spec_values.h"
#include "engine/model/hf_directory.h"
#include "engine/optim/learning_rate.h"

namespace megatrain {
namespace {

bool NeedsTokenizer(const JobSpec& spec) {
  auto is_text = [](const DataFile& file) { return file.format != DataFormat::kTokens; };
  return std::any_of(spec.data.train.begin(), spec.data.train.end(), is_text) ||
         std::any_of(spec.data.eval.begin(), spec.data.eval.end(), is_text);
}

std::string DescribeData(const char* what, const DatasetReport& report) {
  std::string line = absl::StrCat(what, ": ", FormatCount(report.sequences), " sequences, ",
                                  FormatCount(report.tokens), " tokens");
  auto add = [&line](int64_t count, const char* text) {
    if (count > 0) absl::StrAppend(&line, "; ", FormatCount(count), text);
  };
  add(report.truncated_examples, " examples longer than a sequence were truncated");
  add(report.examples_without_target, " examples had no token to learn and were left out");
  add(report.dropped_tokens, " tokens at the end fill no sequence and were dropped");
  return line;
}

}  // namespace

void TrainingRun::Say(const std::string& line) const {
  if (observer_.message) observer_.message(line);
}

absl::Status TrainingRun::Plan() {
  MT_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(spec_.model.path));
  layout_ = BuildModelLayout(config);
  MT_ASSIGN_OR_RETURN(session_, OpenSession(spec_.engine));
  MT_ASSIGN_OR_RETURN(plan_,
                      PlanMemory(spec_, layout_, session_.device->kernels(), session_.budget));
  if (!plan_.fits) {
    return absl::ResourceExhaustedError(absl::StrCat("the job does not fit\n", plan_.Table()));
  }
  Say(absl::StrFormat("%s: %s parameters, %s on %s; host %s, device %s",
                      ModelFamilyName(config.family), FormatCount(plan_.parameters),
                      plan_.dimensions.dtype == DType::kBF16 ? "bf16" : "fp32",
                      session_.device->Describe(), FormatBytesShort(plan_.pool_bytes),
                      FormatBytesShort(plan_.arena_bytes)));
  return absl::OkStatus();
}

absl::Status TrainingRun::OpenData() {
  std::shared_ptr<const Tokenizer> tokenizer;
  if (NeedsTokenizer(spec_)) {
    MT_ASSIGN_OR_RETURN(tokenizer, OpenTokenizer(spec_.model.path, spec_.data.tokenizer));
  }
  MT_ASSIGN_OR_RETURN(dataset_,
                      OpenDataset(spec_, tokenizer, spec_.model.path, layout_.config.vocabulary,
                                  spec_.checkpoint.directory + "/data", nullptr));
  MT_ASSIGN_OR_RETURN(total_steps_, TotalSteps(spec_, dataset_->train_sequences()));
  Say(DescribeData("train", dataset_->train_report()));
  if (dataset_->eval_sequences() > 0) {
    Say(absl::StrCat("held out: ", FormatCount(dataset_->eval_sequences()), " sequences"));
  }
  return absl::OkStatus();
}

absl::Status TrainingRun::ChooseStart() {
  const std::string& directory = spec_.checkpoint.directory;
  MT_ASSIGN_OR_RETURN(lock_, DirectoryLock::Take(directory));
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> leftovers, RemoveLeftovers(directory));
  for (const std::string& line : leftovers) Say(line);
  switch (options_.resume) {
    case ResumeMode::kPath:
      MT_RETURN_IF_ERROR(VerifyCheckpoint(options_.resume_path));
      checkpoint_ = options_.resume_path;
      break;
    case ResumeMode::kNever: {
      MT_ASSIGN_OR_RETURN(const std::vector<std::string> present, ListCheckpoints(directory));
      if (!present.empty()) {
        return absl::FailedPreconditionError(
            absl::StrCat("--resume never: ", present.front(),
                         " is there already; use another checkpoint.directory, remove it, or "
                         "resume from it (--resume auto)"));
      }
      break;
    }
    case ResumeMode::kAuto: {
      std::vector<std::string> skipped;
      MT_ASSIGN_OR_RETURN(checkpoint_, FindNewestVerified(directory, &skipped));
      for (const std::string& line : skipped) Say(absl::StrCat("damaged checkpoint: ", line));
      if (!checkpoint_.has_value() && !skipped.empty()) {
        return absl::DataLossError(
            absl::StrCat("every checkpoint in ", directory, " is damaged (", skipped.front(),
                         "); remove them, or use another checkpoint.directory, to begin anew"));
      }
      break;
    }
  }
  if (!checkpoint_.has_value()) return absl::OkStatus();
  MT_ASSIGN_OR_RETURN(const CheckpointState saved, ReadCheckpointState(*checkpoint_));
  MT_RETURN_IF_ERROR(CheckResumable(saved, State(saved.step)));
  if (saved.threads != session_.threads) {
    Say(absl::StrCat("the checkpoint was made with ", saved.threads, " threads, this run has ",
                     session_.threads, ": bits may differ from an undisturbed run"));
  }
  first_step_ = saved.step + 1;
  total_tokens_ = submitted_tokens_ = saved.input_tokens;
  saved_step_ = saved.step;
  Say(absl::StrCat("resuming from ", *checkpoint_, " at step ", saved.step, " of ", total_steps_));
  return absl::OkStatus();
}

absl::Status TrainingRun::LoadState() {
  HostPoolOptions options;
  options.capacity = plan_.pool_bytes;
  options.touch_threads = session_.threads;
  MT_ASSIGN_OR_RETURN(pool_, HostPool::Create(options));
  MT_ASSIGN_OR_RETURN(trainer_, Trainer::Create(spec_, plan_, session_.device.get(),
                                                session_.update_pool(), pool_.get()));
  std::unique_ptr<HfWeights> weights;
  if (!checkpoint_.has_value() && !spec_.model.random_initialization) {
    MT_ASSIGN_OR_RETURN(weights, HfWeights::Open(spec_.model.path, layout_));
  }
  for (int tile = 0; tile < layout_.tile_count(); ++tile) {
    if (control_.stop) return absl::OkStatus();
    const Tile& view = trainer_->tiles()[tile];
    if (checkpoint_.has_value()) {
      MT_RETURN_IF_ERROR(LoadCheckpointTile(*checkpoint_, layout_, tile, view));
    } else if (weights != nullptr) {
      MT_RETURN_IF_ERROR(weights->LoadTile(tile, view));
    } else {
      InitializeTile(layout_.config, spec_.training.seed, view, session_.compute_pool.get());
    }
  }
  return absl::OkStatus();
}

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
    Batch batch;
    for (int64_t i = first; i < std::min(n, first + batch_sequences); ++i) {
      MT_ASSIGN_OR_RETURN(Sequence sequence, dataset_->EvalSequence(i));
      for (int32_t target : PredictionTargets(sequence)) predictions += target >= 0;
      batch.sequences.push_back(std::move(sequence));
    }
    MT_ASSIGN_OR_RETURN(const double loss, trainer_->EvaluateLossSum(batch));
    sum += loss;
  }
  if (predictions == 0) {
    return absl::InvalidArgumentError("the evaluation data holds no prediction to measure");
  }
  return sum / static_cast<double>(predictions);
}

CheckpointState TrainingRun::State(int64_t step) const {
  CheckpointState state;
  state.step = step;
  state.weight_dtype = plan_.dimensions.dtype;
  state.data_position = step * spec_.training.global_batch;
  state.input_tokens = submitted_tokens_;
  state.seed = spec_.training.seed;
  state.data_fingerprint = dataset_->fingerprint();
  state.model_fingerprint = ModelFingerprint(layout_);
  state.spec = SpecValues(spec_);
  state.threads = session_.threads;
  state.steps_total = total_steps_;
  return state;
}

// Starts to write the state after the last submitted step. A save that cannot begin is reported and
// training goes on: the last good checkpoint is untouched.
absl::Status TrainingRun::BeginSave(int64_t step) {
  MT_RETURN_IF_ERROR(EndSave(/*must_succeed=*/false));  // a slow disk stalls training here
  MT_ASSIGN_OR_RETURN(
      std::unique_ptr<CheckpointWriter> writer,
      CheckpointWriter::Begin(spec_.checkpoint.directory, layout_, State(step), spec_.model.path));
  trainer_->BeginSave(std::move(writer), spec_.checkpoint.keep);
  saving_step_ = step;
  saving_committed_ = false;
  return absl::OkStatus();
}

absl::Status TrainingRun::EndSave(bool must_succeed) {
  if (!trainer_->saving()) return absl::OkStatus();
  const bool stalled = !trainer_->save_done();
  const absl::Time start = absl::Now();
  std::vector<std::string> notes;
  const absl::StatusOr<std::string> directory = trainer_->FinishSave(&notes);
  for (const std::string& note : notes) Say(note);
  if (directory.ok()) {
    saved_step_ = saving_step_;
    std::string line = absl::StrCat("saved ", *directory);
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    if (stalled && seconds > 1) {
      absl::StrAppendFormat(&line, " (training waited %.1f s for the disk)", seconds);
    }
    Say(line);
    return absl::OkStatus();
  }
  if (must_succeed || directory.status().code() == absl::StatusCode::kAborted) {
    return directory.status();
  }
  Say(absl::StrCat(
      "checkpoint of step ", saving_step_,
      " failed, the one before is kept and training goes on: ", directory.status().message()));
  return absl::OkStatus();
}

absl::Status TrainingRun::SaveNow(int64_t step) {
  if (trainer_->saving()) MT_RETURN_IF_ERROR(EndSave(saving_step_ == step));
  if (saved_step_ == step) return absl::OkStatus();
  MT_RETURN_IF_ERROR(BeginSave(step));
  trainer_->CommitSave();
  return EndSave(/*must_succeed=*/true);
}

// One save at a time, and one whose step's record is not out yet cannot end.
bool TrainingRun::SaveInTheWay() const {
  return SaveDue(next_step_) && trainer_->saving() && !saving_committed_;
}

absl::Status TrainingRun::SubmitNext(BatchLoader& loader) {
  MT_ASSIGN_OR_RETURN(const std::shared_ptr<const Batch> batch, loader.Next());
  MT_RETURN_IF_ERROR(trainer_->Submit(
      *batch,
      LearningRate(spec_.schedule, spec_.optimizer.learning_rate, next_step_, total_steps_)));
  submitted_tokens_ += batch->input_tokens;
  if (SaveDue(next_step_) && next_step_ != total_steps_) {
    const absl::Status status = BeginSave(next_step_);
    if (status.code() == absl::StatusCode::kAborted) return status;
    if (!status.ok()) {
      Say(absl::StrCat("checkpoint of step ", next_step_,
                       " cannot be written, training goes on: ", status.message()));
    }
  }
  ++next_step_;
  return absl::OkStatus();
}

absl::StatusOr<TrainingOutcome> TrainingRun::Loop() {
  if (observer_.started) observer_.started(first_step_, total_steps_);
  BatchLoader loader(dataset_.get(), spec_, first_step_, total_steps_, /*ahead=*/2);
  next_step_ = first_step_;
  int64_t done = first_step_ - 1;
  bool barrier = false;
  bool stop = false, save = false;
  while (done < total_steps_) {
    stop = stop || control_.stop;
    save = save || control_.checkpoint.exchange(false);
    // A request waits for the steps in flight; nothing is submitted behind them.
    while (!barrier && !stop && !save && next_step_ <= total_steps_ &&
           trainer_->in_flight() < kStepSlots && !SaveInTheWay()) {
      MT_RETURN_IF_ERROR(SubmitNext(loader));
      barrier = Barrier(next_step_ - 1);
    }
    if (trainer_->in_flight() > 0) {
      MT_ASSIGN_OR_RETURN(StepRecord record, trainer_->Collect());
      done = record.step;
      total_tokens_ += record.input_tokens;
      record.total_tokens = total_tokens_;
      if (EvaluationDue(done)) {
        MT_ASSIGN_OR_RETURN(record.eval_loss, Evaluate());
      }
      record.time = absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone());
      if (observer_.step) observer_.step(record);
      if (trainer_->saving() && saving_step_ == done && !saving_committed_) {
        trainer_->CommitSave();  // the record is out: a resumed run finds it
        saving_committed_ = true;
      }
    }
    if (trainer_->in_flight() > 0) continue;
    barrier = false;
    if (stop) {
      if (done >= first_step_ || saved_step_ > 0) MT_RETURN_IF_ERROR(SaveNow(done));
      return TrainingOutcome::kInterrupted;
    }
    if (save) {
      save = false;
      const absl::Status status = SaveNow(done);
      if (!status.ok()) {
        Say(absl::StrCat("checkpoint of step ", done,
                         " failed, training goes on: ", status.message()));
      }
    }
  }
  MT_RETURN_IF_ERROR(SaveNow(total_steps_));
  return TrainingOutcome::kFinished;
}

absl::Status TrainingRun::Export() {
  if (spec_.output.directory.empty()) return absl::OkStatus();
  MT_RETURN_IF_ERROR(ExportHfDirectory(
      spec_.model.path, layout_, plan_.dimensions.dtype,
      [this](int tile) -> absl::StatusOr<Tile> { return trainer_->tiles()[tile]; },
      spec_.output.directory));
  Say(absl::StrCat("wrote ", spec_.output.directory));
  return absl::OkStatus();
}

absl::StatusOr<TrainingOutcome> TrainingRun::Run() {
  MT_RETURN_IF_ERROR(Plan());
  MT_RETURN_IF_ERROR(OpenData());
  MT_RETURN_IF_ERROR(ChooseStart());
  if (control_.stop) return TrainingOutcome::kInterrupted;
  MT_RETURN_IF_ERROR(LoadState());
  if (control_.stop) return TrainingOutcome::kInterrupted;
  if (first_step_ > total_steps_) {
    Say(absl::StrCat("finished already: step ", first_step_ - 1, " of ", total_steps_));
  } else {
    MT_ASSIGN_OR_RETURN(const TrainingOutcome outcome, Loop());
    if (outcome != TrainingOutcome::kFinished) return outcome;
  }
  MT_RETURN_IF_ERROR(Export());
  return TrainingOutcome::kFinished;
}

absl::StatusOr<TrainingOutcome> RunTraining(const JobSpec& spec, const TrainingOptions& options,
                                            TrainingControl* control,
                                            const TrainingObserver& observer) {
  return TrainingRun(spec, options, control, observer).Run();
}

absl::StatusOr<PlanReport> PlanTraining(const JobSpec& spec) {
  MT_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(spec.model.path));
  const ModelLayout layout = BuildModelLayout(config);
  MT_ASSIGN_OR_RETURN(const Session session, OpenSession(spec.engine));
  MT_ASSIGN_OR_RETURN(const MemoryPlan plan,
                      PlanMemory(spec, layout, session.device->kernels(), session.budget));
  return PlanReport{plan.fits, plan.Table(), plan.Json(), plan.pool_bytes, plan.checkpoint_bytes};
}

}  // namespace megatrain
