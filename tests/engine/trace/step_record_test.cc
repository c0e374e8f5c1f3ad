#include "engine/trace/step_record.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

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
            "\"io\":0.0,\"device_update\":0.0},\"matmul_seconds\":0.0,\"forward_seconds\":0.0,"
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

TEST(StepRecordTest, NumbersThatAreNotFiniteAreNull) {
  StepRecord record;
  record.loss = std::numeric_limits<double>::quiet_NaN();
  record.gradient_norm = std::numeric_limits<double>::infinity();
  const nlohmann::json json = nlohmann::json::parse(StepRecordJson(record));
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_TRUE(json["gradient_norm"].is_null());
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
