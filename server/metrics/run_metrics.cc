#include "server/metrics/run_metrics.h"

#include <utility>

#include "absl/time/clock.h"

namespace megatrain {

void RunMetrics::Running(const ObservedRun& run, int64_t, int64_t) {
  MeasuredJob job = describe_(run);
  job.id = run.job_id;
  metrics_->JobHasDevice(job);
}

void RunMetrics::Step(const ObservedRun&, const StepRecord& record) { metrics_->StepDone(record); }

void RunMetrics::Checkpoint(const ObservedRun&, int64_t, double seconds) {
  metrics_->CheckpointDone(absl::Now(), seconds);
}

void RunMetrics::Paused(const ObservedRun& run, const RunPause&) {
  metrics_->JobLeftDevice(run.job_id);
}

void RunMetrics::Ended(const ObservedRun& run, const RunEnd& end) {
  if (end.failure == RunFailure::kNonFinite) metrics_->StepNotFinite();
  metrics_->JobLeftDevice(run.job_id);
}

}  // namespace megatrain
