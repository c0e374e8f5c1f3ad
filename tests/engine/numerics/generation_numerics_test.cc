// Generation with the key-value cache against the whole forward pass and against transformers'
// generate. Linked with the device to test (device_under_test.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "engine/generation/generation_batch.h"
#include "engine/generation/sampler.h"
#include "engine/hf/config_json.h"
#include "engine/model/model_layout.h"
#include "engine/plan/memory_plan.h"
#include "engine/trainer/trainer.h"
#include "tests/engine/numerics/model_reference.h"
#include "tests/engine/numerics/trainer_fixture.h"

namespace megatrain {
namespace {

using Ids = std::vector<int32_t>;

class GenerationNumericsTest : public TrainerFixture,
                               public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    TrainerFixture::SetUp();
    if (device_ == nullptr) return;
    const absl::StatusOr<ModelDescription> config = ReadModelDescription(directory_);
    ASSERT_TRUE(config.ok()) << config.status();
    layout_ = BuildModelLayout(*config);
    const nlohmann::json golden = nlohmann::json::parse(ReadBytes(directory_ + "/generation.json"));
    prompts_ = golden["prompts"].get<std::vector<Ids>>();
    answers_ = golden["answers"].get<std::vector<Ids>>();
    answer_tokens_ = static_cast<int64_t>(answers_[0].size());
    vocabulary_ = layout_.model.vocabulary;
  }
  // With room for all prompts together. `weight_buffers` above 0 replace the plan's.
  void Start(DType dtype, int weight_buffers = 0) {
    GenerationNeed need;
    for (const Ids& prompt : prompts_) need.prompt_tokens.push_back(std::ssize(prompt));
    need.answer_tokens = answer_tokens_;
    MemoryBudget budget;
    budget.host_bytes = int64_t{1} << 30;
    MemoryPlan plan = PlanGeneration({}, layout_, dtype, need, device_->kernels(), budget);
    ASSERT_TRUE(plan.fits) << plan.Table();
    ASSERT_EQ(plan.dimensions.micro_batches, std::ssize(prompts_));
    if (weight_buffers > 0) {
      plan.dimensions.shape.weight_buffers = weight_buffers;
      plan.arena_bytes += weight_buffers * layout_.tile_elements_max * DTypeBytes(dtype);
    }
    TrainerFixture::Start(JobSpec(), plan, directory_);
  }

  std::vector<float> Logits(const Batch& batch, const std::vector<TokenRange>& tokens) {
    const absl::StatusOr<std::vector<float>> logits = trainer_->Logits(batch, tokens);
    EXPECT_TRUE(logits.ok()) << logits.status();
    return logits.value_or(std::vector<float>());
  }

  // The logits that each token of the answers is chosen from, by prompt: [answer tokens,
  // vocabulary]. `answers` are given, or chosen greedily where they are empty.
  std::vector<std::vector<float>> Cached(const std::vector<Ids>& prompts,
                                         std::vector<Ids>* answers) {
    const int64_t tokens_max = trainer_->dimensions().micro_batch_tokens;
    std::vector<Ids> ids = prompts;
    std::vector<int32_t> first_rows;
    int64_t rows = 0;
    for (const Ids& prompt : prompts) {
      first_rows.push_back(static_cast<int32_t>(rows));
      rows += std::ssize(prompt) + answer_tokens_;
    }
    const auto cached = [&] {
      std::vector<CachedSequence> sequences;
      for (size_t i = 0; i < ids.size(); ++i) {
        sequences.push_back({ids[i], first_rows[i], static_cast<int32_t>(i)});
      }
      return sequences;
    };
    const bool choose = (*answers)[0].empty();
    std::vector<std::vector<float>> logits(prompts.size());
    std::mt19937_64 random;
    for (int64_t step = 0; step < answer_tokens_; ++step) {
      const Batch batch =
          step == 0 ? PromptBatch(cached(), tokens_max) : LastTokensBatch(cached(), tokens_max);
      std::vector<TokenRange> wanted;
      for (size_t m = 0; m < batch.micro_batch_tokens.size(); ++m) {
        const int64_t end = step == 0 ? std::ssize(prompts[m]) : batch.micro_batch_tokens[m];
        wanted.push_back({step == 0 ? end - 1 : 0, end});
      }
      const std::vector<float> all = Logits(batch, wanted);
      for (size_t i = 0; i < prompts.size(); ++i) {
        const auto row = all.begin() + static_cast<int64_t>(i) * vocabulary_;
        logits[i].insert(logits[i].end(), row, row + vocabulary_);
        if (choose) {
          (*answers)[i].push_back(
              SampleToken({&*row, static_cast<size_t>(vocabulary_)}, {.temperature = 0}, random));
        }
        ids[i].push_back((*answers)[i][static_cast<size_t>(step)]);
      }
    }
    return logits;
  }

  // The same of one pass over prompt and answer, without a cache.
  std::vector<float> Whole(const Ids& prompt, const Ids& answer) {
    Ids ids = prompt;
    ids.insert(ids.end(), answer.begin(), answer.end() - 1);
    const int64_t tokens = std::ssize(ids);
    Batch batch = PromptBatch(std::vector<CachedSequence>{{ids, 0}},
                              trainer_->dimensions().micro_batch_tokens);
    batch.first_rows.clear();
    return Logits(batch, {{std::ssize(prompt) - 1, tokens}});
  }

  const std::string directory_ = LoadModelReference(GetParam()).directory;
  std::vector<Ids> prompts_, answers_;
  int64_t answer_tokens_ = 0, vocabulary_ = 0;
};

TEST_P(GenerationNumericsTest, GreedyAnswersAreThoseOfTransformers) {
  ASSERT_NO_FATAL_FAILURE(Start(DType::kF32));
  std::vector<Ids> answers(prompts_.size());
  Cached(prompts_, &answers);
  EXPECT_THAT(answers, ::testing::ElementsAreArray(answers_));
}

// FP32: what rounding gives. BF16: activations are rounded, and the cache's attention keeps its
// probabilities in FP32.
TEST_P(GenerationNumericsTest, CachedLogitsAreThoseOfTheWholePass) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    SCOPED_TRACE(DTypeName(dtype));
    // Room for the longest prompt and its answer in one pass.
    const std::vector<Ids> prompts = prompts_;
    Ids longest = prompts_.back();
    longest.insert(longest.end(), answers_.back().begin(), answers_.back().end());
    prompts_.push_back(longest);
    ASSERT_NO_FATAL_FAILURE(Start(dtype));
    prompts_ = prompts;
    std::vector<Ids> answers = answers_;
    const std::vector<std::vector<float>> cached = Cached(prompts_, &answers);
    for (size_t i = 0; i < prompts_.size(); ++i) {
      EXPECT_LE(RelativeError(cached[i], Whole(prompts_[i], answers_[i])),
                dtype == DType::kF32 ? 2e-6 : 1.5e-2)
          << prompts_[i].size() << " tokens of prompt";
    }
  }
}

// Each prompt alone, and streamed weights against resident ones: the same bits.
TEST_P(GenerationNumericsTest, AnAnswerDependsNeitherOnOthersNorOnWhereWeightsAre) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    SCOPED_TRACE(DTypeName(dtype));
    // More than go in one micro-batch of single tokens.
    std::vector<Ids> prompts, answers;
    while (std::ssize(prompts) <= kGenerationTokens) {
      prompts.insert(prompts.end(), prompts_.begin(), prompts_.end());
      answers.insert(answers.end(), answers_.begin(), answers_.end());
    }
    const std::vector<Ids> few = prompts_;
    prompts_ = prompts;
    answer_tokens_ = 4;
    ASSERT_NO_FATAL_FAILURE(Start(dtype));
    const std::vector<std::vector<float>> together = Cached(prompts, &answers);
    ASSERT_NO_FATAL_FAILURE(Start(dtype, layout_.tile_count()));
    EXPECT_TRUE(Cached(prompts, &answers) == together) << "resident weights";
    prompts_ = few;
    for (size_t i = 0; i < few.size(); ++i) {
      std::vector<Ids> answer = {answers_[i]};
      const std::vector<float> alone = Cached({few[i]}, &answer)[0];
      for (size_t copy = i; copy < prompts.size(); copy += few.size()) {
        EXPECT_TRUE(together[copy] == alone) << "prompt " << i << ", copy " << copy;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GenerationNumericsTest, ::testing::ValuesIn(ReferenceFamilies()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace megatrain
