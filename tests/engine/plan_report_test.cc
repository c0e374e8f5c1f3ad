#include "engine/plan_report.h"

#include <string>

#include "gtest/gtest.h"

namespace megatrain {
namespace {

PlanReport Report() {
  PlanReport report;
  report.fits = true;
  report.parameters = 5;
  report.host = {{"tiles", 30}, {"process", 4}};
  report.host_bytes = 34;
  report.pool_bytes = 30;
  report.device = {{"weights", 2}};
  report.device_bytes = 2;
  report.device_limit_bytes = 9;
  report.checkpoint_bytes = 60;
  report.micro_batches = 4;
  report.gradient_slabs = 3;
  report.choice.micro_batches_per_sweep = 2;
  report.choice.weight_buffers = 2;
  report.choice.device_update_share = 0.5;
  report.choice.activations_kept_whole = 1;
  return report;
}

TEST(PlanReportTest, KeysStandInTheirOrder) {
  EXPECT_EQ(PlanJson(Report()), R"({
  "fits": true,
  "parameters": 5,
  "host": {
    "tiles": 30,
    "process": 4
  },
  "host_bytes": 34,
  "host_limit_bytes": null,
  "pool_bytes": 30,
  "device": {
    "weights": 2
  },
  "device_bytes": 2,
  "device_limit_bytes": 9,
  "checkpoint_bytes": 60,
  "devices": 1,
  "micro_batches": 4,
  "micro_batches_per_sweep": 2,
  "stash": "device",
  "weight_buffers": 2,
  "device_update_share": 0.5,
  "first_layer_device_update_share": 0.0,
  "layers_kept_whole": 1,
  "layers_kept_partly": 0,
  "gradient_slabs": 3
}
)");
}

TEST(PlanReportTest, SeveralDevicesSayWhatTheyLoad) {
  PlanReport report = Report();
  report.choice.loads = "whole";
  EXPECT_NE(PlanJson(report).find("\"layers_kept_partly\": 0,\n  \"loads\": \"whole\",\n"),
            std::string::npos);
}

TEST(PlanReportTest, SeveralMachinesAndTheRunnerUpAreTold) {
  PlanReport report = Report();
  report.devices = 16;
  report.nodes = 2;
  report.choice.predicted.step_seconds = 2;
  report.runner_up = report.choice;
  report.runner_up->stash_on_host = true;
  report.runner_up->predicted.step_seconds = 3;
  const std::string json = PlanJson(report);
  EXPECT_NE(json.find("\"devices\": 16,\n  \"nodes\": 2,\n  \"micro_batches\": 4,"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find(R"(  "chosen_by": "rule",
  "runner_up": {
    "micro_batches_per_sweep": 2,
    "stash": "host",)"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find("    \"predicted_step\": {\n      \"step_seconds\": 3.0,"), std::string::npos)
      << json;
  EXPECT_EQ(json.find("by_rule"), std::string::npos);
}

TEST(PlanReportTest, ThePlacesOfAJobAreToldInTheirOrder) {
  PlanReport report = Report();
  report.places = {{.number = 1, .name = "cuda:1", .bytes = 9, .fits = true, .planned = true},
                   {.number = 0, .name = "cuda:0", .bytes = 1}};
  const std::string json = PlanJson(report);
  EXPECT_NE(json.find(R"(  "devices": 1,
  "places": [
    {
      "device": "cuda:1",
      "free_bytes": 9,
      "fits": true,
      "planned": true
    },
    {
      "device": "cuda:0",
      "free_bytes": 1,
      "fits": false,
      "planned": false
    }
  ],
  "micro_batches": 4,)"),
            std::string::npos)
      << json;
}

TEST(PlanReportTest, WhatIsNotKnownIsLeftOut) {
  PlanReport report = Report();
  report.profile = "h200";
  report.fits = false;
  report.misfit = "host: 1 byte too much";
  report.host_limit_bytes = 33;
  report.device_reserve_bytes = 1;
  report.choice.predicted = {
      2, 1000, {.h2d = 0.5, .compute = 2, .d2h = 0.25, .update = 1}, "compute"};
  report.by_rule = report.choice;
  report.chosen_by_time = true;
  const std::string json = PlanJson(report);
  EXPECT_EQ(json.rfind("{\n  \"profile\": \"h200\",\n  \"fits\": false,\n  \"misfit\": \"host", 0),
            0u)
      << json;
  EXPECT_NE(json.find("\"host_limit_bytes\": 33"), std::string::npos);
  EXPECT_NE(json.find("\"device_limit_bytes\": 9,\n  \"device_reserve_bytes\": 1,"),
            std::string::npos);
  EXPECT_NE(json.find(R"(  "gradient_slabs": 3,
  "predicted_step": {
    "step_seconds": 2.0,
    "tokens_per_second": 1000.0,
    "bound_by": "compute",
    "lane_busy_seconds": {
      "h2d": 0.5,
      "compute": 2.0,
      "d2h": 0.25,
      "update": 1.0,
      "collective": 0.0
    }
  },
  "chosen_by": "time",
  "by_rule": {
    "micro_batches_per_sweep": 2,)"),
            std::string::npos)
      << json;
  EXPECT_EQ(json.find("runner_up"), std::string::npos);
}

}  // namespace
}  // namespace megatrain
