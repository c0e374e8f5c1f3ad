// TensorBoardReport writes a run's metrics as TensorBoard event files into report.tensorboard.
//
// Each run that makes steps writes a file of its own: the job's settings as a text, then the
// scalars of every step and, as texts, the answers to sample prompts. A resumed run's file begins
// with a session log of its first step, for which TensorBoard drops what earlier files hold of this
// step and later ones.
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
  // Writes nothing if the job names no directory. The arguments must outlive this.
  TensorBoardReport(const JobSpec& spec, FileSystem* files) : spec_(spec), files_(files) {}

  // Writes what is to be seen of the event. Returns the first error of writing; after it nothing
  // more is written.
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
