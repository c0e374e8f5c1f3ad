#include "engine/run/evaluation.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/data/sequences/batch.h"
#include "engine/hf/config_json.h"
#include "engine/hf/hf_weights.h"
#include "engine/host/session.h"
#include "engine/plan/memory_plan.h"
#include "engine/run/start/open_data.h"
#include "engine/run/start/prepare_run.h"
#include "engine/tokenizer/open_tokenizer.h"

namespace megatrain {
namespace {

using ReadSequence = absl::FunctionRef<absl::StatusOr<Sequence>(int64_t index)>;

absl::StatusOr<Batch> EvalBatch(ReadSequence read, int64_t begin, int64_t end,
                                int64_t sequences_per_micro_batch) {
  std::vector<Sequence> sequences;
  for (int64_t i = begin; i < end; ++i) {
    absl::StatusOr<Sequence> sequence = read(i);
    if (!sequence.ok()) return AsInputError(sequence.status());
    sequences.push_back(*std::move(sequence));
  }
  return MakeBatch(/*step=*/0, sequences, sequences_per_micro_batch);
}

void Add(const RewardSums& part, RewardSums& all) {
  all.pairs += part.pairs;
  all.chosen += part.chosen;
  all.rejected += part.rejected;
  all.preferred += part.preferred;
}

absl::StatusOr<EvaluatedSet> EvaluateSet(const EvalSet& set, ReadSequence read,
                                         const JobSpec::Training& training, Trainer& trainer,
                                         absl::FunctionRef<absl::Status()> go_on,
                                         RewardSums* rewards) {
  EvaluatedSet result;
  result.name = set.name;
  for (int64_t first = set.begin; first < set.end; first += training.global_batch) {
    MT_RETURN_IF_ERROR(go_on());
    MT_ASSIGN_OR_RETURN(const Batch batch,
                        EvalBatch(read, first, std::min(set.end, first + training.global_batch),
                                  training.micro_batch));
    result.predictions += batch.loss_terms();
    RewardSums of_batch;
    MT_ASSIGN_OR_RETURN(const double loss, trainer.EvaluateLossSum(batch, &of_batch));
    result.loss_sum += loss;
    if (rewards != nullptr) Add(of_batch, *rewards);
  }
  return result;
}

}  // namespace

absl::StatusOr<EvaluationReport> EvaluateDataset(const Dataset& dataset, ReadSequence read,
                                                 const JobSpec& spec, Trainer& trainer,
                                                 absl::FunctionRef<absl::Status()> go_on,
                                                 RewardSums* rewards) {
  EvaluationReport report;
  for (const EvalSet& set : dataset.eval_sets()) {
    MT_ASSIGN_OR_RETURN(const EvaluatedSet one,
                        EvaluateSet(set, read, spec.training, trainer, go_on, rewards));
    report.all.loss_sum += one.loss_sum;
    report.all.predictions += one.predictions;
    if (set.name.empty()) continue;
    if (one.predictions == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("data.eval: the set ", set.name, " holds no prediction to measure"));
    }
    report.sets.push_back(one);
  }
  if (report.all.predictions == 0) {
    return absl::InvalidArgumentError("the evaluation data holds no prediction to measure");
  }
  return report;
}

double EvaluatedSet::perplexity() const { return std::exp(loss()); }

absl::StatusOr<EvaluationReport> Evaluate(EngineHost& host, const JobSpec& given,
                                          const std::string& cache_directory,
                                          const std::function<void(const std::string&)>& say) {
  if (given.training.objective != Objective::kCausal) {
    return absl::InvalidArgumentError(
        "training.objective: an evaluation alone measures the loss of text; leave it causal");
  }
  JobSpec spec = given;
  spec.engine.devices = 1;  // one device evaluates
  const std::string& path = spec.model.path;
  MT_ASSIGN_OR_RETURN(const ModelDescription config, ReadModelDescription(path, host.files()));
  const ModelLayout layout = BuildModelLayout(config);
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<HfWeights> weights,
                      HfWeights::Open(path, layout, host.files()));
  spec.training.precision =
      weights->ExactDType() == DType::kBF16 ? Precision::kBf16 : Precision::kFp32;
  std::shared_ptr<const Tokenizer> tokenizer;
  const auto is_text = [](const DataFile& file) { return file.format != DataFormat::kTokens; };
  if (std::any_of(spec.data.eval.begin(), spec.data.eval.end(), is_text)) {
    MT_ASSIGN_OR_RETURN(tokenizer, OpenTokenizer(path, spec.data.tokenizer, host.files()));
  }
  absl::StatusOr<std::unique_ptr<Dataset>> dataset =
      OpenDataset(spec, tokenizer, path, config.vocabulary, cache_directory, nullptr, host.files(),
                  /*verify_data=*/false);
  if (!dataset.ok()) return AsInputError(dataset.status());
  for (const std::string& line : DescribeBadRecords((*dataset)->eval_report())) {
    if (say) say(line);
  }

  MT_ASSIGN_OR_RETURN(const std::shared_ptr<const Session> session, host.OpenSession(spec.engine));
  MT_ASSIGN_OR_RETURN(const MemoryBudget budget, host.BudgetNow(session->settings.on));
  MT_ASSIGN_OR_RETURN(const MemoryPlan plan,
                      PlanEvaluation(spec, layout, session->first().device->kernels(), budget));
  if (!plan.fits) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the evaluation does not fit\n", plan.Table()));
  }
  MT_ASSIGN_OR_RETURN(HostPool* const pool,
                      host.GetOrReservePool(plan.pool_bytes, nullptr, nullptr));
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer,
                      Trainer::Create(spec, plan, session->first().device.get(),
                                      session->first().updater.get(), pool));
  for (int tile = 0; tile < layout.tile_count(); ++tile) {
    MT_RETURN_IF_ERROR(weights->LoadTile(tile, trainer->tiles()[tile].front()));
  }
  MT_ASSIGN_OR_RETURN(EvaluationReport report,
                      EvaluateDataset(
                          **dataset, [&](int64_t index) { return (*dataset)->EvalSequence(index); },
                          spec, *trainer, [] { return absl::OkStatus(); }));
  const DatasetReport& data = (*dataset)->eval_report();
  report.sequences = (*dataset)->eval_sequences();
  report.documents = data.documents;
  report.tokens = data.tokens;
  return report;
}

}  // namespace megatrain
