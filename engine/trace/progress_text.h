// Formats a run's progress for terminals and logs.
#ifndef MEGATRAIN_ENGINE_TRACE_PROGRESS_TEXT_H_
#define MEGATRAIN_ENGINE_TRACE_PROGRESS_TEXT_H_

#include <cstdint>
#include <string>

#include "engine/trace/step_record.h"

namespace megatrain {

// Formats a time: 59 -> "59s", 3599 -> "59m59s", 86399 -> "23h59m", 200000 -> "2d07h". Returns "--"
// if it is negative, not finite or above 1e9.
std::string FormatDuration(double seconds);

// Formats a rate: 987.4 -> "987", 12345 -> "12.3k", 4.56e6 -> "4.56M". Returns "--" if it is
// negative or not finite.
std::string FormatRate(double per_second);

// Returns one line for a terminal of `width` columns: bar, step/total, loss, learning rate,
// tokens/s, time left and, of several ranks, SlowestRankText. It has at most width - 1 columns (but
// at least 1), so that the terminal does not wrap it. Words that do not fit are left out from the
// right; step/total is cut off if it does not fit alone. The bar has the room that the words leave,
// up to 30 cells. It is left out if that is less than 6 cells.
std::string ProgressBarLine(const StepRecord& record, int64_t total_steps, double seconds_left,
                            int width);

// Returns the losses of an evaluation: "eval loss 2.1000 (chat 1.9000, code 2.4000)". REQUIRES:
// record.eval_loss.
std::string EvalLossText(const StepRecord& record);

// Returns which rank computed longest, "slowest: rank 3, compute 1.21 s, mean 1.02 s". REQUIRES:
// record.spread.
std::string SlowestRankText(const StepRecord& record);

// Returns one line for a log. It tells what ProgressBarLine tells, without the bar. It also tells
// the gradient norm and, if the record has them, the margin and accuracy of rewards and the losses
// of an evaluation.
std::string ProgressLogLine(const StepRecord& record, int64_t total_steps, double seconds_left);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TRACE_PROGRESS_TEXT_H_
