// Feeds the metrics with what runs tell.
#ifndef MEGATRAIN_SERVER_METRICS_RUN_METRICS_H_
#define MEGATRAIN_SERVER_METRICS_RUN_METRICS_H_

#include <functional>

#include "server/metrics/daemon_metrics.h"
#include "server/worker/run_observer.h"

namespace megatrain {

// Thread safety: as RunObserver.
class RunMetrics : public RunObserver {
 public:
  // What is known of a job by its file; called once each time it gets the device, and must not
  // block long. The id is filled in here.
  using Describe = std::function<MeasuredJob(const ObservedRun& run)>;

  // `metrics` must outlive this.
  RunMetrics(DaemonMetrics* metrics, Describe describe)
      : metrics_(metrics), describe_(std::move(describe)) {}

  void Running(const ObservedRun& run, int64_t first_step, int64_t total_steps) override;
  void Step(const ObservedRun& run, const StepRecord& record) override;
  void Checkpoint(const ObservedRun& run, int64_t step, double seconds) override;
  void Paused(const ObservedRun& run, const RunPause& pause) override;
  void Ended(const ObservedRun& run, const RunEnd& end) override;

 private:
  DaemonMetrics* const metrics_;
  const Describe describe_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_METRICS_RUN_METRICS_H_
