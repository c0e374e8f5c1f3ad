// DaemonMetrics counts and measures what the daemon does, and writes the page that Prometheus
// reads.
//
// The page names no user, no path and no job's name, so that people who may not see the jobs may
// read it. A job is shown by its opaque id, its model family, and the names of its evaluation sets.
// A job's measures belong to the first of its devices. For each device the page has those of the
// last such job only, so its size does not depend on how many jobs there were. They stay after the
// job's end, so that those of a short job are not lost between two readings. They go when the steps
// of another job with this first device begin, or the job's own with another first device. Only
// megatrain_job_info and megatrain_device_bytes go when the job pauses or ends.
//
// Where there are several devices, the measures of one job and the durations of steps have the
// label `device`, which names the job's first device. Measures of a device's own state have that
// device as their label. Other counters of runs are sums over all jobs.
//
// Thread safety: all methods may be called from any thread. Each may wait briefly for a mutex, and
// Tell for `describe`.
// Invariants: every metric is on every page, at least with its HELP and TYPE; counters only grow.
#ifndef MEGATRAIN_SERVER_METRICS_DAEMON_METRICS_H_
#define MEGATRAIN_SERVER_METRICS_DAEMON_METRICS_H_

#include <prometheus/histogram.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "engine/base/mutex.h"
#include "engine/host/engine_host.h"
#include "engine/trace/step_record.h"
#include "megatrain/v1/node.pb.h"
#include "server/jobs/job.h"
#include "server/worker/job_runner.h"

namespace megatrain {

class MetricPage;

// A job that has devices.
struct MeasuredJob {
  std::string id;  // opaque
  // The names of its devices, which DaemonMetrics must have been given. Empty if the daemon has
  // only one device.
  std::vector<std::string> devices;
  std::string model_family;  // "llama"
  int64_t device_bytes = 0;  // of the job's memory on each of its devices; 0 = not known
  // The FLOP/s of matrix products on its devices together, at the job's precision, as measured at
  // the daemon's start. 0 = not known. The MFU (model FLOPs utilization) is the job's own FLOP/s
  // over these.
  double peak_flops_per_second = 0;
};

// Values that the caller of Page reads for each page.
struct MeasuredNode {
  std::vector<JobPtr> jobs;                                   // as JobTable::All
  std::map<std::pair<JobState, JobReason>, int64_t> endings;  // as JobTable::Endings
  int64_t store_errors = 0;                                   // as JobLedger::store_errors
  absl::Time now;
  PoolUsage pool;               // as EngineHost::pool_usage
  v1::Node node;                // its devices and the state directory's disk
  bool device_missing = false;  // the daemon waits for the device that jobs have begun on
  // When the server's certificate expires; nullopt: there is no TLS.
  std::optional<absl::Time> certificate_expires;
};

class DaemonMetrics : public RunObserver {
 public:
  // Returns what is known of a job; Tell sets the id. Called on the job's thread each time its
  // steps begin: at its start and after each pause. Must not block long.
  using Describe = std::function<MeasuredJob(const RunRequest& run)>;

  // `device` is HostDevices::first, or "missing" if the daemon waits for its device. `devices` are
  // the devices' names if there are several, else empty. `describe` may be empty if Tell is not
  // called.
  DaemonMetrics(std::string version, std::string device, std::vector<std::string> devices = {},
                Describe describe = {});

  // Updates the measures from an event of a run. Once the steps of another job with the same first
  // device have begun, only the sums over all jobs change.
  void Tell(const RunRequest& run, const JobRunEvent& event) override;

  // Records that at `time` the daemon took a device of another kind than before, so that jobs that
  // had begun go on with other results.
  void NoteDeviceChanged(absl::Time time);

  // Counts an answered call. `method` is gRPC's name, "/megatrain.v1.JobService/GetJob", and `code`
  // the number of gRPC's status code. Methods of other services (health, reflection) are counted
  // together. REQUIRES: the method is one that is served, so that the page stays small.
  void RequestDone(std::string_view method, int code);
  // Counts a call that was refused because its caller is not known, by `reason`. REQUIRES: there
  // are few different reasons, here and in ConnectionRefused, so that the page stays small.
  void CallerRefused(const std::string& reason);
  // Counts a connection that was closed before anything was read from it, by `reason`.
  void ConnectionRefused(const std::string& reason);

  // Returns the page in Prometheus' text format, with the metrics in a fixed order.
  std::string Page(const MeasuredNode& node) const;

 private:
  // Run holds the measures of the job that has a device, or had it last.
  struct Run {
    std::string key;  // in runs_
    MeasuredJob job;
    bool has_devices = true;
    std::optional<StepRecord> last_step;
    std::optional<absl::Time> last_step_time;
    std::optional<double> eval_loss;
    std::map<std::string, double> eval_losses;
    std::optional<absl::Time> checkpoint_time;
    std::optional<double> checkpoint_seconds;
  };

  // Says that a job's steps begin. Drops the measures that its first device has of another job, and
  // those that another device has of this job.
  void JobHasDevices(const MeasuredJob& job);
  // Says that the job has paused or ended.
  void JobLeftDevices(const std::string& id);
  void StepDone(const std::string& id, const StepRecord& record);
  Run* Find(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds a gauge with the value of each run: a std::optional<double>.
  template <class ValueOf>
  void AddOfRuns(const char* name, const char* help, ValueOf value_of, MetricPage* page) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds a gauge with the value of each lane of each run whose last step was of several ranks.
  template <class T, class LanesOf>
  void AddLanesOfRanks(const char* name, const char* help, LanesOf lanes_of, MetricPage* page) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddRuns(MetricPage* page) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddLastSteps(MetricPage* page) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddRanks(MetricPage* page) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string version_, device_;
  const Describe describe_;
  mutable Mutex mutex_;
  std::map<std::string, Run> runs_ ABSL_GUARDED_BY(mutex_);  // by first device; "" if there is one
  int64_t tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  LaneSeconds lanes_ ABSL_GUARDED_BY(mutex_);
  int64_t h2d_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t d2h_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::Time> device_changed_ ABSL_GUARDED_BY(mutex_);
  int64_t nonfinite_steps_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::pair<std::string, std::string>, int64_t> requests_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> callers_refused_ ABSL_GUARDED_BY(mutex_);      // by reason
  std::map<std::string, int64_t> connections_refused_ ABSL_GUARDED_BY(mutex_);  // by reason
  // By first device, as runs_. The map does not change, and histograms are safe by themselves.
  std::map<std::string, prometheus::Histogram> step_seconds_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_METRICS_DAEMON_METRICS_H_
