// RunEvent is a report that a run gives to its caller, in the order in which things happen.
#ifndef MEGATRAIN_ENGINE_RUN_EVENT_H_
#define MEGATRAIN_ENGINE_RUN_EVENT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "engine/trace/step_record.h"

namespace megatrain {

// A line for people, such as a warning or a report about the data. It may contain line ends.
struct RunMessage {
  std::string line;
};

enum class TrainingPhase {
  kPreparing,  // reads, tokenizes and loads, before the first step
  kRunning,    // makes steps
  kSaving,     // waits for a checkpoint or the output to be written
  kPaused,     // waits for Resume (TrainingPause)
};

struct TrainingActivity {
  TrainingPhase phase = TrainingPhase::kPreparing;
  std::string what;      // "loading the model", "saving step 7"; empty while running or paused
  double fraction = -1;  // the part of `what` that is done, from 0 to 1; negative means unknown
};

// Steps begin. Reported before the first step, and again when the run goes on after a pause, even
// if Resume came before the pause took effect. A run that was finished already reports a first_step
// above total_steps. One that training.stop_after_worse had ended makes no step after the report.
struct StepsBegin {
  int64_t first_step = 0, total_steps = 0;
};

// The checkpoint of `step` is about to become valid. When the sink returns, everything that must
// not be lost as long as the checkpoint exists, such as the records of its steps, must be on stable
// storage.
struct BeforeCheckpoint {
  int64_t step = 0;
};

// A verified checkpoint is on disk. Reported again if a checkpoint is requested and no step was
// made since; of a run that has resumed, that may be the one that it resumed from.
struct CheckpointSaved {
  int64_t step = 0;
  std::string directory;
  // From the beginning of its writing, which overlaps steps. 0 for the checkpoint that the run
  // resumed from.
  double seconds = 0;
};

// A checkpoint could not be written. The one before is kept. Step 0 answers a request that came
// before the first step.
struct CheckpointFailed {
  int64_t step = 0;
  absl::Status status;
};

// The run stands still. It keeps its host state and has given the device back. No step runs until
// TrainingControl::Resume.
struct TrainingPause {
  // OK if the pause was requested. Otherwise the error that made the run pause: it could not save
  // (IsDiskFull recognizes a full disk), write the output, or take the device again.
  absl::Status status;
  // The directory that could not be written and the bytes that are needed there. Empty and 0 if the
  // pause has another reason.
  std::string directory;
  int64_t disk_bytes = 0;
};

// The model's answer to a prompt of training.sample_prompts after `step`. Reported before the
// record of the step, in the order of the prompts. Once the run is told to end, no more are made.
struct SampledAnswer {
  int64_t step = 0;
  size_t prompt = 0;  // its place in the list
  std::string text;
};

// A StepRecord is reported when its step is done.
using RunEvent =
    std::variant<RunMessage, TrainingActivity, StepsBegin, StepRecord, BeforeCheckpoint,
                 CheckpointSaved, CheckpointFailed, TrainingPause, SampledAnswer>;

// Receives the events. It is called on the training thread, which waits until it returns.
using RunSink = std::function<void(const RunEvent& event)>;

// Combines lambdas for std::visit: one for each alternative, and [](const auto&) {} for the rest.
template <class... Lambdas>
struct Overloaded : Lambdas... {
  using Lambdas::operator()...;
};
template <class... Lambdas>
Overloaded(Lambdas...) -> Overloaded<Lambdas...>;

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_EVENT_H_
