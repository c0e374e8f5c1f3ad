// Scheduler gives queued jobs their devices and carries out what users ask of running ones. It
// makes the states in the ledger and the runs in the runner agree.
//
// The scheduler works in rounds: after each change of a job and each event that RunMailbox keeps,
// and at least every ten seconds. In each round it takes in the events of runs. Then functions
// without side effects (queue_policy.h, run_rule.h) decide what is to be done, and the scheduler
// does it: it changes a state through the ledger, or asks the runner for something. A change that
// cannot be stored (a full disk) is tried again in a later round, and no reader sees it before.
//
// Thread safety: BeginShutdown may be called from any thread, the other methods from one at a time.
// RunRound must not be called between Start and the end of Shutdown.
// Invariants: one thread, the one that does the rounds, makes all changes of state but those that
// users ask for and those of JobLedger::Open.
#ifndef MEGATRAIN_SERVER_SCHEDULER_SCHEDULER_H_
#define MEGATRAIN_SERVER_SCHEDULER_SCHEDULER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/host/host_devices.h"
#include "server/jobs/job.h"
#include "server/manager/job_disk.h"
#include "server/manager/job_ledger.h"
#include "server/scheduler/disk_waits.h"
#include "server/scheduler/queue_policy.h"
#include "server/scheduler/run_mailbox.h"
#include "server/scheduler/run_rule.h"
#include "server/scheduler/usage_meter.h"
#include "server/worker/job_records.h"
#include "server/worker/job_runner.h"

namespace megatrain {

// JobForecast holds what the plan of a job predicts about its run.
struct JobForecast {
  double step_seconds = 0;  // 0 = not known
  // The bytes that the job takes of the host pool, which may be another pool than when it was
  // submitted; 0 = not known.
  int64_t pool_bytes = 0;
  // The numbers of the devices on which the job fits, ascending. nullopt: not known; the job may
  // then have any device.
  std::optional<std::vector<int>> fits_on;
  std::string misfit;  // why the job does not fit on the others
};

class Scheduler {
 public:
  struct Options {
    HostDevices devices = {};  // their count must be known
    int64_t pool_bytes = 0;    // the host pool's capacity; 0 = not known
    // Read in each round. After changing the limits, wake the mailbox. Null: there are no limits.
    // Must outlive the scheduler.
    const SharedUserLimits* limits = nullptr;
    // Is made to measure jobs as they write, and asked whether they exceed disk_bytes. Null:
    // disk_bytes is not checked. Must outlive the scheduler.
    JobDisk* disk = nullptr;
    DiskWaits::FreeBytes free_disk_bytes;  // must be set; called on the scheduler's thread
    // Plans a job on `devices`, as if nothing else ran there. Returns nullopt if the job's files
    // cannot be read, and is then called again after a while. Otherwise it is called once for each
    // job. Called on the scheduler's thread, only for jobs whose spec is not null. May read the
    // job's model configuration. May be empty.
    std::function<std::optional<JobForecast>(const Job& job)> forecast = {};
    // Called on the scheduler's thread with lines for the daemon's log, about what the scheduler
    // could not do. May be empty.
    std::function<void(const std::string& line)> log;
  };

  // Reads all jobs of the ledger, to count recent use. What the pointers point to must outlive the
  // scheduler. If `records` is null, nothing is recorded. REQUIRES: `mailbox` is an observer of
  // `runner`.
  Scheduler(JobLedger* ledger, JobRunner* runner, RunMailbox* mailbox, JobRecordsDirectory* records,
            Options options);
  // Shuts down, as Shutdown does, if Start was called.
  ~Scheduler();

  // Begins to do rounds, on a thread of its own. REQUIRES: called at most once.
  void Start();
  // Begins what Shutdown does, and returns at once. A round that is under way may still start a
  // job, which is then saved and ended too.
  void BeginShutdown();
  // Has every run ended, and saved unless its job is being cancelled. Stores that, and returns when
  // it is done. A PREPARING or RUNNING job whose last step is not done is then QUEUED, and goes on
  // when the daemon is started again. A change that cannot be stored is made at the next start, as
  // after a death of the process. Does nothing unless Start was called, nor when called again.
  void Shutdown();

  // Does one round. For tests, in place of Start.
  void RunRound();

 private:
  struct Run {
    RunFacts facts;
    std::shared_ptr<JobRecords> records;
    std::vector<int> devices;  // its devices; it goes on with the same ones after a pause in place
    absl::Time since;          // up to when its use of them is metered; at first, when it got them
    bool has_devices = true;
  };
  // A queued job that could not be started. It is tried again at `until`, or sooner if another run
  // ends and may have given back what it lacks. `interval` doubles with each failure until the job
  // begins its steps, because each leaves two events.
  static constexpr absl::Duration kStartWaitMin = absl::Seconds(10);
  static constexpr absl::Duration kStartWaitMax = absl::Minutes(10);
  struct StartWait {
    absl::Time until;  // infinite past: it does not wait any more
    absl::Duration interval = kStartWaitMin;
    int64_t runs_ended = 0;
    WaitingReason reason = WaitingReason::kNone;
    std::string text;
  };

  void Loop();
  void TakeMail();
  void SettleRun(const std::string& id);
  // Returns false if there is nothing more to do for now.
  bool SettleOnce(const std::string& id, Run* run);
  // Ends the run of a job that was deleted while the runner still had it.
  bool LetGoOfDeleted(const std::string& id, Run* run);
  void ForgetRun(const std::string& id, const Job& job);
  void SettleJobsWithoutRun();
  void SettleDiskWaits();
  void MeasureDisk(const std::string& id);
  void SettleDiskLimit();
  void CloseRecordsOfEnded();
  void MeterUse();

  void StartJobs();
  QueueSnapshot TakeSnapshot();
  const JobForecast& ForecastOf(const Job& job);
  // Returns what a job without a run takes of the host pool.
  int64_t PoolBytesOf(const Job& job);
  // Returns how long the job will still run, if that is known or predicted.
  std::optional<double> SecondsLeft(const Job& job);
  QueuedJob Describe(const Job& job);
  // Sets the devices that a job without a run can have, or holds it if this daemon lacks some.
  void DescribeDevices(const Job& job, QueuedJob* queued);
  // Returns the errors of ClaimDevices.
  absl::StatusOr<DeviceClaim> ClaimOf(const Job& job) const;
  // Returns why a job must not run beside those that the runner has, or "".
  std::string HoldOf(const Job& job) const;
  bool StartJob(const std::string& id, const std::vector<int>& devices);
  // Stores `change` if the job is in `from` still.
  absl::StatusOr<JobPtr> Change(const std::string& id, JobState from, JobChange change);
  void Note(const std::string& what, const absl::Status& status);
  double SecondsToNextRound() const;

  JobLedger* const ledger_;
  JobRunner* const runner_;
  RunMailbox* const mailbox_;
  JobRecordsDirectory* const records_;
  const Options options_;
  std::thread thread_;
  std::atomic<bool> stopping_{false};

  // Used only by the thread that does the rounds.
  std::map<std::string, Run> runs_;
  std::map<std::string, StartWait> start_waits_;
  struct Forecast {
    JobForecast known;
    absl::Time until = absl::InfinitePast();  // then it is asked for
  };
  std::map<std::string, Forecast> forecasts_;  // of live jobs, by id
  std::set<std::string> unclosed_;             // jobs whose records are to be closed when they end
  int64_t last_number_ = 0;                    // of the newest job that was seen
  DiskWaits disk_waits_;
  UsageMeter usage_;
  int64_t runs_ended_ = 0;
  bool store_failed_ = false;  // in this round: another is due soon
  std::string last_note_;      // said once, not each round
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_SCHEDULER_SCHEDULER_H_
