#include "engine/run/start/reference_pass.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/comm/exchange.h"
#include "engine/data/sequences/batch.h"
#include "engine/run/start/load_tiles.h"
#include "engine/run/start/model_files.h"
#include "engine/run/start/open_data.h"
#include "engine/run/start/processes.h"

namespace megatrain {
namespace {

constexpr char kActivity[] = "computing the reference's log-probabilities";
// The sequences of a part, if a step has no more.
constexpr int64_t kPartSequences = 1024;

// Appends the hashes of the weights that the forward pass reads. REQUIRES: the tile is whole.
void AppendWeightHashes(const Tile& tile, std::vector<std::string>& lines) {
  for (const TensorSpec& tensor : tile.layout->tensors) {
    const Tile place = TensorTile(tile, tensor);
    const int64_t bytes = tensor.elements * DTypeBytes(place.weight_dtype);
    lines.push_back(absl::StrCat(
        tensor.name, " ",
        HashBytes({static_cast<const char*>(place.weights), static_cast<size_t>(bytes)})));
  }
}

// Where ranks share the tiles, the first process reads the model again, tile by tile.
absl::Status AppendModelHashes(const InitialModel& model, const PipelineDimensions& d,
                               std::vector<std::string>& lines) {
  std::vector<char> weights(static_cast<size_t>(d.layout->tile_elements_max * DTypeBytes(d.dtype)));
  std::vector<int16_t> remainder(
      static_cast<size_t>(d.dtype == DType::kBF16 ? d.layout->tile_elements_max : 0));
  for (int index = 0; index < d.layout->tile_count(); ++index) {
    Tile tile =
        MakeWeightsTile(&d.layout->tiles[static_cast<size_t>(index)], d.dtype, weights.data());
    if (!remainder.empty()) tile.remainder = remainder.data();  // weights are rounded beside it
    MT_RETURN_IF_ERROR(model.Load(index, tile));
    AppendWeightHashes(tile, lines);
  }
  return absl::OkStatus();
}

// Returns a hash of the weights, whatever their order in the tiles, which hold `model`.
absl::StatusOr<std::string> WeightsHash(RunContext& run, const InitialModel& model,
                                        const Trainer& trainer) {
  std::vector<std::string> lines;
  if (trainer.ranks() == 1) {
    for (const ProcessTile& tile : trainer.tiles()) AppendWeightHashes(tile.front(), lines);
  } else if (run.leads()) {
    MT_RETURN_IF_ERROR(AppendModelHashes(model, trainer.dimensions(), lines));
  }
  std::sort(lines.begin(), lines.end());
  std::string hash;
  MT_RETURN_IF_ERROR(ExchangeBytes(run.process_communicator(),
                                   HashBytes(absl::StrJoin(lines, "\n")),
                                   [&](int rank, absl::string_view bytes) {
                                     if (rank == 0) hash = std::string(bytes);
                                   }));
  return hash;
}

// Returns true if it is in all processes.
absl::StatusOr<bool> InAll(RunContext& run, bool here) {
  if (run.processes() == nullptr) return here;
  MT_ASSIGN_OR_RETURN(const std::vector<double> all,
                      run.process_communicator()->GatherValues({here ? 1.0 : 0.0}));
  return std::find(all.begin(), all.end(), 0.0) == all.end();
}

std::unique_ptr<ReferenceLogps> MakeReference(RunContext& run, const PreparedRun& prepared) {
  const JobSpec& spec = run.spec();
  const JobSpec::Training& training = spec.training;
  const std::string key = absl::StrCat(
      "megatrain reference 1\n", prepared.start.reference, "\n", ModelFingerprint(prepared.layout),
      "\n", prepared.dataset->fingerprint(), "\n", DTypeName(prepared.plan.dimensions.dtype), " ",
      training.global_batch, " ", training.micro_batch, "\n",
      prepared.session->first().device->Arithmetic(spec.engine.attention));
  const int64_t steps = std::max<int64_t>(1, kPartSequences / training.global_batch);
  return std::make_unique<ReferenceLogps>(
      spec.data.cache_directory.empty() ? spec.checkpoint.directory + "/data"
                                        : spec.data.cache_directory,
      key, prepared.dataset->train_sequences() + prepared.dataset->eval_sequences(),
      steps * training.global_batch, run.files());
}

absl::StatusOr<Sequence> ReadSequence(const Dataset& dataset, int64_t number) {
  const int64_t train = dataset.train_sequences();
  return number < train ? dataset.TrainSequence(number) : dataset.EvalSequence(number - train);
}

absl::StatusOr<std::vector<std::vector<double>>> ComputePart(RunContext& run,
                                                             const PreparedRun& prepared,
                                                             Trainer& trainer, int64_t part) {
  const JobSpec::Training& training = run.spec().training;
  const ReferenceLogps& reference = *prepared.reference;
  std::vector<std::vector<double>> logps;
  for (int64_t begin = reference.part_begin(part); begin < reference.part_end(part);) {
    MT_RETURN_IF_ERROR(run.CheckNotAbandoned());
    run.Report(TrainingPhase::kPreparing, kActivity,
               static_cast<double>(begin) / static_cast<double>(reference.sequences()));
    const int64_t end = std::min(begin + training.global_batch, reference.part_end(part));
    std::vector<Sequence> sequences;
    for (int64_t i = begin; i < end; ++i) {
      absl::StatusOr<Sequence> sequence = ReadSequence(*prepared.dataset, i);
      if (!sequence.ok()) return AsInputError(sequence.status());
      sequences.push_back(*std::move(sequence));
    }
    const Batch batch = MakeBatch(/*step=*/0, sequences, training.micro_batch);
    MT_ASSIGN_OR_RETURN(const std::vector<double> values, trainer.AnswerLogps(batch));
    auto next = values.begin();
    for (const Sequence& sequence : sequences) {
      const int32_t answers =
          *std::max_element(sequence.document_ids.begin(), sequence.document_ids.end()) + 1;
      logps.emplace_back(next, next + answers);
      next += answers;
      if (std::all_of(logps.back().begin(), logps.back().end(),
                      [](double value) { return std::isfinite(value); })) {
        continue;
      }
      return absl::InvalidArgumentError(
          absl::StrCat("training.objective: dpo: the model gives an answer of sequence ",
                       begin + static_cast<int64_t>(&sequence - sequences.data()),
                       " a log-probability that is not finite; its weights cannot be a reference"));
    }
    begin = end;
  }
  return logps;
}

}  // namespace

absl::StatusOr<bool> PrepareReference(RunContext& run, PreparedRun& prepared, Trainer& trainer) {
  const JobSpec::Training& training = run.spec().training;
  if (training.objective != Objective::kDpo || training.dpo_reference_free) return false;
  const std::string noted = prepared.start.reference;
  if (!noted.empty()) {
    prepared.reference = MakeReference(run, prepared);
    MT_ASSIGN_OR_RETURN(const bool there, InAll(run, prepared.reference->OpenAll()));
    if (there) return false;
    run.Say(
        "the reference's log-probabilities are not in the cache; they are made again from the "
        "model that the job began with");
  }
  // A run that begins anew has compared them before.
  if (!noted.empty() && !run.spec().model.random_initialization) {
    MT_RETURN_IF_ERROR(CheckSameWeights(run));
  }
  MT_ASSIGN_OR_RETURN(const InitialModel model, InitialModel::Open(run, prepared));
  MT_RETURN_IF_ERROR(model.Fill(trainer.tiles()));
  MT_ASSIGN_OR_RETURN(prepared.start.reference, WeightsHash(run, model, trainer));
  if (!noted.empty() && noted != prepared.start.reference) {
    return absl::FailedPreconditionError(absl::StrCat(
        "model.path: ", run.spec().model.path,
        " does not hold the weights with which the run began (their hash was ", noted, " and is ",
        prepared.start.reference,
        "), and the reference's log-probabilities have to be made again; restore the model, or the "
        "cache of prepared data"));
  }
  prepared.reference = MakeReference(run, prepared);
  int64_t made = 0;
  for (int64_t part = 0; part < prepared.reference->parts(); ++part) {
    MT_ASSIGN_OR_RETURN(const bool there, InAll(run, prepared.reference->Open(part)));
    if (there) continue;
    MT_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> logps,
                        ComputePart(run, prepared, trainer, part));
    const bool leads = prepared.directory_ranks.leads();
    MT_RETURN_IF_ERROR(LeaderFirst(run, leads, [&] {
      // Another process finds it there, or has a directory of its own.
      return !leads && prepared.reference->Open(part) ? absl::OkStatus()
                                                      : prepared.reference->Make(part, logps);
    }));
    ++made;
  }
  trainer.InvalidateDeviceWeights();
  run.Say(absl::StrCat("reference: the log-probabilities of the answers of ",
                       FormatCount(prepared.reference->sequences()), " sequences ",
                       made > 0 ? "were computed" : "were in the cache"));
  return true;
}

absl::StatusOr<Sequence> ReadEvalSequence(const PreparedRun& prepared, int64_t index) {
  MT_ASSIGN_OR_RETURN(Sequence sequence, prepared.dataset->EvalSequence(index));
  if (prepared.reference != nullptr) {
    MT_ASSIGN_OR_RETURN(sequence.reference_logps,
                        prepared.reference->Read(prepared.dataset->train_sequences() + index));
  }
  return sequence;
}

}  // namespace megatrain
