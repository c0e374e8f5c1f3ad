#include "engine/trace/step_record.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

TEST(StepRecordTest, LineHoldsTheFieldsInOrder) {
  StepRecord record;
  record.step = 3;
  record.loss = 5.5;
  record.learning_rate = 3e-4;
  record.tokens = 7;
  record.lane_busy_seconds.compute = 0.25;
  record.time = "2024-05-01T12:00:00.000Z";
  EXPECT_EQ(StepRecordJson(record),
            "{\"step\":3,\"loss\":5.5,\"gradient_norm\":0.0,\"learning_rate\":0.0003,\"tokens\":7,"
            "\"input_tokens\":0,\"total_tokens\":0,\"step_seconds\":0.0,\"tokens_per_second\":0.0,"
            "\"model_flops_per_second\":0.0,\"h2d_bytes\":0,\"d2h_bytes\":0,"
            "\"lane_busy_seconds\":{\"h2d\":0.0,\"compute\":0.25,\"d2h\":0.0,\"update\":0.0,"
            "\"io\":0.0,\"device_update\":0.0,\"collective\":0.0},\"matmul_seconds\":0.0,\"forward_"
            "seconds\":0.0,"
            "\"host_bytes\":0,"
            "\"device_bytes\":0,"
            "\"time\":\"2024-05-01T12:00:00.000Z\"}");
}

TEST(StepRecordTest, EvalLossOnlyWhenMeasured) {
  StepRecord record;
  EXPECT_FALSE(nlohmann::json::parse(StepRecordJson(record)).contains("eval_loss"));
  record.eval_loss = 1.0 / 3.0;
  EXPECT_EQ(nlohmann::json::parse(StepRecordJson(record))["eval_loss"].get<double>(), 1.0 / 3.0);
}

TEST(StepRecordTest, OfSeveralRanksTheSlowestOfEachLaneIsTold) {
  EXPECT_FALSE(SpreadOf({LaneSeconds{}}).has_value());
  const std::vector<LaneSeconds> busy = {{.h2d = 3, .compute = 1, .update = 2},
                                         {.h2d = 1, .compute = 4, .update = 2},
                                         {.h2d = 2, .compute = 1, .update = 2, .io = 5}};
  StepRecord record;
  record.lane_busy_seconds = LongestOf(busy);
  record.spread = SpreadOf(busy);
  const nlohmann::json json = nlohmann::json::parse(StepRecordJson(record));
  EXPECT_EQ(json["ranks"], 3);
  EXPECT_EQ(json["slowest_rank"], 1) << "by compute";
  EXPECT_EQ(json["lane_slowest_ranks"].dump(),
            R"({"collective":0,"compute":1,"d2h":0,"device_update":0,"h2d":0,"io":2,"update":0})");
  EXPECT_EQ(json["lane_mean_seconds"]["h2d"], 2.0);
  EXPECT_EQ(json["lane_mean_seconds"]["compute"], 2.0);
  EXPECT_EQ(json["lane_busy_seconds"]["h2d"], 3.0);
  EXPECT_EQ(json["lane_busy_seconds"]["compute"], 4.0);
  EXPECT_EQ(json["lane_busy_seconds"]["io"], 5.0);
  const auto read = ParseStepRecord(StepRecordJson(record));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(StepRecordJson(*read), StepRecordJson(record));
}

TEST(StepRecordTest, NumbersThatAreNotFiniteAreNull) {
  StepRecord record;
  record.loss = std::numeric_limits<double>::quiet_NaN();
  record.gradient_norm = std::numeric_limits<double>::infinity();
  const nlohmann::json json = nlohmann::json::parse(StepRecordJson(record));
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_TRUE(json["gradient_norm"].is_null());
}

TEST(StepRecordTest, WhatIsWrittenIsReadAgain) {
  StepRecord record;
  record.step = 3;
  record.loss = 1.0 / 3.0;
  record.gradient_norm = 2;
  record.learning_rate = 3e-4;
  record.tokens = 7;
  record.input_tokens = 8;
  record.total_tokens = 24;
  record.step_seconds = 0.5;
  record.tokens_per_second = 16;
  record.model_flops_per_second = 1e12;
  record.h2d_bytes = 100;
  record.d2h_bytes = 200;
  record.lane_busy_seconds = {0.1, 0.2, 0.3, 0.4, 0.6, 0.7};
  record.matmul_seconds = 0.125;
  record.forward_seconds = 0.25;
  record.compute_seconds = {{"head", 0.05}, {"layer forward", 0.15}};
  record.host_bytes = int64_t{1} << 40;
  record.device_bytes = int64_t{1} << 30;
  record.eval_loss = 2.5;
  record.time = "2024-05-01T12:00:00.000Z";
  const std::string text = StepRecordJson(record);
  const auto read = ParseStepRecord(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(StepRecordJson(*read), text);
  EXPECT_EQ(read->compute_seconds, record.compute_seconds);
}

TEST(StepRecordTest, RecordsOfEarlierVersionsAreRead) {
  const auto read = ParseStepRecord(
      R"({"step":3,"loss":null,"lane_busy_seconds":{"h2d":0.5,"compute":2.0,"d2h":0.25,"update":1.0,
      "io":0.0},"time":"2024-05-01T12:00:00.000Z"})");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->step, 3);
  EXPECT_TRUE(std::isnan(read->loss));
  EXPECT_EQ(read->lane_busy_seconds.compute, 2);
  EXPECT_EQ(read->lane_busy_seconds.device_update, 0);
  EXPECT_EQ(read->lane_busy_seconds.collective, 0);
  EXPECT_TRUE(std::isnan(read->gradient_norm));
  EXPECT_EQ(read->tokens, 0);
  EXPECT_EQ(read->forward_seconds, 0);
  EXPECT_TRUE(read->compute_seconds.empty());
  EXPECT_FALSE(read->eval_loss.has_value());
  EXPECT_FALSE(ParseStepRecord(R"({"step":3,"loss":1,"ranks":1})")->spread.has_value());
  EXPECT_TRUE(ParseStepRecord(R"({"step":3,"loss":1,"ranks":2})")->spread.has_value());
  for (const char* text : {"", "x", "[1]", R"({"step":3})", R"({"step":"3","loss":1})"}) {
    EXPECT_EQ(ParseStepRecord(text).status().code(), absl::StatusCode::kDataLoss) << text;
  }
}

// What has no value or no number in a line has none again.
TEST(StepRecordTest, ALineWithGapsIsRead) {
  StepRecord record;
  record.step = 3;
  record.router = RouterReport{.load = {0.5, std::numeric_limits<double>::quiet_NaN()},
                               .busiest = 1.5,
                               .entropy = 0.75,
                               .auxiliary_loss = std::nullopt};
  record.eval_loss = std::numeric_limits<double>::quiet_NaN();
  record.eval_losses = {{"chat", std::numeric_limits<double>::infinity()}, {"code", 2}};
  const nlohmann::json json = nlohmann::json::parse(StepRecordJson(record));
  EXPECT_EQ(json["router"].dump(),
            R"({"busiest":1.5,"dropped":0,"entropy":0.75,"load":[0.5,null]})");
  const auto read = ParseStepRecord(StepRecordJson(record));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_TRUE(read->router.has_value());
  EXPECT_FALSE(read->router->auxiliary_loss.has_value());
  ASSERT_EQ(read->router->load.size(), 2u);
  EXPECT_EQ(read->router->load[0], 0.5);
  EXPECT_TRUE(std::isnan(read->router->load[1]));
  ASSERT_TRUE(read->eval_loss.has_value()) << "measured, though no number";
  EXPECT_TRUE(std::isnan(*read->eval_loss));
  EXPECT_TRUE(std::isnan(read->eval_losses.at("chat")));
  EXPECT_EQ(read->eval_losses.at("code"), 2);
  EXPECT_FALSE(read->rewards.has_value());
  EXPECT_FALSE(read->eval_rewards.has_value());
}

TEST(StepRecordTest, LanesThatALineLacksAreUnknown) {
  const auto some = ParseStepRecord(R"({"step":3,"loss":1,"lane_busy_seconds":{"h2d":0.5}})");
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_EQ(some->lane_busy_seconds.h2d, 0.5);
  EXPECT_TRUE(std::isnan(some->lane_busy_seconds.io));
  EXPECT_EQ(some->lane_busy_seconds.device_update, 0) << "earlier versions had none";
  const auto none = ParseStepRecord(R"({"step":3,"loss":1})");
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->lane_busy_seconds.io, 0);
  EXPECT_EQ(none->forward_seconds, 0);
  EXPECT_TRUE(std::isnan(none->matmul_seconds));
  EXPECT_EQ(ParseStepRecord(R"({"loss":1})").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ParseStepRecord(R"({"step":3.5,"loss":1})").status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(StepRecordTest, TimeIsThatOfGreenwich) {
  ASSERT_EQ(setenv("TZ", "Fixed/UTC+05:00:00", /*overwrite=*/1), 0);
  absl::Time time;
  std::string error;
  ASSERT_TRUE(absl::ParseTime(absl::RFC3339_full, Rfc3339Now(), &time, &error)) << error;
  EXPECT_LT(absl::AbsDuration(absl::Now() - time), absl::Hours(1));
}

TEST(StepRecordTest, TimeIsRfc3339) {
  const std::string time = Rfc3339Now();
  ASSERT_EQ(time.size(), 24u) << time;
  EXPECT_EQ(time[10], 'T');
  EXPECT_EQ(time[19], '.');
  EXPECT_EQ(time[23], 'Z');
}

}  // namespace
}  // namespace megatrain
