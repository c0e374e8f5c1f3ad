#include "server/worker/watchdog.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/wait_until.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class WatchdogTest : public ::testing::Test {
 protected:
  static WatchdogOptions Options(const double* now) {
    WatchdogOptions options;
    options.step_factor = 5;
    options.step_seconds_min = 10;
    options.first_step_seconds = 100;
    options.preparing_seconds = 50;
    options.saving_seconds = 60;
    options.poll_seconds = 1e6;  // looks only when told
    options.stopped_seconds = 1e12;
    options.now = [now] { return *now; };
    return options;
  }
  void After(double seconds) {
    now_ += seconds;
    watchdog_.Check();
  }

  double now_ = 1000;
  std::vector<std::string> told_;
  Watchdog watchdog_{Options(&now_), [this](const std::string& why) { told_.push_back(why); }};
};

TEST_F(WatchdogTest, ExpectsNothingWhileIdle) {
  EXPECT_LT(watchdog_.limit_seconds(), 0);
  After(1e9);
  watchdog_.Enter(TrainingPhase::kRunning);
  watchdog_.StepDone(1, 3);
  watchdog_.Enter(TrainingPhase::kPaused);
  After(1e9);
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(WatchdogTest, EachPhaseHasItsOwnLimit) {
  const std::vector<std::pair<TrainingPhase, double>> limits = {{TrainingPhase::kPreparing, 50},
                                                                {TrainingPhase::kRunning, 100},
                                                                {TrainingPhase::kSaving, 60}};
  for (const auto& [phase, limit] : limits) {
    told_.clear();
    watchdog_.Enter(phase);
    EXPECT_EQ(watchdog_.limit_seconds(), limit);
    After(limit);
    EXPECT_THAT(told_, IsEmpty());
    After(1);
    ASSERT_EQ(told_.size(), 1u);
    After(1000);
    EXPECT_EQ(told_.size(), 1u) << "once";
  }
  EXPECT_THAT(told_[0], HasSubstr("saving has not advanced for 61 s (at most 60 s"));
}

TEST_F(WatchdogTest, SignsOfLifeAreEnoughForever) {
  watchdog_.Enter(TrainingPhase::kSaving);
  for (int i = 0; i < 100; ++i) {
    After(59);
    watchdog_.Alive();
  }
  EXPECT_THAT(told_, IsEmpty());
  After(61);
  EXPECT_EQ(told_.size(), 1u);
  watchdog_.Alive();
  After(61);
  EXPECT_EQ(told_.size(), 2u) << "a second time, once it had advanced again";
}

TEST_F(WatchdogTest, LearnsFromTheStepsSeen) {
  watchdog_.Enter(TrainingPhase::kRunning);
  EXPECT_EQ(watchdog_.limit_seconds(), 100);
  watchdog_.StepDone(1, 0.001);
  EXPECT_EQ(watchdog_.limit_seconds(), 10) << "not less than the least";
  watchdog_.StepDone(2, 7);
  EXPECT_EQ(watchdog_.limit_seconds(), 35);
  watchdog_.StepDone(3, 4);
  EXPECT_EQ(watchdog_.limit_seconds(), 35) << "the longest of those remembered";
  for (int64_t step = 4; step < 3 + Watchdog::kStepsRemembered; ++step) watchdog_.StepDone(step, 3);
  EXPECT_EQ(watchdog_.limit_seconds(), 20);
  After(20.5);
  EXPECT_THAT(told_, ElementsAre(HasSubstr("training has not advanced for 20 s (at most 20 s are "
                                           "expected) after step 18")));
  // The times stay known over a save and a pause.
  watchdog_.Enter(TrainingPhase::kSaving);
  watchdog_.Enter(TrainingPhase::kRunning);
  EXPECT_EQ(watchdog_.limit_seconds(), 20);
}

TEST_F(WatchdogTest, SaysWhatItIsAtAndAfterWhichStep) {
  watchdog_.Follow(TrainingActivity{TrainingPhase::kPreparing, "loading the model"});
  After(51);
  StepRecord record;
  record.step = 7;
  record.step_seconds = 3;
  watchdog_.Follow(record);
  watchdog_.Follow(TrainingActivity{TrainingPhase::kSaving, "saving step 7"});
  After(61);
  EXPECT_THAT(
      told_,
      ElementsAre("loading the model has not advanced for 51 s (at most 50 s are expected)",
                  "saving step 7 has not advanced for 61 s (at most 60 s are expected) after step "
                  "7"));
}

TEST_F(WatchdogTest, AResumedRunHangsAfterTheStepThatItResumedFrom) {
  watchdog_.Follow(TrainingActivity{TrainingPhase::kRunning, ""});
  watchdog_.Follow(StepsBegin{.first_step = 41, .total_steps = 50});
  After(101);
  EXPECT_THAT(told_, ElementsAre(HasSubstr("after step 40")));
}

TEST_F(WatchdogTest, ExpectsNothingWhileItRests) {
  watchdog_.Enter(TrainingPhase::kPreparing);
  After(40);
  {
    const Watchdog::Rest rest(watchdog_);
    After(1e6);
  }
  After(50);
  EXPECT_THAT(told_, IsEmpty());
  After(1);
  EXPECT_EQ(told_.size(), 1u);
}

TEST(WatchdogOfAJobTest, StandsStillWhenAllProcessesDo) {
  double now = 0, given = 0, others = 30;
  std::vector<std::string> told;
  WatchdogOptions options;
  options.preparing_seconds = 50;
  options.poll_seconds = 1e6;
  options.stopped_seconds = 1e12;
  options.now = [&now] { return now; };
  options.share = [&](double seconds) {
    given = seconds;
    return std::max(seconds, others);
  };
  Watchdog watchdog(options, [&told](const std::string& why) { told.push_back(why); });
  watchdog.Check();
  EXPECT_TRUE(std::isinf(given)) << "nothing is expected before it began";
  watchdog.Enter(TrainingPhase::kPreparing);
  now = 60;
  watchdog.Check();
  EXPECT_EQ(given, -10);
  EXPECT_THAT(told, IsEmpty()) << "another may be at work";
  others = -1;
  watchdog.Check();
  EXPECT_THAT(told, ElementsAre(HasSubstr("for 60 s")));
}

TEST(WatchdogOfAStoppedProcessTest, BeginsAnew) {
  double now = 0;
  std::vector<std::string> told;
  WatchdogOptions options;
  options.preparing_seconds = 50;
  options.poll_seconds = 1e6;
  options.stopped_seconds = 20;
  options.now = [&now] { return now; };
  Watchdog watchdog(options, [&told](const std::string& why) { told.push_back(why); });
  watchdog.Enter(TrainingPhase::kPreparing);
  now = 3600;  // as after Ctrl-Z
  watchdog.Check();
  EXPECT_THAT(told, IsEmpty());
  for (int i = 0; i < 6; ++i) {
    now += 10;
    watchdog.Check();
  }
  EXPECT_THAT(told, ElementsAre(HasSubstr("for 60 s")));
}

TEST(WatchdogThreadTest, LooksByItself) {
  std::atomic<double> now{0};
  std::atomic<bool> told{false};
  WatchdogOptions options;
  options.poll_seconds = 0.001;
  options.stopped_seconds = 1e12;
  options.now = [&now] { return now.load(); };
  Watchdog watchdog(options, [&told](const std::string&) { told = true; });
  watchdog.Enter(TrainingPhase::kPreparing);
  now = options.preparing_seconds + 1;
  EXPECT_TRUE(WaitUntil([&told] { return told.load(); }));
}

}  // namespace
}  // namespace megatrain
