// Logits, loss, gradient norm and every gradient of each family against transformers, through the
// pipeline: tiles, lanes, sweeps, slabs. Linked with the device to test (device_under_test.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/thread_pool.h"
#include "engine/data/sequences/batch.h"
#include "engine/hf/config_json.h"
#include "engine/hf/hf_weights.h"
#include "engine/memory/host_pool.h"
#include "engine/optim/adamw_updater.h"
#include "engine/plan/memory_plan.h"
#include "engine/plan/training_layout.h"
#include "engine/trainer/trainer.h"
#include "tests/engine/device/device_under_test.h"
#include "tests/engine/numerics/model_reference.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Setting {
  std::string name;
  int64_t micro_batch;  // of the batch's three sequences
  int64_t micro_batches_per_sweep;
  StashPlace stash;
  RecomputeMode recompute;
  int64_t layer_chunk_tokens = 0;  // 0: the plan's, which is the whole micro-batch here
  int64_t experts_per_tile = 0;    // 0: the description's, which is all of a layer here
};

class TrainerNumericsTest : public ::testing::TestWithParam<std::tuple<std::string, Setting>> {
 protected:
  void Start(Precision precision) {
    const auto& [family, setting] = GetParam();
    absl::StatusOr<ModelDescription> config = ReadModelDescription(reference_.directory);
    ASSERT_TRUE(config.ok()) << config.status();
    for (LayerDescription& layer : config->layers) {
      if (setting.experts_per_tile > 0) layer.experts.experts_per_tile = setting.experts_per_tile;
    }
    absl::StatusOr<ModelLayout> layout = BuildTrainingLayout(*config, spec_);
    ASSERT_TRUE(layout.ok()) << layout.status();
    layout_ = *std::move(layout);
    spec_.data.sequence_length = static_cast<int64_t>(reference_.batch.sequences[0].labels.size());
    spec_.training.global_batch = static_cast<int64_t>(reference_.batch.sequences.size());
    spec_.training.micro_batch = setting.micro_batch;
    spec_.training.precision = precision;
    spec_.engine.micro_batches_per_sweep = setting.micro_batches_per_sweep;
    spec_.engine.stash = setting.stash;
    spec_.engine.recompute = setting.recompute;
    MemoryBudget budget;
    budget.host_bytes = int64_t{1} << 30;
    absl::StatusOr<MemoryPlan> plan = PlanMemory(spec_, layout_, device_->kernels(), budget);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_TRUE(plan->fits) << plan->Table();
    // Shorter ones need less of what the plan takes.
    if (setting.layer_chunk_tokens > 0) {
      plan->dimensions.layer_chunk_tokens = setting.layer_chunk_tokens;
    }
    if (change_) change_(*plan);
    HostPoolOptions options;
    options.capacity = plan->pool_bytes;
    absl::StatusOr<std::unique_ptr<HostPool>> host_pool = HostPool::Create(options);
    ASSERT_TRUE(host_pool.ok()) << host_pool.status();
    Stop();
    host_pool_ = *std::move(host_pool);
    const absl::Status pinned =
        device_->PinHost(host_pool_->data(), host_pool_->capacity(), nullptr);
    ASSERT_TRUE(pinned.ok()) << pinned;
    absl::StatusOr<std::unique_ptr<Trainer>> trainer =
        Trainer::Create(spec_, *plan, device_.get(), &updater_, host_pool_.get());
    ASSERT_TRUE(trainer.ok()) << trainer.status();
    trainer_ = *std::move(trainer);
    auto weights = HfWeights::Open(reference_.directory, layout_);
    ASSERT_TRUE(weights.ok()) << weights.status();
    for (int i = 0; i < layout_.tile_count(); ++i) {
      const absl::Status status = (*weights)->LoadTile(i, trainer_->tiles()[i]);
      ASSERT_TRUE(status.ok()) << status;
    }
  }

  void SetUp() override {
    absl::StatusOr<std::unique_ptr<Device>> device = MakeDeviceUnderTest(&pool_);
    if (absl::IsNotFound(device.status()) || absl::IsUnavailable(device.status())) {
      GTEST_SKIP() << device.status();
    }
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }

  void Stop() {
    trainer_ = nullptr;
    if (host_pool_ != nullptr) device_->UnpinHost(host_pool_->data());
    host_pool_ = nullptr;
  }
  void TearDown() override { Stop(); }

  Batch ReferenceStep() const { return StepOf(reference_.batch.sequences, 1); }
  Batch StepOf(const std::vector<Sequence>& sequences, int64_t step) const {
    return MakeBatch(step, sequences, spec_.training.micro_batch);
  }

  // The rows of `logit_rows` that lie in micro-batch 0, whose logits the trainer gives.
  void CompareLogits(const BatchReference& expected, double limit) {
    const int64_t vocabulary = layout_.model.vocabulary;
    const int64_t tokens = spec_.training.micro_batch * spec_.data.sequence_length;
    const absl::StatusOr<std::vector<float>> logits =
        trainer_->Logits(ReferenceStep(), {{0, tokens}});
    ASSERT_TRUE(logits.ok()) << logits.status();
    ASSERT_EQ(static_cast<int64_t>(logits->size()), tokens * vocabulary);
    std::vector<float> rows, expected_rows;
    for (size_t i = 0; i < reference_.logit_rows.size(); ++i) {
      const int64_t row = reference_.logit_rows[i];
      if (row >= tokens) continue;
      rows.insert(rows.end(), logits->begin() + row * vocabulary,
                  logits->begin() + (row + 1) * vocabulary);
      expected_rows.insert(expected_rows.end(), expected.logits.begin() + i * vocabulary,
                           expected.logits.begin() + (i + 1) * vocabulary);
    }
    ASSERT_FALSE(rows.empty());
    EXPECT_LE(RelativeError(rows, expected_rows), limit);
  }

  StepRecord Step() {
    const absl::Status submitted = trainer_->Submit(ReferenceStep(), 1e-3);
    EXPECT_TRUE(submitted.ok()) << submitted;
    const absl::StatusOr<StepRecord> record = trainer_->Collect();
    EXPECT_TRUE(record.ok()) << record.status();
    return record.ok() ? *record : StepRecord();
  }

  std::vector<float> Gradient(const TensorSpec& tensor, int tile) const {
    const std::vector<float> held = trainer_->HeldGradient(tile);
    return {held.begin() + tensor.offset, held.begin() + tensor.offset + tensor.elements};
  }

  // The tensor's part of the whole, in the tile's order.
  static std::vector<float> Part(const NamedTensors& whole, const TensorSpec& tensor) {
    std::vector<float> part(static_cast<size_t>(tensor.elements));
    for (const TensorRun& run : RunsOf(tensor)) {
      std::copy_n(whole.at(tensor.name).begin() + run.source, run.elements,
                  part.begin() + run.place);
    }
    return part;
  }

  const ModelReference reference_ = LoadModelReference(std::get<0>(GetParam()));
  ModelLayout layout_;
  JobSpec spec_;  // the default clips, so that gradients are held
  std::function<void(MemoryPlan&)> change_;
  ThreadPool pool_{2};
  AdamWUpdater updater_{&pool_};
  std::unique_ptr<Device> device_;
  std::unique_ptr<HostPool> host_pool_;
  std::unique_ptr<Trainer> trainer_;
};

// All ways in: training, evaluation, logits. Kernels do not check.
TEST_P(TrainerNumericsTest, TokensThatTheModelHasNotAreRefused) {
  Start(Precision::kFp32);
  const int32_t vocabulary = static_cast<int32_t>(layout_.model.vocabulary);
  const auto expect_refused = [&](const Batch& batch, int32_t id) {
    for (const absl::Status& status :
         {trainer_->Submit(batch, 1e-3), trainer_->EvaluateLossSum(batch).status(),
          trainer_->Logits(batch, {{0, 1}}).status()}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr(absl::StrCat("token ", id, " at position 3 of sequence 1")),
                        HasSubstr(absl::StrCat("ids 0 to ", vocabulary - 1))));
    }
    EXPECT_EQ(trainer_->in_flight(), 0);
  };
  for (const int32_t id : {vocabulary, -1, std::numeric_limits<int32_t>::max()}) {
    std::vector<Sequence> sequences = reference_.batch.sequences;
    sequences[1].input_ids[3] = id;
    expect_refused(StepOf(sequences, 1), id);
    sequences = reference_.batch.sequences;
    sequences[1].labels[3] = id;
    expect_refused(StepOf(sequences, 1), id);
  }
  EXPECT_GT(Step().loss, 0) << "nothing is left of them";
}

TEST_P(TrainerNumericsTest, Fp32) {
  ASSERT_NO_FATAL_FAILURE(Start(Precision::kFp32));
  const BatchReference& expected = reference_.fp32;
  CompareLogits(expected, 1e-5);
  const absl::StatusOr<double> evaluated = trainer_->EvaluateLossSum(ReferenceStep());
  ASSERT_TRUE(evaluated.ok()) << evaluated.status();
  EXPECT_NEAR(*evaluated / reference_.batch.predictions / expected.loss, 1, 1e-5);
  const StepRecord record = Step();
  EXPECT_NEAR(record.loss / expected.loss, 1, 1e-5);
  EXPECT_NEAR(record.gradient_norm / expected.gradient_norm, 1, 1e-5);
  EXPECT_EQ(record.tokens, reference_.batch.predictions);
  size_t elements = 0, expected_elements = 0;
  ForEachTensor(layout_, [&](int tile, const TensorSpec& tensor) {
    if (tensor.is_never_trained()) return;
    ASSERT_TRUE(expected.gradients.contains(tensor.name)) << tensor.name;
    const std::vector<float> gradient = Gradient(tensor, tile);
    EXPECT_LE(RelativeError(gradient, Part(expected.gradients, tensor)), 1e-4) << tensor.name;
    elements += gradient.size();
  });
  for (const auto& [name, gradient] : expected.gradients) expected_elements += gradient.size();
  EXPECT_EQ(elements, expected_elements);
}

TEST_P(TrainerNumericsTest, Bf16) {
  ASSERT_NO_FATAL_FAILURE(Start(Precision::kBf16));
  const BatchReference& expected = reference_.bf16;
  CompareLogits(expected, Bf16ErrorBound(expected.logits_error, expected.logits.size()));
  const StepRecord record = Step();
  EXPECT_NEAR(record.loss / expected.loss, 1, 3e-3);
  EXPECT_NEAR(record.gradient_norm / expected.gradient_norm, 1, 1e-2);
  ForEachTensor(layout_, [&](int tile, const TensorSpec& tensor) {
    if (tensor.is_never_trained()) return;
    const std::vector<float> gradient = Part(expected.gradients, tensor);
    EXPECT_LE(RelativeError(Gradient(tensor, tile), gradient),
              Bf16ErrorBound(expected.gradient_errors.at(tensor.name), gradient.size()))
        << tensor.name;
  });
}

INSTANTIATE_TEST_SUITE_P(
    Families, TrainerNumericsTest,
    ::testing::Combine(
        ::testing::ValuesIn(ReferenceFamilies()),
        ::testing::Values(Setting{"whole", 3, 0, StashPlace::kDevice, RecomputeMode::kNone},
                          Setting{"micro_batches", 1, 0, StashPlace::kHost, RecomputeMode::kAll},
                          Setting{"sweeps_in_chunks", 1, 2, StashPlace::kHost, RecomputeMode::kAuto,
                                  13, 3})),
    [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param).name; });

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
    for (const Tile& tile : trainer_->tiles()) {
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
      const int64_t bytes = DTypeBytes(trainer_->tiles()[tile].weight_dtype);
      const char* const begin = static_cast<const char*>(trainer_->tiles()[tile].weights);
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
  for (const Tile& tile : trainer_->tiles()) expected.push_back(state_of(tile));

  ASSERT_NO_FATAL_FAILURE(Start(Precision::kBf16));
  std::vector<std::vector<char>> taken(expected.size());
  int finished = 0;
  ASSERT_TRUE(trainer_->Submit(StepOf(reference_.batch.sequences, 1), 1e-2).ok());
  trainer_->BeginSave(
      {[&](int tile, const Tile& view) { taken[tile] = state_of(view); }, [&] { ++finished; }});
  ASSERT_TRUE(trainer_->Submit(StepOf(reference_.batch.sequences, 2), 1e-2).ok());
  Collect(2);
  EXPECT_FALSE(trainer_->save_done());
  EXPECT_EQ(finished, 0) << "before it is committed";
  trainer_->CommitSave();
  const absl::Status saved = trainer_->AwaitSave();
  EXPECT_TRUE(saved.ok()) << saved;
  EXPECT_EQ(finished, 1);
  EXPECT_TRUE(taken == expected);
  EXPECT_FALSE(state_of(trainer_->tiles()[1]) == expected[1]) << "the second step changes it";
}

// An error of a step does not end the wait for what the save still does, and a save of an earlier
// step that is whole is none.
TEST_P(UpdatePlacesTest, ASaveIsAwaitedAlthoughAStepFails) {
  ASSERT_NO_FATAL_FAILURE(Start(Precision::kBf16));
  std::promise<void> finishing, step_failed;
  std::atomic<bool> finished{false};
  ASSERT_TRUE(trainer_->Submit(StepOf(reference_.batch.sequences, 1), 1e-2).ok());
  trainer_->BeginSave({[](int, const Tile&) {},
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
  const Tile& tile = trainer_->tiles()[2];
  tile.exp_avg_sq[tile.layout->tensors.back().offset] = std::numeric_limits<float>::infinity();
  ASSERT_TRUE(trainer_->Submit(ReferenceStep(), 1e-3).ok());
  const absl::Status status = trainer_->Collect().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("the update of tile 2 (layer 1) made a weight or moment"));
}

INSTANTIATE_TEST_SUITE_P(Families, UpdatePlacesTest,
                         ::testing::Combine(::testing::Values("llama", "llama_tied", "qwen2",
                                                              "qwen3", "qwen3_5_wrapper"),
                                            ::testing::Values(Setting{"sweeps", 1, 2,
                                                                      StashPlace::kHost,
                                                                      RecomputeMode::kAuto})),
                         [](const auto& info) { return std::get<0>(info.param); });

}  // namespace
}  // namespace megatrain
