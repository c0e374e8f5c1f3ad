// Opens a job's data as its training sees it, without loading the model. Reads and writes by
// PosixFileSystem.
#ifndef MEGATRAIN_ENGINE_INSPECT_JOB_DATA_H_
#define MEGATRAIN_ENGINE_INSPECT_JOB_DATA_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/data/sequences/dataset.h"
#include "engine/job/job_spec.h"
#include "engine/tokenizer/tokenizer.h"

namespace megatrain {

// A job's tokenizer and data.
struct JobData {
  std::shared_ptr<const Tokenizer> tokenizer;  // null if all files have format `tokens`
  std::unique_ptr<Dataset> dataset;
};

// Opens the tokenizer, the token cache and the sequences that training would use for `spec`, whose
// paths must be absolute, with checkpoint.directory given. If the job leaves data.template_date
// open, takes that of the job's newest checkpoint, or today if there is none. Tokenises data that
// is not in the cache, and writes it there. With `verify_data` also reads again data that looks
// unchanged. Returns the errors of ReadModelDescription, OpenTokenizer and OpenDataset.
absl::StatusOr<JobData> OpenJobData(const JobSpec& spec, bool verify_data = false);

// A data file without a job file.
struct StandaloneDataFile {
  DataFile file;                       // with an absolute path
  std::string model_directory;         // has the tokenizer; "": the bytes tokenizer
  std::string chat_template = "auto";  // the directory's; chatml if there is no directory
  int64_t sequence_length = 1024;
  std::string cache_directory;  // tokenized data is kept there; must be given
};
// Opens the file as training data without shuffling its sequences. Pairs of answers are read as for
// training.objective dpo. Returns the errors of OpenTokenizer and OpenDataset.
absl::StatusOr<JobData> OpenStandaloneDataFile(const StandaloneDataFile& data);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_INSPECT_JOB_DATA_H_
