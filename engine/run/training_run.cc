#include "engine/run/training_run.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/checkpoint/directory_lock.h"
#include "engine/hf/hf_directory.h"
#include "engine/job/spec_values.h"
#include "engine/memory/host_offer.h"
#include "engine/run/machine_speed.h"
#include "engine/tokenizer/open_tokenizer.h"

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

// What a host offers a job now, of its pool `pool_bytes`.
absl::StatusOr<MemoryBudget> BudgetNow(const EngineHost& host, int64_t pool_bytes) {
  MT_ASSIGN_OR_RETURN(const HostOffer offer, ReadHostOffer());
  MT_ASSIGN_OR_RETURN(const std::optional<int64_t> device_bytes, host.DeviceBytes());
  MemoryBudget budget;
  budget.SetDevice(device_bytes);
  if (host.has_pool()) {
    budget.pool_bytes = pool_bytes;
    budget.host_bytes = offer.free_bytes + pool_bytes;
  } else {
    budget.SetHost(offer);
  }
  return budget;
}

}  // namespace

void TrainingRun::Say(const std::string& line) const { Tell(RunMessage{line}); }

void TrainingRun::Report(TrainingPhase phase, const std::string& what, double fraction) const {
  Tell(TrainingActivity{phase, what, fraction});
}

TrainingRun::Ending TrainingRun::AskedToEnd() const {
  if (control_.cancel_requested()) return TrainingOutcome::kCancelled;
  if (control_.stop_requested()) return TrainingOutcome::kInterrupted;
  if (control_.release_requested()) return TrainingOutcome::kReleased;
  return std::nullopt;
}

absl::Status TrainingRun::GoOn() const {
  if (options_.alive) options_.alive();
  if (control_.cancel_requested() || (preparing_ && AskedToEnd().has_value())) {
    return absl::CancelledError("abandoned");
  }
  return absl::OkStatus();
}

absl::Status TrainingRun::Plan() {
  Report(TrainingPhase::kPreparing, "planning");
  MT_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(spec_.model.path, &files_));
  layout_ = BuildModelLayout(config);
  MT_ASSIGN_OR_RETURN(session_, host_.OpenSession(spec_.engine));
  const Kernels& kernels = session_->device->kernels();
  const PoolUsage usage = host_.pool_usage();
  MT_ASSIGN_OR_RETURN(const MemoryBudget budget, BudgetNow(host_, usage.free_bytes));
  // No result depends on what is chosen by time.
  const MachineSpeed machine = SpeedOf(session_->settings, host_.rates());
  MT_ASSIGN_OR_RETURN(plan_, PlanMemory(spec_, layout_, kernels, budget, machine));
  if (!plan_.fits) {
    MT_ASSIGN_OR_RETURN(const MemoryBudget whole, BudgetNow(host_, usage.capacity));
    MT_ASSIGN_OR_RETURN(const MemoryPlan alone,
                        PlanMemory(spec_, layout_, kernels, whole, machine));
    if (alone.fits) {
      return absl::UnavailableError(
          absl::StrCat("the job fits when other jobs give back what they hold of the host pool: ",
                       FormatBytes(usage.capacity - usage.free_bytes), " of ",
                       FormatBytes(usage.capacity), "\n", plan_.Table()));
    }
    return absl::ResourceExhaustedError(absl::StrCat("the job does not fit\n", plan_.Table()));
  }
  Say(absl::StrFormat("%s: %s parameters, %s on %s; host %s, device %s",
                      ModelFamilyName(config.family), FormatCount(plan_.parameters),
                      plan_.dimensions.dtype == DType::kBF16 ? "bf16" : "fp32",
                      session_->device->Describe(), FormatBytesShort(plan_.pool_bytes),
                      FormatBytesShort(plan_.device_bytes)));
  return absl::OkStatus();
}

absl::Status TrainingRun::AsInputError(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kDataLoss && status.code() != absl::StatusCode::kAborted) {
    return status;
  }
  return absl::InvalidArgumentError(status.message());
}

absl::Status TrainingRun::OpenData() {
  constexpr char kActivity[] = "reading and tokenising the data";
  Report(TrainingPhase::kPreparing, kActivity);
  std::shared_ptr<const Tokenizer> tokenizer;
  if (NeedsTokenizer(spec_)) {
    MT_ASSIGN_OR_RETURN(tokenizer, OpenTokenizer(spec_.model.path, spec_.data.tokenizer, &files_));
  }
  int64_t told_percent = -1;
  const auto progress = [&](int64_t bytes_done, int64_t bytes_total) {
    const double fraction =
        static_cast<double>(bytes_done) / static_cast<double>(std::max<int64_t>(1, bytes_total));
    const int64_t percent = static_cast<int64_t>(100 * fraction);
    if (percent != told_percent) Report(TrainingPhase::kPreparing, kActivity, fraction);
    told_percent = percent;
    return GoOn();
  };
  absl::StatusOr<std::unique_ptr<Dataset>> dataset =
      OpenDataset(spec_, tokenizer, spec_.model.path, layout_.config.vocabulary,
                  spec_.checkpoint.directory + "/data", progress, &files_);
  if (!dataset.ok()) return AsInputError(dataset.status());
  dataset_ = *std::move(dataset);
  MT_ASSIGN_OR_RETURN(total_steps_, TotalSteps(spec_, dataset_->train_sequences()));
  Say(DescribeData("train", dataset_->train_report()));
  if (dataset_->eval_sequences() > 0) {
    Say(absl::StrCat("held out: ", FormatCount(dataset_->eval_sequences()), " sequences"));
  }
  return absl::OkStatus();
}

// Which checkpoint to go on from, if any.
absl::Status TrainingRun::FindCheckpoint() {
  const std::string& directory = spec_.checkpoint.directory;
  switch (options_.resume) {
    case ResumeMode::kPath:
      MT_RETURN_IF_ERROR(VerifyCheckpoint(options_.resume_path, &files_));
      checkpoint_ = options_.resume_path;
      break;
    case ResumeMode::kNever: {
      MT_ASSIGN_OR_RETURN(const std::vector<std::string> present,
                          ListCheckpoints(directory, &files_));
      if (!present.empty()) {
        return absl::FailedPreconditionError(
            absl::StrCat("--resume never: ", present.front(),
                         " is there already; use another checkpoint.directory, remove it, or "
                         "resume from it (--resume auto)"));
      }
      break;
    }
    case ResumeMode::kAuto: {
      std::vector<DamagedCheckpoint> damaged;
      MT_ASSIGN_OR_RETURN(checkpoint_, FindNewestVerified(directory, &damaged, &files_));
      for (const DamagedCheckpoint& one : damaged) {
        Say(absl::StrCat("damaged checkpoint: ", one.what));
        retention_.damaged.push_back(one.step);
      }
      if (!checkpoint_.has_value() && !damaged.empty()) {
        return absl::DataLossError(
            absl::StrCat("every checkpoint in ", directory, " is damaged (", damaged.front().what,
                         "); remove them, or use another checkpoint.directory, to begin anew"));
      }
      break;
    }
  }
  return absl::OkStatus();
}

// Checkpoints newer than the one to go on from are not lost without a word.
absl::Status TrainingRun::CheckNewer(const CheckpointState& saved) {
  const std::string& directory = spec_.checkpoint.directory;
  std::vector<std::string> notes;
  MT_ASSIGN_OR_RETURN(const std::vector<int64_t> newer,
                      ListNewer(directory, saved.step, retention_, &notes, &files_));
  for (const std::string& note : notes) Say(note);
  if (newer.empty()) return absl::OkStatus();
  std::vector<std::string> names;
  for (const int64_t step : newer) {
    const std::string name = StepDirectoryName(step);
    if (options_.discard_newer) {
      MT_RETURN_IF_ERROR(CheckHoldsOnlyCheckpointFiles(JoinPath(directory, name), &files_));
    }
    const auto state = ReadCheckpointState(JoinPath(directory, name), &files_);
    const bool same_run = state.ok() && RunName(*state) == run_name_;
    names.push_back(same_run ? name : absl::StrCat(name, " (of another run)"));
  }
  const std::string list = absl::StrJoin(names, ", ");
  if (!options_.discard_newer) {
    return absl::FailedPreconditionError(absl::StrCat(
        directory, " holds checkpoints newer than ", *checkpoint_, " of step ", saved.step, ": ",
        list,
        "; go on from the newest (--resume auto), or name another checkpoint.directory, or add "
        "--discard-newer, which removes them when this run has saved its first checkpoint"));
  }
  Say(absl::StrCat("to be discarded when this run has saved its first checkpoint: ", list));
  retention_.discard = newer;
  return absl::OkStatus();
}

absl::Status TrainingRun::ChooseStart() {
  Report(TrainingPhase::kPreparing, "verifying the checkpoint to resume from");
  MT_ASSIGN_OR_RETURN(lock_, LockDirectory(spec_.checkpoint.directory, &files_));
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> leftovers,
                      RemoveLeftovers(spec_.checkpoint.directory, &files_));
  for (const std::string& line : leftovers) Say(line);
  retention_.keep = spec_.checkpoint.keep;
  run_name_ = NewRunName();
  MT_RETURN_IF_ERROR(FindCheckpoint());
  if (!checkpoint_.has_value()) return absl::OkStatus();
  MT_ASSIGN_OR_RETURN(const CheckpointState saved, ReadCheckpointState(*checkpoint_, &files_));
  MT_RETURN_IF_ERROR(CheckResumable(saved, State(saved.step)));
  run_name_ = RunName(saved);
  MT_RETURN_IF_ERROR(CheckNewer(saved));
  const std::string arithmetic = session_->device->Arithmetic(spec_.engine.attention);
  if (!saved.arithmetic.empty() && saved.arithmetic != arithmetic) {
    Say(absl::StrCat("the checkpoint was made on ", saved.arithmetic, "; this run computes on ",
                     arithmetic, ": bits may differ from an undisturbed run"));
  }
  first_step_ = saved.step + 1;
  total_tokens_ = submitted_tokens_ = saved.input_tokens;
  saved_step_ = saved.step;
  saved_directory_ = *checkpoint_;
  Say(absl::StrCat("resuming from ", *checkpoint_, " at step ", saved.step, " of ", total_steps_));
  return absl::OkStatus();
}

absl::Status TrainingRun::LoadState() {
  const std::string activity = checkpoint_.has_value()             ? "loading the checkpoint"
                               : spec_.model.random_initialization ? "making random weights"
                                                                   : "loading the model";
  if (!host_.has_pool()) Report(TrainingPhase::kPreparing, "reserving host memory");
  MT_ASSIGN_OR_RETURN(HostPool* const pool,
                      host_.Pool(plan_.pool_bytes, nullptr, [this] { return !GoOn().ok(); }));
  Report(TrainingPhase::kPreparing, activity, 0);
  MT_ASSIGN_OR_RETURN(trainer_, Trainer::Create(spec_, plan_, session_->device.get(),
                                                session_->updater.get(), pool));
  std::unique_ptr<HfWeights> weights;
  if (!checkpoint_.has_value() && !spec_.model.random_initialization) {
    MT_ASSIGN_OR_RETURN(weights, HfWeights::Open(spec_.model.path, layout_, &files_));
  }
  const int tiles = layout_.tile_count();
  for (int tile = 0; tile < tiles; ++tile) {
    MT_RETURN_IF_ERROR(GoOn());
    const Tile& view = trainer_->tiles()[tile];
    if (checkpoint_.has_value()) {
      MT_RETURN_IF_ERROR(LoadCheckpointTile(*checkpoint_, layout_, tile, view, &files_));
    } else if (weights != nullptr) {
      MT_RETURN_IF_ERROR(weights->LoadTile(tile, view));
    } else {
      InitializeTile(layout_.config, spec_.training.seed, view, session_->compute_pool.get());
    }
    Report(TrainingPhase::kPreparing, activity, static_cast<double>(tile + 1) / tiles);
  }
  return GoOn();
}

CheckpointState TrainingRun::State(int64_t step) const {
  CheckpointState state;
  state.step = step;
  state.weight_dtype = plan_.dimensions.dtype;
  state.data_position = step * spec_.training.global_batch;
  state.input_tokens = submitted_tokens_;
  state.run = run_name_;
  state.seed = spec_.training.seed;
  state.data_fingerprint = dataset_->fingerprint();
  state.model_fingerprint = ModelFingerprint(layout_);
  state.spec = SpecValues(spec_);
  state.threads = session_->settings.threads;
  state.arithmetic = session_->device->Arithmetic(spec_.engine.attention);
  state.steps_total = total_steps_;
  return state;
}

absl::StatusOr<TrainingOutcome> TrainingRun::PrepareAndTrain() {
  MT_RETURN_IF_ERROR(GoOn());
  MT_RETURN_IF_ERROR(Plan());
  MT_RETURN_IF_ERROR(OpenData());
  MT_RETURN_IF_ERROR(ChooseStart());
  MT_RETURN_IF_ERROR(LoadState());
  preparing_ = false;
  next_step_ = first_step_;
  done_ = first_step_ - 1;
  if (done_ >= total_steps_) {
    Say(absl::StrCat("finished already: step ", done_, " of ", total_steps_));
  }
  Tell(StepsBegin{first_step_, total_steps_});
  MT_ASSIGN_OR_RETURN(const TrainingOutcome outcome, Loop());
  if (outcome != TrainingOutcome::kFinished || spec_.output.directory.empty()) return outcome;
  const int64_t bytes = plan_.parameters * DTypeBytes(plan_.dimensions.dtype);
  MT_ASSIGN_OR_RETURN(const Ending ending,
                      WriteOrWait(bytes, spec_.output.directory, [this] { return Export(); }));
  return ending.value_or(TrainingOutcome::kFinished);
}

absl::StatusOr<TrainingOutcome> TrainingRun::Run() {
  absl::StatusOr<TrainingOutcome> outcome = PrepareAndTrain();
  // What was told to be abandoned has not failed.
  if (!outcome.ok() && !GoOn().ok()) return *AskedToEnd();
  return outcome;
}

absl::StatusOr<TrainingOutcome> RunTraining(EngineHost& host, const JobSpec& spec,
                                            const TrainingOptions& options,
                                            TrainingControl* control, const RunSink& tell) {
  return TrainingRun(host, spec, options, control, tell).Run();
}

}  // namespace megatrain
