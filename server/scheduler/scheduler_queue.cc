// The scheduler's part in the queue.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/job/device_name.h"
#include "server/manager/job_paths.h"
#include "server/scheduler/scheduler.h"

namespace megatrain {
namespace {

// After which a job is planned again whose files could not be read. Reading may wait for the
// account database, and the rounds wait for it.
constexpr absl::Duration kForecastAgain = absl::Seconds(30);

}  // namespace

absl::StatusOr<DeviceClaim> Scheduler::ClaimOf(const Job& job) const {
  if (job.spec == nullptr) return DeviceClaim();
  return ClaimDevices(job.spec->engine.device, job.spec->engine.devices, options_.devices);
}

const JobForecast& Scheduler::ForecastOf(const Job& job) {
  Forecast& forecast = forecasts_[job.id];
  const absl::Time now = ledger_->Now();
  if (job.spec == nullptr || !options_.forecast || now < forecast.until) return forecast.known;
  const std::optional<JobForecast> made = options_.forecast(job);
  // Files that cannot be read now may be readable when the job's turn comes.
  forecast.until = made.has_value() ? absl::InfiniteFuture() : now + kForecastAgain;
  forecast.known = made.value_or(JobForecast());
  return forecast.known;
}

int64_t Scheduler::PoolBytesOf(const Job& job) {
  const int64_t planned = ForecastOf(job).pool_bytes;
  return planned > 0 ? planned : job.pool_bytes;
}

std::optional<double> Scheduler::SecondsLeft(const Job& job) {
  const double step_seconds =
      job.step_seconds > 0 ? job.step_seconds : ForecastOf(job).step_seconds;
  // The steps of a number of epochs are known once the data was read.
  const int64_t steps = job.total_steps > 0   ? job.total_steps
                        : job.spec != nullptr ? job.spec->training.steps
                                              : 0;
  if (steps == 0 || step_seconds == 0) return std::nullopt;
  return static_cast<double>(std::max<int64_t>(steps - job.step, 0)) * step_seconds;
}

// Two jobs that write into one directory run one after the other.
std::string Scheduler::HoldOf(const Job& job) const {
  if (job.spec == nullptr) return "";
  const auto same = [&](const std::string& mine, const std::string& other, const char* key) {
    return mine.empty() || mine != other
               ? std::string()
               : absl::StrCat("another job has its ", key, ", ", mine, ", and has not ended");
  };
  for (const auto& [id, run] : runs_) {
    const JobPtr other = ledger_->table().Find(id);
    if (id == job.id || other == nullptr || other->spec == nullptr) continue;
    std::string hold = same(job.spec->checkpoint.directory, other->spec->checkpoint.directory,
                            "checkpoint.directory");
    if (hold.empty()) {
      hold = same(job.spec->output.directory, other->spec->output.directory, "output.directory");
    }
    if (!hold.empty()) return hold;
  }
  return "";
}

void Scheduler::DescribeDevices(const Job& job, QueuedJob* queued) {
  if (job.spec == nullptr) return;
  const HostDevices& there = options_.devices;
  const auto lack = [&](int64_t needed, const std::string& which = "") {
    queued->hold = WaitingReason::kDevicesMissing;
    queued->hold_text =
        absl::StrCat("needs ", needed, needed == 1 ? " device" : " devices",
                     " (engine.device: ", job.spec->engine.device, ")", which,
                     ", and the daemon found ", there.count, " (", there.Name(0),
                     there.count == 1 ? "" : absl::StrCat(" to ", there.Name(there.count - 1)),
                     ") when it was started; starts when a daemon is started that finds them");
  };
  const absl::StatusOr<DeviceClaim> claim = ClaimOf(job);
  if (!claim.ok()) {
    const std::optional<DeviceName> asked = ParseDeviceName(job.spec->engine.device);
    const bool of_this_kind = asked.has_value() && (asked->kind == DeviceName::Kind::kAuto ||
                                                    (asked->kind == DeviceName::Kind::kCpu) ==
                                                        (there.first == kCpuDeviceId));
    // Waiting does not help a job for another kind of device: its run is refused, and says why.
    if (of_this_kind) lack(std::max<int64_t>(1, job.spec->engine.devices));
    return;
  }
  queued->devices = claim->count;
  for (int i = 0; claim->first >= 0 && i < claim->count; ++i) {
    queued->own_devices.push_back(claim->first + i);
  }
  const JobForecast& forecast = ForecastOf(job);
  if (!forecast.fits_on.has_value()) return;
  if (forecast.fits_on->empty()) {
    return lack(claim->count, absl::StrCat(" on which it fits (", forecast.misfit, ")"));
  }
  if (claim->first < 0 && forecast.fits_on->size() < static_cast<size_t>(there.count)) {
    queued->own_devices = *forecast.fits_on;
  }
}

QueuedJob Scheduler::Describe(const Job& job) {
  QueuedJob queued;
  queued.id = job.id;
  queued.number = job.number;
  queued.uid = job.uid;
  queued.priority = job.priority;
  queued.seconds = SecondsLeft(job);
  const auto run = runs_.find(job.id);
  if (run == runs_.end()) {
    queued.pool_bytes = PoolBytesOf(job);
    DescribeDevices(job, &queued);
    if (queued.hold != WaitingReason::kNone) return queued;
  } else {
    queued.own_devices = run->second.devices;
    queued.devices = static_cast<int>(queued.own_devices.size());
  }
  if (run != runs_.end() && run->second.facts.Occupies()) {
    queued.hold = WaitingReason::kHostMemory;
    queued.hold_text = "its host memory is being saved";
    return queued;
  }
  queued.hold_text = HoldOf(job);
  if (!queued.hold_text.empty()) queued.hold = WaitingReason::kBehindOthers;
  const absl::Time now = ledger_->Now();
  if (disk_waits_.Waits(job.id)) {
    if (disk_waits_.LookForRoom(job, now)) {
      disk_waits_.EndWait(job.id);
    } else {
      queued.hold = WaitingReason::kDiskFull;
      queued.hold_text = disk_waits_.Text(job.id);
    }
  }
  if (options_.disk != nullptr && queued.hold == WaitingReason::kNone) {
    queued.hold_text = options_.disk->WhyOverLimit(job);
    if (!queued.hold_text.empty()) queued.hold = WaitingReason::kUserLimit;
  }
  const auto waits = start_waits_.find(job.id);
  if (waits != start_waits_.end()) {
    StartWait& wait = waits->second;
    const bool clock_set_back =
        wait.until != absl::InfiniteFuture() && wait.until - now > wait.interval;
    const bool another_ended =
        wait.reason != WaitingReason::kNotStarted && wait.runs_ended != runs_ended_;
    if (wait.until <= now || clock_set_back || another_ended) {
      wait.until = absl::InfinitePast();
    } else {
      queued.hold = wait.reason;
      queued.hold_text = wait.text;
    }
  }
  return queued;
}

QueueSnapshot Scheduler::TakeSnapshot() {
  QueueSnapshot snapshot;
  snapshot.now = ledger_->Now();
  snapshot.accepts = !stopping_;
  snapshot.devices = options_.devices;
  snapshot.pool_bytes = options_.pool_bytes;
  if (options_.limits != nullptr) snapshot.limits = options_.limits->Get();
  snapshot.use_seconds = usage_.Seconds(snapshot.now);
  const auto add_active = [&](int64_t uid, int64_t pool_bytes, const Run* run,
                              std::optional<double> seconds) {
    snapshot.active.push_back(
        {uid, pool_bytes, run != nullptr ? run->devices : std::vector<int>(), seconds});
  };
  for (const JobPtr& job : ledger_->table().Live()) {
    const auto found = runs_.find(job->id);
    const Run* const run = found != runs_.end() ? &found->second : nullptr;
    if (IsActive(job->state) || (run != nullptr && run->facts.Occupies())) {
      add_active(job->uid, job->pool_bytes, run, SecondsLeft(*job));
    } else if (run != nullptr) {
      snapshot.pool_paused_bytes[job->uid] += job->pool_bytes;
      snapshot.paused_devices.insert(run->devices.begin(), run->devices.end());
    }
    if (job->state == JobState::kQueued) snapshot.queued.push_back(Describe(*job));
  }
  // Of jobs that have ended, until the runner has let them go.
  for (const auto& [id, run] : runs_) {
    const JobPtr job = ledger_->table().Find(id);
    if (job == nullptr) add_active(-1, 0, &run, 0.0);
    if (job != nullptr && IsEnded(job->state)) add_active(job->uid, job->pool_bytes, &run, 0.0);
  }
  return snapshot;
}

void Scheduler::StartJobs() {
  // Again after each start: one that fails leaves the device to the next.
  for (;;) {
    const QueueDecision decision = DecideQueue(TakeSnapshot());
    if (decision.start.empty() ||
        !StartJob(decision.start.front().id, decision.start.front().devices)) {
      ledger_->SetQueuePlaces(decision.places);
      return;
    }
  }
}

bool Scheduler::StartJob(const std::string& id, const std::vector<int>& devices) {
  const JobPtr job = ledger_->table().Find(id);
  if (job == nullptr) return true;      // cancelled and deleted since
  if (runs_.find(id) != runs_.end()) {  // in place
    const absl::StatusOr<JobPtr> changed =
        Change(id, JobState::kQueued, {JobState::kPreparing, JobReason::kNone, "goes on", {}});
    if (changed.ok()) SettleRun(id);
    return changed.ok();
  }
  if (job->spec == nullptr) {
    const absl::Status parsed = ParseJob(*job->file, ledger_->state_directory(), id).status();
    return Change(id, JobState::kQueued,
                  {JobState::kFailed, JobReason::kInvalidInput, std::string(parsed.message()), {}})
        .ok();
  }
  Run run;
  run.devices = devices;
  run.since = ledger_->Now();
  if (records_ != nullptr) {
    absl::StatusOr<std::shared_ptr<JobRecords>> records = records_->Open(id);
    if (!records.ok()) {
      Note(absl::StrCat("job ", id, ": its records cannot be opened"), records.status());
      start_waits_[id] = {
          run.since + kStartWaitMin, kStartWaitMin, runs_ended_, WaitingReason::kDiskFull,
          absl::StrCat("its records cannot be written: ", records.status().message())};
      return true;  // another may start
    }
    run.records = *std::move(records);
  }
  std::string text = absl::StrCat("attempt ", job->attempts + 1);
  std::vector<std::string> names;
  for (const int device : devices) names.push_back(options_.devices.Name(device));
  if (options_.devices.count > 1) absl::StrAppend(&text, " on ", absl::StrJoin(names, ", "));
  const int64_t pool_bytes = PoolBytesOf(*job);
  const absl::StatusOr<JobPtr> changed = Change(
      id, JobState::kQueued,
      {JobState::kPreparing, JobReason::kNone, std::move(text), [&names, pool_bytes](Job* edited) {
         ++edited->attempts;
         edited->devices = names;
         edited->pool_bytes = pool_bytes;
       }});
  if (!changed.ok()) return false;
  RunRequest request{id, *job->spec, run.records, job->uid, (*changed)->allow_change, devices};
  runs_[id] = std::move(run);
  const absl::Status started = runner_->Start(std::move(request));
  if (!started.ok()) {
    Note(absl::StrCat("job ", id, " cannot be started"), started);
    Apply(RunEnd{RunEnd::Kind::kNotStarted, started}, &runs_.at(id).facts);
    SettleRun(id);
  }
  return true;
}

}  // namespace megatrain
