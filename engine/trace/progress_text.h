// What a run's progress looks like, as pure functions.
#ifndef MEGATRAIN_ENGINE_TRACE_PROGRESS_TEXT_H_
#define MEGATRAIN_ENGINE_TRACE_PROGRESS_TEXT_H_

#include <cstdint>
#include <string>

#include "engine/trace/step_record.h"

namespace megatrain {

// 59 -> "59s", 3599 -> "59m59s", 86399 -> "23h59m", 200000 -> "2d07h"; "--" if it is not known
// (negative or not finite).
std::string FormatDuration(double seconds);

// 987.4 -> "987", 12345 -> "12.3k", 4.56e6 -> "4.56M".
std::string FormatRate(double per_second);

// One line for a terminal of `width` columns: bar, step/total, loss, learning rate, tokens/s, time
// left. Never longer than width - 1, so that no terminal wraps it; at few columns the bar goes
// first, then the words from the right.
std::string ProgressBarLine(const StepRecord& record, int64_t total_steps, double seconds_left,
                            int width);

// The same for a log: a line without a bar, with the gradient's norm and, where measured, the
// evaluation's loss.
std::string ProgressLogLine(const StepRecord& record, int64_t total_steps, double seconds_left);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TRACE_PROGRESS_TEXT_H_
