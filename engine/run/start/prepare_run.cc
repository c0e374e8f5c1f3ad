#include "engine/run/start/prepare_run.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/checkpoint/directory_lock.h"
#include "engine/checkpoint/shared_directory.h"
#include "engine/comm/communicator.h"
#include "engine/comm/exchange.h"
#include "engine/hf/carried_tensors.h"
#include "engine/hf/config_json.h"
#include "engine/hf/hf_export.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/weight_files.h"
#include "engine/host/measure_exchange.h"
#include "engine/host/measure_hardware.h"
#include "engine/job/spec_values.h"
#include "engine/memory/pool_busy.h"
#include "engine/optim/learning_rate.h"
#include "engine/plan/trained_tensors.h"
#include "engine/run/start/load_tiles.h"
#include "engine/run/start/machine_speed.h"
#include "engine/run/start/model_files.h"
#include "engine/run/start/open_data.h"
#include "engine/run/start/processes.h"
#include "engine/run/start/reference_pass.h"

namespace megatrain {
namespace {

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

// Measures how fast the GPUs of all processes exchange data, which a process cannot by itself. The
// rate stays unknown if a GPU has no memory for it.
absl::Status MeasureExchangeOfProcesses(RunContext& run, const PreparedRun& prepared,
                                        HardwareRates& rates) {
  if (run.processes() == nullptr || prepared.nccl.empty()) return absl::OkStatus();
  // Without the other rates there are no predictions.
  MT_ASSIGN_OR_RETURN(const std::vector<double> measured,
                      run.process_communicator()->GatherValues({rates.known() ? 1.0 : 0.0}));
  if (absl::c_linear_search(measured, 0.0)) return absl::OkStatus();
  const std::shared_ptr<Communicator> lent(run.processes()->tiles.get(), [](Communicator*) {});
  const absl::StatusOr<double> rate =
      MeasureExchange(prepared.session->first().device.get(), prepared.nccl.front().get(), lent,
                      kGpuMeasurement.copy_bytes);
  rates.collective_bytes_per_second = rate.value_or(0);
  return absl::IsResourceExhausted(rate.status()) ? lent->status() : rate.status();
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
    process = {run.process_communicator()->ranks(), run.process_communicator()->rank()};
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
  MT_RETURN_IF_ERROR(MeasureExchangeOfProcesses(run, prepared, machine.rates));
  MT_RETURN_IF_ERROR(ShareBudget(run, budget, machine));
  MemoryPlan& plan = prepared.plan;
  MT_ASSIGN_OR_RETURN(plan, PlanMemory(spec, prepared.layout, kernels, budget, machine, process));
  if (!plan.fits) {
    const PoolUsage usage = host.pool_usage();
    MT_ASSIGN_OR_RETURN(const MemoryBudget whole,
                        host.BudgetNow(session.settings.on, /*without_others=*/true));
    MT_ASSIGN_OR_RETURN(const MemoryPlan alone,
                        PlanMemory(spec, prepared.layout, kernels, whole, machine, process));
    if (alone.fits) {
      return PoolBusyError(
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

// Returns what the steps of all processes must have alike, by its name. The memory that a process
// takes besides depends on its threads.
std::map<std::string, std::string> PlanValues(const RunContext& run, const PreparedRun& prepared) {
  const MemoryPlan& plan = prepared.plan;
  const PipelineShape& shape = plan.dimensions.shape;
  std::map<std::string, std::string> values = {
      {"a device that computes as",
       prepared.session->first().device->Arithmetic(run.spec().engine.attention)},
      {"a pool of", FormatBytes(plan.pool_bytes)},
      {"a sweep of micro-batches", absl::StrCat(shape.sweep_micro_batches)},
      {"layers kept", absl::StrCat(shape.kept, ", whole ", shape.kept_everything)},
      {"the stash on the", shape.stash_on_host ? "host" : "device"}};
  for (const MemoryPlan::Item& item : plan.device) {
    values[absl::StrCat("device memory for ", item.name, " of")] = FormatBytes(item.bytes);
  }
  return values;
}

// Returns the processes that share checkpoint.directory.
absl::StatusOr<DirectoryRanks> FindDirectoryRanks(const RunContext& run,
                                                  const PipelineShape& shape) {
  const JobSpec& spec = run.spec();
  if (spec.checkpoint.shared || run.processes() == nullptr) {
    return AllInOneDirectory(run.process_communicator());
  }
  MT_ASSIGN_OR_RETURN(DirectoryRanks ranks, OneDirectoryForEachMachine(run.process_communicator(),
                                                                       run.processes()->machines));
  if (ranks.parts == 1) return ranks;
  if (!spec.output.directory.empty()) {
    return FoundByAll(absl::InvalidArgumentError(absl::StrCat(
        "output.directory: with checkpoint.shared: false no machine of the ", ranks.parts,
        " has the whole model; leave it out, and make the model of the last checkpoint with "
        "`megatraind gather` and `megatraind export`")));
  }
  for (int tile = 0; tile < shape.tiles(); ++tile) {
    ranks.held.push_back(
        {{shape.shard_cut(tile, ranks.begin), shape.shard_cut(tile, ranks.end)},
         {shape.stateless_cut(tile, ranks.begin), shape.stateless_cut(tile, ranks.end)}});
  }
  return ranks;
}

// Locks checkpoint.directory for the run, cleans it up, and checks that all processes can write in
// it.
absl::Status TakeDirectory(RunContext& run, PreparedRun& prepared) {
  const std::string& directory = run.spec().checkpoint.directory;
  MT_ASSIGN_OR_RETURN(prepared.directory_ranks,
                      FindDirectoryRanks(run, prepared.plan.dimensions.shape));
  const DirectoryRanks& ranks = prepared.directory_ranks;
  if (ranks.parts > 1) {
    // Before the lock, which would blame another run where machines share the directory.
    if (ranks.leads()) MT_RETURN_IF_ERROR(run.files()->CreateDirectories(directory));
    MT_RETURN_IF_ERROR(CheckIsShared(directory, ranks, run.files()));
    if (run.leads()) {
      run.Say(absl::StrCat("checkpoint.shared: false: each of ", ranks.parts,
                           " machines saves its part into its own ", directory));
    }
  }
  if (ranks.leads()) {
    MT_ASSIGN_OR_RETURN(prepared.lock, LockDirectory(directory, run.files()));
  }
  if (ranks.parts == 1) {
    MT_RETURN_IF_ERROR(CheckIsShared(directory, ranks, run.files()));
    // All have removed the files of the check, which RemoveLeftovers would remove.
    MT_RETURN_IF_ERROR(Agree(run.process_communicator(), absl::OkStatus()));
  }
  return ClearLeftovers(run, ranks);
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
        Agree(run.process_communicator(), FillFromCheckpoint(run, prepared, trainer.tiles()));
    if (status.ok()) break;
    MT_RETURN_IF_ERROR(FallBack(run, prepared.directory_ranks, prepared.StateAt(run.spec(), 0, 0),
                                status, prepared.start));
    MT_RETURN_IF_ERROR(CheckSameStart(run, prepared.directory_ranks, prepared.start));
    MT_RETURN_IF_ERROR(GoOnFromStart(run, prepared));
  }
  return run.CheckNotAbandoned();
}

}  // namespace

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
  MT_RETURN_IF_ERROR(CheckSameInAll(run, "job file", ValuesOfAllProcesses(run.spec()),
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
  MT_RETURN_IF_ERROR(CheckSameInAll(run, "plan", PlanValues(run, *prepared),
                                    "give all processes of the job devices of one kind"));
  MT_RETURN_IF_ERROR(CheckSameSideFiles(run));
  MT_RETURN_IF_ERROR(TakeDirectory(run, *prepared));
  MT_RETURN_IF_ERROR(OpenData(run, *prepared));
  ResumePoint& start = prepared->start;
  const DirectoryRanks& ranks = prepared->directory_ranks;
  const auto find = [&]() -> absl::Status {
    MT_ASSIGN_OR_RETURN(start, FindResumePoint(run, ranks, prepared->StateAt(run.spec(), 0, 0)));
    return absl::OkStatus();
  };
  // Those with directories of their own look for one of which all have their parts.
  MT_RETURN_IF_ERROR(ranks.parts > 1 ? find() : LeaderFirst(run, run.leads(), find));
  MT_RETURN_IF_ERROR(CheckSameStart(run, ranks, start));
  // A new run has a random name.
  MT_ASSIGN_OR_RETURN(start.run_name, FromFirstRank(run.process_communicator(), start.run_name));
  if (!start.checkpoint.has_value() && !run.spec().model.random_initialization) {
    MT_RETURN_IF_ERROR(CheckSameWeights(run));
  }
  MT_RETURN_IF_ERROR(GoOnFromStart(run, *prepared));
  // The output is written at the end, when days of work may lie behind.
  if (const std::string& output = run.spec().output.directory; !output.empty() && run.leads()) {
    const absl::Status writable =
        CheckExportTarget(run.spec().model.path, prepared->layout, output, run.files());
    if (!writable.ok()) {
      return absl::Status(writable.code(), absl::StrCat("output.directory: ", writable.message()));
    }
  }
  return prepared;
}

absl::StatusOr<std::unique_ptr<Trainer>> LoadTrainer(RunContext& run, PreparedRun& prepared) {
  if (!run.host().has_pool()) run.Report(TrainingPhase::kPreparing, "reserving host memory");
  MT_ASSIGN_OR_RETURN(HostPool* const pool,
                      run.host().GetOrReservePool(prepared.plan.pool_bytes, nullptr, [&run] {
                        return !run.CheckNotAbandoned().ok();
                      }));
  MT_ASSIGN_OR_RETURN(std::vector<RankParts> ranks, MakeRankParts(*prepared.session, prepared.plan,
                                                                  prepared.nccl, run.processes()));
  absl::StatusOr<std::unique_ptr<Trainer>> created =
      Trainer::Create(run.spec(), prepared.plan, std::move(ranks), pool);
  if (IsPoolBusy(created.status())) {
    const std::string message(created.status().message());
    // No other job is in the way: waiting would not help.
    if (pool->free_bytes() == pool->capacity()) return absl::ResourceExhaustedError(message);
    // The plan fits; another job has leased since, or what is free lies in pieces.
    return PoolBusyError(
        absl::StrCat("the job fits when other jobs give back what they hold: ", message));
  }
  MT_ASSIGN_OR_RETURN(std::unique_ptr<Trainer> trainer, std::move(created));
  if (const absl::Status status = FillTiles(run, prepared, *trainer); !status.ok()) {
    // Before the trainer ends, whose communicators wait for those of other processes.
    AbortAll(run.process_communicator(), status).IgnoreError();
    return status;
  }
  return trainer;
}

}  // namespace megatrain
