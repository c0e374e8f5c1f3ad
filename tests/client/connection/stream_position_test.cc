#include "client/connection/stream_position.h"

#include <gtest/gtest.h>

#include "tests/client/watch/watch_messages.h"

namespace megatrain::client {
namespace {

TEST(StreamPositionTest, AfterTheLastRecord) {
  EXPECT_EQ(PositionAfter(Steps({Step(4, 1), Step(5, 1)}), 4), 6);
  EXPECT_EQ(PositionAfter(EventMessage(7, v1::Job::RUNNING, ""), 7), 8);
  v1::StreamLogsResponse log = Log({"a"});
  log.mutable_batch()->mutable_lines(0)->set_sequence(3);
  EXPECT_EQ(PositionAfter(log, 3), 4);
}

TEST(StreamPositionTest, FallingBackHasANumberOfItsOwn) {
  v1::StreamStepMetricsResponse message = FellBack(2);
  message.mutable_fell_back()->set_sequence(11);
  EXPECT_EQ(PositionAfter(message, 11), 12);
}

TEST(StreamPositionTest, WhatIsMissingIsNotAskedForAgain) {
  v1::StreamStepMetricsResponse steps;
  steps.mutable_missed()->set_last_sequence(500);
  EXPECT_EQ(PositionAfter(steps, 1), 501);
  v1::WatchJobResponse events;
  events.mutable_missed()->set_last_sequence(5);
  EXPECT_EQ(PositionAfter(events, 1), 6);
  v1::StreamLogsResponse log;
  log.mutable_missed()->set_last_sequence(9);
  EXPECT_EQ(PositionAfter(log, 1), 10);
}

TEST(StreamPositionTest, ItNeverGoesBack) {
  EXPECT_EQ(PositionAfter(Steps({Step(4, 1)}), 9), 9);
  EXPECT_EQ(PositionAfter(EventMessage(7, v1::Job::RUNNING, ""), 9), 9);
  EXPECT_EQ(PositionAfter(FellBack(2), 9), 9);
  v1::StreamLogsResponse log = Log({"a"});
  log.mutable_batch()->mutable_lines(0)->set_sequence(3);
  EXPECT_EQ(PositionAfter(log, 9), 9);
  log.mutable_missed()->set_last_sequence(5);
  EXPECT_EQ(PositionAfter(log, 9), 9);
}

TEST(StreamPositionTest, OtherMessagesLeaveIt) {
  EXPECT_EQ(PositionAfter(JobMessage(v1::Job::RUNNING), 5), 5);
  EXPECT_EQ(PositionAfter(v1::StreamStepMetricsResponse(), 5), 5);
  EXPECT_EQ(PositionAfter(v1::WatchNodeResponse(), 1), 1);
}

}  // namespace
}  // namespace megatrain::client
