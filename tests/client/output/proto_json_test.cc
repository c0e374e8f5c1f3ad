#include "client/output/proto_json.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <limits>

#include "megatrain/v1/job.pb.h"

namespace megatrain::client {
namespace {

v1::StepMetrics Metrics() {
  v1::StepMetrics metrics;
  metrics.set_step(3);
  metrics.set_loss(2.5);
  metrics.set_gradient_norm(std::numeric_limits<double>::infinity());
  metrics.set_total_tokens(int64_t{1} << 60);
  metrics.mutable_lane_busy_seconds()->set_compute(0.25);
  metrics.mutable_time()->set_seconds(1000);
  metrics.mutable_time()->set_nanos(5'000'000);
  return metrics;
}

TEST(ProtoJsonTest, StepMetricsHaveTheKeysOfTheMetricsFiles) {
  EXPECT_EQ(JsonLine(ToJson(Metrics())),
            R"({"step":3,"loss":2.5,"gradient_norm":null,"learning_rate":0.0,"tokens":0,)"
            R"("input_tokens":0,"total_tokens":1152921504606846976,"step_seconds":0.0,)"
            R"("tokens_per_second":0.0,"model_flops_per_second":0.0,"h2d_bytes":0,"d2h_bytes":0,)"
            R"("lane_busy_seconds":{"h2d":0.0,"compute":0.25,"d2h":0.0,"update":0.0,"io":0.0,)"
            R"("device_update":0.0,"collective":0.0},)"
            R"("matmul_seconds":0.0,"forward_seconds":0.0,"host_bytes":0,"device_bytes":0,)"
            R"("time":"1970-01-01T00:16:40.005Z"})");
}

TEST(ProtoJsonTest, LossesOfEvaluationSetsStandByName) {
  v1::StepMetrics metrics = Metrics();
  (*metrics.mutable_eval_losses())["code"] = 1.5;
  (*metrics.mutable_eval_losses())["chat"] = 2;
  EXPECT_EQ(JsonLine(ToJson(metrics)["eval_losses"]), R"({"chat":2.0,"code":1.5})");
}

TEST(ProtoJsonTest, ARecordAddsItsPlaceAndWhetherItCounts) {
  v1::StepMetricsRecord record;
  *record.mutable_metrics() = Metrics();
  record.mutable_metrics()->set_eval_loss(2);
  record.set_sequence(9);
  record.set_superseded(true);
  const nlohmann::ordered_json json = ToJson(record);
  EXPECT_EQ(json["eval_loss"], 2);
  EXPECT_EQ(json["sequence"], 9);
  EXPECT_EQ(json["superseded"], true);
  EXPECT_FALSE(json.contains("metrics"));
}

TEST(ProtoJsonTest, EveryFieldIsThereSetOrNot) {
  const nlohmann::ordered_json json = ToJson(v1::Job());
  const auto* const descriptor = v1::Job::descriptor();
  ASSERT_EQ(static_cast<int>(json.size()), descriptor->field_count());
  EXPECT_EQ(json["name"], "");
  EXPECT_EQ(json["state"], "STATE_UNSPECIFIED");
  EXPECT_TRUE(json["end_time"].is_null());
  EXPECT_TRUE(json["file"].is_null());
  EXPECT_EQ(json["version"], 0);
}

TEST(ProtoJsonTest, AValueOfANewerServerIsItsNumber) {
  v1::Job job;
  job.set_state(static_cast<v1::Job::State>(77));
  EXPECT_EQ(ToJson(job)["state"], 77);
}

TEST(ProtoJsonTest, YamlHoldsTheSame) {
  v1::Job job;
  job.set_name("jobs/a1");
  job.set_display_name("true");
  job.set_reason_text("colon: and # \"quote\"\nline two\n");
  job.set_state(v1::Job::PAUSED);
  job.mutable_file()->add_overrides("training.steps=5");
  job.mutable_file()->add_overrides("12");
  const std::string text = YamlText(ToJson(job));
  const YAML::Node yaml = YAML::Load(text);
  EXPECT_EQ(yaml["name"].as<std::string>(), "jobs/a1");
  EXPECT_EQ(yaml["display_name"].Tag(), "!") << "quoted: it is no truth value\n" << text;
  EXPECT_EQ(yaml["reason_text"].as<std::string>(), job.reason_text());
  EXPECT_EQ(yaml["file"]["overrides"][1].as<std::string>(), "12");
  EXPECT_EQ(yaml["version"].as<int>(), 0);
  EXPECT_TRUE(yaml["end_time"].IsNull());
  EXPECT_EQ(text.substr(0, 20), "name: jobs/a1\nfile:\n");
}

TEST(ProtoJsonTest, WordsThatYamlTakesForOtherValuesAreQuotedInAnyCase) {
  for (const char* word : {"True", "FALSE", "Null", "Yes", "NO", "On", "Off", "y", "N"}) {
    v1::Job job;
    job.set_display_name(word);
    EXPECT_EQ(YAML::Load(YamlText(ToJson(job)))["display_name"].Tag(), "!") << word;
  }
}

TEST(ProtoJsonTest, KeysThatYamlTakesForOtherValuesAreQuoted) {
  v1::StepMetrics metrics = Metrics();
  for (const char* const name : {"on", "12", "code"}) (*metrics.mutable_eval_losses())[name] = 1.5;
  const std::string text = YamlText(ToJson(metrics));
  EXPECT_NE(text.find(" \"on\": 1.5\n"), std::string::npos) << text;
  EXPECT_NE(text.find(" \"12\": 1.5\n"), std::string::npos) << text;
  EXPECT_NE(text.find(" code: 1.5\n"), std::string::npos) << text;
}

// Without one YAML 1.1 takes them for texts.
TEST(ProtoJsonTest, NumbersWithAnExponentHaveAPoint) {
  v1::StepMetrics metrics = Metrics();
  metrics.set_learning_rate(1e-05);
  metrics.set_loss(2.5e-07);
  const std::string text = YamlText(ToJson(metrics));
  EXPECT_NE(text.find("\nlearning_rate: 1.0e-05\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nloss: 2.5e-07\n"), std::string::npos) << text;
}

TEST(ProtoJsonTest, AListOfNothing) {
  EXPECT_EQ(YamlText(nlohmann::ordered_json::array()), "[]\n");
  EXPECT_EQ(JsonText(nlohmann::ordered_json::array()), "[]");
}

}  // namespace
}  // namespace megatrain::client
