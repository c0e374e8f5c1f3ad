// The same job gives the same bits, in losses, norms, weights and moments, however the engine is
// told to hold and move its state, and wherever it was stopped and resumed.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/engine/numerics/job_run.h"
#include "tests/engine/numerics/model_reference.h"

namespace megatrain {
namespace {

struct Case {
  std::string name;
  std::string family;
  Precision precision;
  bool clipped;
  std::vector<std::string> freeze = {};
  std::optional<double> router_auxiliary_loss = std::nullopt;
};

void ExpectSame(const JobRun& run, const JobRun& expected) {
  ASSERT_EQ(run.records.size(), expected.records.size());
  for (size_t k = 0; k < run.records.size(); ++k) {
    EXPECT_EQ(run.records[k].step, expected.records[k].step);
    EXPECT_EQ(run.records[k].loss, expected.records[k].loss) << "step " << k + 1;
    EXPECT_EQ(run.records[k].gradient_norm, expected.records[k].gradient_norm) << "step " << k + 1;
    EXPECT_EQ(run.records[k].total_tokens, expected.records[k].total_tokens);
    ASSERT_EQ(run.records[k].router.has_value(), expected.records[k].router.has_value());
    if (!run.records[k].router.has_value()) continue;
    EXPECT_EQ(run.records[k].router->entropy, expected.records[k].router->entropy);
    EXPECT_EQ(run.records[k].router->load, expected.records[k].router->load);
    EXPECT_EQ(run.records[k].router->auxiliary_loss, expected.records[k].router->auxiliary_loss);
  }
}

void ExpectSameFiles(const JobSpec& spec, const JobSpec& expected) {
  const auto files = CheckpointTensorFiles(spec), expected_files = CheckpointTensorFiles(expected);
  ASSERT_FALSE(expected_files.empty());
  ASSERT_EQ(files.size(), expected_files.size());
  for (const auto& [name, bytes] : expected_files) {
    ASSERT_TRUE(files.contains(name)) << name;
    EXPECT_TRUE(files.at(name) == bytes) << name << " differs";
  }
}

class SameBitsTest : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kSteps = 4;

  JobSpec Job(const std::string& directory) const {
    const ModelReference reference = LoadModelReference(GetParam().family);
    JobSpec spec =
        CurveJob(reference, GetParam().precision, GetParam().clipped, FreshDirectory(directory));
    spec.training.freeze = GetParam().freeze;
    spec.training.router_auxiliary_loss = GetParam().router_auxiliary_loss;
    spec.training.steps = kSteps;
    spec.training.micro_batch = 1;  // four micro-batches a step
    return spec;
  }
};

TEST_P(SameBitsTest, WhateverTheEngineOptions) {
  const JobSpec plain = Job("plain");
  const JobRun expected = Train(plain);
  ASSERT_TRUE(expected.status.ok()) << expected.status;

  using Engine = JobSpec::Engine;
  const std::vector<std::pair<std::string, std::function<void(Engine&)>>> variants = {
      {"again", [](Engine&) {}},
      {"weight_buffers 3", [](Engine& e) { e.weight_buffers = 3; }},
      {"weight_buffers 5", [](Engine& e) { e.weight_buffers = 5; }},
      {"micro_batches_per_sweep 1", [](Engine& e) { e.micro_batches_per_sweep = 1; }},
      {"micro_batches_per_sweep 2", [](Engine& e) { e.micro_batches_per_sweep = 2; }},
      {"micro_batches_per_sweep 3", [](Engine& e) { e.micro_batches_per_sweep = 3; }},
      {"stash host", [](Engine& e) { e.stash = StashPlace::kHost; }},
      {"stash device", [](Engine& e) { e.stash = StashPlace::kDevice; }},
      {"recompute all", [](Engine& e) { e.recompute = RecomputeMode::kAll; }},
      {"recompute none", [](Engine& e) { e.recompute = RecomputeMode::kNone; }},
      {"recompute all, stash host, sweeps of 2",
       [](Engine& e) {
         e.recompute = RecomputeMode::kAll;
         e.stash = StashPlace::kHost;
         e.micro_batches_per_sweep = 2;
       }},
      {"update_device host", [](Engine& e) { e.update_device = UpdateDevice::kHost; }},
      {"update_device device", [](Engine& e) { e.update_device = UpdateDevice::kDevice; }},
      {"update_device device, stash host, sweeps of 2",
       [](Engine& e) {
         e.update_device = UpdateDevice::kDevice;
         e.stash = StashPlace::kHost;
         e.micro_batches_per_sweep = 2;
       }},
      {"throttled link", [](Engine& e) { e.link_gigabytes_per_second = 0.2; }},
  };
  for (const auto& [name, change] : variants) {
    SCOPED_TRACE(name);
    JobSpec spec = Job("variant");
    change(spec.engine);
    const JobRun run = Train(spec);
    ASSERT_TRUE(run.status.ok()) << run.status;
    ExpectSame(run, expected);
    ExpectSameFiles(spec, plain);
  }
  // With exact clipping there is one slab a tile.
  for (const int64_t slabs : {1, 2, 3, 7}) {
    if (GetParam().clipped) break;
    SCOPED_TRACE("gradient_slabs " + std::to_string(slabs));
    JobSpec spec = Job("variant");
    spec.engine.gradient_slabs = slabs;
    const JobRun run = Train(spec);
    ASSERT_TRUE(run.status.ok()) << run.status;
    ExpectSame(run, expected);
    ExpectSameFiles(spec, plain);
  }
}

// A checkpoint is written after every step, beside the steps that follow. From each of them alone
// the job ends as if it had never been interrupted.
TEST_P(SameBitsTest, FromEveryCheckpoint) {
  const JobSpec plain = Job("plain");
  const JobRun expected = Train(plain);
  ASSERT_TRUE(expected.status.ok()) << expected.status;
  JobSpec all = Job("all");
  all.checkpoint.every_steps = 1;
  all.checkpoint.keep = kSteps;
  const JobRun saving = Train(all);
  ASSERT_TRUE(saving.status.ok()) << saving.status;
  ExpectSame(saving, expected);
  ExpectSameFiles(all, plain);
  for (int64_t step = 1; step < kSteps; ++step) {
    SCOPED_TRACE("from the checkpoint of step " + std::to_string(step));
    const JobSpec spec = Job("resumed");
    const std::string name = "/step-0000000" + std::to_string(step);
    std::filesystem::create_directories(spec.checkpoint.directory);
    std::filesystem::copy(all.checkpoint.directory + name, spec.checkpoint.directory + name,
                          std::filesystem::copy_options::recursive);
    JobRun run;
    run.records.assign(saving.records.begin(), saving.records.begin() + step);
    const JobRun rest = Train(spec);
    ASSERT_TRUE(rest.status.ok()) << rest.status;
    run.records.insert(run.records.end(), rest.records.begin(), rest.records.end());
    ExpectSame(run, expected);
    ExpectSameFiles(spec, plain);
  }
}

// Asked to stop during every run's first step, resumed until it is done. A step that was already
// under way behind the first is finished too.
TEST_P(SameBitsTest, StoppedAgainAndAgain) {
  const JobSpec plain = Job("plain"), spec = Job("stopped");
  const JobRun expected = Train(plain);
  ASSERT_TRUE(expected.status.ok()) << expected.status;
  JobRun all;
  int runs = 0;
  for (bool finished = false; !finished; ++runs) {
    ASSERT_LT(runs, kSteps + 1);
    const int64_t first = static_cast<int64_t>(all.records.size()) + 1;
    const JobRun run = Train(spec, first);
    ASSERT_TRUE(run.status.ok()) << run.status;
    finished = run.outcome == TrainingOutcome::kFinished;
    all.records.insert(all.records.end(), run.records.begin(), run.records.end());
  }
  EXPECT_GE(runs, 2);
  ExpectSame(all, expected);
  ExpectSameFiles(spec, plain);
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, SameBitsTest,
    ::testing::Values(Case{"untied_fp32_clipped", "llama", Precision::kFp32, true},
                      Case{"untied_bf16_unclipped", "qwen3", Precision::kBf16, false},
                      Case{"tied_bf16_clipped", "qwen2", Precision::kBf16, true},
                      Case{"tied_fp32_unclipped", "llama_tied", Precision::kFp32, false},
                      Case{"gemma2_bf16_clipped", "gemma2", Precision::kBf16, true},
                      Case{"gemma3_fp32_unclipped", "gemma3", Precision::kFp32, false},
                      Case{"gemma4_bf16_clipped", "gemma4", Precision::kBf16, true},
                      Case{"olmo3_fp32_clipped", "olmo3", Precision::kFp32, true},
                      Case{"glm4_bf16_unclipped", "glm4", Precision::kBf16, false},
                      Case{"smollm3_bf16_clipped", "smollm3", Precision::kBf16, true},
                      Case{"granite_bf16_clipped", "granite", Precision::kBf16, true},
                      Case{"mixtral_auxiliary_loss", "mixtral", Precision::kBf16, true, {}, 0.1},
                      Case{"gpt_oss_fp32_unclipped", "gpt_oss", Precision::kFp32, false},
                      Case{"gemma4_shared_bf16_clipped", "gemma4_shared", Precision::kBf16, true},
                      Case{"gemma4_shared_frozen_parts",
                           "gemma4_shared",
                           Precision::kFp32,
                           false,
                           {"model.embed_tokens.weight", "*.k_proj.*", "*.per_layer_input_gate.*"}},
                      Case{"gemma4_moe_bf16_unclipped", "gemma4_moe", Precision::kBf16, false},
                      Case{"glm4_moe_bf16_clipped", "glm4_moe", Precision::kBf16, true},
                      Case{"deepseek_v3_bf16_clipped", "deepseek_v3", Precision::kBf16, true},
                      Case{"deepseek_v3_frozen_parts",
                           "deepseek_v3_plain",
                           Precision::kFp32,
                           false,
                           {"*.kv_b_proj.*", "*.kv_a_layernorm.*", "model.layers.0.self_attn.q_*"}},
                      Case{"qwen3_next_bf16_clipped", "qwen3_next", Precision::kBf16, true},
                      Case{"qwen3_5_moe_frozen_parts",
                           "qwen3_5_moe",
                           Precision::kFp32,
                           false,
                           {"*.linear_attn.conv1d.*", "*.in_proj_b.*", "*.shared_expert_gate.*"}},
                      Case{"qwen3_moe_frozen_experts",
                           "qwen3_moe",
                           Precision::kFp32,
                           true,
                           {"*.mlp.experts.*", "model.layers.0.*"}},
                      Case{"phi3_frozen_parts",
                           "phi3",
                           Precision::kFp32,
                           true,
                           {"*.qkv_proj.*", "model.layers.0.mlp.*"}},
                      Case{"frozen_prefix",
                           "qwen3",
                           Precision::kBf16,
                           true,
                           {"model.embed_tokens.*", "model.layers.[01].*"}},
                      Case{"frozen_parts",
                           "qwen2",
                           Precision::kFp32,
                           false,
                           {"lm_head.*", "*.k_proj.*", "*.mlp.*", "model.layers.0.*"}}),
    [](const auto& info) { return info.param.name; });

// A random model and random tokens, small, of odd sizes. Micro-batches have more tokens, and layers
// are wider, than a library of products sums in one go.
JobSpec RandomJob(uint64_t seed, Precision precision, const std::string& directory) {
  std::mt19937_64 random(seed);
  const auto pick = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  const int64_t kv_heads = pick(1, 2), heads = kv_heads * pick(1, 3), head_dim = 16 * pick(1, 4);
  const int64_t vocabulary = pick(200, 900), hidden = 8 * pick(6, 40);
  const std::string model = FreshDirectory(directory + "_model");
  std::ofstream(model + "/config.json")
      << R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",)"
      << R"("rms_norm_eps": 1e-05, "rope_theta": 10000.0, "max_position_embeddings": 1024,)"
      << R"("num_hidden_layers": 2, "tie_word_embeddings": )" << (seed % 2 ? "true" : "false")
      << R"(, "hidden_size": )" << hidden << R"(, "intermediate_size": )" << pick(50, 600)
      << R"(, "num_attention_heads": )" << heads << R"(, "num_key_value_heads": )" << kv_heads
      << R"(, "head_dim": )" << head_dim << R"(, "vocab_size": )" << vocabulary << "}";
  JobSpec spec =
      CurveJob(LoadModelReference("llama"), precision, pick(0, 1) == 1, FreshDirectory(directory));
  spec.model.path = model;
  spec.model.random_initialization = true;
  spec.data.sequence_length = pick(150, 420);
  spec.schedule.warmup_steps = 0;
  spec.training.steps = 2;
  spec.training.global_batch = 4;
  spec.training.micro_batch = 2;
  std::vector<uint16_t> tokens(
      static_cast<size_t>(spec.training.steps * 4 * spec.data.sequence_length));
  for (uint16_t& token : tokens) token = static_cast<uint16_t>(pick(0, vocabulary - 1));
  spec.data.train = {{model + "/tokens.bin", DataFormat::kTokens, "uint16"}};
  std::ofstream(model + "/tokens.bin", std::ios::binary)
      .write(reinterpret_cast<const char*>(tokens.data()),
             static_cast<std::streamsize>(tokens.size() * sizeof(tokens[0])));
  return spec;
}

TEST(RandomJobTest, GivesTheSameBitsOnAnyNumberOfThreads) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const Precision precision = seed % 4 < 3 ? Precision::kFp32 : Precision::kBf16;
    JobSpec one = RandomJob(seed, precision, "one_thread");
    one.engine.threads = 1;
    const JobRun expected = Train(one);
    ASSERT_TRUE(expected.status.ok()) << expected.status;
    for (const auto& [threads, update_threads] : {std::pair{2, 0}, {3, 0}, {2, 1}, {3, 1}}) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", ", threads, " threads, ", update_threads,
                                " of them for updates"));
      JobSpec spec = RandomJob(seed, precision, "threads");
      spec.engine.threads = threads;
      spec.engine.update_threads = update_threads;
      const JobRun run = Train(spec);
      ASSERT_TRUE(run.status.ok()) << run.status;
      ExpectSame(run, expected);
      ExpectSameFiles(spec, one);
    }
  }
}

}  // namespace
}  // namespace megatrain
