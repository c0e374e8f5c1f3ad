#include "server/scheduler/run_rule.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/memory/pool_busy.h"
#include "tests/server/jobs/test_job.h"

namespace megatrain {
namespace {

using Kind = RunAction::Kind;
using Phase = RunFacts::Phase;

// Every combination that can be told apart, possible or not: the rule takes only legal steps, and
// comes to rest.
TEST(RunRuleTest, LegalAndAtRestFromAnywhere) {
  const absl::Status statuses[] = {absl::OkStatus(), DiskFullError("disk full"),
                                   absl::InternalError("it failed"),
                                   PoolBusyError("the pool is in pieces")};
  constexpr int kKinds = static_cast<int>(RunEnd::Kind::kFailed) + 1;  // the last
  int64_t combinations = 0;
  for (const JobState state : AllJobStates()) {
    for (int bits = 0; bits < 1 << 10; ++bits) {
      const auto bit = [bits](int i) { return (bits >> i & 1) != 0; };
      for (int phase = 0; phase < 4; ++phase) {
        const int variants = phase == 3 ? kKinds * 4 : phase == 2 ? 3 : 1;
        for (int variant = 0; variant < variants; ++variant) {
          Job job = TestJob(1);
          job.state = state;
          job.host_retained = bit(0);
          job.release_host = bit(1);
          RunFacts facts;
          facts.phase = static_cast<Phase>(phase);
          facts.pause_asked = bit(2);
          facts.release_asked = bit(3);
          facts.resume_asked = bit(4);
          facts.cancel_asked = bit(5);
          facts.stop_asked = bit(6);
          facts.steps_unstored = bit(7);
          facts.release_failed = bit(8);
          facts.resume_failed = bit(8);
          facts.checkpoint_step = bit(9) ? 5 : 0;
          if (phase == 2) facts.pause.status = statuses[variant];
          if (phase == 3) {
            facts.end.kind = static_cast<RunEnd::Kind>(variant % kKinds);
            facts.end.status = statuses[variant / kKinds];
          }
          for (const bool stopping : {false, true}) {
            ++combinations;
            Job now = job;
            RunFacts facts_now = facts;
            int rounds = 0;
            for (;; ++rounds) {
              ASSERT_LT(rounds, 10)
                  << JobStateName(state) << " " << bits << " " << phase << " " << variant;
              const RunAction action = DecideRun(now, facts_now, stopping);
              if (action.kind == Kind::kNone) break;
              if (action.kind == Kind::kForget) {
                EXPECT_EQ(facts_now.phase, Phase::kEnded);
                EXPECT_FALSE(IsActive(now.state));
                EXPECT_FALSE(now.host_retained && !IsEnded(now.state));
                break;
              }
              if (action.kind == Kind::kAsk) {
                EXPECT_NE(facts_now.phase, Phase::kEnded) << "nobody is there to be asked";
                NoteAsked(action.wish, &facts_now);
                continue;
              }
              if (action.change.to.has_value()) {
                ASSERT_TRUE(IsLegalTransition(now.state, *action.change.to))
                    << JobStateName(now.state) << " " << JobStateName(*action.change.to);
                now.state = *action.change.to;
                now.reason = action.change.reason;
              }
              if (action.change.edit) action.change.edit(&now);
              NoteChanged(now.state, &facts_now);
            }
            if (facts_now.phase == Phase::kEnded) {
              EXPECT_FALSE(IsActive(now.state)) << "the run has ended, the job does not know";
            }
          }
        }
      }
    }
  }
  EXPECT_GT(combinations, 100000);
}

TEST(RunRuleTest, APausedJobWhoseLastStepsWereNotSavedSaysSo) {
  for (const RunEnd::Kind kind : {RunEnd::Kind::kStopped, RunEnd::Kind::kLost}) {
    Job job = TestJob(1);
    job.state = JobState::kPaused;
    job.host_retained = true;
    RunFacts facts;
    facts.phase = Phase::kEnded;
    facts.end.kind = kind;
    facts.end.status = DiskFullError("disk full");
    const RunAction action = DecideRun(job, facts, /*stopping=*/true);
    EXPECT_EQ(action.change.text,
              "its last steps could not be saved: disk full; it goes on from the beginning");
    ASSERT_TRUE(action.change.edit);
    action.change.edit(&job);
    EXPECT_FALSE(job.host_retained);
  }
}

TEST(RunRuleTest, ARunningJobWhoseLastStepsWereNotSavedGoesOnFromItsCheckpoint) {
  Job job = TestJob(1);
  job.state = JobState::kRunning;
  job.step = 45;
  job.checkpoint_step = 40;
  RunFacts facts;
  facts.phase = Phase::kEnded;
  facts.end.kind = RunEnd::Kind::kStopped;
  facts.end.status = DiskFullError("disk full");
  const RunAction action = DecideRun(job, facts, /*stopping=*/true);
  EXPECT_EQ(action.change.to, JobState::kQueued);
  EXPECT_EQ(action.change.reason, JobReason::kShutdown);
  EXPECT_EQ(action.change.text,
            "the daemon is stopping; its last steps could not be saved: disk full; "
            "goes on from step 41");
  ASSERT_TRUE(action.change.edit);
  action.change.edit(&job);
  EXPECT_EQ(job.step, 40);
}

// A user may pause and resume a job again and again before its run has followed once.
TEST(RunRuleTest, EachChangeOfMindIsAskedFor) {
  Job job = TestJob(1);
  RunFacts facts;
  facts.phase = Phase::kTraining;
  for (int round = 0; round < 3; ++round) {
    for (const auto& [state, wish] : {std::pair{JobState::kPausing, RunWish::kPause},
                                      std::pair{JobState::kRunning, RunWish::kResume}}) {
      job.state = state;
      const RunAction action = DecideRun(job, facts, /*stopping=*/false);
      ASSERT_TRUE(action.kind == Kind::kAsk) << round << JobStateName(state);
      EXPECT_TRUE(action.wish == wish) << round << JobStateName(state);
      NoteAsked(action.wish, &facts);
      EXPECT_TRUE(DecideRun(job, facts, /*stopping=*/false).kind == Kind::kNone) << "once";
    }
  }
}

TEST(RunRuleTest, AJobThatEndsEarlyHasTheStepsThatItMade) {
  for (const std::string early : {"", "stopped by training.stop_after_worse: 3"}) {
    Job job = TestJob(1);
    job.state = JobState::kRunning;
    job.step = 40;
    job.total_steps = 100;
    RunFacts facts;
    facts.phase = Phase::kEnded;
    facts.end.kind = RunEnd::Kind::kFinished;
    facts.end.early_reason = early;
    const RunAction action = DecideRun(job, facts, /*stopping=*/false);
    EXPECT_EQ(action.change.to, JobState::kSucceeded);
    EXPECT_EQ(action.change.text, early);
    ASSERT_TRUE(action.change.edit);
    action.change.edit(&job);
    EXPECT_EQ(job.step, early.empty() ? 100 : 40);
  }
}

TEST(RunRuleTest, AJobThatIsAskedToGoOnHasNotPausedItselfAgain) {
  Job job = TestJob(1);
  job.state = JobState::kRunning;
  RunFacts facts;
  facts.phase = Phase::kPaused;
  facts.pause.status = DiskFullError("disk full");
  EXPECT_EQ(DecideRun(job, facts, /*stopping=*/false).change.to, JobState::kPausing);
  NoteAsked(RunWish::kResume, &facts);
  EXPECT_TRUE(DecideRun(job, facts, /*stopping=*/false).kind == Kind::kNone);
}

TEST(RunRuleTest, WithoutARun) {
  for (const JobState state : AllJobStates()) {
    Job job = TestJob(1);
    job.state = state;
    job.reason = JobReason::kDiskFull;
    job.host_retained = true;
    job.step = 12;
    job.checkpoint_step = 10;
    const RunAction action = DecideWithoutRun(job);
    ASSERT_EQ(action.kind == Kind::kChange, IsActive(state)) << JobStateName(state);
    if (action.kind == Kind::kChange) {
      EXPECT_EQ(action.change.to, StateAfterRestart(state));
      const bool asked_for = state == JobState::kPausing || state == JobState::kCancelling;
      EXPECT_EQ(action.change.reason, asked_for ? JobReason::kDiskFull : JobReason::kNone);
      ASSERT_TRUE(action.change.edit);
      action.change.edit(&job);
      EXPECT_FALSE(job.host_retained);
      EXPECT_EQ(job.step, 10) << "what it goes on from";
    }
  }
}

TEST(RunRuleTest, ARunThatBeginsAtAnOlderCheckpointHasNoNewerOne) {
  Job job = TestJob(1);
  job.state = JobState::kPreparing;
  job.step = 45;
  job.checkpoint_step = 40;  // which is damaged
  RunFacts facts;
  Apply(StepsBegin{.first_step = 21, .total_steps = 100}, &facts);
  const RunAction action = DecideRun(job, facts, /*stopping=*/false);
  EXPECT_EQ(action.change.to, JobState::kRunning);
  EXPECT_EQ(action.change.text, "step 21 of 100 is the next");
  ASSERT_TRUE(action.change.edit);
  action.change.edit(&job);
  EXPECT_EQ(job.checkpoint_step, 20);
  EXPECT_EQ(job.step, 20);
  EXPECT_EQ(job.total_steps, 100);
}

TEST(RunRuleTest, ARunWithoutStepsLeftSaysSo) {
  Job job = TestJob(1);
  job.state = JobState::kPreparing;
  RunFacts facts;
  Apply(StepsBegin{.first_step = 11, .total_steps = 10}, &facts);
  EXPECT_EQ(DecideRun(job, facts, /*stopping=*/false).change.text, "all steps are done already");
}

// The store may be unwritable for long.
TEST(RunRuleTest, WhatAUserWantsIsAskedForBeforeACheckpointIsNoted) {
  const auto next = [](const Job& job, RunFacts* facts) {
    const RunAction action = DecideRun(job, *facts, /*stopping=*/false);
    if (action.kind == Kind::kAsk) NoteAsked(action.wish, facts);
    return action;
  };
  Job job = TestJob(1);
  RunFacts facts;
  facts.phase = Phase::kTraining;
  facts.checkpoint_step = 5;
  job.state = JobState::kPausing;
  EXPECT_TRUE(next(job, &facts).wish == RunWish::kPause && facts.pause_asked);
  EXPECT_TRUE(next(job, &facts).kind == Kind::kChange) << "the note";
  job.release_host = true;
  EXPECT_TRUE(next(job, &facts).wish == RunWish::kRelease && facts.release_asked);
  EXPECT_TRUE(next(job, &facts).kind == Kind::kChange);
  job.state = JobState::kCancelling;
  EXPECT_TRUE(next(job, &facts).wish == RunWish::kCancel && facts.cancel_asked);
  EXPECT_TRUE(next(job, &facts).kind == Kind::kChange);
}

// They began after a pause was withdrawn, and before the next one.
TEST(RunRuleTest, StepsThatBeganBeforeAPauseAreNoneAfterIt) {
  Job job = TestJob(1);
  job.state = JobState::kPausing;
  RunFacts facts;
  Apply(StepsBegin{.first_step = 11, .total_steps = 100}, &facts);
  Apply(TrainingPause{}, &facts);
  ASSERT_EQ(DecideRun(job, facts, /*stopping=*/false).change.to, JobState::kPaused);
  NoteChanged(JobState::kPaused, &facts);
  job.state = JobState::kPreparing;
  const RunAction action = DecideRun(job, facts, /*stopping=*/false);
  ASSERT_TRUE(action.kind == Kind::kAsk) << "it does not run yet";
  EXPECT_TRUE(action.wish == RunWish::kResume);
}

TEST(RunRuleTest, AReleaseThatFailedBeforeTheseStepsIsAskedForAgain) {
  RunFacts facts;
  NoteAsked(RunWish::kRelease, &facts);
  Apply(TrainingPause{DiskFullError("disk full"), "", 0}, &facts);
  ASSERT_TRUE(facts.release_failed);
  NoteAsked(RunWish::kResume, &facts);
  Apply(StepsBegin{.first_step = 11, .total_steps = 100}, &facts);
  NoteAsked(RunWish::kPause, &facts);
  Apply(TrainingPause{}, &facts);
  Job job = TestJob(1);
  job.state = JobState::kPausing;
  job.release_host = true;
  const RunAction action = DecideRun(job, facts, /*stopping=*/false);
  ASSERT_TRUE(action.kind == Kind::kAsk);
  EXPECT_TRUE(action.wish == RunWish::kRelease);
}

TEST(RunRuleTest, ABusyPoolIsASetbackOnlyBeforeTheFirstStep) {
  const std::pair<JobState, JobState> changes[] = {{JobState::kPreparing, JobState::kQueued},
                                                   {JobState::kRunning, JobState::kFailed},
                                                   {JobState::kPausing, JobState::kPaused},
                                                   {JobState::kCancelling, JobState::kCancelled}};
  for (const auto& [from, to] : changes) {
    Job job = TestJob(1);
    job.state = from;
    RunFacts facts;
    facts.phase = Phase::kEnded;
    facts.end.kind = RunEnd::Kind::kFailed;
    facts.end.status = PoolBusyError("the pool is in pieces");
    EXPECT_EQ(DecideRun(job, facts, /*stopping=*/false).change.to, to) << JobStateName(from);
  }
}

}  // namespace
}  // namespace megatrain
