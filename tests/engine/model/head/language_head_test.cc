// The head's chunks and its memory. Its numbers are compared in tests/engine/numerics.
#include "engine/model/head/language_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/device/device.h"
#include "engine/device/reference_kernels.h"
#include "engine/model/model_layout.h"
#include "tests/engine/model/layer/placed_tensors.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

constexpr int64_t kTokens = 10, kVocabulary = 5, kHidden = 4;

ModelDescription Model() {
  return UniformModel({.vocabulary = kVocabulary,
                       .hidden = kHidden,
                       .layers = 1,
                       .heads = 2,
                       .kv_heads = 1,
                       .head_dim = 2,
                       .intermediate = 3,
                       .max_positions = 16});
}

class LanguageHeadTest : public testing::Test {
 protected:
  LanguageHeadTest() {
    context_.layout = &layout_;
    context_.kernels = &kernels_;
    context_.stream = &stream_;
    std::mt19937_64 random(3);
    std::normal_distribution<float> normal;
    for (std::vector<float>* values : {&weights_, &x_}) {
      for (float& value : *values) value = normal(random);
    }
  }

  // Collects the logits of tokens [begin, end), and the sink's chunks: first token and number.
  std::vector<float> Logits(int64_t begin, int64_t end, int64_t chunk_tokens) {
    chunks_.clear();
    std::vector<float> logits;
    const absl::Status status =
        HeadLogits(context_, weights_.data(), x_.data(), begin, end, Scratch(chunk_tokens),
                   [&](int64_t first, int64_t tokens, const float* chunk) {
                     chunks_.emplace_back(first, tokens);
                     logits.insert(logits.end(), chunk, chunk + tokens * kVocabulary);
                     return absl::OkStatus();
                   });
    EXPECT_TRUE(status.ok()) << status;
    return logits;
  }
  HeadScratch Scratch(int64_t chunk_tokens) {
    const int64_t bytes = HeadScratchBytes(layout_.model, DType::kF32, chunk_tokens);
    block_.resize(static_cast<size_t>(bytes) / sizeof(double) + 1);
    return PlaceHeadScratch(layout_.model, DType::kF32, chunk_tokens, block_.data());
  }

  const ModelLayout layout_ = BuildModelLayout(Model());
  std::vector<float> weights_ = std::vector<float>(
      static_cast<size_t>(layout_.tiles[static_cast<size_t>(layout_.head_tile)].elements));
  std::vector<float> x_ = std::vector<float>(kTokens * kHidden);
  ReferenceKernels kernels_;
  Stream stream_;
  LayerContext context_;
  std::vector<double> block_;
  std::vector<std::pair<int64_t, int64_t>> chunks_;
};

TEST_F(LanguageHeadTest, LogitsOfARangeComeInChunks) {
  const std::vector<float> all = Logits(0, kTokens, 16);
  EXPECT_THAT(chunks_, ElementsAre(Pair(0, kTokens)));
  ASSERT_EQ(all.size(), static_cast<size_t>(kTokens * kVocabulary));
  const std::vector<float> part = Logits(3, 10, 3);
  EXPECT_THAT(chunks_, ElementsAre(Pair(3, 3), Pair(6, 3), Pair(9, 1)));
  EXPECT_EQ(part, std::vector<float>(all.begin() + 3 * kVocabulary, all.end()));
  EXPECT_EQ(Logits(4, 6, 3),
            std::vector<float>(all.begin() + 4 * kVocabulary, all.begin() + 6 * kVocabulary));
}

TEST_F(LanguageHeadTest, TheErrorOfASinkEndsTheLogits) {
  int calls = 0;
  const absl::Status status =
      HeadLogits(context_, weights_.data(), x_.data(), 0, kTokens, Scratch(3),
                 [&](int64_t, int64_t, const float*) {
                   return ++calls == 2 ? absl::DataLossError("full") : absl::OkStatus();
                 });
  EXPECT_EQ(status, absl::DataLossError("full"));
  EXPECT_EQ(calls, 2);
}

// Each chunk has its own targets and its own losses.
TEST_F(LanguageHeadTest, LossesDoNotDependOnChunks) {
  const std::vector<int32_t> targets = {1, 0, -100, 4, 2, 3, -100, 1, 1, 0};
  MicroBatchView batch;
  batch.tokens = kTokens;
  batch.targets = targets.data();
  const std::vector<float> logits = Logits(0, kTokens, 16);
  for (const int64_t chunk : {16, 4, 1}) {
    std::vector<float> losses(kTokens, std::numeric_limits<float>::quiet_NaN());
    const absl::Status status =
        HeadLoss(context_, weights_.data(), batch, x_.data(), Scratch(chunk), losses.data());
    ASSERT_TRUE(status.ok()) << status;
    for (size_t t = 0; t < targets.size(); ++t) {
      double loss = 0;
      if (targets[t] >= 0) {
        const float* const row = logits.data() + t * kVocabulary;
        double sum = 0;
        for (int64_t i = 0; i < kVocabulary; ++i) sum += std::exp(static_cast<double>(row[i]));
        loss = std::log(sum) - row[targets[t]];
      }
      EXPECT_NEAR(losses[t], loss, 1e-5) << t << ", chunks of " << chunk;
    }
  }
}

TEST(HeadMemoryTest, TensorsHaveRoomOfTheirOwn) {
  constexpr int64_t kChunk = 64;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    char* const block = BlockAddress(1);
    const HeadScratch scratch = PlaceHeadScratch(Model(), dtype, kChunk, block);
    EXPECT_EQ(scratch.chunk_tokens, kChunk);
    ExpectApart({{"logits", scratch.logits, kChunk * kVocabulary * 4},
                 {"normed", scratch.normed, kChunk * kHidden * DTypeBytes(dtype)},
                 {"rstd", scratch.rstd, kChunk * 4}},
                block, HeadScratchBytes(Model(), dtype, kChunk));
  }
}

TEST(CapLogitsTest, TheyAreCappedIfTheModelCapsThem) {
  ModelDescription model = Model();
  std::vector<float> logits = {-100, 0, 1};
  CapLogits(model, absl::MakeSpan(logits));
  EXPECT_EQ(logits, (std::vector<float>{-100, 0, 1}));
  model.logit_softcap = 2;
  CapLogits(model, absl::MakeSpan(logits));
  EXPECT_FLOAT_EQ(logits[0], -2);
  EXPECT_EQ(logits[1], 0);
  EXPECT_FLOAT_EQ(logits[2], 2 * std::tanh(0.5f));
}

}  // namespace
}  // namespace megatrain
