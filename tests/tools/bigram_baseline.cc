// bigram_baseline JOB.yaml: the held-out loss, in nats a prediction, of a bigram model that was
// counted on the job's training split: what a trained model is to be compared with. The split and
// the predictions are the job's own.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/data/sequences/sequence.h"
#include "engine/inspect/job_data.h"
#include "engine/job/job_parser.h"
#include "tests/tools/bigram_model.h"

namespace megatrain {
namespace {

// A table of pairs of this many tokens is 0.5 GB.
constexpr int64_t kVocabularyMax = 8192;

absl::StatusOr<double> HeldOutLoss(const char* job) {
  MT_ASSIGN_OR_RETURN(const JobSpec spec, ParseJobFile(job, {}));
  MT_ASSIGN_OR_RETURN(const JobData data, OpenJobData(spec));
  if (data.tokenizer == nullptr || data.tokenizer->vocabulary() > kVocabularyMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(job, ": expects a tokenizer of at most ", kVocabularyMax, " tokens"));
  }
  BigramModel model(data.tokenizer->vocabulary());
  for (int64_t i = 0; i < data.dataset->train_sequences(); ++i) {
    MT_ASSIGN_OR_RETURN(const Sequence sequence, data.dataset->TrainSequence(i));
    const std::vector<int32_t> targets = PredictionTargets(sequence);
    for (size_t t = 0; t < targets.size(); ++t) {
      if (targets[t] != kMaskedLabel) model.Add(sequence.input_ids[t], targets[t]);
    }
  }
  double sum = 0;
  int64_t predictions = 0;
  for (int64_t i = 0; i < data.dataset->eval_sequences(); ++i) {
    MT_ASSIGN_OR_RETURN(const Sequence sequence, data.dataset->EvalSequence(i));
    const std::vector<int32_t> targets = PredictionTargets(sequence);
    for (size_t t = 0; t < targets.size(); ++t) {
      if (targets[t] == kMaskedLabel) continue;
      sum += model.Loss(sequence.input_ids[t], targets[t]);
      ++predictions;
    }
  }
  if (predictions == 0) return absl::InvalidArgumentError(absl::StrCat(job, ": nothing held out"));
  return sum / static_cast<double>(predictions);
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: bigram_baseline JOB.yaml\n");
    return 2;
  }
  const absl::StatusOr<double> loss = megatrain::HeldOutLoss(argv[1]);
  if (!loss.ok()) {
    std::fprintf(stderr, "bigram_baseline: %s\n", std::string(loss.status().message()).c_str());
    return 1;
  }
  std::printf("%.4f\n", *loss);
  return 0;
}
