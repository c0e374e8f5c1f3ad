// WatchLines makes the plain view of a job, for pipes and dumb terminals: it turns events into
// lines of text. It reads no clock and prints nothing itself.
//
// Thread safety: one thread at a time.
#ifndef MEGATRAIN_CLIENT_WATCH_WATCH_LINES_H_
#define MEGATRAIN_CLIENT_WATCH_WATCH_LINES_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/watch/watch_model.h"

namespace megatrain::client {

class WatchLines {
 public:
  // Limits the lines of steps to one per `step_interval`, by the times that the steps carry. The
  // first step received, a step with an evaluation, and the last step of the job, if the model
  // knows the job by then, always get a line. So does a step whose time is before that of the last
  // line. Superseded steps get none.
  explicit WatchLines(absl::Duration step_interval = absl::Seconds(5))
      : step_interval_(step_interval) {}

  // Returns the lines of an event, printable (text.h) and without line ends; none if it brings
  // nothing to tell. A lost connection and its return have a line each, which come from events of
  // the job's stream only. Events of the node, lines of the log that are no longer kept, and the
  // end or restart of a stream, have none.
  // REQUIRES: events are passed in their order, and `model` has already applied this one.
  std::vector<std::string> Lines(const WatchEvent& event, const WatchModel& model);

 private:
  void Add(const v1::WatchJobResponse& message, std::vector<std::string>* lines);
  void Add(const v1::StreamStepMetricsResponse& message, const WatchState& state,
           std::vector<std::string>* lines);

  const absl::Duration step_interval_;
  bool has_step_ = false;
  absl::Time last_step_time_ = absl::InfinitePast();
  std::string last_situation_;
  bool is_lost_ = false;
};

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_WATCH_WATCH_LINES_H_
