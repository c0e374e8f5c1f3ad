// What a view shows of a job: events in, state out. Pure: no clock, no terminal, no connection.
#ifndef MEGATRAIN_CLIENT_WATCH_WATCH_MODEL_H_
#define MEGATRAIN_CLIENT_WATCH_WATCH_MODEL_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/watch/watch_event.h"

namespace megatrain::client {

// Of the log, the last lines are kept.
inline constexpr size_t kLogLinesKept = 50;

struct LossPoint {
  int64_t step = 0;
  double loss = 0;

  bool operator==(const LossPoint&) const = default;
};

struct WatchState {
  std::optional<v1::Job> job;
  // Of the newest step that counts.
  std::optional<v1::StepMetrics> metrics;
  // Of the steps that count, in their order: those that a fall back to a checkpoint undid are gone.
  std::vector<LossPoint> losses;
  std::vector<LossPoint> evaluations;
  std::deque<std::string> log;
  std::optional<v1::Node> node;
  // Records of steps that were rotated away before they could be read.
  int64_t missed_records = 0;
  // Set while the server is away.
  std::optional<StreamLost> lost;
};

bool IsEnded(v1::Job::State state);

class WatchModel {
 public:
  void Apply(const WatchEvent& event);

  const WatchState& state() const { return state_; }

 private:
  void Handle(const v1::WatchJobResponse& message);
  void Handle(const v1::StreamStepMetricsResponse& message);
  void Handle(const v1::StreamLogsResponse& message);
  void Handle(const v1::WatchNodeResponse& message);
  void Handle(const StreamLost& event);
  void Handle(const StreamRestored& event);
  void Handle(const StreamRestarted& event);
  void Handle(const StreamEnded& event);
  // Forgets the steps after `step`.
  void FallBackTo(int64_t step);

  WatchState state_;
};

// How far the job is: by the metrics if they are ahead of the job's own progress.
int64_t StepOf(const WatchState& state);
// Until the last step, not set if it cannot be told. Evaluations and checkpoints do not count.
std::optional<absl::Duration> TimeLeft(const WatchState& state);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_WATCH_WATCH_MODEL_H_
