#include "engine/optim/adamw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine/memory/split_master.h"
#include "engine/optim/clip_coefficient.h"
#include "hwy/targets.h"
#include "tests/engine/model/tile_parts.h"
#include "tests/golden/adamw/adamw_reference.h"

namespace megatrain {
namespace {

TensorSpec Tensor(int64_t offset, int64_t elements, bool decays) {
  TensorSpec tensor;
  tensor.name = "tensor at " + std::to_string(offset);
  tensor.offset = offset;
  tensor.elements = elements;
  tensor.decays = decays;
  return tensor;
}

// A norm, a group of three matrices side by side, a bias of odd length, a matrix over several
// blocks with an odd end; padding between the groups.
TileLayout MixedLayout() {
  TileLayout layout;
  layout.tensors = {Tensor(0, 100, false),     Tensor(128, 1000, true), Tensor(1128, 333, true),
                    Tensor(1461, 331, true),   Tensor(1792, 7, false),  Tensor(1920, 1, true),
                    Tensor(2048, 150001, true)};
  layout.elements = 152064;
  for (const TensorSpec& tensor : layout.tensors) layout.parameters += tensor.elements;
  return layout;
}

// A tile with random state and its gradient. The layout outlives it.
struct State {
  State(const TileLayout* layout, DType weight_dtype, DType gradient_dtype, uint64_t seed)
      : layout(layout), gradient_dtype(gradient_dtype) {
    block.resize(TileBytes(layout->elements, weight_dtype));
    tile = MakeTile(layout, weight_dtype, block.data());
    gradient.resize(layout->elements * DTypeBytes(gradient_dtype));
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (const TensorSpec& tensor : layout->tensors) {
      for (int64_t i = tensor.offset; i < tensor.offset + tensor.elements; ++i) {
        SetMaster(i, 0.02f * normal(random));
        tile.exp_avg[i] = 0.01f * normal(random);
        tile.exp_avg_sq[i] = std::exp(6.0f * normal(random)) * 1e-6f;
        SetGradient(i, std::exp(4.0f * normal(random)) * normal(random) * 1e-3f);
      }
    }
  }
  State(const State&) = delete;

  float Master(int64_t i) const {
    return tile.weight_dtype == DType::kBF16
               ? DecodeMaster(static_cast<const bf16_t*>(tile.weights)[i], tile.remainder[i])
               : static_cast<const float*>(tile.weights)[i];
  }
  void SetMaster(int64_t i, float value) {
    if (tile.weight_dtype == DType::kBF16) {
      const SplitMaster split = EncodeMaster(value);
      static_cast<bf16_t*>(tile.weights)[i] = split.weight;
      tile.remainder[i] = split.remainder;
    } else {
      static_cast<float*>(tile.weights)[i] = value;
    }
  }
  void SetGradient(int64_t i, float value) {
    if (gradient_dtype == DType::kF32) {
      std::memcpy(&gradient[i * 4], &value, 4);
    } else {
      const bf16_t half = FloatToBf16(value);
      std::memcpy(&gradient[i * 2], &half, 2);
    }
  }
  bool Update(ThreadPool& pool, const AdamWStep& step) {
    return AdamWUpdate(pool, step, gradient.data(), gradient_dtype, tile);
  }

  const TileLayout* layout;
  DType gradient_dtype;
  std::vector<char> block;
  std::vector<char> gradient;
  Tile tile;
};

AdamWStep MakeStep(int64_t number) {
  AdamWStep step;
  step.step = number;
  step.learning_rate = 3e-3;
  step.weight_decay = 0.1;
  step.gradient_scale = 0.7f;
  return step;
}

class AdamWTest : public testing::TestWithParam<std::tuple<DType, DType>> {
 protected:
  DType weight_dtype() const { return std::get<0>(GetParam()); }
  DType gradient_dtype() const { return std::get<1>(GetParam()); }
  const TileLayout layout_ = MixedLayout();
};

// On every instruction set that the processor has.
TEST_P(AdamWTest, HasTheReferencesBits) {
  ThreadPool pool(2);
  for (int64_t targets = hwy::SupportedTargets() & HWY_TARGETS; targets != 0;
       targets &= targets - 1) {
    const int64_t target = targets & -targets;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    State state(&layout_, weight_dtype(), gradient_dtype(), 3);
    State reference(&layout_, weight_dtype(), gradient_dtype(), 3);
    for (int64_t step = 1; step <= 3; ++step) {
      EXPECT_TRUE(state.Update(pool, MakeStep(step)));
      bool trusted = false;
      // In a pool's thread denormals are flushed, as they are for the kernel.
      pool.ParallelFor(1, [&](int64_t) {
        trusted = AdamWUpdateReference(MakeStep(step), reference.gradient.data(), gradient_dtype(),
                                       reference.tile);
      });
      EXPECT_TRUE(trusted);
    }
    const bool fused = target <= HWY_AVX2;  // lower bits are newer instruction sets
    if (fused) {
      EXPECT_TRUE(state.block == reference.block);
    } else {  // no fused multiply-add: another rounding
      for (int64_t i = 0; i < layout_.elements; ++i) {
        EXPECT_NEAR(state.Master(i), reference.Master(i),
                    1e-6 * std::abs(reference.Master(i)) + 1e-8);
        EXPECT_NEAR(state.tile.exp_avg[i], reference.tile.exp_avg[i],
                    1e-5 * std::abs(reference.tile.exp_avg[i]) + 1e-7);
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST_P(AdamWTest, BitsDoNotDependOnThreads) {
  std::vector<char> blocks[3];
  const int threads[3] = {1, 2, 5};
  for (int run = 0; run < 3; ++run) {
    ThreadPool pool(threads[run]);
    State state(&layout_, weight_dtype(), gradient_dtype(), 5);
    for (int64_t step = 1; step <= 4; ++step) EXPECT_TRUE(state.Update(pool, MakeStep(step)));
    blocks[run] = state.block;
  }
  EXPECT_TRUE(blocks[0] == blocks[1]);
  EXPECT_TRUE(blocks[0] == blocks[2]);
}

TEST_P(AdamWTest, APartHasTheBitsOfTheWhole) {
  ThreadPool pool(2);
  State state(&layout_, weight_dtype(), gradient_dtype(), 5);
  State reference(&layout_, weight_dtype(), gradient_dtype(), 5);
  std::mt19937_64 random(1);
  TileParts parts(layout_, weight_dtype(), RandomCuts(layout_.elements, 4, random));
  parts.Split(state.block.data());
  TileParts reference_parts(layout_, weight_dtype(), RandomCuts(layout_.elements, 3, random));
  reference_parts.Split(state.block.data());
  EXPECT_TRUE(state.Update(pool, MakeStep(1)));
  for (int i = 0; i < parts.size(); ++i) {
    EXPECT_TRUE(
        AdamWUpdate(pool, MakeStep(1), state.gradient.data(), gradient_dtype(), parts.part(i)));
  }
  EXPECT_TRUE(parts.Join() == state.block);
  EXPECT_TRUE(AdamWUpdateReference(MakeStep(1), reference.gradient.data(), gradient_dtype(),
                                   reference.tile));
  for (int i = 0; i < reference_parts.size(); ++i) {
    EXPECT_TRUE(AdamWUpdateReference(MakeStep(1), reference.gradient.data(), gradient_dtype(),
                                     reference_parts.part(i)));
  }
  EXPECT_TRUE(reference_parts.Join() == reference.block);
}

TEST_P(AdamWTest, PaddingIsNotTouched) {
  ThreadPool pool(2);
  State state(&layout_, weight_dtype(), gradient_dtype(), 7);
  std::vector<bool> padding(layout_.elements, true);
  for (const TensorSpec& tensor : layout_.tensors) {
    std::fill_n(padding.begin() + tensor.offset, tensor.elements, false);
  }
  for (int64_t i = 0; i < layout_.elements; ++i) {
    if (padding[i]) state.SetGradient(i, std::numeric_limits<float>::quiet_NaN());
  }
  AdamWStep step = MakeStep(1);
  step.epsilon = 0;
  EXPECT_TRUE(state.Update(pool, step));
  for (int64_t i = 0; i < layout_.elements; ++i) {
    if (!padding[i]) continue;
    ASSERT_EQ(state.Master(i), 0.0f);
    ASSERT_EQ(state.tile.exp_avg[i], 0.0f);
    ASSERT_EQ(state.tile.exp_avg_sq[i], 0.0f);
  }
}

// A tile over two nodes, and threads on both.
TEST_P(AdamWTest, BitsDoNotDependOnNodes) {
  ThreadPool plain(2);
  State expected(&layout_, weight_dtype(), gradient_dtype(), 5);
  EXPECT_TRUE(expected.Update(plain, MakeStep(1)));

  ThreadPool pool(3, {{0, 0}, {0, 1}, {0, 0}});
  ASSERT_TRUE(pool.on_several_nodes());
  State state(&layout_, weight_dtype(), gradient_dtype(), 5);
  // The first half of the second block on, of the moments.
  const char* const middle = reinterpret_cast<char*>(state.tile.exp_avg + 2048 + (1 << 17));
  const MemoryNodes nodes(middle - MemoryNodes::kPieceBytes, 2 * MemoryNodes::kPieceBytes,
                          [](absl::Span<void* const>, absl::Span<int> out) {
                            out[0] = 0;
                            out[1] = 1;
                            return true;
                          });
  ASSERT_EQ(nodes.NodeOf(middle - 1), 0);
  ASSERT_EQ(nodes.NodeOf(middle), 1);
  EXPECT_TRUE(
      AdamWUpdate(pool, MakeStep(1), state.gradient.data(), gradient_dtype(), state.tile, nodes));
  EXPECT_TRUE(state.block == expected.block);
}

TEST_P(AdamWTest, OnlyTensorsThatDecayDecay) {
  ThreadPool pool(1);
  State state(&layout_, weight_dtype(), gradient_dtype(), 9);
  State before(&layout_, weight_dtype(), gradient_dtype(), 9);
  for (int64_t i = 0; i < layout_.elements; ++i) {
    state.SetGradient(i, 0);
    state.tile.exp_avg[i] = 0;
  }
  AdamWStep step = MakeStep(1);
  EXPECT_TRUE(state.Update(pool, step));
  const float decay = static_cast<float>(1 - step.learning_rate * step.weight_decay);
  for (const TensorSpec& tensor : layout_.tensors) {
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.elements; ++i) {
      ASSERT_EQ(state.Master(i), (tensor.decays ? decay : 1.0f) * before.Master(i)) << tensor.name;
    }
  }
}

// One bad gradient anywhere is seen: in a vector, in a tail, in the last element.
TEST_P(AdamWTest, ANonFiniteGradientIsSeen) {
  ThreadPool pool(2);
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN(), 1e30f}) {
    for (const int64_t at :
         {int64_t{0}, int64_t{99}, int64_t{1798}, int64_t{70000}, int64_t{2048 + 150000}}) {
      State state(&layout_, weight_dtype(), gradient_dtype(), 1);
      state.SetGradient(at, bad);
      EXPECT_FALSE(state.Update(pool, MakeStep(1))) << bad << " at " << at;
      State reference(&layout_, weight_dtype(), gradient_dtype(), 1);
      reference.SetGradient(at, bad);
      EXPECT_FALSE(AdamWUpdateReference(MakeStep(1), reference.gradient.data(), gradient_dtype(),
                                        reference.tile));
    }
  }
}

TEST_P(AdamWTest, AMasterWithoutAFiniteBf16HalfIsSeen) {
  ThreadPool pool(1);
  State state(&layout_, weight_dtype(), gradient_dtype(), 1);
  // Finite, and away from zero by an update of learning_rate at most.
  state.SetMaster(50, weight_dtype() == DType::kBF16 ? 3.389e38f : 3.4e38f);
  AdamWStep step = MakeStep(1);
  step.weight_decay = 0;
  EXPECT_TRUE(state.Update(pool, step));
  step.learning_rate = 1e36;
  state.tile.exp_avg[50] = -1e15f;
  EXPECT_FALSE(state.Update(pool, step));
}

INSTANTIATE_TEST_SUITE_P(Types, AdamWTest,
                         testing::Combine(testing::Values(DType::kF32, DType::kBF16),
                                          testing::Values(DType::kF32, DType::kBF16)),
                         [](const testing::TestParamInfo<AdamWTest::ParamType>& info) {
                           return std::string("weights") + DTypeName(std::get<0>(info.param)) +
                                  "gradients" + DTypeName(std::get<1>(info.param));
                         });

// Five steps with clipping against what torch.optim.AdamW made of them.
class AdamWTorchTest : public testing::TestWithParam<DType> {};

TEST_P(AdamWTorchTest, FollowsTorch) {
  namespace ref = adamw_reference;
  constexpr int kElements = ref::kDecaying + ref::kPlain;
  TileLayout layout;
  layout.tensors = {Tensor(0, ref::kDecaying, true), Tensor(128, ref::kPlain, false)};
  layout.elements = 256;
  const auto at = [](int i) { return i < ref::kDecaying ? i : 128 + i - ref::kDecaying; };
  const auto value = [](uint32_t bits) { return std::bit_cast<float>(bits); };

  State state(&layout, GetParam(), DType::kF32, 0);
  std::fill(state.block.begin(), state.block.end(), 0);
  for (int i = 0; i < kElements; ++i) state.SetMaster(at(i), value(ref::kInitial[i]));
  ThreadPool pool(1);
  for (int s = 0; s < ref::kSteps; ++s) {
    double sum = 0;
    for (int i = 0; i < kElements; ++i) {
      const float g = value(ref::kGradients[s * kElements + i]);
      state.SetGradient(at(i), g);
      sum += static_cast<double>(g) * g;
    }
    EXPECT_NEAR(std::sqrt(sum), value(ref::kNorms[s]), 1e-6 * std::sqrt(sum));
    AdamWStep step;
    step.step = s + 1;
    step.learning_rate = ref::kLearningRates[s];
    step.beta1 = ref::kBeta1;
    step.beta2 = ref::kBeta2;
    step.epsilon = ref::kEpsilon;
    step.weight_decay = ref::kWeightDecay;
    step.gradient_scale = ClipCoefficient(std::sqrt(sum), ref::kMaxNorm);
    EXPECT_TRUE(state.Update(pool, step));
    for (int i = 0; i < kElements; ++i) {
      // The update is up to 5e-3 and right to a few units in its last place.
      const float expected = value(ref::kWeights[s * kElements + i]);
      EXPECT_NEAR(state.Master(at(i)), expected, 2e-7 * std::abs(expected) + 1e-8) << s << " " << i;
    }
  }
  for (int i = 0; i < kElements; ++i) {
    const float m = value(ref::kExpAvg[i]), v = value(ref::kExpAvgSq[i]);
    EXPECT_NEAR(state.tile.exp_avg[at(i)], m, 2e-6 * std::abs(m) + 1e-12);
    EXPECT_NEAR(state.tile.exp_avg_sq[at(i)], v, 2e-6 * v);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, AdamWTorchTest, testing::Values(DType::kF32, DType::kBF16));

TEST(AdamWRangesTest, NeighboursOfTheSameTraitsAreOne) {
  TileLayout layout;
  layout.tensors = {Tensor(0, 100, true),   Tensor(100, 28, true),  Tensor(128, 50, false),
                    Tensor(178, 10, false), Tensor(188, 12, false), Tensor(200, 8, false),
                    Tensor(256, 20, false)};
  for (const size_t i : {3, 4, 5, 6}) layout.tensors[i].rate_group = 1;
  layout.tensors[4].frozen = true;
  layout.elements = 276;
  const std::vector<AdamWRange> expected = {{{10, 128}, true, 0},
                                            {{128, 178}, false, 0},
                                            {{178, 188}, false, 1},
                                            {{200, 208}, false, 1},
                                            {{256, 261}, false, 1}};
  const std::vector<AdamWRange> runs = AdamWRanges(layout, {10, 261});
  ASSERT_EQ(runs.size(), expected.size());
  for (size_t i = 0; i < runs.size(); ++i) {
    EXPECT_EQ(runs[i].elements, expected[i].elements) << i;
    EXPECT_EQ(runs[i].decays, expected[i].decays) << i;
    EXPECT_EQ(runs[i].rate_group, expected[i].rate_group) << i;
  }
  EXPECT_TRUE(AdamWRanges(layout, {190, 200}).empty()) << "frozen";
  EXPECT_TRUE(AdamWRanges(layout, {208, 256}).empty()) << "padding";
}

// The bits of each group are those of a step whose rates are the group's.
TEST(AdamWGroupsTest, ElementsHaveTheRatesOfTheirGroup) {
  TileLayout plain;
  plain.tensors = {Tensor(0, 40, true), Tensor(64, 40, true), Tensor(128, 40, true)};
  plain.elements = 192;
  TileLayout grouped = plain;
  grouped.tensors[0].rate_group = 2;
  grouped.tensors[2].rate_group = 1;
  AdamWStep step = MakeStep(2);
  step.groups = {{1e-2, 0.5}, {2e-4, 0}};
  ThreadPool pool(2);
  State state(&grouped, DType::kBF16, DType::kF32, 3);
  EXPECT_TRUE(state.Update(pool, step));
  State reference(&grouped, DType::kBF16, DType::kF32, 3);
  EXPECT_TRUE(AdamWUpdateReference(step, reference.gradient.data(), DType::kF32, reference.tile));
  const AdamWRates rates[] = {
      step.groups[1], {step.learning_rate, step.weight_decay}, step.groups[0]};
  for (int64_t tensor = 0; tensor < 3; ++tensor) {
    AdamWStep own = MakeStep(2);
    own.learning_rate = rates[tensor].learning_rate;
    own.weight_decay = rates[tensor].weight_decay;
    State expected(&plain, DType::kBF16, DType::kF32, 3);
    EXPECT_TRUE(expected.Update(pool, own));
    for (int64_t i = 64 * tensor; i < 64 * tensor + 40; ++i) {
      EXPECT_EQ(state.Master(i), expected.Master(i)) << i;
      EXPECT_NEAR(reference.Master(i), expected.Master(i),
                  1e-5 * std::abs(expected.Master(i)) + 1e-6)
          << i;
    }
  }
}

// In order, whole, never beyond the most that was asked for, and small where threads must end
// together.
TEST(AdamWBlocksTest, CoverTheRunsAndGrowSmaller) {
  const std::vector<AdamWRange> runs = {
      {{100, 5'000'003}, true}, {{5'000'064, 5'000'100}, false}, {{6'000'000, 9'000'000}, true}};
  constexpr int64_t kElements = 4'999'903 + 36 + 3'000'000;
  for (const int64_t block : {int64_t{1} << 16, int64_t{1} << 19}) {
    for (const int threads : {1, 2, 16}) {
      const std::vector<AdamWRange> blocks = AdamWBlocks(runs, block, threads);
      size_t run = 0;
      int64_t next = runs[0].elements.begin;
      for (const AdamWRange& each : blocks) {
        if (next == runs[run].elements.end) next = runs[++run].elements.begin;
        ASSERT_EQ(each.elements.begin, next);
        ASSERT_GT(each.elements.end, next);
        ASSERT_LE(each.elements.end - next, block);
        ASSERT_EQ(each.decays, runs[run].decays);
        next = each.elements.end;
      }
      EXPECT_EQ(run, runs.size() - 1);
      EXPECT_EQ(next, runs.back().elements.end);
      EXPECT_EQ(blocks[0].elements.end - blocks[0].elements.begin,
                std::min(block, kElements / (4 * threads) / (1 << 14) * (1 << 14)));
      EXPECT_LE(blocks.back().elements.end - blocks.back().elements.begin, 1 << 14);
    }
  }
}

}  // namespace
}  // namespace megatrain
