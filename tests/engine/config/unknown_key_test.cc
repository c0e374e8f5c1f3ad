#include "engine/config/unknown_key.h"

#include <string>

#include "gtest/gtest.h"

namespace megatrain {
namespace {

TEST(NearestKeyTest, EditDistanceCountsSwapsOnce) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("abc", ""), 3);
  EXPECT_EQ(EditDistance("", "ab"), 2);
  EXPECT_EQ(EditDistance("steps", "setps"), 1);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance(std::string(100000, 'a'), "b"), 128);
}

TEST(NearestKeyTest, FindsTheWordInAnySection) {
  EXPECT_EQ(NearestKey("optimizer.warmup_steps", {"optimizer.beta1", "schedule.warmup_steps"}),
            "schedule.warmup_steps");
  EXPECT_EQ(NearestKey("x", {}), "");
  // A right word in a wrong section is as far as a wrong letter; the earliest of equals is named.
  EXPECT_EQ(NearestKey("optimizer.steps", {"optimizer.step", "training.steps"}), "optimizer.step");
  EXPECT_EQ(NearestKey("optimizer.steps", {"training.steps", "optimizer.step"}), "training.steps");
}

}  // namespace
}  // namespace megatrain
