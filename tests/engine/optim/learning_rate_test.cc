#include "engine/optim/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/optim/clip_coefficient.h"

namespace megatrain {
namespace {

constexpr double kPeak = 3e-4;

JobSpec::Schedule Make(ScheduleType type, int64_t warmup, double final_fraction = 0.1) {
  JobSpec::Schedule schedule;
  schedule.type = type;
  schedule.warmup_steps = warmup;
  schedule.final_fraction = final_fraction;
  return schedule;
}

constexpr ScheduleType kTypes[] = {ScheduleType::kCosine, ScheduleType::kLinear,
                                   ScheduleType::kConstant, ScheduleType::kWarmupStableDecay};

TEST(LearningRateTest, WarmupIsLinearAndReachesThePeak) {
  for (const ScheduleType type : kTypes) {
    const JobSpec::Schedule schedule = Make(type, 10);
    EXPECT_DOUBLE_EQ(LearningRate(schedule, kPeak, 1, 200), kPeak / 10);
    EXPECT_DOUBLE_EQ(LearningRate(schedule, kPeak, 7, 200), kPeak * 0.7);
    EXPECT_EQ(LearningRate(schedule, kPeak, 10, 200), kPeak);
  }
}

TEST(LearningRateTest, FallsToTheFinalFractionAtTheLastStep) {
  for (const ScheduleType type : kTypes) {
    const double last = LearningRate(Make(type, 10), kPeak, 200, 200);
    EXPECT_DOUBLE_EQ(last, type == ScheduleType::kConstant ? kPeak : kPeak * 0.1);
  }
}

TEST(LearningRateTest, Shapes) {
  // Half of the way from step 10 to step 210 is step 110.
  EXPECT_DOUBLE_EQ(LearningRate(Make(ScheduleType::kCosine, 10), kPeak, 110, 210), kPeak * 0.55);
  EXPECT_DOUBLE_EQ(LearningRate(Make(ScheduleType::kLinear, 10), kPeak, 110, 210), kPeak * 0.55);
  // A quarter of the way: cosine is above the line.
  EXPECT_DOUBLE_EQ(LearningRate(Make(ScheduleType::kCosine, 10), kPeak, 60, 210),
                   kPeak * (0.1 + 0.9 * (1 + std::sqrt(0.5)) / 2));
  EXPECT_DOUBLE_EQ(LearningRate(Make(ScheduleType::kLinear, 10), kPeak, 60, 210), kPeak * 0.775);
  EXPECT_EQ(LearningRate(Make(ScheduleType::kConstant, 10), kPeak, 60, 210), kPeak);
}

TEST(LearningRateTest, WarmupStableDecayFallsOverTheLastTenth) {
  JobSpec::Schedule schedule = Make(ScheduleType::kWarmupStableDecay, 10);
  EXPECT_EQ(LearningRate(schedule, kPeak, 11, 200), kPeak);
  EXPECT_EQ(LearningRate(schedule, kPeak, 180, 200), kPeak);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, kPeak, 181, 200), kPeak * (1 - 0.9 / 20));
  EXPECT_DOUBLE_EQ(LearningRate(schedule, kPeak, 190, 200), kPeak * 0.55);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, kPeak, 200, 200), kPeak * 0.1);
  schedule.decay_fraction = 0;  // no decay
  EXPECT_EQ(LearningRate(schedule, kPeak, 200, 200), kPeak);
  schedule.decay_fraction = 1;  // all after the warm-up: the linear schedule
  for (int64_t k = 11; k <= 200; ++k) {
    EXPECT_DOUBLE_EQ(LearningRate(schedule, kPeak, k, 200),
                     LearningRate(Make(ScheduleType::kLinear, 10), kPeak, k, 200));
  }
}

TEST(LearningRateTest, WithoutWarmup) {
  EXPECT_DOUBLE_EQ(LearningRate(Make(ScheduleType::kLinear, 0), kPeak, 1, 10), kPeak * 0.91);
  EXPECT_DOUBLE_EQ(LearningRate(Make(ScheduleType::kCosine, 0), kPeak, 5, 10), kPeak * 0.55);
  EXPECT_EQ(LearningRate(Make(ScheduleType::kConstant, 0), kPeak, 1, 10), kPeak);
  EXPECT_EQ(LearningRate(Make(ScheduleType::kWarmupStableDecay, 0), kPeak, 1, 10), kPeak);
}

TEST(LearningRateTest, ASingleStep) {
  EXPECT_DOUBLE_EQ(LearningRate(Make(ScheduleType::kCosine, 0), kPeak, 1, 1), kPeak * 0.1);
  EXPECT_DOUBLE_EQ(LearningRate(Make(ScheduleType::kLinear, 0), kPeak, 1, 1), kPeak * 0.1);
  EXPECT_EQ(LearningRate(Make(ScheduleType::kConstant, 0), kPeak, 1, 1), kPeak);
  EXPECT_EQ(LearningRate(Make(ScheduleType::kCosine, 1), kPeak, 1, 1), kPeak);
}

TEST(LearningRateTest, AWarmupThatIsNeverOver) {
  for (const ScheduleType type : kTypes) {
    EXPECT_EQ(LearningRate(Make(type, 10), kPeak, 10, 10), kPeak);
    EXPECT_DOUBLE_EQ(LearningRate(Make(type, 100), kPeak, 10, 10), kPeak * 0.1);
  }
}

TEST(LearningRateTest, EveryStepIsFiniteAndBetweenZeroAndPeak) {
  for (const ScheduleType type : kTypes) {
    for (const int64_t total : {1, 2, 3, 7, 50}) {
      for (const int64_t warmup : {0, 1, 2, 6, 7, 49, 50, 51}) {
        for (int64_t k = 1; k <= total; ++k) {
          const double rate = LearningRate(Make(type, warmup, 0), kPeak, k, total);
          EXPECT_TRUE(std::isfinite(rate));
          EXPECT_GE(rate, 0);
          EXPECT_LE(rate, kPeak);
        }
      }
    }
  }
}

TEST(ClippingTest, CoefficientAsInTorch) {
  EXPECT_EQ(ClipCoefficient(0.5, 1.0), 1.0f);
  EXPECT_EQ(ClipCoefficient(0.0, 1.0), 1.0f);
  EXPECT_EQ(ClipCoefficient(4.0, 1.0), static_cast<float>(1.0 / 4.000001));
  // Just below the limit the 1e-6 already tells.
  EXPECT_LT(ClipCoefficient(1.0, 1.0), 1.0f);
  EXPECT_EQ(ClipCoefficient(1e30, 0.0), 1.0f);
}

}  // namespace
}  // namespace megatrain
