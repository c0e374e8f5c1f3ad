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

// The sections of the job file that TrainingOptions::allow_change may name.
inline constexpr const char* kChangeableSections[] = {"optimizer", "schedule"};

struct TrainingOptions {
  ResumeMode resume = ResumeMode::kAuto;
  std::string resume_path;  // kPath
  // Removes the checkpoints in checkpoint.directory that are newer than the one resumed from, once
  // the run has saved its first checkpoint. If this is false and there are newer ones, the run is
  // refused (FailedPrecondition).
  bool discard_newer = false;
  // The sections of the job file, of kChangeableSections, that a resumed run may change.
  // Their changes are noted in the checkpoints.
  std::vector<std::string> allow_change;
  // Reads every data file and the whole cache of tokenised data before training, also those that
  // look unchanged since they were read last.
  bool verify_data = false;
  // Pauses the run in place when the disk of the checkpoints or of the output is full, and writes
  // again after Resume. If this is false, a checkpoint that does not fit is reported as
  // CheckpointFailed, and the run fails if the last checkpoint or the output does not fit.
  bool pause_on_full_disk = false;
  // The file system for everything that the job names or makes. It must outlive the run. Null means
  // the host's.
  FileSystem* files = nullptr;
  // Called while work goes on that no event reports: when bytes were read or written, and for each
  // batch of an evaluation. It is called often and from any thread, so it must be cheap. May be
  // empty.
  std::function<void()> alive;
};

enum class TrainingOutcome {
  kFinished,
  kStoppedEarly,  // by training.stop_after_worse; saved, and the output written, like kFinished
  kInterrupted,   // by Stop; saved if a step was made
  kReleased,      // by Release; saved if a step was made
  kCancelled,     // by Cancel; not saved
};

// Trains `spec` on the host's threads, device and pool, and returns when the job is finished or
// `control` has ended it. The run gives back what it took before this returns. `control` must not
// be null; `tell` may be empty and is called on the calling thread. Paths in `spec` must be
// absolute, and its directories must be filled in. Returns
//   ResourceExhausted   if the job does not fit; the message holds the plan's table
//   Unavailable         if the job would fit if other jobs held less of the pool
//   InvalidArgument, NotFound, FailedPrecondition
//                       if the spec, the input or checkpoint.directory cannot be used
//   Aborted             if a loss, a gradient or an update is not finite; names the step
//   DataLoss            if the checkpoints are damaged
// and other errors as they are. IsDiskFull recognises a full disk. IsDeviceLost recognises a device
// that only another process can use again; the job can be resumed there from its newest checkpoint.
absl::StatusOr<TrainingOutcome> RunTraining(EngineHost& host, const JobSpec& spec,
                                            const TrainingOptions& options,
                                            TrainingControl* control, const RunSink& tell);

// Plans `spec` on this machine as it is now. Measures the machine's rates, which takes about a
// second. If the machine does not have the GPU, the plan is made for one with engine.device_memory,
// without times; FailedPrecondition if the job does not set that. `open_gpu` may be null.
// `given_rates` replace measured rates ("NAME=VALUE", see SetRate in hardware_rates.h). Returns
// InvalidArgument for a rate that SetRate refuses, and if there are no measured ones to replace.
//
// In all three functions a job that does not fit gives a report with fits == false. They return the
// errors of ReadModelConfig, PlanMemory and ChooseSession; this one also those of the device.
absl::StatusOr<PlanReport> PlanTraining(const JobSpec& spec, const GpuOpener& open_gpu = nullptr,
                                        const std::vector<std::string>& given_rates = {});
// Plans `spec` on a machine that is not here, with the rates of `profile` except for those given.
// Host memory is limited by engine.host_memory only. Returns InvalidArgument for a job of the cpu
// device.
absl::StatusOr<PlanReport> PlanTraining(const JobSpec& spec, const MachineProfile& profile,
                                        const std::vector<std::string>& given_rates = {});
// Plans `spec` on a host with this budget on which nothing else runs. A job that does not fit now
// will never fit there. Reads the model's config.json, from `files`, and no other file.
absl::StatusOr<PlanReport> PlanTraining(const JobSpec& spec, const EngineBudget& budget,
                                        FileSystem* files);

struct GenerateOptions {
  std::string prompt;
  int64_t tokens = 128;      // at most; an end-of-sequence token ends the text earlier
  double temperature = 0.8;  // 0 takes the likeliest token
  uint64_t seed = 42;
  std::string tokenizer = "auto";
  AddBos add_bos = AddBos::kAuto;  // as data.add_bos
};
// Continues options.prompt with the model in `path`, a Hugging Face directory or a checkpoint. Uses
// the host's threads, device and pool, and streams tiles as training does. `emit` is called on the
// calling thread with each new piece of text, in whole UTF-8 characters. Returns InvalidArgument
// for a prompt without tokens or one that is too long with options.tokens, ResourceExhausted if the
// model does not fit, and the errors of reading the model.
absl::Status Generate(EngineHost& host, const std::string& path, const GenerateOptions& options,
                      const std::function<void(const std::string& text)>& emit);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_ENGINE_H_
