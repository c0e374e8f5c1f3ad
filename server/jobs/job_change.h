// JobChange describes a change of a job, before it is made.
#ifndef MEGATRAIN_SERVER_JOBS_JOB_CHANGE_H_
#define MEGATRAIN_SERVER_JOBS_JOB_CHANGE_H_

#include <functional>
#include <optional>
#include <string>

#include "server/jobs/job.h"

namespace megatrain {

struct JobChange {
  std::optional<JobState> to;  // nullopt: the state stays
  // The job's new reason if `to` is given, else only the event's.
  JobReason reason = JobReason::kNone;
  // A text for people. The change is an event of the job if there is a `to` or a text.
  std::string text;
  // Changes other fields; called last. May be empty.
  std::function<void(Job* job)> edit;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_JOBS_JOB_CHANGE_H_
