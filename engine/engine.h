// The engine's public face: what the foreground command and the daemon both call.
#ifndef MEGATRAIN_ENGINE_ENGINE_H_
#define MEGATRAIN_ENGINE_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/job/job_spec.h"
#include "engine/trace/step_record.h"

namespace megatrain {

// Requests from outside, honoured between steps. Thread safe; may be set from a signal handler.
struct TrainingControl {
  std::atomic<bool> stop{false};        // finish the step, save, end as interrupted
  std::atomic<bool> checkpoint{false};  // save after the step; reset when taken
};

enum class ResumeMode { kAuto, kNever, kPath };

struct TrainingOptions {
  ResumeMode resume = ResumeMode::kAuto;
  std::string resume_path;  // kPath
};

// Called from the training thread.
struct TrainingObserver {
  // A line for people: what is loaded, data report, warnings, checkpoints written.
  std::function<void(const std::string& line)> message;
  // Once, before the first step.
  std::function<void(int64_t first_step, int64_t total_steps)> started;
  std::function<void(const StepRecord& record)> step;
};

enum class TrainingOutcome { kFinished, kInterrupted };

// Trains `spec` to its end or until stopped. Paths in `spec` are absolute, directories filled in. A
// job that does not fit: ResourceExhausted whose message is the plan's table. Invalid spec or
// input: InvalidArgument, NotFound. A non-finite loss or gradient: Aborted, naming step and tile.
absl::StatusOr<TrainingOutcome> RunTraining(const JobSpec& spec, const TrainingOptions& options,
                                            TrainingControl* control,
                                            const TrainingObserver& observer);

// The bytes a job needs on host, device and disk, as a table.
struct PlanReport {
  bool fits = false;
  std::string table;  // for people
  std::string json;
  int64_t pool_bytes = 0;        // of the host pool
  int64_t checkpoint_bytes = 0;  // of one checkpoint on disk
};
absl::StatusOr<PlanReport> PlanTraining(const JobSpec& spec);

// Text from a HF directory or checkpoint, its tiles streamed as in training. temperature 0 is
// greedy.
struct GenerateOptions {
  std::string prompt;
  int64_t tokens = 128;
  double temperature = 0.8;
  uint64_t seed = 42;
  std::string tokenizer = "auto";
  int threads = 0;
};
// `emit` is called with each new piece of text.
absl::Status Generate(const std::string& path, const GenerateOptions& options,
                      const std::function<void(const std::string& text)>& emit);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_ENGINE_H_
