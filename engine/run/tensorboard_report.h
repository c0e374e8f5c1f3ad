// TensorBoardReport writes a run's metrics as TensorBoard event files into report.tensorboard.
//
// Each run that has been prepared writes a file of its own. The file begins with its version and a
// session log that names the run's first step. TensorBoard then drops this step and later ones of
// earlier files, because a resumed run makes them again. The job's settings follow as a text, then
// the scalars of every step and, as texts, the answers to sample prompts.
//
// Thread safety: the training thread calls all methods.
#ifndef MEGATRAIN_ENGINE_RUN_TENSORBOARD_REPORT_H_
#define MEGATRAIN_ENGINE_RUN_TENSORBOARD_REPORT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "engine/base/file.h"
#include "engine/job/job_spec.h"
#include "engine/run_event.h"

namespace megatrain {

class TensorBoardReport {
 public:
  // The arguments must outlive this; `files` must not be null. If the job names no directory,
  // nothing is written.
  TensorBoardReport(const JobSpec& spec, FileSystem* files) : spec_(spec), files_(files) {}

  // Makes the file when the first StepsBegin comes, writes each StepRecord and SampledAnswer, and
  // syncs the file at each BeforeCheckpoint. Other events change nothing. Returns the first error
  // of writing. After it nothing more is written, and every result is OK.
  absl::Status Note(const RunEvent& event);

 private:
  absl::Status Begin(int64_t first_step);
  absl::Status Add(const StepRecord& record);
  absl::Status Add(const SampledAnswer& answer);
  absl::Status Append(const std::string& record);

  const JobSpec& spec_;
  FileSystem* const files_;
  std::unique_ptr<WritableFile> file_;  // null before the first step, and after an error
  bool begun_ = false;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_TENSORBOARD_REPORT_H_
