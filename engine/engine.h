// The engine's public interface: training, plans, generation and evaluation. The foreground command
// and the daemon both call it.
#ifndef MEGATRAIN_ENGINE_ENGINE_H_
#define MEGATRAIN_ENGINE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"
#include "engine/host/engine_host.h"      // IWYU pragma: export
#include "engine/host/machine_profile.h"  // IWYU pragma: export
#include "engine/job/job_spec.h"
#include "engine/plan_report.h"       // IWYU pragma: export
#include "engine/run_event.h"         // IWYU pragma: export
#include "engine/training_control.h"  // IWYU pragma: export

namespace megatrain {

// The checkpoint that a run resumes from. FindResumePoint (engine/run/start/resume_point.h) has the
// details.
enum class ResumeMode {
  kAuto,   // the newest good checkpoint in checkpoint.directory; anew if there is none at all
  kNever,  // anew; refused if there is any checkpoint
  kPath,   // TrainingOptions::resume_path
};

// The sections of the job file that TrainingOptions::allow_change may name.
inline constexpr const char* kChangeableSections[] = {"optimizer", "schedule"};

struct TrainingOptions {
  ResumeMode resume = ResumeMode::kAuto;
  std::string resume_path;  // kPath: the absolute path of a step's directory
  // Removes the checkpoints in checkpoint.directory that are newer than the one resumed from, once
  // the run has saved its first checkpoint. If this is false and there are newer ones, the run is
  // refused (FailedPrecondition). Checkpoints that are known to be damaged do not count.
  bool discard_newer = false;
  // The sections of the job file that a resumed run may change, each one of kChangeableSections.
  // The checkpoints note the changes.
  std::vector<std::string> allow_change;
  // Reads every data file and the whole cache of tokenized data before training, also those that
  // look unchanged since they were read last.
  bool verify_data = false;
  // Pauses the run in place when the disk of the checkpoints or of the output is full, and writes
  // again after Resume. If this is false, a checkpoint that does not fit is reported as
  // CheckpointFailed, and the run fails if the last checkpoint or the output does not fit.
  // REQUIRES: it is false if `processes` is set, because Resume does not reach such a run.
  bool pause_on_full_disk = false;
  // The communicators of this process, if the job runs in several processes; null for a process
  // alone. Each process has one rank and one device, and all of them call RunTraining with the same
  // job. The set must outlive the run. The run takes communicators out of it, so no other run may
  // use it. Stop, Checkpoint and Cancel requested of one process take effect in all. Pause has no
  // effect, and Release none once the processes have prepared. While the processes prepare, a
  // request to end one ends all with kInterrupted. After an error all processes return the first
  // error of any; of errors at the same time, a process may return its own. Every process reports
  // its own StepsBegin, TrainingActivity and StepRecord events. The process with rank 0 alone
  // reports the other events.
  CommunicatorSet* processes = nullptr;
  // The numbers of the host's devices that the run has, ascending: as many as the job claims (see
  // ClaimDevices). Empty means the first ones that it may have.
  std::vector<int> devices;
  // The file system for everything that the job names or makes. It must outlive the run. Null means
  // the host's.
  FileSystem* files = nullptr;
  // Called while work goes on that no event reports: when bytes were read or written, while host
  // memory is reserved, when operations of the first step have ended, and for each batch of an
  // evaluation and each pass of sample answers. It is called often and from any thread, so it must
  // be cheap. May be empty.
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
// `control` has ended it. The run gives back what it took of the pool and of the device before this
// returns. `control` must not be null; `tell` may be empty and is called on the calling thread.
// Paths in `spec` must be absolute, and checkpoint.directory must be given. Returns
//   ResourceExhausted   if the job does not fit; the message holds the plan's table, unless the
//                       plan fitted and the memory was taken by then. IsPoolBusy (pool_busy.h) is
//                       true if the job would fit if others held less of the pool
//   InvalidArgument, NotFound, FailedPrecondition
//                       if the spec, the input or checkpoint.directory cannot be used
//   Aborted             if a loss, a gradient or an update is not finite; names the step, and the
//                       checkpoint to go on from, after saving what is good
//   DataLoss            if the checkpoints are damaged
// and other errors of reading the input, of the disk, the device and the communicators. If the job
// runs in one process, IsDiskFull recognizes a full disk, and IsDeviceLost recognizes a device that
// only another process can use again. The job can be resumed in that process from its newest
// checkpoint.
absl::StatusOr<TrainingOutcome> RunTraining(EngineHost& host, const JobSpec& spec,
                                            const TrainingOptions& options,
                                            TrainingControl* control, const RunSink& tell);

// Three functions plan a job. All of them give a report with fits == false for a job that does not
// fit, and return the errors of ReadModelDescription, BuildTrainingLayout, PlanMemory,
// DescribeIgnoredTensors and ChooseSession. The first two read files by PosixFileSystem.

// Plans `spec` on this machine as it is now, or on `nodes` such machines with engine.devices
// devices each; the report gives the memory of one machine. If the machine does not have the GPU,
// the plan is made for one with engine.device_memory, without times. If it has fewer GPUs than the
// job wants, one of them stands for the others. A null `open_gpu` means that the program has no GPU
// support. `load_nccl` may be null.
//
// Measures the machine's rates, which takes some seconds and, for several GPUs, as long as NCCL
// takes to start (EngineHost::MeasureRates). If they cannot be measured, the plan is made without
// times. `given_rates` replace measured rates ("NAME=VALUE", see SetRate in hardware_rates.h). The
// rate `network` holds between machines. Without it the rate `collective` holds there too; for
// several nodes `collective` is then not measured.
//
// Returns FailedPrecondition if the GPU is not here and the job does not set engine.device_memory,
// InvalidArgument for a rate that SetRate refuses and for rates of a GPU that is not here, and the
// errors of opening the device and of reading the free memory. REQUIRES: nodes >= 1.
absl::StatusOr<PlanReport> PlanTraining(const JobSpec& spec, const GpuOpener& open_gpu = nullptr,
                                        const std::vector<std::string>& given_rates = {},
                                        int nodes = 1, const NcclLoader& load_nccl = nullptr);
// Plans `spec` on a machine that is not here, with the rates of `profile` except for those given.
// Host memory is limited by engine.host_memory only. Returns InvalidArgument for a job of the cpu
// device and for a rate that SetRate refuses. REQUIRES: nodes >= 1.
absl::StatusOr<PlanReport> PlanTraining(const JobSpec& spec, const MachineProfile& profile,
                                        const std::vector<std::string>& given_rates = {},
                                        int nodes = 1);
// Plans `spec` on a host with this budget on which nothing else runs, on the devices `on` as in
// TrainingOptions::devices. If `on` is empty, the job is planned on the devices that it gets there:
// those that it names, or else the first in HostDevices::ByMemory on which it fits. A job that does
// not fit then never fits on this host. Reads the model's config.json and the names of its tensors,
// from `files`, and no weights. `files` must not be null.
absl::StatusOr<PlanReport> PlanTraining(const JobSpec& spec, const EngineBudget& budget,
                                        FileSystem* files, const std::vector<int>& on = {});

struct GenerateOptions {
  std::vector<Prompt> prompts;
  // Where each prompt comes from, for messages: "prompts.txt:3". A prompt without a place, since
  // this list is shorter, is named by its number.
  std::vector<std::string> prompt_places;
  // Prompts with a text are a user's turn. A record with `messages` always is a conversation.
  bool chat = false;
  std::string chat_template = "auto";  // as data.chat_template
  // REQUIRES: tokens >= 1, temperature >= 0, top_k >= 0, 0 < top_p <= 1.
  int64_t tokens = 128;      // at most; a stop ends an answer earlier
  double temperature = 0.8;  // 0 takes the likeliest token
  int64_t top_k = 0;         // 0 = all tokens
  double top_p = 1;          // 1 = all tokens
  // Every prompt has random numbers of its own. They begin from this seed, or from the `seed` of
  // the prompt's record.
  uint64_t seed = 42;
  // The texts and the token ids that end an answer, besides the model's own end tokens. A text that
  // is the name of a special token stands for that token too.
  std::vector<std::string> stop_texts;
  std::vector<int64_t> stop_ids;
  std::string tokenizer = "auto";  // as data.tokenizer
  AddBos add_bos = AddBos::kAuto;  // as data.add_bos
  // The threads, the device and the limits of memory. The key-value cache takes what it needs of
  // engine.device_memory. The rest holds weights, which are then not loaded again for every token.
  // If engine.device_memory is 0, a GPU's free memory is the limit, and on the cpu device all
  // weights are streamed.
  JobSpec::Engine engine = {};
};

struct GeneratedText {
  std::string text;  // whole UTF-8 characters, without special tokens and without a stop text
  // The tokens of the prompt and those of the answer. A token that is a stop by its id is not
  // counted; the tokens of a stop text are.
  int64_t prompt_tokens = 0, tokens = 0;
  bool stopped = false;  // the answer was ended by a stop, not by its length
};

// In both functions `prompt` is an index into GenerateOptions::prompts.
struct GenerateSink {
  // Receives each new piece of an answer, in whole UTF-8 characters. May be empty.
  std::function<void(size_t prompt, const std::string& text)> piece;
  // Receives the answers in the order of the prompts, when those that are generated together are
  // done. May be empty.
  std::function<void(size_t prompt, const GeneratedText& answer)> answer;
  // Receives lines for people. May be empty.
  std::function<void(const std::string& line)> say;
};
// Answers the prompts with the model in `path`, a Hugging Face directory or a checkpoint, which
// host.files() reads. Uses the host's threads, device and pool, and streams the weights tile by
// tile (engine/model/tile.h) as training does: a tile is loaded once for the tokens of all prompts
// that are answered together. No more prompts are answered together than there is device memory for
// their keys and values. An answer does not depend on the other prompts, except with longrope,
// whose factors follow the longest prompt with its answer (RopeConfig::short_factors). The sink is
// called on the calling thread. Returns
//   InvalidArgument    if there is no prompt, or if one has no tokens, has a token that the model
//                      does not have, is too long with options.tokens or is refused by the chat
//                      template; also for an empty stop text and a stop id that the model does not
//                      have
//   ResourceExhausted  if the model does not fit; with the bytes
// and the errors of reading the model, of the host's pool and of the device. After an error some
// answers may have been given to the sink.
absl::Status Generate(EngineHost& host, const std::string& path, const GenerateOptions& options,
                      const GenerateSink& sink);
// Reads prompts from a file and appends them to `options`, with their places. Every line is a
// prompt: a record if `path` ends in ".jsonl", else a text. Blank lines are left out. Returns
// InvalidArgument for a file without prompts, OutOfRange for one of more than 256 MiB, and the
// errors of reading. `files` must not be null. REQUIRES: all prompts that are in `options` before
// have places.
absl::Status ReadPrompts(const std::string& path, FileSystem* files, GenerateOptions* options);

struct EvaluatedSet {
  std::string name;  // DataFile::name; empty for files without one, and for all together
  double loss_sum = 0;
  int64_t predictions = 0;  // predicted tokens; pairs of answers for a preference objective

  // Returns the mean loss of a prediction. REQUIRES: predictions > 0.
  double loss() const { return loss_sum / static_cast<double>(predictions); }
  double perplexity() const;  // exp(loss)
};

struct EvaluationReport {
  EvaluatedSet all;
  std::vector<EvaluatedSet> sets;                    // those with a name
  int64_t documents = 0, tokens = 0, sequences = 0;  // of all files together
};
// Measures the loss over the files of data.eval with the model in spec.model.path, a Hugging Face
// directory or a checkpoint. It uses one device of the host, whatever engine.devices says. The
// section `data` says how the files are read, and `training` the sizes of batches, as in a run. The
// precision is BF16 if that holds the stored weights exactly, else FP32. Paths must be absolute;
// host.files() opens them. data.train should be empty, because its files are prepared too.
// Tokenized data goes to data.cache_directory, or to `cache_directory` if that is empty. `say`
// receives lines for people; it may be empty. Returns
//   ResourceExhausted  if the evaluation does not fit; with the bytes
//   InvalidArgument    if training.objective is not causal, or if the files, or those of one name,
//                      hold no prediction
// and the errors of reading the model and the files, of the host's pool and of the device.
absl::StatusOr<EvaluationReport> Evaluate(EngineHost& host, const JobSpec& spec,
                                          const std::string& cache_directory,
                                          const std::function<void(const std::string&)>& say);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_ENGINE_H_
