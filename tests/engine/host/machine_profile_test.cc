#include "engine/host/machine_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/engine.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(MachineProfileTest, EveryOneIsWhole) {
  EXPECT_THAT(MachineProfileNames(), ::testing::Contains("h200"));
  for (const std::string& name : MachineProfileNames()) {
    const auto profile = FindMachineProfile(name);
    ASSERT_TRUE(profile.ok()) << profile.status();
    EXPECT_EQ(profile->name, name);
    EXPECT_GT(profile->device_bytes, int64_t{8} << 30);
    EXPECT_TRUE(profile->rates.known());
    EXPECT_FALSE(profile->rates.device_is_host);
    for (const PrecisionRates& rates : {profile->rates.fp32, profile->rates.bf16}) {
      // A host streams more slowly than its device, and neither is off by orders of magnitude.
      EXPECT_GT(rates.matmul_flops_per_second, 1e13);
      EXPECT_LT(rates.matmul_flops_per_second, 1e16);
      EXPECT_LT(rates.attention_backward_flops_per_second, rates.attention_flops_per_second);
      EXPECT_GT(rates.attention_backward_flops_per_second, 1e12);
      EXPECT_GT(rates.element_bytes_per_second, rates.update_bytes_per_second);
      EXPECT_GT(rates.update_bytes_per_second, 1e10);
    }
    EXPECT_GE(profile->rates.h2d_bytes_per_second, 1e10);
    // Each direction of a link is slowed by the other, and by the same part of its own rate.
    const double h2d_left =
        profile->rates.h2d_beside_d2h_bytes_per_second / profile->rates.h2d_bytes_per_second;
    const double d2h_left =
        profile->rates.d2h_beside_h2d_bytes_per_second / profile->rates.d2h_bytes_per_second;
    EXPECT_LT(h2d_left, 1);
    EXPECT_GT(h2d_left, 0.5);
    EXPECT_NEAR(d2h_left, h2d_left, 1e-9) << name;
    EXPECT_GT(profile->rates.launch_seconds, 0);
  }
}

TEST(MachineProfileTest, TheDirectionsOfALinkMayBeUnequal) {
  const auto profile = FindMachineProfile("gh200");
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_GT(profile->rates.h2d_bytes_per_second, profile->rates.d2h_bytes_per_second);
  EXPECT_GT(profile->rates.h2d_beside_d2h_bytes_per_second,
            profile->rates.d2h_beside_h2d_bytes_per_second);
}

TEST(MachineProfileTest, AnUnknownOneIsRefusedWithThoseThereAre) {
  const absl::Status status = FindMachineProfile("h900").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("h900"), HasSubstr("h200"), HasSubstr("rtx4090")));
}

class ProfiledPlanTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "/profiled";
    std::filesystem::create_directories(directory_);
    // Llama 3 70B.
    std::ofstream(directory_ + "/config.json") << R"({"architectures": ["LlamaForCausalLM"],
      "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672,
      "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
      "vocab_size": 128256, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
      "rope_theta": 500000.0, "hidden_act": "silu", "tie_word_embeddings": false})";
    spec_.model.path = directory_;
    spec_.training.global_batch = 16;
    spec_.training.micro_batch = 2;
    spec_.data.sequence_length = 4096;
  }
  PlanReport Plan(const std::string& name) {
    const auto report = PlanTraining(spec_, *FindMachineProfile(name));
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *report : PlanReport();
  }
  std::string directory_;
  JobSpec spec_;
};

TEST_F(ProfiledPlanTest, AModelIsPlannedForAMachineThatIsNotHere) {
  const PlanReport report = Plan("h200");
  EXPECT_TRUE(report.fits) << report.table;
  EXPECT_GT(report.host_bytes, int64_t{1000} * 1000 * 1000 * 1000)
      << "its host memory is not known";
  // As a session on that card would, the plan leaves some of its memory free.
  const int64_t reserve = int64_t{1536} << 20;
  const auto json = nlohmann::json::parse(PlanJson(report));
  EXPECT_EQ(json["device_reserve_bytes"], reserve);
  EXPECT_EQ(json["device_limit_bytes"], FindMachineProfile("h200")->device_bytes - reserve);
  EXPECT_LE(report.device_bytes, FindMachineProfile("h200")->device_bytes - reserve);
  EXPECT_THAT(report.table, HasSubstr("left free for what is loaded later"));
  EXPECT_THAT(report.table, AllOf(HasSubstr("NVIDIA H200"), HasSubstr("not measured"),
                                  Not(HasSubstr("host limit")), Not(HasSubstr("this machine"))));
  EXPECT_THAT(PlanJson(report),
              AllOf(HasSubstr("\"profile\": \"h200\""), HasSubstr("\"host_limit_bytes\": null")));
  const PlanChoice& choice = report.choice;
  EXPECT_THAT(
      report.table,
      AllOf(
          HasSubstr("a sweep: " + std::to_string(choice.micro_batches_per_sweep) + ";"),
          HasSubstr(choice.stash_on_host ? "stash on the host;" : "stash on the device;"),
          HasSubstr("layers kept whole: " + std::to_string(choice.activations_kept_whole) + " of "),
          HasSubstr("norms recomputed: " + std::to_string(choice.activations_kept_partly) + ",")));
  // 6 FLOPs a parameter and token at most at the data sheet's rate, and not a tenth of it.
  const double flops = 6.0 * 70.5e9 * 16 * 4096;
  EXPECT_GT(report.choice.predicted.step_seconds, flops / 989e12);
  EXPECT_LT(report.choice.predicted.step_seconds, flops / 99e12);
  // A slower device takes longer.
  EXPECT_GT(Plan("a100").choice.predicted.step_seconds, report.choice.predicted.step_seconds);
}

TEST_F(ProfiledPlanTest, MachinesShareTheStepsMicroBatches) {
  spec_.engine.devices = 2;
  const auto plan = PlanTraining(spec_, *FindMachineProfile("h200"), {}, /*nodes=*/2);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->nodes, 2);
  EXPECT_EQ(plan->devices, 4);
  EXPECT_EQ(plan->micro_batches, 2) << "of eight";
}

TEST_F(ProfiledPlanTest, GivenRatesTakeThePlaceOfTheProfiles) {
  const MachineProfile h200 = *FindMachineProfile("h200");
  const double seconds = Plan("h200").choice.predicted.step_seconds;
  const auto slower = PlanTraining(spec_, h200, {"products=70", "dram=200"});
  ASSERT_TRUE(slower.ok()) << slower.status();
  EXPECT_GT(slower->choice.predicted.step_seconds, 5 * seconds);
  EXPECT_THAT(slower->table, HasSubstr("; given: products=70, dram=200"));
  const absl::Status refused = PlanTraining(spec_, h200, {"speed=1"}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("speed=1"), HasSubstr("products")));
}

TEST_F(ProfiledPlanTest, WhatElseCouldHaveBeenChosenIsTold) {
  const PlanReport report = Plan("h200");
  const auto json = nlohmann::json::parse(PlanJson(report));
  EXPECT_TRUE(json["chosen_by"] == "time" || json["chosen_by"] == "rule") << json;
  ASSERT_TRUE(json.contains("runner_up")) << json;
  const auto& other = json["runner_up"];
  EXPECT_GE(other["predicted_step"]["step_seconds"], json["predicted_step"]["step_seconds"]);
  for (const char* key : {"micro_batches_per_sweep", "stash", "weight_buffers",
                          "device_update_share", "first_layer_device_update_share"}) {
    EXPECT_TRUE(other.contains(key)) << key;
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_THAT(report.table, AllOf(HasSubstr("chosen by"), HasSubstr("the runner-up: ")));
  // A job that says all leaves no choice.
  spec_.engine.micro_batches_per_sweep = 2;
  spec_.engine.stash = StashPlace::kHost;
  spec_.engine.update_device = UpdateDevice::kHost;
  EXPECT_FALSE(nlohmann::json::parse(PlanJson(Plan("h200"))).contains("runner_up"));
}

TEST_F(ProfiledPlanTest, WhatTheJobChoosesIsToldInNumbersAndInWords) {
  spec_.engine.update_device = UpdateDevice::kHost;
  const PlanReport host = Plan("h200");
  EXPECT_EQ(host.choice.device_update_share, 0);
  EXPECT_EQ(host.choice.first_layer_device_update_share, 0);
  EXPECT_THAT(host.table, HasSubstr("AdamW on the host"));
  EXPECT_EQ(host.choice.loads, "");
  EXPECT_THAT(host.table, AllOf(Not(HasSubstr(", loads of")), Not(HasSubstr(", collective "))));
  spec_.engine.update_device = UpdateDevice::kDevice;
  const PlanReport device = Plan("h200");
  EXPECT_EQ(device.choice.device_update_share, 1);
  EXPECT_THAT(device.table, HasSubstr("AdamW on the device for 100% (first layer: " +
                                      std::to_string(static_cast<int>(
                                          100 * device.choice.first_layer_device_update_share)) +
                                      "%)"));
  spec_.engine.devices = 2;
  spec_.engine.loads = WeightLoads::kWhole;
  const PlanReport whole = Plan("h200");
  EXPECT_EQ(whole.choice.loads, "whole");
  EXPECT_THAT(whole.table, AllOf(HasSubstr(", loads of whole tiles"), HasSubstr(", collective ")));
  spec_.engine.loads = WeightLoads::kShards;
  const PlanReport shards = Plan("h200");
  EXPECT_EQ(shards.choice.loads, "shards");
  EXPECT_THAT(shards.table, HasSubstr(", loads of shards"));
}

TEST_F(ProfiledPlanTest, PairsOfAnswersAreToldWithTheirFurtherPasses) {
  EXPECT_THAT(Plan("h200").table, Not(HasSubstr("objective:")));
  spec_.training.objective = Objective::kDpo;
  EXPECT_THAT(Plan("h200").table, AllOf(HasSubstr("objective: dpo, over pairs of answers"),
                                        HasSubstr("go forward once before the first step")));
  spec_.training.dpo_reference_free = true;
  EXPECT_THAT(Plan("h200").table, AllOf(HasSubstr("objective: dpo, over pairs of answers"),
                                        Not(HasSubstr("before the first step"))));
}

TEST_F(ProfiledPlanTest, LimitsOfTheJobHoldThereToo) {
  spec_.engine.host_memory = int64_t{512} << 30;
  const PlanReport report = Plan("h200");
  EXPECT_FALSE(report.fits);
  EXPECT_THAT(report.table, AllOf(HasSubstr("host limit"), HasSubstr("does not fit")));
  spec_.engine.host_memory = 0;
  spec_.engine.device_memory = int64_t{1} << 20;
  EXPECT_FALSE(Plan("h200").fits);
}

TEST_F(ProfiledPlanTest, AJobForTheCpuIsNotPlannedOnAGpu) {
  spec_.engine.device = "cpu";
  const absl::Status status = PlanTraining(spec_, *FindMachineProfile("h200")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("engine.device"));
  for (const char* device : {"auto", "cuda", "cuda:0"}) {
    spec_.engine.device = device;
    EXPECT_TRUE(PlanTraining(spec_, *FindMachineProfile("h200")).ok()) << device;
  }
}

}  // namespace
}  // namespace megatrain
