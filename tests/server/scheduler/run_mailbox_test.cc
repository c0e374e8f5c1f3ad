#include "server/scheduler/run_mailbox.h"

#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "absl/status/status.h"

namespace megatrain {
namespace {

// Longer than a test may take: whoever waits so long in vain hangs.
constexpr double kForEver = 1e6;

class RunMailboxTest : public ::testing::Test {
 protected:
  void Tell(const std::string& id, const JobRunEvent& event) {
    RunRequest run;
    run.job_id = id;
    mailbox_.Tell(run, event);
  }
  void Step(const std::string& id, int64_t step, double seconds) {
    StepRecord record;
    record.step = step;
    record.step_seconds = seconds;
    Tell(id, record);
  }

  RunMailbox mailbox_;
};

TEST_F(RunMailboxTest, ReportsKeepTheirOrderAndOfStepsTheNewestIsKept) {
  Tell("a", StepsBegin{1, 10});
  Step("a", 1, 2);
  Tell("b", StepsBegin{5, 20});
  Step("a", 2, 2);
  Step("b", 5, 4);
  Tell("a", CheckpointSaved{2, "step-2", 1.5});
  RunMailbox::Mail mail = mailbox_.Take();
  ASSERT_EQ(mail.reports.size(), 3u);
  EXPECT_EQ(mail.reports[0].job_id, "a");
  EXPECT_EQ(std::get<StepsBegin>(mail.reports[0].event).total_steps, 10);
  EXPECT_EQ(mail.reports[1].job_id, "b");
  EXPECT_EQ(std::get<StepsBegin>(mail.reports[1].event).first_step, 5);
  EXPECT_EQ(mail.reports[2].job_id, "a");
  EXPECT_EQ(std::get<CheckpointSaved>(mail.reports[2].event).step, 2);
  ASSERT_EQ(mail.progress.size(), 2u);
  EXPECT_EQ(mail.progress["a"].record.step, 2);
  EXPECT_EQ(mail.progress["b"].record.step, 5);
  mail = mailbox_.Take();
  EXPECT_TRUE(mail.reports.empty());
  EXPECT_TRUE(mail.progress.empty());
}

TEST_F(RunMailboxTest, EachJobHasAPaceOfItsOwnUntilItsRunEnds) {
  Step("a", 1, 10);
  Step("b", 1, 100);
  mailbox_.Take();
  Step("a", 2, 20);
  Step("b", 2, 100);
  RunMailbox::Mail mail = mailbox_.Take();
  EXPECT_NEAR(mail.progress["a"].step_seconds, 11, 1e-9);
  EXPECT_NEAR(mail.progress["b"].step_seconds, 100, 1e-9);
  Tell("a", RunEnd{RunEnd::Kind::kStopped, absl::OkStatus()});
  Step("a", 3, 40);
  Step("b", 3, 200);
  mail = mailbox_.Take();
  EXPECT_NEAR(mail.progress["a"].step_seconds, 40, 1e-9);
  EXPECT_NEAR(mail.progress["b"].step_seconds, 110, 1e-9);
}

TEST_F(RunMailboxTest, WhatTheSchedulerNeedsNotIsDropped) {
  Tell("a", RunMessage{"loading"});
  Tell("a", TrainingActivity{});
  Tell("a", BeforeCheckpoint{1});
  Tell("a", CheckpointFailed{1, absl::InternalError("it failed")});
  const RunMailbox::Mail mail = mailbox_.Take();
  EXPECT_TRUE(mail.reports.empty());
  EXPECT_TRUE(mail.progress.empty());
}

TEST_F(RunMailboxTest, AReportOrAWakeEndsEveryWaitUntilTheMailIsTaken) {
  mailbox_.Wake();
  mailbox_.Wait(kForEver, kForEver);
  mailbox_.Wait(kForEver, kForEver);
  mailbox_.Take();
  mailbox_.Wait(0, kForEver);  // nothing is there any more
  Tell("a", StepsBegin{1, 10});
  mailbox_.Wait(kForEver, kForEver);
}

TEST_F(RunMailboxTest, StepsAreWaitedForNoLongerThanTheyMay) {
  Step("a", 1, 2);
  mailbox_.Wait(kForEver, 0);
  mailbox_.Wait(0, kForEver);
}

}  // namespace
}  // namespace megatrain
