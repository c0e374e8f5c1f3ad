#include "client/watch/loss_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace megatrain::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::vector<LossPoint> Falling(int steps) {
  std::vector<LossPoint> points;
  for (int i = 0; i < steps; ++i) points.push_back({i + 1, 4.0 - 3.0 * i / (steps - 1)});
  return points;
}

TEST(LossPlotTest, Ascii) {
  EXPECT_THAT(PlotLoss(Falling(12), 20, 5, Charset::kAscii),
              ElementsAre("     4 |***",           //
                          "       |  *****",       //
                          "       |      *****",   //
                          "     1 |          **",  //
                          "        step 1    12"));
}

TEST(LossPlotTest, Braille) {
  EXPECT_THAT(PlotLoss(Falling(24), 20, 4, Charset::kUtf8),
              ElementsAre("     4 ▏⠉⠓⠦⣄⡀",         //
                          "       ▏    ⠉⠓⠦⣄⡀",     //
                          "     1 ▏        ⠉⠓⠦⣄",  //
                          "        step 1    24"));
}

TEST(LossPlotTest, OfManyStepsTheMeanIsDrawn) {
  std::vector<LossPoint> points;
  for (int i = 1; i <= 100000; ++i) points.push_back({i, i % 2 == 0 ? 1.0 : 3.0});
  const std::vector<std::string> lines = PlotLoss(points, 40, 8, Charset::kAscii);
  ASSERT_EQ(lines.size(), 8u);
  for (const std::string& line : lines) EXPECT_LE(DisplayWidth(line), 40);
}

TEST(LossPlotTest, TheLineOfStepsIsCutInANarrowTerminal) {
  EXPECT_THAT(PlotLoss({{100000, 2}, {100001, 1}}, 16, 3, Charset::kAscii),
              ElementsAre("     2 |*****",     //
                          "     1 |    ****",  //
                          "        step 10~"));
}

TEST(LossPlotTest, LabelsOfMeansThatAreWiderThanThoseOfLosses) {
  // The means at the ends are 0.02 and 0.012345.
  const std::vector<std::string> lines =
      PlotLoss({{1, -1}, {2, 1.04}, {999, -1}, {1000, 1.02469}}, 40, 3, Charset::kAscii);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[1], StartsWith("0.0123"));
  for (const std::string& line : lines) EXPECT_LE(DisplayWidth(line), 40);
}

TEST(LossPlotTest, WhatIsNotFiniteIsLeftOut) {
  std::vector<LossPoint> points = Falling(12);
  points[5].loss = std::numeric_limits<double>::quiet_NaN();
  points[7].loss = std::numeric_limits<double>::infinity();
  EXPECT_THAT(PlotLoss(points, 20, 5, Charset::kAscii),
              ElementsAre("     4 |***",           //
                          "       |  ****",        //
                          "       |     ******",   //
                          "     1 |          **",  //
                          "        step 1    12"))
      << "the line goes over the gaps";
}

TEST(LossPlotTest, ALossThatStaysTheSame) {
  EXPECT_EQ(PlotLoss({{1, 2}, {2, 2}, {3, 2}}, 20, 4, Charset::kAscii)[0], "     2 |************");
}

TEST(LossPlotTest, NothingWithoutPointsOrRoom) {
  EXPECT_THAT(PlotLoss({}, 80, 10, Charset::kUtf8), IsEmpty());
  EXPECT_THAT(PlotLoss({{1, 2}}, 80, 10, Charset::kUtf8), IsEmpty());
  EXPECT_THAT(PlotLoss(Falling(9), 80, 2, Charset::kUtf8), IsEmpty());
  EXPECT_THAT(PlotLoss(Falling(9), 15, 10, Charset::kUtf8), IsEmpty());
  EXPECT_THAT(PlotLoss(Falling(9), 0, -3, Charset::kUtf8), IsEmpty());
}

}  // namespace
}  // namespace megatrain::client
