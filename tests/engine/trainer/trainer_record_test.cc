// What a trainer tells of a step: its record, by one rank or several, in one process or several,
// and the rewards of pairs of answers.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "engine/model/parameter_count.h"
#include "tests/engine/trainer/small_trainer.h"

namespace megatrain {
namespace {

TEST(TrainerRecordTest, TellsWhatTheStepTookAndMoved) {
  const auto small = StartSmall(SmallJob());
  small->Step(1);
  const Batch batch = SmallStep(2);
  ASSERT_TRUE(small->trainer->Submit(batch, 0.125).ok());
  const StepRecord record = small->Collect();
  EXPECT_EQ(record.step, 2);
  EXPECT_EQ(record.learning_rate, 0.125);
  EXPECT_EQ(record.tokens, kSmallBatch * (kSmallSequence - 1)) << "the last has no next one";
  EXPECT_EQ(record.input_tokens, kSmallBatch * kSmallSequence);
  EXPECT_EQ(record.host_bytes, small->plan.pool_bytes);
  EXPECT_EQ(record.device_bytes, small->plan.device_bytes);
  EXPECT_GT(record.step_seconds, 0);
  EXPECT_DOUBLE_EQ(record.tokens_per_second,
                   static_cast<double>(record.input_tokens) / record.step_seconds);
  EXPECT_DOUBLE_EQ(
      record.model_flops_per_second,
      6.0 * static_cast<double>(ActiveParameterCount(SmallModel())) * record.tokens_per_second);
  EXPECT_GT(record.forward_seconds, 0);
  EXPECT_LE(record.forward_seconds, record.lane_busy_seconds.compute);
  EXPECT_FALSE(record.spread.has_value()) << "there is one rank";
  EXPECT_FALSE(record.router.has_value());
  EXPECT_FALSE(record.rewards.has_value());

  // Each gradient, norm and loss goes to the host once.
  const PipelineShape& shape = small->trainer->dimensions().shape;
  ASSERT_FALSE(shape.stash_on_host);
  ASSERT_EQ(shape.sweep_micro_batches, kSmallBatch);
  ASSERT_TRUE(shape.embedding_from_host);
  int64_t gradients = 0;
  for (const TileLayout& tile : small->layout.tiles) gradients += 4 * tile.elements;
  const int64_t norms = 8 * shape.tiles(), losses = 8 * kSmallBatch;
  EXPECT_EQ(record.d2h_bytes, gradients + norms + losses);
}

// There is a buffer for every tile, so that its weights are loaded once a step.
TEST(TrainerRecordTest, CountsTheBytesThatAreLoaded) {
  JobSpec spec = SmallJob();
  spec.engine.weight_buffers = kSmallLayers + 2;
  const auto small = StartSmall(spec);
  const StepRecord first = small->Step(1), second = small->Step(2);
  int64_t weights = 0;
  for (int tile = 1; tile < small->layout.tile_count(); ++tile) {
    weights += 4 * small->layout.tiles[static_cast<size_t>(tile)].elements;
  }
  constexpr int64_t kTokens = kSmallBatch * kSmallSequence;
  const int64_t rows = 4 * kSmallHidden * kTokens;  // of the embedding, from the host's memory
  const int64_t batch = 6 * 4 * kTokens;
  EXPECT_EQ(first.h2d_bytes, weights + rows + batch);
  EXPECT_EQ(second.h2d_bytes, first.h2d_bytes) << "every weight has changed";
}

// Both are submitted before the first one runs, so that the second begins amid the first.
TEST(TrainerRecordTest, TimeThatTwoStepsShareCountsOnce) {
  using Clock = std::chrono::steady_clock;
  const auto small = StartSmall(SmallJob());
  Hold hold(small->device, "upload batch");
  const Clock::time_point begin = Clock::now();
  EXPECT_TRUE(small->trainer->Submit(SmallStep(1), 1e-2).ok());
  EXPECT_TRUE(small->trainer->Submit(SmallStep(2), 1e-2).ok());
  hold.LetGo();
  const double first = small->Collect().step_seconds, second = small->Collect().step_seconds;
  const double all = std::chrono::duration<double>(Clock::now() - begin).count();
  EXPECT_GT(first, 0);
  EXPECT_GT(second, 0);
  EXPECT_LE(first + second, all + 1e-6);
}

TEST(TrainerRecordTest, TheRewardsOfPairsAreTheirMeans) {
  const Rewards rewards = RewardsOf({.pairs = 8, .chosen = 4, .rejected = -2, .preferred = 6});
  EXPECT_EQ(rewards.chosen, 0.5);
  EXPECT_EQ(rewards.rejected, -0.25);
  EXPECT_EQ(rewards.margins, 0.75);
  EXPECT_EQ(rewards.accuracies, 0.75);
}

// Pairs of answers of half a sequence each. The reference prefers the rejected answers, of the
// second pair the chosen one, by so much that beside it the model prefers the other.
Batch Pairs() {
  std::mt19937 random(5);
  std::vector<Sequence> sequences;
  for (int64_t i = 0; i < kSmallBatch; ++i) {
    std::vector<int32_t> ids;
    for (int64_t t = 0; t < kSmallSequence; ++t) ids.push_back(static_cast<int32_t>(random() % 64));
    Sequence sequence = WholeSequence(std::move(ids));
    for (int64_t t = kSmallSequence / 2; t < kSmallSequence; ++t) {
      sequence.document_ids[static_cast<size_t>(t)] = 1;
      sequence.position_ids[static_cast<size_t>(t)] -= kSmallSequence / 2;
    }
    sequence.pairs = true;
    const auto number = static_cast<double>(i);
    sequence.reference_logps = {-500 - number, -100};
    if (i == 1) std::swap(sequence.reference_logps[0], sequence.reference_logps[1]);
    sequences.push_back(std::move(sequence));
  }
  return MakeBatch(1, sequences, 1);
}

struct Preferences {
  double loss_sum = 0;
  RewardSums sums;
  std::vector<double> logps;
  StepRecord record;
};

Preferences Compare(SmallTrainer& small) {
  Preferences preferences;
  preferences.loss_sum = small.trainer->EvaluateLossSum(Pairs(), &preferences.sums).value();
  preferences.logps = small.trainer->AnswerLogps(Pairs()).value();
  EXPECT_TRUE(small.trainer->Submit(Pairs(), 1e-2).ok());
  preferences.record = small.Collect();
  return preferences;
}

void ExpectPreferences(const Preferences& told, double beta) {
  ASSERT_EQ(told.logps.size(), static_cast<size_t>(2 * kSmallBatch));
  double chosen = 0, rejected = 0;
  const Batch batch = Pairs();
  for (size_t i = 0; i < static_cast<size_t>(kSmallBatch); ++i) {
    chosen += beta * (told.logps[2 * i] - batch.reference_logps[i][0]);
    rejected += beta * (told.logps[2 * i + 1] - batch.reference_logps[i][1]);
  }
  EXPECT_EQ(told.sums.pairs, kSmallBatch);
  EXPECT_NEAR(told.sums.chosen, chosen, 1e-6 * std::abs(chosen));
  EXPECT_NEAR(told.sums.rejected, rejected, 1e-6 * std::abs(rejected));
  EXPECT_EQ(told.sums.preferred, kSmallBatch - 1);
  ASSERT_TRUE(told.record.rewards.has_value());
  EXPECT_NEAR(told.record.rewards->chosen, chosen / kSmallBatch, 1e-6 * std::abs(chosen));
  EXPECT_NEAR(told.record.rewards->rejected, rejected / kSmallBatch, 1e-6 * std::abs(rejected));
  EXPECT_EQ(told.record.rewards->accuracies, 0.75);
  EXPECT_NEAR(told.record.loss, told.loss_sum / kSmallBatch, 1e-6 * told.record.loss);
}

// Calls `train` on the trainer of each of two processes of one job, all at once.
void InTwoProcesses(const JobSpec& spec,
                    const std::function<void(int number, SmallTrainer& small)>& train) {
  std::vector<CommunicatorSet> sets = Communicators(2);
  std::vector<std::thread> processes;
  for (const int number : {0, 1}) {
    processes.emplace_back([&, number] {
      std::vector<CommunicatorSet> own;
      own.push_back(std::move(sets[static_cast<size_t>(number)]));
      const std::unique_ptr<Communicator> control = std::move(own[0].control);
      SmallTrainer small;
      small.Plan(spec, {.count = 2, .number = number});
      const absl::Status created = small.Create(spec, std::move(own), control.get());
      EXPECT_TRUE(created.ok()) << created;
      small.FillTiles(/*seed=*/1);
      train(number, small);
    });
  }
  for (std::thread& process : processes) process.join();
}

TEST(TrainerRecordTest, RanksAndProcessesTellThePreferencesOfOneDevice) {
  JobSpec spec = SmallJob();
  spec.training.objective = Objective::kDpo;
  const auto one = StartSmall(spec);
  const Preferences expected = Compare(*one);
  ExpectPreferences(expected, spec.training.dpo.beta);
  JobSpec two = spec;
  two.engine.devices = 2;
  std::vector<Preferences> told = {Compare(*StartSmall(two)), {}, {}};
  InTwoProcesses(spec, [&](int number, SmallTrainer& small) {
    told[static_cast<size_t>(1 + number)] = Compare(small);
  });
  for (const Preferences& of : told) {
    ExpectPreferences(of, spec.training.dpo.beta);
    ASSERT_EQ(of.logps.size(), expected.logps.size());
    for (size_t i = 0; i < of.logps.size(); ++i) {
      EXPECT_NEAR(of.logps[i], expected.logps[i], 1e-5 * std::abs(expected.logps[i])) << i;
    }
    EXPECT_NEAR(of.record.loss, expected.record.loss, 1e-5 * expected.record.loss);
  }
}

TEST(TrainerRecordTest, ProcessesHaveTheSameRecord) {
  JobSpec spec = SmallJob();
  JobSpec devices = spec;
  devices.engine.devices = 2;
  const auto ranks = StartSmall(devices);
  const StepRecord expected = ranks->Step(1);
  std::vector<StepRecord> records(2);
  InTwoProcesses(spec, [&](int number, SmallTrainer& small) {
    records[static_cast<size_t>(number)] = small.Step(1);
  });
  const StepRecord &a = records[0], &b = records[1];
  for (const StepRecord* const record : {&a, &b}) {
    EXPECT_EQ(record->loss, expected.loss);
    EXPECT_EQ(record->gradient_norm, expected.gradient_norm);
    EXPECT_EQ(record->tokens, expected.tokens);
    EXPECT_EQ(record->h2d_bytes, expected.h2d_bytes);
    EXPECT_EQ(record->d2h_bytes, expected.d2h_bytes);
    ASSERT_TRUE(record->spread.has_value());
    EXPECT_EQ(record->spread->ranks, 2);
    EXPECT_LE(record->forward_seconds, record->lane_busy_seconds.compute);
  }
  // The longest of both.
  EXPECT_EQ(a.step_seconds, b.step_seconds);
  EXPECT_EQ(a.forward_seconds, b.forward_seconds);
  EXPECT_EQ(a.matmul_seconds, b.matmul_seconds);
  EXPECT_EQ(a.tokens_per_second, b.tokens_per_second);
  EXPECT_EQ(a.lane_busy_seconds.compute, b.lane_busy_seconds.compute);
  EXPECT_EQ(a.lane_busy_seconds.h2d, b.lane_busy_seconds.h2d);
  EXPECT_EQ(a.lane_busy_seconds.d2h, b.lane_busy_seconds.d2h);
  EXPECT_EQ(a.lane_busy_seconds.update, b.lane_busy_seconds.update);
  EXPECT_EQ(a.lane_busy_seconds.collective, b.lane_busy_seconds.collective);
}

}  // namespace
}  // namespace megatrain
