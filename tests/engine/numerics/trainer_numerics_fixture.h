// A trainer of a reference model, with its gradients and weights at hand.
#ifndef MEGATRAIN_TESTS_ENGINE_NUMERICS_TRAINER_NUMERICS_FIXTURE_H_
#define MEGATRAIN_TESTS_ENGINE_NUMERICS_TRAINER_NUMERICS_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "engine/data/sequences/batch.h"
#include "engine/hf/config_json.h"
#include "engine/plan/memory_plan.h"
#include "engine/plan/trained_tensors.h"
#include "engine/trainer/trainer.h"
#include "tests/engine/numerics/model_reference.h"
#include "tests/engine/numerics/trainer_fixture.h"

namespace megatrain {

struct Setting {
  std::string name;
  int64_t micro_batch;  // of the batch's three sequences
  int64_t micro_batches_per_sweep;
  StashPlace stash;
  RecomputeMode recompute;
  int64_t layer_chunk_tokens = 0;  // 0: the plan's, which is the whole micro-batch here
  int64_t experts_per_tile = 0;    // 0: the description's, which is all of a layer here
};

class TrainerNumericsTest : public TrainerFixture,
                            public ::testing::WithParamInterface<std::tuple<std::string, Setting>> {
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
    MemoryPlan plan;
    ASSERT_NO_FATAL_FAILURE(Plan(spec_, &plan));
    // Shorter ones need less of what the plan takes.
    if (setting.layer_chunk_tokens > 0) {
      plan.dimensions.layer_chunk_tokens = setting.layer_chunk_tokens;
    }
    if (change_) change_(plan);
    TrainerFixture::Start(spec_, plan, reference_.directory);
  }

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
  JobSpec spec_;  // the default clips, so that gradients are held
  std::function<void(MemoryPlan&)> change_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_NUMERICS_TRAINER_NUMERICS_FIXTURE_H_
