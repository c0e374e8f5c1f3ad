#include "client/output/table.h"

#include <gtest/gtest.h>

namespace megatrain::client {
namespace {

Table Jobs() {
  Table table({{.heading = "JOB"},
               {.heading = "NAME", .width_min = 6},
               {.heading = "STEP", .right = true, .drop_order = 1},
               {.heading = "WHY", .width_min = 4, .drop_order = 2}});
  table.AddRow({"jobs/a1", "a-rather-long-name", "12/400", "the device is busy"});
  table.AddRow({"jobs/b2", "demo", "3", ""});
  return table;
}

TEST(TableTest, AsWideAsItsCellsWhereNothingLimitsIt) {
  EXPECT_EQ(Jobs().Render(0, Charset::kUtf8),
            "JOB      NAME                  STEP  WHY\n"
            "jobs/a1  a-rather-long-name  12/400  the device is busy\n"
            "jobs/b2  demo                     3\n");
}

TEST(TableTest, TheWidestCellsAreCutFirst) {
  EXPECT_EQ(Jobs().Render(40, Charset::kUtf8),
            "JOB      NAME          STEP  WHY\n"
            "jobs/a1  a-rather-…  12/400  the device…\n"
            "jobs/b2  demo             3\n");
}

TEST(TableTest, ThenColumnsGo) {
  // All of them at their smallest: none has to go yet.
  EXPECT_EQ(Jobs().Render(29, Charset::kAscii),
            "JOB      NAME      STEP  WHY\n"
            "jobs/a1  a-rat~  12/400  the~\n"
            "jobs/b2  demo         3\n");
  EXPECT_EQ(Jobs().Render(26, Charset::kAscii),
            "JOB      NAME         STEP\n"
            "jobs/a1  a-rather~  12/400\n"
            "jobs/b2  demo            3\n");
  EXPECT_EQ(Jobs().Render(20, Charset::kAscii),
            "JOB      NAME\n"
            "jobs/a1  a-rather-l~\n"
            "jobs/b2  demo\n");
  EXPECT_EQ(Jobs().Render(10, Charset::kAscii),
            "JOB      ~\n"
            "jobs/a1  ~\n"
            "jobs/b2  ~\n");
}

TEST(TableTest, AColumnOfNarrowCellsNeedsNoMoreThanTheyDo) {
  Table table({{.heading = "JOB"},
               {.heading = "NAME", .width_min = 8},
               {.heading = "WHY", .width_min = 12, .drop_order = 1}});
  table.AddRow({"jobs/a1", "demo", "busy"});
  const std::string whole =
      "JOB      NAME  WHY\n"
      "jobs/a1  demo  busy\n";
  EXPECT_EQ(table.Render(19, Charset::kAscii), whole) << "as wide as the whole";
  EXPECT_EQ(table.Render(18, Charset::kAscii),
            "JOB      NAME\n"
            "jobs/a1  demo\n");
}

TEST(TableTest, CellsCannotDriveTheTerminal) {
  Table table({{.heading = "NAME"}});
  table.AddRow({"a\x1b[31m\nb"});
  EXPECT_EQ(table.Render(0, Charset::kUtf8), "NAME\na?[31m?b\n");
}

}  // namespace
}  // namespace megatrain::client
