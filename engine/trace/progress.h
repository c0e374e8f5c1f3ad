// A run's progress for the person in front of it: a bar that is rewritten in place on a terminal,
// plain lines everywhere else.
#ifndef MEGATRAIN_ENGINE_TRACE_PROGRESS_H_
#define MEGATRAIN_ENGINE_TRACE_PROGRESS_H_

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>

#include "engine/trace/step_record.h"

namespace megatrain {

struct ProgressOptions {
  bool is_terminal = false;
  // Terminal: columns at the moment of drawing, so that a resized window is followed.
  std::function<int()> width;
  // Seconds on a clock that only goes forward.
  std::function<double()> now;
  // Plain lines: at most one in this time, except the first and last step and evaluations.
  double log_seconds = 5;
};

// Terminal if `file` is one that can be rewritten (not TERM=dumb), with the real clock and window.
ProgressOptions ProgressOptionsFor(FILE* file);

// Thread safety: one thread at a time.
class Progress {
 public:
  // `file` must outlive this.
  Progress(FILE* file, ProgressOptions options);
  // Leaves the cursor on a fresh line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Started(int64_t first_step, int64_t total_steps);
  void Step(const StepRecord& record);
  // A line of its own, above the bar.
  void Message(const std::string& line);

 private:
  double SecondsLeft(int64_t step) const;
  void ClearBar();
  void DrawBar();

  FILE* const file_;
  const ProgressOptions options_;
  int64_t total_steps_ = 0;
  int64_t first_step_ = 1;
  // Seconds a step takes, evaluations and checkpoints included: a mean that forgets, because a step
  // early in a run says little of one late in it.
  double step_seconds_ = 0;
  double last_step_time_ = 0;
  double last_log_time_ = 0;
  bool has_record_ = false;
  StepRecord record_;
  bool bar_shown_ = false;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TRACE_PROGRESS_H_
