// Draws the live view of a job: turns a state into lines of text for a terminal's size. Prints
// nothing itself.
#ifndef MEGATRAIN_CLIENT_WATCH_WATCH_VIEW_H_
#define MEGATRAIN_CLIENT_WATCH_WATCH_VIEW_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/output/text.h"
#include "client/watch/watch_model.h"

namespace megatrain::client {

// The size of a terminal, in characters.
struct ViewSize {
  int columns = 80;
  int rows = 24;
};

// Returns at most `size.rows` lines of at most `size.columns` columns, without line ends. They are
// printable (text.h). Without a job the only line says that the client connects. Four rows are
// wanted for the curve of losses, even while there is none to draw. To free them, lines of the log
// are dropped first, the oldest first. If that is not enough, the lanes (copies, compute, update,
// I/O) are shown as words instead of bars. The curve takes up to 14 of the free rows, and is left
// out if fewer than 3 are free. Lines that still do not fit are dropped at the end. REQUIRES:
// size.rows >= 1.
std::vector<std::string> DrawWatch(const WatchState& state, const ViewSize& size, absl::Time now,
                                   Charset charset);

// Returns the last line of a view, which says how the job ended or stands. Its last word is the
// job's name. The line is printable (text.h) and has no line end.
std::string ClosingLine(const v1::Job& job);

// Returns why a job waits, is paused, has failed or was cancelled. For a queued job the text also
// says its place in the queue and how long after `now` it will start, if that is known. Returns ""
// while the job is PREPARING or RUNNING, when it has SUCCEEDED, or if there is nothing to say. The
// text comes from the server and is not made printable (text.h).
std::string SituationText(const v1::Job& job, absl::Time now);

// Returns which of several ranks computed longest in the step, and for how long:
// "rank 3 (cuda:3), compute 1.21 s, mean 1.02 s". The device is left out unless `job` names one for
// each rank. Returns "" if there are fewer than two ranks. The device's name comes from the server
// and is not made printable.
std::string SlowestRankText(const v1::StepMetrics& metrics, const v1::Job& job);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_WATCH_WATCH_VIEW_H_
