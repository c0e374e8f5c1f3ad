#include "server/manager/job_manager.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/checkpoint/checkpoint_directory.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "server/base/error_reason.h"
#include "server/files/job_files.h"
#include "server/manager/job_paths.h"
#include "server/manager/request_checks.h"
#include "server/manager/user_limit_check.h"

namespace megatrain {
namespace {

// Exports are written one at a time, for all callers: nobody's may fill the queue.
constexpr int kExportsMax = 4;

bool MaySee(const Caller& caller, const Job& job) {
  return caller.administrator || caller.uid == job.uid;
}

// `job` was made by the request_id before. The same request again is answered with it.
absl::StatusOr<JobPtr> SameRequest(JobPtr job, const CreateJobOptions& options) {
  // Resume may have added sections.
  const bool may_change = absl::c_all_of(options.allow_change, [&](const std::string& section) {
    return absl::c_linear_search(job->allow_change, section);
  });
  if (*job->file == options.file && job->priority == options.priority && may_change) return job;
  return WithReason(absl::AlreadyExistsError(
                        absl::StrCat("request_id ", options.request_id, " has made job ", job->id,
                                     " from another job file, priority or allow_change; a new job "
                                     "needs a request_id of its own")),
                    v1::REQUEST_ID_REUSED, {{"job", job->id}});
}

// What is in a directory is not written over.
absl::Status CheckFree(const std::string& directory, FileSystem* files) {
  const absl::Status place = CheckPlaceOfDirectory(directory, files);
  if (absl::IsPermissionDenied(place)) {
    return WithReason(absl::PermissionDeniedError(absl::StrCat("directory: ", place.message())),
                      v1::NOT_PERMITTED, {{"field", "directory"}});
  }
  bool free = place.ok();
  if (free && files->FileExists(directory)) {
    const absl::StatusOr<std::vector<std::string>> names = files->ListDirectory(directory);
    free = names.ok() && names->empty();
  } else if (!free && !files->FileExists(directory)) {
    return InvalidField("directory", std::string(place.message()));
  }
  if (free) return absl::OkStatus();
  return WithReason(absl::FailedPreconditionError(absl::StrCat(
                        directory, ": is there already and is not an empty directory")),
                    v1::OUTPUT_EXISTS);
}

JobCheckpoint DescribeCheckpoint(const std::string& directory, FileSystem* files) {
  JobCheckpoint checkpoint;
  checkpoint.directory = directory;
  checkpoint.step = ParseStepDirectoryName(directory.substr(directory.rfind('/') + 1)).value_or(0);
  // It may be pruned under our eyes.
  const absl::StatusOr<std::vector<std::string>> names = files->ListDirectory(directory);
  if (names.ok()) {
    for (const std::string& name : *names) {
      const absl::StatusOr<FileInfo> info = files->Examine(JoinPath(directory, name));
      if (info.ok()) checkpoint.bytes += info->bytes;
    }
  }
  const absl::StatusOr<FileInfo> info = files->Examine(directory);
  if (info.ok()) checkpoint.changed = info->modified;
  return checkpoint;
}

std::string By(const Caller& caller) {
  return caller.user.empty() ? absl::StrCat("by user ", caller.uid)
                             : absl::StrCat("by ", caller.user);
}

}  // namespace

JobManager::JobManager(JobLedger* ledger, Options options)
    : ledger_(ledger), options_(std::move(options)) {}

absl::StatusOr<JobPtr> JobManager::Create(const Caller& caller, const CreateJobOptions& options) {
  MT_RETURN_IF_ERROR(CheckRequestId(options.request_id));
  MT_RETURN_IF_ERROR(CheckPriority(caller, options.priority));
  if (!options.request_id.empty()) {
    if (JobPtr job = ledger_->table().FindRequest(caller.uid, options.request_id)) {
      absl::StatusOr<JobPtr> same = SameRequest(std::move(job), options);
      if (!same.ok() || !options.validate_only) return same;
    }
  }
  Job job;
  job.id = ledger_->NewId();
  job.user = caller.user;
  job.uid = caller.uid;
  job.request_id = options.request_id;
  job.file = std::make_shared<const JobFile>(options.file);
  job.priority = options.priority;
  MT_ASSIGN_OR_RETURN(job.allow_change, WithSections(options.allow_change, {}));
  MT_ASSIGN_OR_RETURN(JobSpec spec, ParseJob(options.file, ledger_->state_directory(), job.id));
  job.display_name = spec.name;
  MT_ASSIGN_OR_RETURN(const std::shared_ptr<FileSystem> files, FilesOf(caller.uid, ""));
  MT_RETURN_IF_ERROR(
      CheckPaths(spec, JobDirectory(ledger_->state_directory(), job.id), files.get()));
  const absl::StatusOr<PlanReport> plan = options_.plan(spec, files.get());
  if (!plan.ok()) return PlanError(plan.status());
  if (!plan->fits) {
    return WithReason(absl::FailedPreconditionError(plan->table), v1::DOES_NOT_FIT);
  }
  SetPlanned(*plan, std::move(spec), &job);
  if (options.validate_only) {
    MT_RETURN_IF_ERROR(CheckLimits(job));
    job.id.clear();
    return std::make_shared<const Job>(std::move(job));
  }
  const Job candidate = job;
  MT_ASSIGN_OR_RETURN(JobPtr added,
                      ledger_->Add(std::move(job), absl::StrCat("submitted ", By(caller)),
                                   [&] { return CheckLimits(candidate); }));
  // Another call with the same request_id may have been faster.
  return options.request_id.empty() ? added : SameRequest(std::move(added), options);
}

absl::Status JobManager::CheckLimits(const Job& job) const {
  if (options_.limits == nullptr) return absl::OkStatus();
  return CheckUserLimits(options_.limits->Get(), job, options_.devices, ledger_->table(),
                         options_.disk);
}

void JobManager::SetPlanned(const PlanReport& plan, JobSpec spec, Job* job) const {
  job->pool_bytes = plan.pool_bytes;
  job->checkpoint_bytes = plan.checkpoint_bytes;
  SetSpec(std::move(spec), ledger_->state_directory(), job);
}

absl::StatusOr<JobPlan> JobManager::Plan(const Caller& caller, const JobFile& file) {
  Job job;
  job.id = ledger_->NewId();
  job.uid = caller.uid;
  MT_ASSIGN_OR_RETURN(JobSpec spec, ParseJob(file, ledger_->state_directory(), job.id));
  MT_ASSIGN_OR_RETURN(const std::shared_ptr<FileSystem> files, FilesOf(caller.uid, ""));
  absl::StatusOr<PlanReport> report = options_.plan(spec, files.get());
  if (!report.ok()) return PlanError(report.status());
  JobPlan plan;
  plan.report = *std::move(report);
  if (plan.report.fits) {
    SetPlanned(plan.report, std::move(spec), &job);
    plan.limit_refusal = CheckLimits(job);
  }
  for (const JobPtr& job : ledger_->table().All()) {
    if (IsActive(job->state) || (job->state == JobState::kQueued && job->priority >= 0)) {
      ++plan.jobs_ahead;
    }
  }
  return plan;
}

absl::StatusOr<std::shared_ptr<FileSystem>> JobManager::FilesOf(int64_t uid,
                                                                const std::string& id) const {
  absl::StatusOr<std::shared_ptr<FileSystem>> files = options_.files(uid, id);
  if (files.ok() ||
      !(absl::IsPermissionDenied(files.status()) || absl::IsNotFound(files.status()))) {
    return files;
  }
  return WithReason(absl::PermissionDeniedError(files.status().message()), v1::NOT_PERMITTED);
}

absl::StatusOr<JobPtr> JobManager::Get(const Caller& caller, const std::string& id) const {
  JobPtr job = ledger_->table().Find(id);
  if (job == nullptr || !MaySee(caller, *job)) return JobNotFound(id);
  return job;
}

absl::StatusOr<JobPage> JobManager::List(const Caller& caller,
                                         const ListJobsOptions& options) const {
  if (options.page_size <= 0) return InvalidField("page_size", "expects a number above 0");
  const auto wanted = [&](const Job& job) {
    return MaySee(caller, job) && (!options.filter || options.filter(job));
  };
  JobPage page;
  // One more than the page tells whether there is another.
  const auto size = static_cast<size_t>(options.page_size);
  page.jobs = ledger_->table().Range(options.after_number, options.newest_first, size + 1, wanted);
  if (page.jobs.size() > size) {
    page.jobs.pop_back();
    page.next = page.jobs.back()->number;
  }
  return page;
}

absl::StatusOr<JobPtr> JobManager::Control(const Caller& caller, const std::string& id,
                                           const JobLedger::Decide& decide) {
  return ledger_->Change(id, [&](const Job& job) -> absl::StatusOr<std::optional<JobChange>> {
    if (!MaySee(caller, job)) return JobNotFound(id);
    return decide(job);
  });
}

absl::StatusOr<JobPtr> JobManager::Pause(const Caller& caller, const std::string& id,
                                         bool release_host) {
  return Control(caller, id, [&](const Job& job) -> absl::StatusOr<std::optional<JobChange>> {
    JobChange change;
    change.reason = JobReason::kUserRequest;
    change.text =
        absl::StrCat("paused ", By(caller), release_host ? ", to give its host memory back" : "");
    switch (job.state) {
      case JobState::kRunning:
        change.to = JobState::kPausing;
        change.edit = [release_host](Job* edited) { edited->release_host = release_host; };
        return change;
      case JobState::kPausing:
      case JobState::kPaused: {
        const bool may_release = job.state == JobState::kPausing || job.host_retained;
        const bool releases = release_host && may_release && !job.release_host;
        if (job.reason == JobReason::kUserRequest && !releases) return std::nullopt;
        change.edit = [releases, text = change.text](Job* edited) {
          edited->reason = JobReason::kUserRequest;
          edited->reason_text = text;
          edited->release_host = edited->release_host || releases;
        };
        return change;
      }
      case JobState::kQueued:
      case JobState::kPreparing:
        return NotInThisState(job, "paused",
                              "; it can be when it is RUNNING, and cancelled at any time");
      default:
        return NotInThisState(job, "paused", "");
    }
  });
}

absl::StatusOr<JobPtr> JobManager::Resume(const Caller& caller, const std::string& id,
                                          const std::vector<std::string>& allow_change) {
  return Control(caller, id, [&](const Job& job) -> absl::StatusOr<std::optional<JobChange>> {
    MT_ASSIGN_OR_RETURN(const std::vector<std::string> sections,
                        WithSections(job.allow_change, allow_change));
    JobChange change;
    change.reason = JobReason::kUserRequest;
    change.edit = [sections](Job* edited) {
      edited->release_host = false;
      edited->allow_change = sections;
    };
    switch (job.state) {
      case JobState::kPaused:
        change.to = JobState::kQueued;
        change.text = absl::StrCat("resumed ", By(caller));
        return change;
      case JobState::kPausing:
        if (job.release_host) {
          return NotInThisState(job, "resumed",
                                ": it is being saved to give its host memory back; "
                                "it can be when it is PAUSED");
        }
        change.to = JobState::kRunning;
        change.text = absl::StrCat("pause withdrawn ", By(caller));
        return change;
      case JobState::kQueued:
        if (sections == job.allow_change) return std::nullopt;
        change.text = absl::StrCat("may change ", absl::StrJoin(sections, ", "), " ", By(caller));
        change.edit = [sections](Job* edited) { edited->allow_change = sections; };
        return change;
      case JobState::kPreparing:
      case JobState::kRunning:
        return std::nullopt;
      default:
        return NotInThisState(job, "resumed", "");
    }
  });
}

absl::StatusOr<JobPtr> JobManager::Cancel(const Caller& caller, const std::string& id) {
  return Control(caller, id, [&](const Job& job) -> absl::StatusOr<std::optional<JobChange>> {
    JobChange change;
    change.reason = JobReason::kUserRequest;
    change.text = absl::StrCat("cancelled ", By(caller));
    switch (job.state) {
      case JobState::kQueued:
        change.to = JobState::kCancelled;
        return change;
      case JobState::kPreparing:
      case JobState::kRunning:
      case JobState::kPausing:
      case JobState::kPaused:
        change.to = JobState::kCancelling;
        return change;
      case JobState::kCancelling:
      case JobState::kCancelled:
        return std::nullopt;
      default:
        return NotInThisState(job, "cancelled", "");
    }
  });
}

absl::StatusOr<JobPtr> JobManager::Checkpoint(const Caller& caller, const std::string& id) {
  MT_ASSIGN_OR_RETURN(JobPtr job, Get(caller, id));
  const std::string advice = "; a job is checkpointed while it is RUNNING";
  if (job->state != JobState::kRunning) return NotInThisState(*job, "checkpointed", advice);
  const absl::Status status = options_.checkpoint(id);
  if (!absl::IsNotFound(status)) return status.ok() ? absl::StatusOr<JobPtr>(job) : status;
  // It has just stopped.
  MT_ASSIGN_OR_RETURN(job, Get(caller, id));
  return NotInThisState(*job, "checkpointed", advice);
}

absl::Status JobManager::Delete(const Caller& caller, const std::string& id) {
  return ledger_->Delete(
      id, [&](const Job& job) { return MaySee(caller, job) ? absl::OkStatus() : JobNotFound(id); });
}

absl::StatusOr<std::vector<JobCheckpoint>> JobManager::ListCheckpoints(
    const Caller& caller, const std::string& id) const {
  MT_ASSIGN_OR_RETURN(const JobPtr job, Get(caller, id));
  MT_ASSIGN_OR_RETURN(const std::shared_ptr<FileSystem> files, FilesOf(job->uid, id));
  return CheckpointsOf(*job, files.get());
}

absl::StatusOr<std::vector<JobCheckpoint>> JobManager::CheckpointsOf(const Job& job,
                                                                     FileSystem* files) const {
  std::vector<JobCheckpoint> checkpoints;
  // Of a job whose file is not understood any more only its own directory is known.
  const std::string directory = job.spec != nullptr
                                    ? job.spec->checkpoint.directory
                                    : OwnCheckpointDirectory(ledger_->state_directory(), job.id);
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> directories,
                      megatrain::ListCheckpoints(directory, files));
  for (const std::string& directory : directories) {
    checkpoints.push_back(DescribeCheckpoint(directory, files));
  }
  // The newest one knows which was the best.
  if (directories.empty()) return checkpoints;
  const absl::StatusOr<CheckpointState> state = ReadCheckpointState(directories.front(), files);
  for (JobCheckpoint& checkpoint : checkpoints) {
    if (state.ok() && checkpoint.step == state->evaluations.kept_step) {
      checkpoint.best_eval_loss = state->evaluations.kept_loss;
    }
  }
  return checkpoints;
}

absl::StatusOr<JobCheckpoint> JobManager::Export(
    const Caller& caller, const std::string& id, int64_t step, const std::string& directory,
    std::function<void(const absl::Status& status)> done) {
  if (directory.empty() || directory.front() != '/') {
    return InvalidField("directory", absl::StrCat("\"", directory,
                                                  "\" is not absolute; give an absolute path on "
                                                  "the daemon's machine"));
  }
  MT_ASSIGN_OR_RETURN(const JobPtr job, Get(caller, id));
  MT_ASSIGN_OR_RETURN(std::shared_ptr<FileSystem> files, FilesOf(job->uid, id));
  MT_ASSIGN_OR_RETURN(const std::vector<JobCheckpoint> checkpoints,
                      CheckpointsOf(*job, files.get()));
  const auto found = std::find_if(
      checkpoints.begin(), checkpoints.end(),
      [step](const JobCheckpoint& checkpoint) { return step == 0 || checkpoint.step == step; });
  if (found == checkpoints.end()) {
    return WithReason(
        absl::NotFoundError(step == 0
                                ? absl::StrCat("job ", id, " has no checkpoint yet")
                                : absl::StrCat("job ", id, " has no checkpoint of step ", step)),
        v1::CHECKPOINT_NOT_FOUND, {{"job", id}});
  }
  MT_RETURN_IF_ERROR(CheckFree(directory, files.get()));
  if (const absl::Status own = CheckIsNoOwnDirectory(ledger_->state_directory(), directory);
      !own.ok()) {
    return InvalidField("directory", std::string(own.message()));
  }
  MT_ASSIGN_OR_RETURN(std::shared_ptr<const void> counted, CountExport(caller.uid));
  MT_RETURN_IF_ERROR(options_.write_export(found->directory, directory, std::move(files),
                                           [counted = std::move(counted), done = std::move(done)](
                                               const auto& status) { done(status); }));
  return *found;
}

absl::StatusOr<std::shared_ptr<const void>> JobManager::CountExport(int64_t uid) {
  MutexLock lock(&mutex_);
  std::vector<std::weak_ptr<const void>>& counted = exports_[uid];
  std::erase_if(counted, [](const auto& one) { return one.expired(); });
  if (counted.size() >= kExportsMax) {
    return WithReason(
        absl::ResourceExhaustedError(absl::StrCat("you have ", kExportsMax,
                                                  " exports that wait or are written, as many as "
                                                  "you may; try again when one is done")),
        v1::LIMIT_REACHED, {{"limit", "exports"}, {"value", absl::StrCat(kExportsMax)}});
  }
  std::shared_ptr<const void> one = std::make_shared<const int>(0);
  counted.push_back(one);
  return one;
}

absl::StatusOr<std::unique_ptr<JobWatch>> JobManager::Watch(const Caller& caller,
                                                            const std::string& id,
                                                            int64_t first_sequence,
                                                            std::function<void()> on_ready) {
  MT_ASSIGN_OR_RETURN(const JobPtr job, Get(caller, id));
  const int64_t next = ledger_->table().LastEvent(id) + 1;
  if (first_sequence < 0 || first_sequence > next) {
    return InvalidField("start_sequence",
                        absl::StrCat("expects 0 to ", next, ", the next event of job ", id,
                                     ", got ", first_sequence));
  }
  return ledger_->table().Watch(id, std::max<int64_t>(first_sequence, 1), std::move(on_ready));
}

}  // namespace megatrain
