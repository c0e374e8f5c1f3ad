// The daemon's jobs as plain values. The store keeps them; the scheduler and the RPC services
// exchange them.
#ifndef MEGATRAIN_SERVER_JOBS_JOB_H_
#define MEGATRAIN_SERVER_JOBS_JOB_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "engine/job/job_spec.h"
#include "engine/trace/step_record.h"
#include "megatrain/v1/job.pb.h"
#include "server/jobs/job_state_machine.h"

namespace megatrain {

// The reason for which a job is in its state. Its numbers, and those of WaitingReason, are the
// API's.
enum class JobReason {
  kNone = v1::Job::REASON_UNSPECIFIED,
  kUserRequest = v1::Job::USER_REQUEST,              // a user asked for it
  kDiskFull = v1::Job::DISK_FULL,                    // paused or queued until there is room
  kProcessRestart = v1::Job::PROCESS_RESTART,        // the process died, or lost the job's device
  kShutdown = v1::Job::SHUTDOWN,                     // the process was asked to stop
  kRepeatedDeaths = v1::Job::REPEATED_DEATHS,        // deaths in a row that got the job no further
  kTrainingError = v1::Job::TRAINING_ERROR,          // the engine stopped with an error
  kInvalidInput = v1::Job::INVALID_INPUT,            // model, data or checkpoint missing or wrong
  kDoesNotFit = v1::Job::DOES_NOT_FIT,               // needs more memory than there is
  kNonFinite = v1::Job::NON_FINITE,                  // loss, gradient or weight is not finite
  kCheckpointDamaged = v1::Job::CHECKPOINT_DAMAGED,  // every checkpoint, or a data file, is damaged
  kDiskLimit = v1::Job::DISK_LIMIT,                  // paused until its user's jobs hold less
};

// Returns the API's name, for example "DISK_FULL", and "NONE" for kNone. The store uses these names
// too. The result lives as long as the process.
const std::string& JobReasonName(JobReason reason);
// Returns the reason that has this JobReasonName, or nullopt if none has.
std::optional<JobReason> ParseJobReason(const std::string& name);

// The reason for which a queued job does not run yet.
enum class WaitingReason {
  kNone = v1::QueueStatus::WAITING_UNSPECIFIED,      // is not waiting
  kNotConsidered = v1::QueueStatus::NOT_CONSIDERED,  // the scheduler has not looked at it yet
  // It is the next one, and active jobs have devices or memory that it needs.
  kDeviceBusy = v1::QueueStatus::DEVICE_BUSY,
  // Other jobs come first, or one of them has the directory that it writes to.
  kBehindOthers = v1::QueueStatus::BEHIND_OTHERS,
  kHostMemory = v1::QueueStatus::HOST_MEMORY,          // host memory that it needs is not free yet
  kDiskFull = v1::QueueStatus::DISK_FULL,              // its disk is full, or records do not open
  kUserLimit = v1::QueueStatus::USER_LIMIT,            // its user's limits leave no room for it
  kShuttingDown = v1::QueueStatus::SHUTTING_DOWN,      // the daemon is stopping
  kDevicesMissing = v1::QueueStatus::DEVICES_MISSING,  // this daemon lacks devices that it needs
  kNotStarted = v1::QueueStatus::NOT_STARTED,          // starting failed, not by its own fault
};

// A job's place in the queue. The scheduler computes it anew in each round, and it is never stored.
struct QueuePlace {
  // 1 = the next one; other users' jobs count too; 0 = not queued, or not considered yet.
  int position = 0;
  WaitingReason waiting = WaitingReason::kNone;
  std::string text;  // `waiting` in words; names no other user's job
  // When the devices that it needs will be free. nullopt if it is not known how long a job ahead
  // will run, or if the job waits for a reason of its own, such as a full disk.
  std::optional<absl::Time> predicted_start;

  bool operator==(const QueuePlace&) const = default;
};

// A job file as it was submitted.
struct JobFile {
  std::string yaml;                    // its content
  std::string file_name;               // for error messages; never opened
  std::vector<std::string> overrides;  // "KEY=VALUE"
  // The absolute directory that relative paths of the file start from; "" = they are refused.
  std::string base_directory;

  bool operator==(const JobFile&) const = default;
};

inline constexpr int kPriorityMin = -100;
inline constexpr int kPriorityMax = 100;

struct Job {
  std::string id;      // opaque, [a-z0-9]; the resource's name is "jobs/ID"
  int64_t number = 0;  // grows with each submission: the stable order of lists

  // These fields are as submitted. All but allow_change never change.
  std::string display_name;  // the spec's name
  std::string user;          // the submitter's account name, as Caller::user
  int64_t uid = -1;
  std::string request_id;  // "" = none was given
  std::shared_ptr<const JobFile> file;
  int priority = 0;  // higher runs first; kPriorityMin to kPriorityMax
  // The sections of the file whose values may differ from those of the checkpoint that the job
  // resumes from (TrainingOptions::allow_change). Each is there once, in ascending order. Resuming
  // the job may add to them.
  std::vector<std::string> allow_change;
  // The file parsed: paths absolute, checkpoint.directory filled in. Null for a stored job whose
  // file this version of the program refuses; it fails when its turn comes.
  std::shared_ptr<const JobSpec> spec;

  // True if the job's checkpoints are in the directory that the daemon made for it, and false if
  // the file names another directory. If `spec` is null this is not known, and true.
  bool own_checkpoints = true;
  // The id of the job in whose directory they are, if it is another one of this user's; else "".
  std::string checkpoints_with;

  // These are from the plan at submission; 0 = not known.
  int64_t pool_bytes = 0;        // what the job takes of the host pool; planned anew for each run
  int64_t checkpoint_bytes = 0;  // what one checkpoint takes on disk

  JobState state = JobState::kQueued;
  JobReason reason = JobReason::kNone;
  std::string reason_text;  // the reason in words, for people
  // Infinite past = not yet.
  absl::Time created = absl::InfinitePast();
  absl::Time updated = absl::InfinitePast();  // of the last stored change
  absl::Time started = absl::InfinitePast();  // first time in RUNNING
  absl::Time ended = absl::InfinitePast();
  int64_t version = 0;  // grows with each stored change: the etag

  int attempts = 0;             // times that the engine was started for it
  int64_t step = 0;             // the last one that is done
  int64_t total_steps = 0;      // 0 = not known yet
  int64_t checkpoint_step = 0;  // of the newest verified checkpoint; 0 = none

  // True in PAUSING or PAUSED while the host memory is still to be given back.
  bool release_host = false;
  // True if the host memory is kept, so that the job goes on within seconds: in PAUSED, and
  // afterwards until the job runs, ends or loses the memory.
  bool host_retained = false;

  // The number of deaths in a row that count (restart_rule.h), and the job's step and
  // checkpoint_step at the last death.
  int deaths = 0;
  int64_t death_step = 0;
  int64_t death_checkpoint_step = 0;

  // Not stored.
  QueuePlace queue;
  // When it became QUEUED last. A start that failed does not count as the end of its wait. After a
  // restart of the daemon this is when the job's last change was stored, until it is queued again.
  absl::Time queued = absl::InfinitePast();
  // The names of the devices that the job was given last. While its host memory is kept, it can go
  // on only there.
  std::vector<std::string> devices;
  std::optional<StepRecord> last_step;  // the last one that this process made
  double step_seconds = 0;              // moving average of the last steps; 0 = not known
};

// An immutable snapshot of a job. A change makes a new snapshot.
using JobPtr = std::shared_ptr<const Job>;

// One entry of a job's event log: a change of state, or another change that has a text. It is
// stored before readers see it.
struct JobEvent {
  int64_t sequence = 0;  // from 1, without gaps, within the job
  absl::Time time;
  // nullopt: the job was created. Equal to `to`: the state did not change; see `text`.
  std::optional<JobState> from;
  JobState to = JobState::kQueued;
  JobReason reason = JobReason::kNone;
  std::string text;

  bool operator==(const JobEvent&) const = default;
};

// How many of a job's newest events are kept, in the store and in memory. There is a limit because
// a job that a full disk pauses is tried again every ten minutes, for weeks.
inline constexpr int64_t kJobEventsKept = 1000;

// A change of a job, before it is made.
struct JobChange {
  std::optional<JobState> to;  // nullopt: the state stays
  // The reason of the event. It becomes the job's reason too if `to` is given.
  JobReason reason = JobReason::kNone;
  // A text for people, of the event and, if `to` is given, of the job. A change with neither `to`
  // nor a text makes no event.
  std::string text;
  // Changes further fields of the job, after the fields above are applied. May be empty.
  std::function<void(Job* job)> edit;
  // When it happened, for the event; nullopt: now.
  std::optional<absl::Time> time = {};
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_JOBS_JOB_H_
