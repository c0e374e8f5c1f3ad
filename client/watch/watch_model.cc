#include "client/watch/watch_model.h"

#include <algorithm>
#include <variant>

namespace megatrain::client {

bool IsEnded(v1::Job::State state) {
  return state == v1::Job::SUCCEEDED || state == v1::Job::FAILED || state == v1::Job::CANCELLED;
}

void WatchModel::Apply(const WatchEvent& event) {
  std::visit([this](const auto& each) { Handle(each); }, event);
}

void WatchModel::Handle(const v1::WatchJobResponse& message) {
  if (!message.has_job()) return;
  // Only the first one in a stream has the file.
  std::optional<v1::JobFile> file;
  if (state_.job.has_value() && state_.job->has_file()) file = state_.job->file();
  state_.job = message.job();
  if (!message.job().has_file() && file.has_value()) *state_.job->mutable_file() = *file;
}

void WatchModel::FallBackTo(int64_t step) {
  const auto cut = [step](std::vector<LossPoint>* points) {
    while (!points->empty() && points->back().step > step) points->pop_back();
  };
  cut(&state_.losses);
  cut(&state_.evaluations);
  if (state_.metrics.has_value() && state_.metrics->step() > step) state_.metrics.reset();
}

void WatchModel::Handle(const v1::StreamStepMetricsResponse& message) {
  if (message.has_fell_back()) FallBackTo(message.fell_back().checkpoint_step());
  if (message.has_missed()) {
    state_.missed_records +=
        message.missed().last_sequence() - message.missed().first_sequence() + 1;
  }
  for (const v1::StepMetricsRecord& record : message.batch().records()) {
    if (record.superseded()) continue;
    const v1::StepMetrics& metrics = record.metrics();
    // A step that comes again counts instead of what came before.
    FallBackTo(metrics.step() - 1);
    state_.losses.push_back({metrics.step(), metrics.loss()});
    if (metrics.has_eval_loss()) {
      state_.evaluations.push_back({metrics.step(), metrics.eval_loss()});
    }
    state_.metrics = metrics;
  }
}

void WatchModel::Handle(const v1::StreamLogsResponse& message) {
  for (const v1::LogLine& line : message.batch().lines()) {
    state_.log.push_back(line.text());
    if (state_.log.size() > kLogLinesKept) state_.log.pop_front();
  }
}

void WatchModel::Handle(const v1::WatchNodeResponse& message) {
  if (message.has_node()) state_.node = message.node();
}

void WatchModel::Handle(const StreamLost& event) {
  // The job's stream speaks for all: they share the connection.
  if (event.stream == WatchStream::kJob) state_.job_stream_lost = event;
}

void WatchModel::Handle(const StreamRestored& event) {
  if (event.stream == WatchStream::kJob) state_.job_stream_lost.reset();
}

void WatchModel::Handle(const StreamRestarted& event) {
  if (event.stream == WatchStream::kLogs) state_.log.clear();
  if (event.stream == WatchStream::kMetrics) {
    FallBackTo(0);
    state_.missed_records = 0;
  }
}

void WatchModel::Handle(const StreamEnded& event) {
  if (event.stream == WatchStream::kJob) state_.job_stream_lost.reset();
}

int64_t StepOf(const WatchState& state) {
  const int64_t of_job = state.job.has_value() ? state.job->progress().step() : 0;
  return std::max(of_job, state.metrics.has_value() ? state.metrics->step() : 0);
}

std::optional<absl::Duration> TimeLeft(const WatchState& state) {
  if (!state.job.has_value() || IsEnded(state.job->state())) return std::nullopt;
  const v1::JobProgress& progress = state.job->progress();
  double seconds = progress.step_seconds();
  if (seconds <= 0 && state.metrics.has_value()) seconds = state.metrics->step_seconds();
  if (seconds <= 0 || progress.total_steps() <= 0) return std::nullopt;
  const int64_t steps = std::max<int64_t>(0, progress.total_steps() - StepOf(state));
  return absl::Seconds(seconds * static_cast<double>(steps));
}

}  // namespace megatrain::client
