#include "client/watch/loss_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace megatrain::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

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
