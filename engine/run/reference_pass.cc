#include "engine/run/reference_pass.h"

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
#include "engine/data/sequences/batch.h"
#include "engine/hf/master_convert.h"

namespace megatrain {
namespace {

constexpr char kActivity[] = "computing the reference's log-probabilities";
// The sequences of a part, if a step has no more.
constexpr int64_t kPartSequences = 1024;

// A hash of the weights that the forward pass reads, whatever their order in the tiles. REQUIRES:
// the tiles are whole.
std::string WeightsHash(const ModelLayout& layout, const std::vector<Tile>& tiles) {
  std::vector<std::string> lines;
  ForEachTensor(layout, [&](int tile, const TensorSpec& tensor) {
    const Tile place = PlaceOf(tiles[tile], tensor);
    const int64_t bytes = tensor.elements * DTypeBytes(place.weight_dtype);
    lines.push_back(absl::StrCat(
        tensor.name, " ",
        HashBytes({static_cast<const char*>(place.weights), static_cast<size_t>(bytes)})));
  });
  std::sort(lines.begin(), lines.end());
  return HashBytes(absl::StrJoin(lines, "\n"));
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
    MT_RETURN_IF_ERROR(run.GoOn());
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

absl::StatusOr<bool> PrepareReference(RunContext& run, PreparedRun& prepared, Trainer& trainer,
                                      absl::FunctionRef<absl::Status()> fill) {
  const JobSpec::Training& training = run.spec().training;
  if (training.objective != Objective::kDpo || training.dpo_reference_free) return false;
  const std::string noted = prepared.start.reference;
  if (!noted.empty()) {
    prepared.reference = MakeReference(run, prepared);
    if (prepared.reference->OpenAll()) return false;
    run.Say(
        "the reference's log-probabilities are not in the cache; they are made again from the "
        "model that the job began with");
  }
  MT_RETURN_IF_ERROR(fill());
  prepared.start.reference = WeightsHash(prepared.layout, trainer.tiles());
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
    if (prepared.reference->Open(part)) continue;
    MT_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> logps,
                        ComputePart(run, prepared, trainer, part));
    MT_RETURN_IF_ERROR(prepared.reference->Make(part, logps));
    ++made;
  }
  trainer.ForgetLoaded();
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
