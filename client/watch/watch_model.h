// WatchModel builds the state of a job that views show from events. It uses no clock, terminal or
// connection.
#ifndef MEGATRAIN_CLIENT_WATCH_WATCH_MODEL_H_
#define MEGATRAIN_CLIENT_WATCH_WATCH_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/watch/watch_event.h"

namespace megatrain::client {

// The most lines that WatchState::log holds.
inline constexpr size_t kLogLinesKept = 50;

struct LossPoint {
  int64_t step = 0;
  double loss = 0;

  bool operator==(const LossPoint&) const = default;
};

// Texts are as the server sent them: not made printable (text.h).
struct WatchState {
  std::optional<v1::Job> job;  // as it was sent last, and with its file if that was ever sent
  // The metrics of the newest step, and the losses by ascending step. When the job falls back to a
  // checkpoint, what belongs to later steps is removed from all three.
  std::optional<v1::StepMetrics> metrics;
  std::vector<LossPoint> losses;
  std::vector<LossPoint> evaluations;
  std::deque<std::string> log;  // the newest lines, the oldest first
  std::optional<v1::Node> node;
  // The number of records of step metrics that the server no longer had when they were asked for.
  int64_t missed_records = 0;
  // Set from a StreamLost of the job's stream until the stream is restored or has ended.
  std::optional<StreamLost> job_stream_lost;
};

// Returns true for SUCCEEDED, FAILED and CANCELLED.
bool IsEnded(v1::Job::State state);

// Thread safety: one thread at a time.
class WatchModel {
 public:
  // Changes the state by one event. Events must come in the order of their queue.
  void Apply(const WatchEvent& event);

  // Valid as long as the model; the next Apply changes it.
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

// Returns the job's last step, which is the later one of its progress and its metrics; 0 if neither
// is known.
int64_t StepOf(const WatchState& state);
// Returns the time that the remaining steps will take, without evaluations, checkpoints and pauses.
// Returns nullopt if the job has ended or the time is not known yet.
std::optional<absl::Duration> TimeLeft(const WatchState& state);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_WATCH_WATCH_MODEL_H_
