// A change of a job, before it is made.
#ifndef MEGATRAIN_SERVER_JOBS_JOB_CHANGE_H_
#define MEGATRAIN_SERVER_JOBS_JOB_CHANGE_H_

#include <functional>
#include <optional>
#include <string>

#include "server/jobs/job.h"

namespace megatrain {

struct JobChange {
  std::optional<JobState> to;  // nothing: the state stays
  // The job's new reason if `to` is given, else only the event's.
  JobReason reason = JobReason::kNone;
  // For people. With `to`, or if not empty, the change is an event of the job.
  std::string text;
  // What else changes.
  std::function<void(Job* job)> edit;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_JOBS_JOB_CHANGE_H_
