// The engine's public face: what the foreground command and the daemon both call.
#ifndef MEGATRAIN_ENGINE_ENGINE_H_
#define MEGATRAIN_ENGINE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/host/engine_host.h"      // IWYU pragma: export
#include "engine/host/machine_profile.h"  // IWYU pragma: export
#include "engine/job/job_spec.h"
#include "engine/plan_report.h"       // IWYU pragma: export
#include "engine/run_event.h"         // IWYU pragma: export
#include "engine/training_control.h"  // IWYU pragma: export

namespace megatrain {

enum class ResumeMode { kAuto, kNever, kPath };

struct TrainingOptions {
  ResumeMode resume = ResumeMode::kAuto;
  std::string resume_path;  // kPath
  // Checkpoints in checkpoint.directory that are newer than the one resumed from are removed when
  // the run has saved its first. Without it such a run is refused.
  bool discard_newer = false;
  // A full disk under the checkpoints or the output pauses the run in place instead of being told
  // (a checkpoint) or ending the run (the last checkpoint, the output). What could not be written
  // is tried again after Resume.
  bool pause_on_full_disk = false;
  // Of everything that the job names or makes; must outlive the run. Null: the host's.
  FileSystem* files = nullptr;
  // Called where work goes on and no event tells it: bytes were read or written, an evaluation's
  // batch is done. From any thread, often; must be cheap. May be empty.
  std::function<void()> alive;
};

enum class TrainingOutcome {
  kFinished,
  kInterrupted,  // Stop: saved, if a step was made
  kReleased,     // Release: saved, if a step was made
  kCancelled,
};

// Trains `spec` to its end or until told otherwise, on the host's threads, device and pool; what it
// took goes back before this returns. `tell` may be empty. Paths in `spec` are absolute,
// directories filled in. A job that does not fit: ResourceExhausted whose message is the plan's
// table; one that would fit if other jobs held less of the pool: Unavailable. Invalid spec or
// input: InvalidArgument, NotFound, FailedPrecondition. A non-finite loss or gradient: Aborted,
// naming step and tile. Damaged checkpoints: DataLoss. IsDiskFull tells a full disk from the rest,
// IsDeviceLost a device that only another process can use again: the job goes on from its newest
// checkpoint there.
absl::StatusOr<TrainingOutcome> RunTraining(EngineHost& host, const JobSpec& spec,
                                            const TrainingOptions& options,
                                            TrainingControl* control, const RunSink& tell);

// On this machine as it is now, whose rates are measured for it (about a second). A GPU
// that this machine has not is planned for by engine.device_memory, without times. `given_rates`
// take the place of measured ones (SetRate in hardware_rates.h).
absl::StatusOr<PlanReport> PlanTraining(const JobSpec& spec, const GpuOpener& open_gpu = nullptr,
                                        const std::vector<std::string>& given_rates = {});
// On a machine that is not here: its rates are the profile's but for those given, its host memory
// what the job allows.
absl::StatusOr<PlanReport> PlanTraining(const JobSpec& spec, const MachineProfile& profile,
                                        const std::vector<std::string>& given_rates = {});
// On a host with this budget, nothing else running: what does not fit there never will. Reads the
// model's config.json, from `files`, and nothing else.
absl::StatusOr<PlanReport> PlanTraining(const JobSpec& spec, const EngineBudget& budget,
                                        FileSystem* files);

// Text from a HF directory or checkpoint, its tiles streamed as in training. temperature 0 is
// greedy.
struct GenerateOptions {
  std::string prompt;
  int64_t tokens = 128;
  double temperature = 0.8;
  uint64_t seed = 42;
  std::string tokenizer = "auto";
};
// On the host's threads, device and pool. `emit` is called with each new piece of text.
absl::Status Generate(EngineHost& host, const std::string& path, const GenerateOptions& options,
                      const std::function<void(const std::string& text)>& emit);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_ENGINE_H_
