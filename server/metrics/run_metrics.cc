#include "server/metrics/run_metrics.h"

#include <variant>

#include "absl/time/clock.h"

namespace megatrain {

void RunMetrics::Tell(const RunRequest& run, const JobRunEvent& event) {
  std::visit(Overloaded{[&](const StepsBegin&) {
                          MeasuredJob job = describe_(run);
                          job.id = run.job_id;
                          metrics_->JobHasDevices(job);
                        },
                        [&](const StepRecord& record) { metrics_->StepDone(run.job_id, record); },
                        [&](const CheckpointSaved& saved) {
                          metrics_->CheckpointDone(run.job_id, absl::Now(), saved.seconds);
                        },
                        [&](const TrainingPause&) { metrics_->JobLeftDevices(run.job_id); },
                        [&](const RunEnd& end) {
                          if (FailureOf(end.status) == RunFailure::kNonFinite)
                            metrics_->StepNotFinite();
                          metrics_->JobLeftDevices(run.job_id);
                        },
                        [](const auto&) {}},
             event);
}

}  // namespace megatrain
