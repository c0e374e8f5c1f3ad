// A step leaves the right state in the tiles, wherever AdamW runs and whatever is frozen or saved
// meanwhile.
// Linked with the device to test (device_under_test.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <future>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/engine/numerics/trainer_numerics_fixture.h"

namespace megatrain {
namespace {

// Where AdamW runs, and what of the embedding is updated first.
class UpdatePlacesTest : public TrainerNumericsTest {
 protected:
  // Weights, remainders and moments after three steps: two in flight, an evaluation, then one.
  std::vector<char> State() {
    for (int step = 1; step <= 3; ++step) {
      std::vector<Sequence> sequences = reference_.batch.sequences;
      // Other rows are looked up each time.
      for (Sequence& sequence : sequences) {
        for (int32_t& id : sequence.input_ids) id /= step;
      }
      const Batch batch = StepOf(sequences, step);
      if (trainer_->in_flight() == 2) {
        Collect(2);
        const absl::StatusOr<double> loss = trainer_->EvaluateLossSum(batch);
        EXPECT_TRUE(loss.ok()) << loss.status();
        loss_sum_ = loss.value_or(0);
      }
      std::vector<double> rates;
      for (const auto& group : spec_.optimizer.groups) {
        rates.push_back(group.learning_rate.value_or(1e-2));
      }
      const absl::Status submitted = trainer_->Submit(batch, 1e-2, rates);
      EXPECT_TRUE(submitted.ok()) << submitted;
    }
    Collect(1);
    std::vector<char> state;
    for (const ProcessTile& parts : trainer_->tiles()) {
      const Tile& tile = parts.front();
      const auto* const begin = static_cast<const char*>(tile.weights);
      state.insert(state.end(), begin,
                   begin + TileBytes(tile.layout->elements, tile.weight_dtype,
                                     tile.layout->stateless_elements));
    }
    return state;
  }
  void Collect(int steps) {
    for (int i = 0; i < steps; ++i) {
      const absl::StatusOr<StepRecord> record = trainer_->Collect();
      EXPECT_TRUE(record.ok()) << record.status();
      if (record.ok()) device_update_seconds_ += record->lane_busy_seconds.device_update;
    }
  }
  double device_update_seconds_ = 0;
  double loss_sum_ = 0;  // of the evaluation
};

TEST_P(UpdatePlacesTest, GiveTheSameBits) {
  const std::string& family = std::get<0>(GetParam());
  spec_.optimizer.groups = {{"*.layers.0.*", 3e-3, 0.5}, {"*.v_proj.weight", std::nullopt, 0.0}};
  const Precision precision =
      family == "llama" || family == "llama_tied" ? Precision::kFp32 : Precision::kBf16;
  spec_.training.gradient_dtype = precision;
  spec_.optimizer.max_gradient_norm = family == "llama" || family == "qwen2" ? 1.0 : 0.0;
  change_ = [](MemoryPlan& plan) { plan.dimensions.shape.embedding_from_host = false; };
  ASSERT_NO_FATAL_FAILURE(Start(precision));
  const std::vector<char> expected = State();
  EXPECT_EQ(device_update_seconds_, 0);
  const double expected_loss_sum = loss_sum_;

  change_ = nullptr;
  ASSERT_NO_FATAL_FAILURE(Start(precision));
  EXPECT_TRUE(State() == expected) << "rows first";
  spec_.engine.update_device = UpdateDevice::kDevice;
  ASSERT_NO_FATAL_FAILURE(Start(precision));
  EXPECT_TRUE(State() == expected) << "on the device";
  EXPECT_GT(device_update_seconds_, 0);
  // The smaller part takes less of what the plan has reserved.
  change_ = [](MemoryPlan& plan) {
    plan.dimensions.shape.device_update_parts = 24;
    plan.dimensions.shape.first_tile_device_parts = 40;
    plan.dimensions.shape.device_piece_elements = 5 * kUpdateAlignment;
  };
  ASSERT_NO_FATAL_FAILURE(Start(precision));
  EXPECT_TRUE(State() == expected) << "on both sides";
  EXPECT_EQ(loss_sum_, expected_loss_sum);
}

TEST_P(UpdatePlacesTest, AGroupWithoutAWeightDecayHasTheOptimizers) {
  spec_.optimizer.weight_decay = 0.5;
  std::vector<std::vector<char>> states;
  for (const std::optional<double> decay : {std::optional(0.5), std::optional(0.0), {}}) {
    spec_.optimizer.groups = {{"*.layers.0.*", 3e-3, decay}};
    ASSERT_NO_FATAL_FAILURE(Start(Precision::kFp32));
    states.push_back(State());
  }
  EXPECT_TRUE(states[2] == states[0]);
  EXPECT_FALSE(states[2] == states[1]);
}

// The arithmetic of what is trained is that of a step in which everything is.
TEST_P(UpdatePlacesTest, FrozenTensorsKeepTheirBitsAndTheOthersHaveTheSameGradients) {
  const Precision precision =
      std::get<0>(GetParam()) == "llama" ? Precision::kFp32 : Precision::kBf16;
  ASSERT_NO_FATAL_FAILURE(Start(precision));
  const double norm = Step().gradient_norm;
  std::map<std::string, std::vector<float>> expected;
  ForEachTensor(layout_, [&](int tile, const TensorSpec& tensor) {
    expected[tensor.name] = Gradient(tensor, tile);
  });
  const std::vector<std::vector<std::string>> choices = {
      {"model.embed_tokens.*", "model.layers.0.*"},
      {"*.input_layernorm.*", "*.o_proj.*", "*.down_proj.*", "model.norm.*"},
      {"*.k_proj.weight", "*.gate_proj.*", "model.layers.1.*"},
      {"model.embed_tokens.*", "*self_attn*", "*input_layernorm*", "lm_head.*"}};
  for (const std::vector<std::string>& freeze : choices) {
    SCOPED_TRACE(freeze[0]);
    spec_.training.freeze = freeze;
    ASSERT_NO_FATAL_FAILURE(Start(precision));
    std::map<std::string, std::vector<char>> frozen;
    const auto weights = [&](const TensorSpec& tensor, int tile) {
      const int64_t bytes = DTypeBytes(trainer_->tiles()[tile].front().weight_dtype);
      const char* const begin = static_cast<const char*>(trainer_->tiles()[tile].front().weights);
      return std::vector<char>(begin + tensor.offset * bytes,
                               begin + (tensor.offset + tensor.elements) * bytes);
    };
    ForEachTensor(layout_, [&](int tile, const TensorSpec& tensor) {
      if (tensor.frozen) frozen[tensor.name] = weights(tensor, tile);
    });
    EXPECT_FALSE(frozen.empty());
    EXPECT_LT(Step().gradient_norm, norm);
    ForEachTensor(layout_, [&](int tile, const TensorSpec& tensor) {
      if (tensor.frozen) {
        EXPECT_TRUE(weights(tensor, tile) == frozen[tensor.name]) << tensor.name;
      } else {
        // A part of a product may be summed in another order than the whole.
        const bool part =
            freeze[0] == "*.k_proj.weight" && (tensor.name.find("v_proj") != std::string::npos ||
                                               tensor.name.find("q_proj") != std::string::npos ||
                                               tensor.name.find("up_proj") != std::string::npos);
        EXPECT_LE(RelativeError(Gradient(tensor, tile), expected[tensor.name]), part ? 1e-6 : 0)
            << tensor.name;
      }
    });
  }
}

// While the step behind it is in flight.
TEST_P(UpdatePlacesTest, ASaveTakesEveryTileAsItsStepLeavesIt) {
  const auto state_of = [](const Tile& tile) {
    const auto* const begin = static_cast<const char*>(tile.weights);
    return std::vector<char>(begin, begin + TileBytes(tile.layout->elements, tile.weight_dtype));
  };
  ASSERT_NO_FATAL_FAILURE(Start(Precision::kBf16));
  ASSERT_TRUE(trainer_->Submit(StepOf(reference_.batch.sequences, 1), 1e-2).ok());
  Collect(1);
  std::vector<std::vector<char>> expected;
  for (const ProcessTile& tile : trainer_->tiles()) expected.push_back(state_of(tile.front()));

  ASSERT_NO_FATAL_FAILURE(Start(Precision::kBf16));
  std::vector<std::vector<char>> taken(expected.size());
  int finished = 0;
  ASSERT_TRUE(trainer_->Submit(StepOf(reference_.batch.sequences, 1), 1e-2).ok());
  trainer_->BeginSave(
      {[&](int tile, const ProcessTile& parts) { taken[tile] = state_of(parts.front()); },
       [&] { ++finished; }});
  ASSERT_TRUE(trainer_->Submit(StepOf(reference_.batch.sequences, 2), 1e-2).ok());
  Collect(2);
  EXPECT_FALSE(trainer_->save_done());
  EXPECT_EQ(finished, 0) << "before it is committed";
  trainer_->CommitSave();
  const absl::Status saved = trainer_->AwaitSave();
  EXPECT_TRUE(saved.ok()) << saved;
  EXPECT_EQ(finished, 1);
  EXPECT_TRUE(taken == expected);
  EXPECT_FALSE(state_of(trainer_->tiles()[1].front()) == expected[1])
      << "the second step changes it";
}

// An error of a step does not end the wait for what the save still does, and a save of an earlier
// step that is whole is none.
TEST_P(UpdatePlacesTest, ASaveIsAwaitedAlthoughAStepFails) {
  ASSERT_NO_FATAL_FAILURE(Start(Precision::kBf16));
  std::promise<void> finishing, step_failed;
  std::atomic<bool> finished{false};
  ASSERT_TRUE(trainer_->Submit(StepOf(reference_.batch.sequences, 1), 1e-2).ok());
  trainer_->BeginSave({[](int, const ProcessTile&) {},
                       [&] {
                         finishing.set_value();
                         step_failed.get_future().wait();
                         absl::SleepFor(absl::Milliseconds(50));
                         finished = true;
                       }});
  Collect(1);
  trainer_->CommitSave();
  finishing.get_future().wait();
  ASSERT_TRUE(trainer_->Submit(StepOf(reference_.batch.sequences, 2), HUGE_VAL).ok());
  EXPECT_EQ(trainer_->Collect().status().code(), absl::StatusCode::kAborted);
  step_failed.set_value();
  const absl::Status saved = trainer_->AwaitSave();
  EXPECT_TRUE(saved.ok()) << saved;
  EXPECT_TRUE(finished);
}

TEST_P(UpdatePlacesTest, AnUpdateOnTheDeviceThatCannotBeTrustedIsFound) {
  spec_.engine.update_device = UpdateDevice::kDevice;
  ASSERT_NO_FATAL_FAILURE(Start(Precision::kBf16));
  const Tile& tile = trainer_->tiles()[2].front();
  tile.exp_avg_sq[tile.layout->tensors.back().offset] = std::numeric_limits<float>::infinity();
  ASSERT_TRUE(trainer_->Submit(ReferenceStep(), 1e-3).ok());
  const absl::Status status = trainer_->Collect().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("the update of tile 2 (layer 1) made a weight or moment"));
}

// Without clipping the device may begin its updates before the losses are known.
TEST_P(UpdatePlacesTest, AFailedStepHasChangedNothingUnlessTheDeviceUpdatesWithoutClipping) {
  for (const bool clipped : {false, true}) {
    for (const UpdateDevice place : {UpdateDevice::kHost, UpdateDevice::kDevice}) {
      spec_.optimizer.max_gradient_norm = clipped ? 1.0 : 0.0;
      spec_.engine.update_device = place;
      ASSERT_NO_FATAL_FAILURE(Start(Precision::kBf16));
      const Tile& tile = trainer_->tiles()[2].front();
      constexpr bf16_t kNan = 0x7fc0;
      static_cast<bf16_t*>(tile.weights)[tile.layout->tensors.back().offset] = kNan;
      ASSERT_TRUE(trainer_->Submit(ReferenceStep(), 1e-3).ok());
      EXPECT_EQ(trainer_->Collect().status().code(), absl::StatusCode::kAborted);
      const bool unchanged = clipped || place == UpdateDevice::kHost;
      EXPECT_EQ(trainer_->failed_unchanged_step(), unchanged ? 1 : 0) << clipped;
    }
  }
}

class LoneTensorTest : public TrainerNumericsTest {};

// Nothing below the first layer asks for a gradient, so that its one tensor is what asks for it.
TEST_P(LoneTensorTest, HasTheGradientOfAStepInWhichEverythingIsTrained) {
  const auto is_tried = [](const TensorSpec& tensor) {
    for (const char* part :
         {".input_layernorm.", ".q_proj.bias", ".q_norm.", ".k_norm.", ".sinks", ".q_a_layernorm.",
          ".q_b_proj.weight", ".kv_a_layernorm.", ".kv_b_proj.weight", ".conv1d.", ".A_log",
          ".dt_bias", ".linear_attn.norm."}) {
      if (tensor.name.find(part) != std::string::npos) return true;
    }
    return false;
  };
  ASSERT_NO_FATAL_FAILURE(Start(Precision::kFp32));
  Step();
  std::vector<std::string> names;
  std::map<std::string, std::vector<float>> expected;
  ForEachTensor(layout_, [&](int tile, const TensorSpec& tensor) {
    if (tensor.is_never_trained()) return;
    names.push_back(tensor.name);
    if (tile == 1 && is_tried(tensor)) expected[tensor.name] = Gradient(tensor, tile);
  });
  ASSERT_FALSE(expected.empty());
  for (const auto& entry : expected) {
    const std::string& lone = entry.first;
    SCOPED_TRACE(lone);
    spec_.training.freeze = names;
    std::erase(spec_.training.freeze, lone);
    ASSERT_NO_FATAL_FAILURE(Start(Precision::kFp32));
    Step();
    ForEachTensor(layout_, [&](int tile, const TensorSpec& tensor) {
      if (tensor.name == lone) {
        EXPECT_LE(RelativeError(Gradient(tensor, tile), entry.second), 1e-6);
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, LoneTensorTest,
    ::testing::Combine(::testing::Values("qwen2", "qwen3", "gpt_oss", "deepseek_v3", "qwen3_next"),
                       ::testing::Values(Setting{"sweeps", 1, 2, StashPlace::kHost,
                                                 RecomputeMode::kAuto})),
    [](const auto& info) { return std::get<0>(info.param); });

INSTANTIATE_TEST_SUITE_P(Families, UpdatePlacesTest,
                         ::testing::Combine(::testing::Values("llama", "llama_tied", "qwen2",
                                                              "qwen3", "qwen3_5_wrapper"),
                                            ::testing::Values(Setting{"sweeps", 1, 2,
                                                                      StashPlace::kHost,
                                                                      RecomputeMode::kAuto})),
                         [](const auto& info) { return std::get<0>(info.param); });

}  // namespace
}  // namespace megatrain
