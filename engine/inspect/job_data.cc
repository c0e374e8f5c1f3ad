#include "engine/inspect/job_data.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "engine/base/status.h"
#include "engine/checkpoint/newest_checkpoint.h"
#include "engine/hf/config_json.h"
#include "engine/tokenizer/open_tokenizer.h"

namespace megatrain {
namespace {

bool IsText(const DataFile& file) { return file.format != DataFormat::kTokens; }

bool NeedsTokenizer(const JobSpec& spec) {
  return std::any_of(spec.data.train.begin(), spec.data.train.end(), IsText) ||
         std::any_of(spec.data.eval.begin(), spec.data.eval.end(), IsText);
}

}  // namespace

absl::StatusOr<JobData> OpenJobData(const JobSpec& spec, bool verify_data) {
  MT_ASSIGN_OR_RETURN(const ModelDescription config, ReadModelDescription(spec.model.path));
  JobData data;
  if (NeedsTokenizer(spec)) {
    MT_ASSIGN_OR_RETURN(data.tokenizer, OpenTokenizer(spec.model.path, spec.data.tokenizer));
  }
  JobSpec dated = spec;
  if (spec.data.template_date.empty()) {
    dated.data.template_date = NewestSpecValue(spec.checkpoint.directory, "data.template_date");
  }
  MT_ASSIGN_OR_RETURN(
      data.dataset,
      OpenDataset(dated, data.tokenizer, spec.model.path, config.vocabulary,
                  spec.checkpoint.directory + "/data", nullptr, PosixFileSystem(), verify_data));
  return data;
}

absl::StatusOr<JobData> OpenStandaloneDataFile(const StandaloneDataFile& loose) {
  JobSpec spec;
  spec.model.path = loose.model_directory;
  spec.data.train = {loose.file};
  if (loose.file.format == DataFormat::kPreference) spec.training.objective = Objective::kDpo;
  spec.data.sequence_length = loose.sequence_length;
  spec.data.shuffle = false;
  // The bytes tokenizer's own template; "auto" would look for one in the working directory.
  const bool is_own = loose.model_directory.empty() && loose.chat_template == "auto";
  spec.data.chat_template = is_own ? "chatml" : loose.chat_template;
  spec.data.tokenizer = loose.model_directory.empty() ? "bytes" : "auto";
  JobData data;
  int64_t vocabulary = std::numeric_limits<int32_t>::max();
  if (NeedsTokenizer(spec)) {
    MT_ASSIGN_OR_RETURN(data.tokenizer, OpenTokenizer(spec.model.path, spec.data.tokenizer));
    vocabulary = data.tokenizer->vocabulary();
  }
  MT_ASSIGN_OR_RETURN(data.dataset, OpenDataset(spec, data.tokenizer, spec.model.path, vocabulary,
                                                loose.cache_directory, nullptr));
  return data;
}

}  // namespace megatrain
