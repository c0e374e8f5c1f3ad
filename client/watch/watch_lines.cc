#include "client/watch/watch_lines.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/output/proto_time.h"
#include "client/output/text.h"
#include "client/watch/watch_view.h"

namespace megatrain::client {
namespace {

std::string StepLine(const v1::StepMetrics& metrics, const WatchState& state) {
  const int64_t total = state.job.has_value() ? state.job->progress().total_steps() : 0;
  std::string line = absl::StrCat("step ", metrics.step());
  if (total > 0) absl::StrAppend(&line, "/", total);
  absl::StrAppendFormat(&line, "  loss %s  gradient norm %.3f  learning rate %.3e  %s tokens/s",
                        FormatLoss(metrics.loss()), metrics.gradient_norm(),
                        metrics.learning_rate(), FormatRate(metrics.tokens_per_second()));
  if (metrics.has_eval_loss()) {
    absl::StrAppend(&line, "  eval loss ", FormatLoss(metrics.eval_loss()));
  }
  const std::string slowest = SlowestRankText(metrics, state.job.value_or(v1::Job()));
  if (!slowest.empty()) absl::StrAppend(&line, "  slowest: ", Printable(slowest));
  if (total > metrics.step() && metrics.step_seconds() > 0) {
    const double seconds = metrics.step_seconds() * static_cast<double>(total - metrics.step());
    absl::StrAppend(&line, "  ETA ", DurationText(absl::Seconds(seconds)));
  }
  return line;
}

}  // namespace

void WatchLines::Add(const v1::WatchJobResponse& message, std::vector<std::string>* lines) {
  if (message.has_event()) {
    const v1::JobEvent& event = message.event();
    std::string line = v1::Job::State_Name(event.to_state());
    if (!event.text().empty()) absl::StrAppend(&line, ": ", Printable(event.text()));
    lines->push_back(std::move(line));
  }
  if (message.has_job() && message.job().state() == v1::Job::QUEUED) {
    // Places in the queue change often and are no events. The prediction moves with the clock.
    v1::Job job = message.job();
    job.mutable_queue()->clear_predicted_start_time();
    job.clear_reason_text();
    const std::string situation = SituationText(job, absl::InfinitePast());
    if (!situation.empty() && situation != last_situation_) {
      lines->push_back(absl::StrCat("QUEUED: ", Printable(situation)));
    }
    last_situation_ = situation;
  }
  if (message.has_missed()) {
    lines->push_back(absl::StrCat("events ", message.missed().first_sequence(), " to ",
                                  message.missed().last_sequence(), " are no longer kept"));
  }
}

void WatchLines::Add(const v1::StreamStepMetricsResponse& message, const WatchState& state,
                     std::vector<std::string>* lines) {
  if (message.has_fell_back()) {
    lines->push_back(absl::StrCat("goes on after step ", message.fell_back().checkpoint_step(),
                                  ", from its checkpoint; later steps are done again"));
  }
  if (message.has_missed()) {
    lines->push_back(absl::StrCat("step records ", message.missed().first_sequence(), " to ",
                                  message.missed().last_sequence(), " are no longer kept"));
  }
  for (const v1::StepMetricsRecord& record : message.batch().records()) {
    if (record.superseded()) continue;
    const v1::StepMetrics& metrics = record.metrics();
    const absl::Time time = ToTime(metrics.time());
    const int64_t total = state.job.has_value() ? state.job->progress().total_steps() : 0;
    const bool due = time >= last_step_time_ + step_interval_ || time < last_step_time_;
    if (has_step_ && !due && !metrics.has_eval_loss() && metrics.step() != total) continue;
    has_step_ = true;
    last_step_time_ = time;
    lines->push_back(StepLine(metrics, state));
  }
}

std::vector<std::string> WatchLines::Lines(const WatchEvent& event, const WatchModel& model) {
  std::vector<std::string> lines;
  if (const auto* const job = std::get_if<v1::WatchJobResponse>(&event)) {
    Add(*job, &lines);
  } else if (const auto* const metrics = std::get_if<v1::StreamStepMetricsResponse>(&event)) {
    Add(*metrics, model.state(), &lines);
  } else if (const auto* const logs = std::get_if<v1::StreamLogsResponse>(&event)) {
    for (const v1::LogLine& line : logs->batch().lines()) lines.push_back(Printable(line.text()));
  } else if (const auto* const lost = std::get_if<StreamLost>(&event)) {
    // The job's stream speaks for all, and says it once, not at each attempt.
    if (lost->stream == WatchStream::kJob && !std::exchange(is_lost_, true)) {
      lines.push_back(absl::StrCat("the server is away, trying again: ", Printable(lost->why)));
    }
  } else if (const auto* const restored = std::get_if<StreamRestored>(&event)) {
    if (restored->stream == WatchStream::kJob && std::exchange(is_lost_, false)) {
      lines.push_back("the server is back; the view goes on where it was");
    }
  }
  return lines;
}

}  // namespace megatrain::client
