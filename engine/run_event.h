// RunEvent: everything that a run tells, each fact once and in the order in which it happens.
#ifndef MEGATRAIN_ENGINE_RUN_EVENT_H_
#define MEGATRAIN_ENGINE_RUN_EVENT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "engine/trace/step_record.h"

namespace megatrain {

// A line for people: what is loaded, data report, warnings, checkpoints written. It may hold line
// ends.
struct RunMessage {
  std::string line;
};

enum class TrainingPhase {
  kPreparing,  // reading, tokenising, loading: before the first step
  kRunning,    // steps
  kSaving,     // no step runs while a checkpoint or the output is written
  kPaused,     // in place
};

struct TrainingActivity {
  TrainingPhase phase = TrainingPhase::kPreparing;
  std::string what;      // "tokenising", "loading the model"; empty while running
  double fraction = -1;  // of it that is done, from 0 to 1; negative: unknown
};

// Steps begin: before the first one, and again after every pause. A run that had finished before
// tells first_step = total_steps + 1.
struct StepsBegin {
  int64_t first_step = 0, total_steps = 0;
};

// The checkpoint of `step` becomes valid when everybody has been told this: what must not be lost
// while it is there, such as the records of its steps, must be on stable storage by then.
struct BeforeCheckpoint {
  int64_t step = 0;
};

// A verified checkpoint is on disk.
struct CheckpointSaved {
  int64_t step = 0;
  std::string directory;
  double seconds = 0;  // since its writing began, which overlaps steps
};

// A checkpoint could not be written; the one before is kept.
struct CheckpointFailed {
  int64_t step = 0;
  absl::Status status;
};

// The run stands still, its host state kept. The device is given back; nothing runs until
// TrainingControl::Resume.
struct TrainingPause {
  // OK: asked for. Else what could not be done: a save (IsDiskFull tells a full disk), the output,
  // or to take the device again.
  absl::Status status;
  // Of a full disk: where it is, and the bytes that are needed there.
  std::string directory;
  int64_t disk_bytes = 0;
};

// A StepRecord is told when its step is done.
using RunEvent = std::variant<RunMessage, TrainingActivity, StepsBegin, StepRecord,
                              BeforeCheckpoint, CheckpointSaved, CheckpointFailed, TrainingPause>;

// Called on the training thread, which waits until it returns.
using RunSink = std::function<void(const RunEvent& event)>;

// For std::visit: one lambda for each alternative, [](const auto&) {} for the rest.
template <class... Lambdas>
struct Overloaded : Lambdas... {
  using Lambdas::operator()...;
};
template <class... Lambdas>
Overloaded(Lambdas...) -> Overloaded<Lambdas...>;

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_EVENT_H_
