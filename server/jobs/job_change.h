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
  // The reason of the event. It becomes the job's reason too if `to` is given.
  JobReason reason = JobReason::kNone;
  // A text for people, of the event and, if `to` is given, of the job. A change with neither `to`
  // nor a text makes no event.
  std::string text;
  // Changes further fields of the job, after those above are changed. May be empty.
  std::function<void(Job* job)> edit;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_JOBS_JOB_CHANGE_H_
