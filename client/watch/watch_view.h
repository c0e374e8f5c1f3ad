// The live view of a job: state and size in, lines out. Pure.
#ifndef MEGATRAIN_CLIENT_WATCH_WATCH_VIEW_H_
#define MEGATRAIN_CLIENT_WATCH_WATCH_VIEW_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/output/text.h"
#include "client/watch/watch_model.h"

namespace megatrain::client {

struct ViewSize {
  int columns = 80;
  int rows = 24;
};

// At most `size.rows` lines of at most `size.columns` columns, without line ends. What does not
// fit goes in this order: the log, the lanes' bars, the curve.
std::vector<std::string> DrawWatch(const WatchState& state, const ViewSize& size, absl::Time now,
                                   Charset charset);

// What a view that ends leaves: how the job ended or stands, its name the last word.
std::string ClosingLine(const v1::Job& job);

// Why the job does not run, or what it does; empty if there is nothing to say.
std::string SituationText(const v1::Job& job, absl::Time now);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_WATCH_WATCH_VIEW_H_
