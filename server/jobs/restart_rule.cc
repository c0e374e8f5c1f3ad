#include "server/jobs/restart_rule.h"

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

std::string GoesOnFrom(const Job& job) {
  return job.checkpoint_step > 0 ? absl::StrCat("from the checkpoint of step ", job.checkpoint_step)
                                 : std::string("from the beginning");
}

void LoseHostMemory(Job* job) {
  job->host_retained = false;
  job->release_host = false;
  job->step = job->checkpoint_step;
}

}  // namespace

JobChange ChangeAfterLoss(const Job& job, const std::string& what) {
  const bool further = job.step > job.death_step || job.checkpoint_step > job.death_checkpoint_step;
  const int deaths = further ? 0 : job.deaths + 1;
  JobChange change;
  if (deaths >= kDeathsMax) {
    change.to = JobState::kFailed;
    change.reason = JobReason::kRepeatedDeaths;
    change.text = absl::StrCat(
        what, " ", deaths, " times in a row without the job getting further than step ",
        job.death_step, "; the daemon's log says how. To go on ", GoesOnFrom(job),
        ", submit the job again with the same checkpoint.directory");
  } else {
    change.to = StateAfterRestart(job.state);
    change.reason = JobReason::kProcessRestart;
    change.text = absl::StrCat(what, " at step ", job.step, "; goes on ", GoesOnFrom(job),
                               deaths > 0 ? absl::StrCat(" (death ", deaths, " of ", kDeathsMax,
                                                         " without getting further)")
                                          : "");
  }
  change.edit = [deaths](Job* edited) {
    edited->deaths = deaths;
    edited->death_step = edited->step;
    edited->death_checkpoint_step = edited->checkpoint_step;
    LoseHostMemory(edited);
  };
  return change;
}

std::optional<JobChange> ChangeAfterRestart(const Job& job) {
  switch (job.state) {
    case JobState::kPreparing:
    case JobState::kRunning:
      return ChangeAfterLoss(job, "the process died");
    case JobState::kPausing:
    case JobState::kCancelling:
      // What was asked for is done by the death, and for the reason it was asked for.
      return JobChange{
          .to = StateAfterRestart(job.state),
          .reason = job.reason,
          .text = job.state == JobState::kPausing
                      ? absl::StrCat("the process died; resumed it goes on ", GoesOnFrom(job))
                      : "the process died",
          .edit = LoseHostMemory};
    case JobState::kPaused:
    case JobState::kQueued: {
      if (!job.host_retained) return std::nullopt;
      JobChange change;
      change.reason = JobReason::kProcessRestart;
      change.text = absl::StrCat("the process died and with it the job's host memory; it goes on ",
                                 GoesOnFrom(job));
      // Why it is paused stays; that its memory is kept, which the text said, is no longer so.
      change.edit = [text = change.text](Job* edited) {
        edited->reason_text = text;
        LoseHostMemory(edited);
      };
      return change;
    }
    default:
      return std::nullopt;
  }
}

}  // namespace megatrain
