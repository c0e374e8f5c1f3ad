// RunMetrics feeds the metrics with what runs tell.
#ifndef MEGATRAIN_SERVER_METRICS_RUN_METRICS_H_
#define MEGATRAIN_SERVER_METRICS_RUN_METRICS_H_

#include <functional>

#include "server/metrics/daemon_metrics.h"
#include "server/worker/job_runner.h"

namespace megatrain {

// Thread safety: as RunObserver.
class RunMetrics : public RunObserver {
 public:
  // Returns what is known of a job by its file. Called on the job's thread each time its steps
  // begin: at its start and after each pause. Must not block long. RunMetrics sets the id.
  using Describe = std::function<MeasuredJob(const RunRequest& run)>;

  // `metrics` must outlive this.
  RunMetrics(DaemonMetrics* metrics, Describe describe)
      : metrics_(metrics), describe_(std::move(describe)) {}

  void Tell(const RunRequest& run, const JobRunEvent& event) override;

 private:
  DaemonMetrics* const metrics_;
  const Describe describe_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_METRICS_RUN_METRICS_H_
