// The steps and the end of a run that is given in epochs.
#include <gtest/gtest.h>

#include "engine/data/sequences/dataset.h"
#include "engine/job/job_spec.h"

namespace megatrain {
namespace {

TEST(TotalStepsTest, AreThoseGivenOrTheEpochs) {
  JobSpec spec;
  spec.training.steps = 17;
  EXPECT_EQ(*TotalSteps(spec, 100), 17);
  spec.training.steps = 0;
  EXPECT_FALSE(TotalSteps(spec, 100).ok());
  spec.training.global_batch = 8;
  spec.training.epochs = 1;
  EXPECT_EQ(*TotalSteps(spec, 100), 13);
  EXPECT_EQ(*TotalSteps(spec, 96), 12);
  EXPECT_EQ(*TotalSteps(spec, 1), 1);
  spec.training.epochs = 2.5;
  EXPECT_EQ(*TotalSteps(spec, 10), 4);
  EXPECT_EQ(EpochPositions(spec, 5), 13) << "the epoch's half that is begun ends with a sequence";
  spec.training.steps = 17;
  EXPECT_EQ(EpochPositions(spec, 5), 0);
  spec.training.steps = 0;
  spec.training.epochs = 1e300;
  EXPECT_FALSE(TotalSteps(spec, 10).ok());
  spec.training.epochs = 1;
  EXPECT_FALSE(TotalSteps(spec, 0).ok());
  spec.training.global_batch = 0;
  EXPECT_FALSE(TotalSteps(spec, 10).ok());
}

// 2.2 * 200 is 440.00000000000006 in FP64.
TEST(TotalStepsTest, AProductThatIsWholeButForRoundingIsWhole) {
  JobSpec spec;
  spec.training.global_batch = 8;
  spec.training.epochs = 2.2;
  EXPECT_EQ(EpochPositions(spec, 200), 440);
  EXPECT_EQ(*TotalSteps(spec, 200), 55);
  spec.training.epochs = 2.2001;
  EXPECT_EQ(EpochPositions(spec, 200), 441);
  EXPECT_EQ(*TotalSteps(spec, 200), 56);
  spec.training.epochs = 1e-13;
  EXPECT_EQ(EpochPositions(spec, 200), 1);
}

}  // namespace
}  // namespace megatrain
