// Shows a run's progress to a person: a bar that is redrawn in place on a terminal, plain lines
// everywhere else.
#ifndef MEGATRAIN_ENGINE_TRACE_PROGRESS_H_
#define MEGATRAIN_ENGINE_TRACE_PROGRESS_H_

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>

#include "engine/trace/step_record.h"

namespace megatrain {

// Options for drawing progress. Both functions must be set.
struct ProgressOptions {
  bool is_terminal = false;
  // Returns the terminal's columns. Called for each drawing, so that a resized window is followed.
  std::function<int()> width;
  // Returns seconds on a monotonic clock.
  std::function<double()> now;
  // The shortest time between plain lines, in seconds. The first and the last step and evaluations
  // are always shown.
  double log_seconds = 5;
};

// Returns options with the real clock and window. is_terminal is true if `file` is a terminal whose
// lines can be redrawn: TERM is neither empty nor "dumb".
ProgressOptions ProgressOptionsFor(FILE* file);

// Thread safety: one thread at a time may call methods.
class Progress {
 public:
  // `file` must stay open as long as this object lives.
  Progress(FILE* file, ProgressOptions options);
  // Leaves the cursor on a new line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Begins the estimate of the time left. `first_step` is the next step, from 1. Must be called
  // before the first Step, and may be called again after a pause.
  void Started(int64_t first_step, int64_t total_steps);
  // Draws the bar, under a line for an evaluation if the record has one; or writes a plain line if
  // one is due.
  void Step(const StepRecord& record);
  // Writes a line of its own, above the bar.
  void Message(const std::string& line);

 private:
  double SecondsLeft(int64_t step) const;
  void ClearBar();
  void DrawBar();

  FILE* const file_;
  const ProgressOptions options_;
  int64_t total_steps_ = 0;
  int64_t first_step_ = 1;
  // Seconds of a step, evaluations and checkpoints included. It is a moving mean, because early
  // steps say little about later ones.
  double step_seconds_ = 0;
  double last_step_time_ = 0;
  double last_log_time_ = 0;
  bool has_record_ = false;
  StepRecord record_;
  bool bar_shown_ = false;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TRACE_PROGRESS_H_
