#include "server/scheduler/run_rule.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/memory/pool_busy.h"
#include "server/jobs/restart_rule.h"
#include "server/worker/job_failure.h"

namespace megatrain {
namespace {

using Kind = RunAction::Kind;
using Phase = RunFacts::Phase;

RunAction Nothing() { return RunAction{}; }

RunAction Ask(RunWish wish, bool asked_already) {
  return asked_already ? Nothing() : RunAction{Kind::kAsk, {}, wish};
}

RunAction Become(JobState state, JobReason reason, std::string text,
                 std::function<void(Job*)> edit = {}) {
  return {Kind::kChange, {state, reason, std::move(text), std::move(edit)}};
}

RunAction Note(JobReason reason, std::string text, std::function<void(Job*)> edit) {
  return {Kind::kChange, {std::nullopt, reason, std::move(text), std::move(edit)}};
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

std::string GoesOnFrom(const Job& job) {
  return job.checkpoint_step > 0 ? absl::StrCat("goes on from step ", job.checkpoint_step + 1)
                                 : std::string("goes on from the beginning");
}

void ForgetHostMemory(Job* job) {
  job->host_retained = false;
  job->release_host = false;
}

// The job is to go on from its newest checkpoint.
void LoseHostMemory(Job* job) {
  ForgetHostMemory(job);
  job->step = job->checkpoint_step;
}

// ---- The run has ended ----

RunAction DecideFinished(const Job& job, const RunEnd& end) {
  switch (job.state) {
    case JobState::kPreparing:  // all steps were done before
      return Become(JobState::kRunning, JobReason::kNone, "all steps are done already");
    case JobState::kCancelling:
      return Become(JobState::kCancelled, job.reason,
                    "its last step was done when it was cancelled; what it wrote is whole");
    default:
      return Become(JobState::kSucceeded, JobReason::kNone, end.early_reason, [end](Job* edited) {
        if (end.early_reason.empty()) edited->step = std::max(edited->step, edited->total_steps);
        ForgetHostMemory(edited);
      });
  }
}

// A failure that waiting may mend.
RunAction DecideSetback(const Job& job, const RunEnd& end) {
  switch (job.state) {
    case JobState::kPreparing:
      return Become(
          JobState::kQueued,
          FailureOf(end.status) == JobReason::kDiskFull ? JobReason::kDiskFull : JobReason::kNone,
          Message(end.status), LoseHostMemory);
    case JobState::kRunning:
      if (FailureOf(end.status) != JobReason::kDiskFull) break;
      return Become(JobState::kPausing, JobReason::kDiskFull, Message(end.status));
    case JobState::kPausing:
      return Become(JobState::kPaused, job.reason, Message(end.status), LoseHostMemory);
    case JobState::kCancelling:
      return Become(JobState::kCancelled, job.reason, "");
    default:
      break;
  }
  return Become(JobState::kFailed, FailureOf(end.status), Message(end.status), ForgetHostMemory);
}

// Nothing went wrong: what was asked for was done, or the runner gave up the job for the daemon.
RunAction DecideLetGo(const Job& job, const RunEnd& end) {
  std::string text = end.kind == RunEnd::Kind::kReleased
                         ? std::string("its host memory was given back; ")
                         : std::string("the daemon is stopping; ");
  if (!end.status.ok()) {
    absl::StrAppend(&text, "its last steps could not be saved: ", end.status.message(), "; ");
  }
  absl::StrAppend(&text, GoesOnFrom(job));
  switch (job.state) {
    case JobState::kPausing:
      return Become(JobState::kPaused, job.reason, std::move(text), LoseHostMemory);
    case JobState::kCancelling:
      return Become(JobState::kCancelled, job.reason, "");
    default:
      return Become(JobState::kQueued, JobReason::kShutdown, std::move(text), LoseHostMemory);
  }
}

// Of a job that was paused in place, or waits to go on since.
RunAction DecideEndedInPlace(const Job& job, const RunEnd& end) {
  if (!job.host_retained) return {Kind::kForget, {}};
  std::string text = "its host memory was given back; it ";
  if (end.kind == RunEnd::Kind::kFailed) {
    text = absl::StrCat("lost its host memory: ", Message(end.status), "; it ");
  } else if (!end.status.ok()) {
    text = absl::StrCat("its last steps could not be saved: ", end.status.message(), "; it ");
  }
  return Note(job.reason, absl::StrCat(text, GoesOnFrom(job)), LoseHostMemory);
}

RunAction DecideEnded(const Job& job, const RunEnd& end) {
  if (IsEnded(job.state)) return {Kind::kForget, {}};
  if (job.state == JobState::kPaused || job.state == JobState::kQueued) {
    return DecideEndedInPlace(job, end);
  }
  switch (end.kind) {
    case RunEnd::Kind::kFinished:
      return DecideFinished(job, end);
    case RunEnd::Kind::kFailed:
      if (IsDiskFull(end.status) || IsPoolBusy(end.status)) return DecideSetback(job, end);
      return Become(JobState::kFailed, FailureOf(end.status), Message(end.status),
                    ForgetHostMemory);
    case RunEnd::Kind::kNotStarted:
      return DecideSetback(job, end);
    case RunEnd::Kind::kLost:
      if (job.state == JobState::kPreparing || job.state == JobState::kRunning) {
        return {Kind::kChange, ChangeAfterLoss(job, Message(end.status))};
      }
      return DecideLetGo(job, end);
    case RunEnd::Kind::kReleased:
    case RunEnd::Kind::kStopped:
    case RunEnd::Kind::kCancelled:
      return DecideLetGo(job, end);
  }
  return Nothing();
}

// ---- The run goes on ----

RunAction Running(const Job& job, const RunFacts& facts) {
  const bool from_checkpoint = !job.host_retained;
  return Become(
      JobState::kRunning, JobReason::kNone,
      facts.first_step > facts.total_steps
          ? std::string("all steps are done already")
          : absl::StrCat("step ", facts.first_step, " of ", facts.total_steps, " is the next"),
      [facts, from_checkpoint](Job* edited) {
        edited->step = facts.step;
        edited->total_steps = facts.total_steps;
        // It began from there, whatever was known of it.
        if (from_checkpoint) {
          edited->checkpoint_step = std::max(facts.first_step - 1, facts.checkpoint_step);
        }
        edited->host_retained = false;
      });
}

RunAction DecidePreparing(const RunFacts& facts, bool stopping) {
  // It tried to go on and could not: on the way to PAUSED again.
  if (facts.phase == Phase::kPaused && facts.resume_failed) {
    return Become(JobState::kRunning, JobReason::kNone, Message(facts.pause.status),
                  [](Job* edited) { edited->host_retained = false; });
  }
  if (stopping) return Ask(RunWish::kStop, facts.stop_asked);
  if (facts.phase == Phase::kPaused) return Ask(RunWish::kResume, facts.resume_asked);
  return Nothing();
}

RunAction DecideRunning(const RunFacts& facts, bool stopping) {
  const bool paused_itself =
      facts.phase == Phase::kPaused && !facts.resume_asked && !facts.pause.status.ok();
  if (paused_itself) {
    return Become(JobState::kPausing, FailureOf(facts.pause.status), Message(facts.pause.status));
  }
  if (stopping) return Ask(RunWish::kStop, facts.stop_asked);
  // A pause was withdrawn.
  if (facts.phase == Phase::kPaused || facts.pause_asked) {
    return Ask(RunWish::kResume, facts.resume_asked);
  }
  return Nothing();
}

RunAction DecidePausing(const Job& job, const RunFacts& facts, bool stopping) {
  if (facts.phase == Phase::kPaused && (!job.release_host || facts.release_failed)) {
    std::string text = "its host memory is kept";
    if (!facts.pause.status.ok()) {
      absl::StrAppend(&text, ": ", facts.pause.status.message());
    }
    return Become(JobState::kPaused, job.reason, std::move(text), [](Job* edited) {
      edited->host_retained = true;
      edited->release_host = false;
    });
  }
  if (job.release_host && !facts.release_asked) return Ask(RunWish::kRelease, false);
  if (stopping) return Ask(RunWish::kStop, facts.stop_asked);
  return Ask(RunWish::kPause, facts.pause_asked || facts.release_asked);
}

RunAction DecidePaused(const Job& job, const RunFacts& facts, bool stopping) {
  if (job.release_host && facts.release_failed) {
    return Note(job.reason, absl::StrCat("its host memory is kept: ", facts.pause.status.message()),
                [](Job* edited) { edited->release_host = false; });
  }
  if (job.release_host && !facts.release_asked) return Ask(RunWish::kRelease, false);
  if (stopping) return Ask(RunWish::kStop, facts.stop_asked);
  if (facts.phase != Phase::kPaused) return Ask(RunWish::kPause, facts.pause_asked);
  return Nothing();
}

// ---- What the runner reports ----

void ApplyPause(const TrainingPause& pause, RunFacts* facts) {
  facts->phase = RunFacts::Phase::kPaused;
  facts->pause = pause;
  facts->pause_asked = false;
  if (pause.status.ok()) return;
  // The answer to a release or a resumption. One without a failure may be that to a pause before
  // them.
  facts->release_failed = facts->release_asked;
  facts->resume_failed = facts->resume_asked;
  facts->release_asked = facts->resume_asked = false;
}

}  // namespace

void Apply(const JobRunEvent& event, RunFacts* facts) {
  std::visit(Overloaded{[&](const StepsBegin& begin) {
                          facts->phase = RunFacts::Phase::kTraining;
                          facts->first_step = begin.first_step;
                          facts->total_steps = begin.total_steps;
                          facts->steps_unstored = true;
                          facts->step = begin.first_step - 1;
                          facts->pause = TrainingPause{};
                          facts->pause_asked = facts->resume_asked = false;
                          facts->release_failed = false;
                        },
                        [&](const StepRecord& record) { facts->step = record.step; },
                        [&](const CheckpointSaved& saved) {
                          facts->checkpoint_step = std::max(facts->checkpoint_step, saved.step);
                        },
                        [&](const TrainingPause& pause) { ApplyPause(pause, facts); },
                        [&](const RunEnd& end) {
                          facts->phase = RunFacts::Phase::kEnded;
                          facts->end = end;
                        },
                        [](const auto&) {}},
             event);
}

RunAction DecideRun(const Job& job, const RunFacts& facts, bool stopping) {
  // A request to the run needs no store, which may be unwritable. Its results are noted after it.
  if (job.state == JobState::kCancelling && facts.phase != Phase::kEnded && !facts.cancel_asked) {
    return Ask(RunWish::kCancel, false);
  }
  if (job.state == JobState::kPausing && facts.phase == Phase::kTraining) {
    RunAction action = DecidePausing(job, facts, stopping);
    if (action.kind == Kind::kAsk) return action;
  }
  if (facts.checkpoint_step > job.checkpoint_step && !IsEnded(job.state)) {
    return Note(JobReason::kNone, "",
                [step = facts.checkpoint_step](Job* edited) { edited->checkpoint_step = step; });
  }
  if (facts.steps_unstored && job.state == JobState::kPreparing) return Running(job, facts);
  // After a pause that was withdrawn.
  if (facts.steps_unstored && job.state == JobState::kRunning) {
    return Note(JobReason::kNone, "", [facts](Job* edited) {
      edited->step = facts.step;
      edited->total_steps = facts.total_steps;
    });
  }
  if (facts.phase == Phase::kEnded) return DecideEnded(job, facts.end);
  switch (job.state) {
    case JobState::kQueued:
      // Paused in place, and resumed: the queue decides when.
      return stopping ? Ask(RunWish::kStop, facts.stop_asked) : Nothing();
    case JobState::kPreparing:
      return DecidePreparing(facts, stopping);
    case JobState::kRunning:
      return DecideRunning(facts, stopping);
    case JobState::kPausing:
      return DecidePausing(job, facts, stopping);
    case JobState::kPaused:
      return DecidePaused(job, facts, stopping);
    case JobState::kCancelling:
    case JobState::kSucceeded:
    case JobState::kFailed:
    case JobState::kCancelled:
      return Ask(RunWish::kCancel, facts.cancel_asked);
  }
  return Nothing();
}

void NoteAsked(RunWish wish, RunFacts* facts) {
  switch (wish) {
    case RunWish::kPause:
      facts->pause_asked = true;
      facts->resume_asked = false;
      break;
    case RunWish::kRelease:
      facts->release_asked = true;
      facts->release_failed = facts->resume_asked = false;
      break;
    case RunWish::kResume:
      facts->resume_asked = true;
      facts->resume_failed = facts->pause_asked = false;
      break;
    case RunWish::kCancel:
      facts->cancel_asked = true;
      break;
    case RunWish::kStop:
      facts->stop_asked = true;
      break;
    case RunWish::kCheckpoint:
      break;
  }
}

void NoteChanged(JobState state, RunFacts* facts) {
  if (state == JobState::kRunning) facts->steps_unstored = false;
  if (state == JobState::kPaused) {
    facts->release_failed = facts->resume_failed = facts->steps_unstored = false;
  }
}

RunAction DecideWithoutRun(const Job& job) {
  if (!IsActive(job.state)) return Nothing();
  const JobReason reason = job.state == JobState::kPausing || job.state == JobState::kCancelling
                               ? job.reason
                               : JobReason::kNone;
  return Become(StateAfterRestart(job.state), reason, "", LoseHostMemory);
}

}  // namespace megatrain
