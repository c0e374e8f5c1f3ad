// A job's data as its training sees it, without a model in memory.
#ifndef MEGATRAIN_ENGINE_INSPECT_JOB_DATA_H_
#define MEGATRAIN_ENGINE_INSPECT_JOB_DATA_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/data/sequences/batch_loader.h"
#include "engine/job/job_spec.h"
#include "engine/tokenizer/tokenizer.h"

namespace megatrain {

struct JobData {
  std::shared_ptr<const Tokenizer> tokenizer;  // null if every file is `tokens`
  std::unique_ptr<Dataset> dataset;
};

// Opens what RunTraining would open: same tokenizer, same cache, same sequences.
absl::StatusOr<JobData> OpenJobData(const JobSpec& spec);

// Data files that no job file speaks of.
struct LooseData {
  DataFile file;                // path absolute
  std::string model_directory;  // whose tokenizer and template; empty: the bytes tokenizer
  std::string chat_template = "auto";
  int64_t sequence_length = 1024;
  std::string cache_directory;
};
absl::StatusOr<JobData> OpenLooseData(const LooseData& data);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_INSPECT_JOB_DATA_H_
