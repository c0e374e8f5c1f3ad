#include "server/worker/watchdog.h"

#include <atomic>
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
  watchdog_.Step(1, 3);
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
  watchdog_.Step(1, 0.001);
  EXPECT_EQ(watchdog_.limit_seconds(), 10) << "not less than the least";
  watchdog_.Step(2, 7);
  EXPECT_EQ(watchdog_.limit_seconds(), 35);
  watchdog_.Step(3, 4);
  EXPECT_EQ(watchdog_.limit_seconds(), 35) << "the longest of those remembered";
  for (int64_t step = 4; step < 3 + Watchdog::kStepsRemembered; ++step) watchdog_.Step(step, 3);
  EXPECT_EQ(watchdog_.limit_seconds(), 20);
  After(20.5);
  EXPECT_THAT(told_, ElementsAre(HasSubstr("training has not advanced for 20 s (at most 20 s are "
                                           "expected) after step 18")));
  // The times stay known over a save and a pause.
  watchdog_.Enter(TrainingPhase::kSaving);
  watchdog_.Enter(TrainingPhase::kRunning);
  EXPECT_EQ(watchdog_.limit_seconds(), 20);
}

TEST(WatchdogThreadTest, LooksByItself) {
  std::atomic<double> now{0};
  std::atomic<bool> told{false};
  WatchdogOptions options;
  options.poll_seconds = 0.001;
  options.now = [&now] { return now.load(); };
  Watchdog watchdog(options, [&told](const std::string&) { told = true; });
  watchdog.Enter(TrainingPhase::kPreparing);
  now = options.preparing_seconds + 1;
  EXPECT_TRUE(WaitUntil([&told] { return told.load(); }));
}

}  // namespace
}  // namespace megatrain
