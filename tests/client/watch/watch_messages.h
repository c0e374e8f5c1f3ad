// Messages as a server sends them to a view of a job.
#ifndef MEGATRAIN_TESTS_CLIENT_WATCH_WATCH_MESSAGES_H_
#define MEGATRAIN_TESTS_CLIENT_WATCH_WATCH_MESSAGES_H_

#include <optional>
#include <string>
#include <vector>

#include "client/watch/watch_event.h"

namespace megatrain::client {

// Half a second a step, beginning at the epoch.
inline v1::StepMetrics Step(int64_t step, double loss, std::optional<double> eval_loss = {}) {
  v1::StepMetrics metrics;
  metrics.set_step(step);
  metrics.set_loss(loss);
  metrics.set_gradient_norm(0.75);
  metrics.set_learning_rate(0.001);
  metrics.set_step_seconds(0.5);
  metrics.set_tokens_per_second(8192);
  metrics.set_model_flops_per_second(5e10);
  metrics.set_host_bytes(int64_t{600} << 20);
  metrics.set_device_bytes(int64_t{100} << 20);
  v1::LaneSeconds* const lanes = metrics.mutable_lane_busy_seconds();
  lanes->set_h2d(0.05);
  lanes->set_compute(0.45);
  lanes->set_d2h(0.025);
  lanes->set_update(0.1);
  if (eval_loss.has_value()) metrics.set_eval_loss(*eval_loss);
  metrics.mutable_time()->set_seconds(step / 2);
  metrics.mutable_time()->set_nanos(static_cast<int32_t>(step % 2 * 500'000'000));
  return metrics;
}

// Returns a step of four ranks, the last of which computes longest.
inline v1::StepMetrics StepOfRanks(int64_t step) {
  v1::StepMetrics metrics = Step(step, 2.5);
  metrics.set_ranks(4);
  metrics.set_slowest_rank(3);
  metrics.mutable_lane_mean_seconds()->set_compute(0.375);
  return metrics;
}

// Numbered as their steps.
inline v1::StreamStepMetricsResponse Steps(const std::vector<v1::StepMetrics>& steps) {
  v1::StreamStepMetricsResponse message;
  for (const v1::StepMetrics& each : steps) {
    v1::StepMetricsRecord* const record = message.mutable_batch()->add_records();
    record->set_sequence(each.step());
    *record->mutable_metrics() = each;
  }
  return message;
}

inline v1::StreamStepMetricsResponse FellBack(int64_t checkpoint_step) {
  v1::StreamStepMetricsResponse message;
  message.mutable_fell_back()->set_checkpoint_step(checkpoint_step);
  return message;
}

inline v1::WatchJobResponse JobMessage(v1::Job::State state, int64_t step = 0,
                                       int64_t total_steps = 0) {
  v1::WatchJobResponse message;
  v1::Job* const job = message.mutable_job();
  job->set_name("jobs/a1");
  job->set_display_name("demo");
  job->set_state(state);
  job->mutable_progress()->set_step(step);
  job->mutable_progress()->set_total_steps(total_steps);
  return message;
}

inline v1::WatchJobResponse EventMessage(int64_t sequence, v1::Job::State to,
                                         const std::string& text) {
  v1::WatchJobResponse message;
  message.mutable_event()->set_sequence(sequence);
  message.mutable_event()->set_to_state(to);
  message.mutable_event()->set_text(text);
  return message;
}

inline v1::StreamLogsResponse Log(const std::vector<std::string>& lines) {
  v1::StreamLogsResponse message;
  for (const std::string& each : lines) message.mutable_batch()->add_lines()->set_text(each);
  return message;
}

inline v1::WatchNodeResponse NodeMessage(int64_t used_bytes, int64_t size_bytes) {
  v1::WatchNodeResponse message;
  message.mutable_node()->mutable_host_pool()->set_used_bytes(used_bytes);
  message.mutable_node()->mutable_host_pool()->set_size_bytes(size_bytes);
  return message;
}

}  // namespace megatrain::client

#endif  // MEGATRAIN_TESTS_CLIENT_WATCH_WATCH_MESSAGES_H_
