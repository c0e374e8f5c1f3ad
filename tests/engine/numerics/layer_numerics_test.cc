// Logits, loss and every gradient of each family against transformers, through the layer templates
// alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "engine/base/thread_pool.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/hf/config_json.h"
#include "engine/model/model_layout.h"
#include "tests/engine/numerics/model_reference.h"
#include "tests/engine/numerics/plain_step.h"

namespace megatrain {
namespace {

class LayerNumericsTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const absl::StatusOr<ModelDescription> config = ReadModelDescription(reference_.directory);
    ASSERT_TRUE(config.ok()) << config.status();
    layout_ = BuildModelLayout(*config);
  }

  PlainStepResult Step(DType dtype, int64_t sequences = 2,
                       KeepLevel level = KeepLevel::kCheapRecomputed, int64_t chunk_tokens = 0) {
    return PlainStep(device_->kernels(), layout_, weights_, dtype, reference_.batch, sequences,
                     level, chunk_tokens);
  }

  std::vector<float> ReferenceRows(const std::vector<float>& logits) const {
    const int64_t vocabulary = layout_.model.vocabulary;
    std::vector<float> rows;
    for (const int64_t row : reference_.logit_rows) {
      rows.insert(rows.end(), logits.begin() + row * vocabulary,
                  logits.begin() + (row + 1) * vocabulary);
    }
    return rows;
  }

  void ExpectLikeFp32(const PlainStepResult& result) const {
    ASSERT_TRUE(result.status.ok()) << result.status;
    const BatchReference& expected = reference_.fp32;
    EXPECT_NEAR(result.loss / expected.loss, 1, 1e-5);
    EXPECT_LE(RelativeError(ReferenceRows(result.logits), expected.logits), 1e-5);
    EXPECT_EQ(result.gradients.size(), expected.gradients.size());
    for (const auto& [name, gradient] : expected.gradients) {
      ASSERT_TRUE(result.gradients.contains(name)) << name;
      EXPECT_LE(RelativeError(result.gradients.at(name), gradient), 1e-4) << name;
    }
  }

  void ExpectLikeBf16(const PlainStepResult& result) {
    ASSERT_TRUE(result.status.ok()) << result.status;
    const BatchReference& expected = reference_.bf16;
    EXPECT_NEAR(result.loss / expected.loss, 1, 3e-3);
    EXPECT_LE(RelativeError(ReferenceRows(result.logits), expected.logits),
              Bf16ErrorBound(expected.logits_error, expected.logits.size()));
    double worst = 0;
    SmallTensors small;
    for (const auto& [name, gradient] : expected.gradients) {
      ASSERT_TRUE(result.gradients.contains(name)) << name;
      const double error = RelativeError(result.gradients.at(name), gradient);
      const double transformers_error = expected.gradient_errors.at(name);
      EXPECT_LE(error, Bf16ErrorBound(transformers_error, gradient.size())) << name;
      worst = std::max(worst, error / transformers_error);
      small.Add(error, transformers_error, gradient.size());
    }
    EXPECT_LE(small.Ratio(), 1.25) << "norms and biases together";
    RecordProperty("worst_gradient_error_over_transformers", std::to_string(worst));
  }

  // Tokens of a chunk: many chunks a micro-batch, the last a short one, documents across borders.
  static constexpr int64_t kChunk = 13;

  const ModelReference reference_ = LoadModelReference(GetParam());
  const NamedTensors weights_ = ReadFloatTensors(reference_.directory + "/model.safetensors");
  ModelLayout layout_;
  ThreadPool pool_{2};
  const std::unique_ptr<Device> device_ = CreateCpuDevice(&pool_, {});
};

TEST_P(LayerNumericsTest, Fp32) { ExpectLikeFp32(Step(DType::kF32)); }

TEST_P(LayerNumericsTest, Bf16) { ExpectLikeBf16(Step(DType::kBF16)); }

// A chunk knows nothing of documents and sequences.
TEST_P(LayerNumericsTest, Fp32InChunks) {
  ExpectLikeFp32(Step(DType::kF32, 2, KeepLevel::kNothing, kChunk));
}

TEST_P(LayerNumericsTest, Bf16InChunks) {
  ExpectLikeBf16(Step(DType::kBF16, 2, KeepLevel::kNothing, kChunk));
}

TEST_P(LayerNumericsTest, WhatIsKeptDoesNotChangeBits) {
  for (const int64_t chunk : {int64_t{0}, kChunk}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const PlainStepResult all = Step(dtype, 2, KeepLevel::kEverything, chunk);
      ASSERT_TRUE(all.status.ok()) << all.status;
      for (const KeepLevel level : {KeepLevel::kNothing, KeepLevel::kCheapRecomputed}) {
        const PlainStepResult other = Step(dtype, 2, level, chunk);
        EXPECT_EQ(other.loss, all.loss);
        for (const auto& [name, gradient] : all.gradients) {
          EXPECT_TRUE(other.gradients.at(name) == gradient) << name;
        }
      }
    }
  }
}

// Tiles, packs of rows and chunks cut the experts' work in many ways.
TEST_P(LayerNumericsTest, TilesOfExpertsDoNotChangeBits) {
  if (MostExperts(layout_.model) == 0) return;
  const auto in_tiles_of = [&](int64_t experts, DType dtype, int64_t chunk) {
    ModelDescription model = layout_.model;
    for (LayerDescription& layer : model.layers) layer.experts.experts_per_tile = experts;
    layout_ = BuildModelLayout(model);
    return Step(dtype, 2, KeepLevel::kNothing, chunk);
  };
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    // An expert with more rows than a chunk is cut by it, so that a chunk's bits are its own.
    for (const int64_t chunk : {int64_t{0}, kChunk}) {
      const PlainStepResult whole = in_tiles_of(MostExperts(layout_.model), dtype, chunk);
      ASSERT_TRUE(whole.status.ok()) << whole.status;
      for (const int64_t experts : {1, 3}) {
        const PlainStepResult cut = in_tiles_of(experts, dtype, chunk);
        ASSERT_TRUE(cut.status.ok()) << cut.status;
        EXPECT_EQ(cut.loss, whole.loss);
        EXPECT_TRUE(cut.logits == whole.logits);
        for (const auto& [name, gradient] : whole.gradients) {
          EXPECT_TRUE(cut.gradients.at(name) == gradient) << name;
        }
      }
    }
  }
}

// Cutting the step into other micro-batches changes the order of sums only.
TEST_P(LayerNumericsTest, MicroBatchesAddUp) {
  const PlainStepResult whole = Step(DType::kF32, 3), cut = Step(DType::kF32, 1);
  ASSERT_TRUE(whole.status.ok() && cut.status.ok());
  EXPECT_NEAR(cut.loss / whole.loss, 1, 1e-6);
  EXPECT_LE(RelativeError(cut.logits, whole.logits), 1e-5);
  for (const auto& [name, gradient] : whole.gradients) {
    EXPECT_LE(RelativeError(cut.gradients.at(name), gradient), 1e-5) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, LayerNumericsTest, ::testing::ValuesIn(ReferenceFamilies()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace megatrain
