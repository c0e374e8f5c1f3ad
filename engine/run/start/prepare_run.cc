#include "engine/run/start/prepare_run.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/comm/exchange.h"
#include "engine/hf/carried_tensors.h"
#include "engine/hf/config_json.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/weight_files.h"
#include "engine/job/spec_values.h"
#include "engine/optim/learning_rate.h"
#include "engine/plan/training_layout.h"
#include "engine/run/start/load_tiles.h"
#include "engine/run/start/machine_speed.h"
#include "engine/run/start/processes.h"
#include "engine/run/start/reference_pass.h"
#include "engine/tokenizer/open_tokenizer.h"
#include "engine/trace/transfer_rate.h"

namespace megatrain {
namespace {

bool NeedsTokenizer(const JobSpec& spec) {
  auto is_text = [](const DataFile& file) { return file.format != DataFormat::kTokens; };
  return !spec.training.sample_prompts.empty() ||
         std::any_of(spec.data.train.begin(), spec.data.train.end(), is_text) ||
         std::any_of(spec.data.eval.begin(), spec.data.eval.end(), is_text);
}

std::string DescribeData(const char* what, const DatasetReport& report, bool pairs) {
  std::string line = absl::StrCat(what, ": ", FormatCount(report.sequences), " sequences, ",
                                  FormatCount(report.tokens), " tokens");
  auto add = [&line](int64_t count, const char* text) {
    if (count > 0) absl::StrAppend(&line, "; ", FormatCount(count), text);
  };
  add(pairs ? report.truncated_examples : 0,
      " pairs had an answer longer than half a sequence, which was truncated");
  add(pairs ? 0 : report.truncated_examples, " examples longer than a sequence were truncated");
  add(report.examples_without_target, " examples had no token to learn and were left out");
  add(report.turns_without_loss,
      " turns of the assistant are without loss, because the chat template writes them otherwise "
      "when further messages follow");
  add(report.dropped_tokens, " tokens at the end fill no sequence and were dropped");
  add(report.bad_records.count, " records could not be read and were left out");
  return line;
}

void SayWhatTheDataIs(const Dataset& dataset, const RunContext& run) {
  const DatasetReport& report = dataset.train_report();
  run.Say(DescribeData("train", report, run.spec().training.objective == Objective::kDpo));
  for (const MixedSource& source : report.mix) {
    run.Say(absl::StrFormat("mix: %s: %.4g%%, %s sequences, %.4g passes an epoch", source.path,
                            100 * source.share, FormatCount(source.sequences), source.passes));
  }
  if (!report.mix.empty()) {
    run.Say(absl::StrCat("mix: an epoch is ", FormatCount(dataset.epoch_sequences()),
                         " sequences: until every source was gone through"));
  }
  for (const DatasetReport* side : {&report, &dataset.eval_report()}) {
    for (const std::string& line : DescribeBadRecords(*side)) run.Say(line);
  }
}

// Returns the checkpoints that the run may go on from, newest first. They are not verified.
std::vector<std::string> PossibleStarts(RunContext& run) {
  switch (run.options().resume) {
    case ResumeMode::kPath:
      return {run.options().resume_path};
    case ResumeMode::kNever:
      return {};
    case ResumeMode::kAuto:
      return ListCheckpoints(run.spec().checkpoint.directory, run.files())
          .value_or(std::vector<std::string>());
  }
  return {};
}

// Finds the tensors that a wrapper carries, before anything is made that would need them later.
absl::Status FindCarriedTensors(RunContext& run, const ModelDescription& config,
                                PreparedRun& prepared) {
  const JobSpec& spec = run.spec();
  if (!config.wrapper.is_there()) return absl::OkStatus();
  if (config.wrapper.carried_tensors == 0 && spec.model.random_initialization) {
    const absl::Status there = CheckHfWeightFilesExist(run.files(), spec.model.path);
    return absl::FailedPreconditionError(absl::StrCat(
        "model.initialization: random: ", spec.model.path, " is of ", config.wrapper.family,
        ", and has no weights of the parts beside the text model, which the exported model needs; "
        "give a directory with weights, or one of ",
        config.family, " alone", there.ok() ? "" : absl::StrCat(" (", there.message(), ")")));
  }
  MT_ASSIGN_OR_RETURN(const CarriedTensors carried,
                      CarriedTensors::Open(run.files(), spec.model.path, config.wrapper));
  prepared.carried_digest = carried.digest();
  return absl::OkStatus();
}

std::string DescribeDevices(const PreparedRun& prepared) {
  const Session& session = *prepared.session;
  return absl::StrCat(session.ranks.size() > 1
                          ? absl::StrCat(session.ranks.size(), " devices, the first of them ")
                          : "",
                      session.first().device->Describe(), prepared.nccl.empty() ? "" : ", NCCL ",
                      prepared.nccl.empty() ? "" : prepared.nccl.front()->Library());
}

absl::Status Plan(RunContext& run, PreparedRun& prepared) {
  const JobSpec& spec = run.spec();
  EngineHost& host = run.host();
  run.Report(TrainingPhase::kPreparing, "planning");
  MT_ASSIGN_OR_RETURN(
      const ModelDescription config,
      ReadModelDescription(spec.model.path, run.files(), /*same_names=*/PossibleStarts(run)));
  MT_RETURN_IF_ERROR(FindCarriedTensors(run, config, prepared));
  MT_ASSIGN_OR_RETURN(const std::string ignored,
                      DescribeIgnoredTensors(run.files(), spec.model.path, config));
  if (!ignored.empty()) run.Say(absl::StrCat(spec.model.path, ": ", ignored));
  MT_ASSIGN_OR_RETURN(prepared.layout, BuildTrainingLayout(config, spec));
  ProcessOfJob process;
  if (run.processes() != nullptr) {
    if (spec.engine.devices > 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "engine.devices: ", spec.engine.devices,
          ": each process of a job over several processes has one device; leave it 1"));
    }
    process = {run.between()->ranks(), run.between()->rank()};
  }
  MT_ASSIGN_OR_RETURN(prepared.session, host.OpenSession(spec.engine, run.options().devices));
  const Session& session = *prepared.session;
  const Kernels& kernels = session.first().device->kernels();
  MT_ASSIGN_OR_RETURN(prepared.nccl, LoadNcclForRanks(host, session, run.processes()));
  MT_ASSIGN_OR_RETURN(MemoryBudget budget, host.BudgetNow(session.settings.on));
  MT_ASSIGN_OR_RETURN(const std::string unequal, host.DescribeUnequalMemory(session.settings.on));
  if (!unequal.empty()) run.Say(unequal);
  // No result depends on what is chosen by time.
  MachineSpeed machine = SpeedOf(session.settings, host.rates());
  MT_RETURN_IF_ERROR(ShareBudget(run, budget, machine.rates));
  MemoryPlan& plan = prepared.plan;
  MT_ASSIGN_OR_RETURN(plan, PlanMemory(spec, prepared.layout, kernels, budget, machine, process));
  if (!plan.fits) {
    const PoolUsage usage = host.pool_usage();
    MT_ASSIGN_OR_RETURN(const MemoryBudget whole,
                        host.BudgetNow(session.settings.on, /*without_others=*/true));
    MT_ASSIGN_OR_RETURN(const MemoryPlan alone,
                        PlanMemory(spec, prepared.layout, kernels, whole, machine, process));
    if (alone.fits) {
      return absl::UnavailableError(
          absl::StrCat("the job fits when other jobs give back what they hold of the host pool: ",
                       FormatBytes(usage.capacity - usage.free_bytes), " of ",
                       FormatBytes(usage.capacity), "\n", plan.Table()));
    }
    return absl::ResourceExhaustedError(absl::StrCat("the job does not fit\n", plan.Table()));
  }
  run.Say(absl::StrFormat("%s: %s parameters, %s on %s; host %s, device %s", config.family,
                          FormatCount(plan.parameters), PrecisionName(plan.dimensions.dtype),
                          DescribeDevices(prepared), FormatBytesShort(plan.pool_bytes),
                          FormatBytesShort(plan.device_bytes)));
  if (prepared.layout.trained_parameters < plan.parameters) {
    run.Say(absl::StrCat("training.freeze: ", FormatCount(prepared.layout.trained_parameters),
                         " parameters are trained, ",
                         FormatCount(plan.parameters - prepared.layout.trained_parameters),
                         " are frozen"));
  }
  return absl::OkStatus();
}

// Returns the day that the chat template saw when the run that is to be resumed began, or "". A run
// that is resumed later must see the same data.
std::string SavedTemplateDate(RunContext& run) {
  constexpr char kKey[] = "data.template_date";
  if (run.options().resume != ResumeMode::kPath) {
    return NewestSpecValue(run.spec().checkpoint.directory, kKey, run.files());
  }
  const auto state = ReadCheckpointState(run.options().resume_path, run.files());
  if (!state.ok()) return "";
  const auto found = state->spec.find(kKey);
  return found == state->spec.end() ? "" : found->second;
}

absl::Status EncodeSamplePrompts(RunContext& run, PreparedRun& prepared) {
  const JobSpec& spec = run.spec();
  std::string date = prepared.dataset->template_date();
  if (date.empty()) date = spec.data.template_date;
  PromptEncoder encoder({.tokenizer = prepared.tokenizer.get(),
                         .model_directory = spec.model.path,
                         .chat_template = spec.data.chat_template,
                         .template_date = date,
                         .add_bos = spec.data.add_bos,
                         .vocabulary = prepared.layout.model.vocabulary,
                         .max_tokens = spec.data.sequence_length,
                         .limit = "data.sequence_length",
                         .answer_tokens = spec.training.sample_tokens,
                         .files = run.files()});
  for (size_t i = 0; i < spec.training.sample_prompts.size(); ++i) {
    MT_ASSIGN_OR_RETURN(prepared.sample_prompts.emplace_back(),
                        encoder.Encode(spec.training.sample_prompts[i],
                                       absl::StrCat("training.sample_prompts[", i, "]")));
  }
  return absl::OkStatus();
}

absl::Status OpenData(RunContext& run, PreparedRun& prepared) {
  constexpr char kActivity[] = "reading and tokenising the data";
  constexpr absl::Duration kSayInterval = absl::Seconds(30);
  JobSpec spec = run.spec();
  if (spec.data.template_date.empty()) spec.data.template_date = SavedTemplateDate(run);
  // The job's own number may be beyond what the host allows.
  spec.engine.threads = prepared.session->settings.threads;
  run.Report(TrainingPhase::kPreparing, kActivity);
  std::shared_ptr<const Tokenizer>& tokenizer = prepared.tokenizer;
  if (NeedsTokenizer(spec)) {
    MT_ASSIGN_OR_RETURN(tokenizer,
                        OpenTokenizer(spec.model.path, spec.data.tokenizer, run.files()));
  }
  TransferRate rate;
  absl::Time said = absl::Now();
  const auto progress = [&](int64_t bytes_done, int64_t bytes_total) {
    const absl::Time now = absl::Now();
    const std::optional<std::string> pace = rate.Pace(now, bytes_done, bytes_total);
    if (!pace.has_value()) return run.CheckNotAbandoned();
    const double fraction =
        static_cast<double>(bytes_done) / static_cast<double>(std::max<int64_t>(1, bytes_total));
    run.Report(TrainingPhase::kPreparing, absl::StrCat(kActivity, *pace), fraction);
    if (now - said >= kSayInterval && !pace->empty()) {
      run.Say(absl::StrFormat("%s: %.1f%%%s", kActivity, 100 * fraction, *pace));
      said = now;
    }
    return run.CheckNotAbandoned();
  };
  absl::StatusOr<std::unique_ptr<Dataset>> dataset =
      OpenDataset(spec, tokenizer, spec.model.path, prepared.layout.model.vocabulary,
                  spec.checkpoint.directory + "/data", progress, run.files(),
                  run.options().verify_data && run.leads());
  if (!dataset.ok()) return AsInputError(dataset.status());
  prepared.dataset = *std::move(dataset);
  MT_RETURN_IF_ERROR(EncodeSamplePrompts(run, prepared));
  MT_ASSIGN_OR_RETURN(prepared.total_steps, TotalSteps(spec, prepared.dataset->epoch_sequences()));
  SayWhatTheDataIs(*prepared.dataset, run);
  if (spec.data.template_date.empty() && !prepared.dataset->template_date().empty()) {
    run.Say(absl::StrCat("the chat template sees the day ", prepared.dataset->template_date(),
                         "; data.template_date sets it"));
  }
  if (prepared.dataset->eval_sequences() > 0) {
    run.Say(
        absl::StrCat("held out: ", FormatCount(prepared.dataset->eval_sequences()), " sequences"));
  }
  return absl::OkStatus();
}

// Counts the steps of the run from its resume point, and says where it goes on and, if the number
// has changed, what that does to the learning rate.
absl::Status GoOnFromStart(RunContext& run, PreparedRun& prepared) {
  const JobSpec& spec = run.spec();
  const ResumePoint& start = prepared.start;
  const int64_t sequences = prepared.dataset->epoch_sequences(), batch = spec.training.global_batch;
  MT_ASSIGN_OR_RETURN(prepared.total_steps, TotalSteps(spec, sequences));
  // After a last step with fewer sequences the next one begins where that ended, so that every
  // sequence is visited.
  const int64_t left = EpochPositions(spec, sequences) - start.data_position;
  if (start.data_position != start.step * batch && EpochPositions(spec, sequences) > 0) {
    prepared.total_steps = start.step + std::max<int64_t>(0, (left + batch - 1) / batch);
  }
  if (!start.checkpoint.has_value()) return absl::OkStatus();
  const int64_t total = prepared.total_steps, before = start.steps_total;
  run.Say(
      absl::StrCat("resuming from ", *start.checkpoint, " at step ", start.step, " of ", total));
  if (before == total || before < start.step || start.step == 0 || start.step >= total) {
    return absl::OkStatus();
  }
  const double peak = spec.optimizer.learning_rate;
  run.Say(absl::StrFormat(
      "the run has %d steps now and had %d when the checkpoint was written: the learning rate "
      "follows schedule.type %s to step %d, and is %.4g in step %d (%.4g in step %d of %d)",
      total, before, SpecValues(spec).at("schedule.type"), total,
      LearningRate(spec.schedule, peak, start.step + 1, total), start.step + 1,
      LearningRate(spec.schedule, peak, start.step, before), start.step, before));
  return absl::OkStatus();
}

// Fills the tiles from the checkpoint, from the model's files or at random.
absl::Status FillTiles(RunContext& run, PreparedRun& prepared, Trainer& trainer) {
  MT_ASSIGN_OR_RETURN(const bool filled, PrepareReference(run, prepared, trainer));
  if (!prepared.start.checkpoint.has_value() && !filled) {
    MT_ASSIGN_OR_RETURN(const InitialModel model, InitialModel::Open(run, prepared));
    MT_RETURN_IF_ERROR(model.Fill(trainer.tiles()));
  }
  while (prepared.start.checkpoint.has_value()) {
    const absl::Status status =
        Agree(run.between(), FillFromCheckpoint(run, prepared, trainer.tiles()));
    if (status.ok()) break;
    MT_RETURN_IF_ERROR(FallBack(run, prepared.StateAt(run.spec(), 0, 0), status, prepared.start));
    MT_RETURN_IF_ERROR(GoOnFromStart(run, prepared));
  }
  return run.CheckNotAbandoned();
}

}  // namespace

std::vector<std::string> DescribeBadRecords(const DatasetReport& report) {
  std::vector<std::string> lines;
  for (const std::string& bad : report.bad_records.named) lines.push_back("passed over: " + bad);
  const int64_t unnamed = report.bad_records.unnamed();
  if (unnamed > 0) {
    lines.push_back(absl::StrCat("passed over: ", FormatCount(unnamed), " more bad records"));
  }
  return lines;
}

absl::Status AsInputError(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kDataLoss && status.code() != absl::StatusCode::kAborted) {
    return status;
  }
  return absl::InvalidArgumentError(status.message());
}

int64_t PreparedRun::PositionAfter(const JobSpec& spec, int64_t step) const {
  const int64_t position = start.data_position + (step - start.step) * spec.training.global_batch;
  // The last step of a run that is given in epochs may have fewer sequences.
  const int64_t end = EpochPositions(spec, dataset->epoch_sequences());
  return end > 0 && step > start.step ? std::min(position, std::max(end, start.data_position))
                                      : std::max<int64_t>(0, position);
}

CheckpointState PreparedRun::StateAt(const JobSpec& spec, int64_t step,
                                     int64_t input_tokens) const {
  CheckpointState state;
  state.step = step;
  state.weight_dtype = plan.dimensions.dtype;
  state.data_position = PositionAfter(spec, step);
  state.input_tokens = input_tokens;
  state.run = start.run_name;
  state.seed = spec.training.seed;
  state.data_fingerprint = dataset->fingerprint();
  state.model_fingerprint = ModelFingerprint(layout);
  state.spec = SpecValues(spec);
  // The day itself where the job leaves it open.
  if (const std::string day = dataset->template_date(); !day.empty()) {
    state.spec["data.template_date"] = day;
  }
  state.threads = session->settings.threads;
  state.arithmetic = session->first().device->Arithmetic(spec.engine.attention);
  const int devices = plan.dimensions.shape.ranks;
  if (devices > 1 && spec.training.gradient_shards == 1) {
    absl::StrAppend(&state.arithmetic, ", ", devices, " devices");
  }
  state.steps_total = total_steps;
  state.allowed_changes = start.allowed_changes;
  state.reference = start.reference;
  state.carried_digest = carried_digest;
  return state;
}

absl::StatusOr<std::unique_ptr<PreparedRun>> PrepareRun(RunContext& run) {
  auto prepared = std::make_unique<PreparedRun>();
  MT_RETURN_IF_ERROR(run.CheckNotAbandoned());
  MT_RETURN_IF_ERROR(CheckSameInAll(run, "job file", WithoutPaths(SpecValues(run.spec())),
                                    "give all processes of a job the same one"));
  const std::string& directory = run.spec().report.tensorboard;
  if (!directory.empty() && run.leads()) {
    const absl::Status writable = run.files()->CheckWritable(directory);
    if (!writable.ok()) {
      return absl::Status(writable.code(),
                          absl::StrCat("report.tensorboard: ", writable.message()));
    }
  }
  MT_RETURN_IF_ERROR(Plan(run, *prepared));
  MT_RETURN_IF_ERROR(CheckSameInAll(run, "model.path",
                                    {{"the tensors", ModelFingerprint(prepared->layout)}},
                                    "name the same model on all machines"));
  MT_RETURN_IF_ERROR(CheckSameInAll(run, "plan", {{"the memory", prepared->plan.Table()}},
                                    "give all processes of the job devices of one kind"));
  MT_RETURN_IF_ERROR(LeaderFirst(run, [&] { return OpenData(run, *prepared); }));
  MT_RETURN_IF_ERROR(CheckSameInAll(run, "data",
                                    {{"the fingerprint", prepared->dataset->fingerprint()}},
                                    "give all processes of a job the same files"));
  MT_RETURN_IF_ERROR(LeaderFirst(run, [&]() -> absl::Status {
    MT_ASSIGN_OR_RETURN(prepared->start, FindResumePoint(run, prepared->StateAt(run.spec(), 0, 0)));
    return absl::OkStatus();
  }));
  ResumePoint& start = prepared->start;
  MT_RETURN_IF_ERROR(CheckSameInAll(
      run, "checkpoint.directory",
      {{"to resume from", absl::StrCat("step ", start.step)},
       {"evaluations up to it", absl::StrCat(start.evaluations.best_step)}},
      "name a directory on a file system that is mounted at the same path on all machines"));
  // A new run has a random name.
  std::string run_name;
  MT_RETURN_IF_ERROR(
      ExchangeBytes(run.between(), start.run_name, [&](int rank, absl::string_view name) {
        if (rank == 0) run_name = std::string(name);
      }));
  start.run_name = run_name;
  MT_RETURN_IF_ERROR(GoOnFromStart(run, *prepared));
  return prepared;
}

absl::StatusOr<std::unique_ptr<Trainer>> LoadTrainer(RunContext& run, PreparedRun& prepared) {
  if (!run.host().has_pool()) run.Report(TrainingPhase::kPreparing, "reserving host memory");
  MT_ASSIGN_OR_RETURN(HostPool* const pool,
                      run.host().Pool(prepared.plan.pool_bytes, nullptr,
                                      [&run] { return !run.CheckNotAbandoned().ok(); }));
  MT_ASSIGN_OR_RETURN(std::vector<RankParts> ranks, MakeRankParts(*prepared.session, prepared.plan,
                                                                  prepared.nccl, run.processes()));
  absl::StatusOr<std::unique_ptr<Trainer>> created =
      Trainer::Create(run.spec(), prepared.plan, std::move(ranks), pool);
  if (absl::IsResourceExhausted(created.status()) && pool->free_bytes() < pool->capacity()) {
    // The plan fits; another job has leased since, or what is free lies in pieces.
    return absl::UnavailableError(absl::StrCat(
        "the job fits when other jobs give back what they hold: ", created.status().message()));
  }
  MT_ASSIGN_OR_RETURN(std::unique_ptr<Trainer> trainer, std::move(created));
  if (const absl::Status status = FillTiles(run, prepared, *trainer); !status.ok()) {
    // Before the trainer ends, whose communicators wait for those of other processes.
    AbortAll(run.between(), status).IgnoreError();
    return status;
  }
  return trainer;
}

}  // namespace megatrain
