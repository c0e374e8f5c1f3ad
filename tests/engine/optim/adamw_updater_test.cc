#include "engine/optim/adamw_updater.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/model/tile.h"
#include "engine/optim/adamw_tuner.h"

namespace megatrain {
namespace {

// Tunes on a machine on which an update with `tuning` takes cost(tuning).
AdamWTuning Tuned(int threads, const std::function<double(const AdamWTuning&)>& cost) {
  AdamWTuner tuner(threads);
  for (int i = 0; i < 1000 && !tuner.done(); ++i) tuner.Report(cost(tuner.Next()));
  EXPECT_TRUE(tuner.done());
  return tuner.Next();
}

TEST(AdamWTunerTest, FindsTheFastestOfEach) {
  const AdamWTuning plain = Tuned(8, [](const AdamWTuning& t) {
    return 1.0 + (t.prefetch_elements > 0) + (t.block_elements < (1 << 19)) + (t.threads == 0);
  });
  EXPECT_EQ(plain.prefetch_elements, 0);
  EXPECT_EQ(plain.block_elements, 1 << 19);
  EXPECT_EQ(plain.threads, 4);
  const AdamWTuning far = Tuned(8, [](const AdamWTuning& t) {
    return 3000.0 - t.prefetch_elements + static_cast<double>(t.block_elements) / 1e3 + t.threads;
  });
  EXPECT_EQ(far.prefetch_elements, 1024);
  EXPECT_EQ(far.block_elements, 1 << 16);
  EXPECT_EQ(far.threads, 0);
}

TEST(AdamWTunerTest, KeepsTheDefaultWhereNothingIsClearlyFaster) {
  const AdamWTuning defaults;
  const AdamWTuning same =
      Tuned(2, [&](const AdamWTuning& t) { return t.prefetch_elements == 512 ? 1.0 : 0.997; });
  EXPECT_EQ(same.prefetch_elements, defaults.prefetch_elements);
  EXPECT_EQ(same.block_elements, defaults.block_elements);
  EXPECT_EQ(same.threads, 0) << "two threads are not halved";
}

TEST(AdamWTunerTest, HalfOfTheThreadsAreTriedFromFourOn) {
  const std::vector<std::pair<int, int>> halves = {{3, 0}, {4, 2}, {5, 3}, {6, 3}};
  for (const auto& [threads, half] : halves) {
    const AdamWTuning tuning =
        Tuned(threads, [](const AdamWTuning& t) { return t.threads == 0 ? 2.0 : 1.0; });
    EXPECT_EQ(tuning.threads, half) << threads;
  }
}

// The memory rate falls to two thirds and comes back every few tries, whatever is tried.
TEST(AdamWTunerTest, ARateThatChangesDoesNotDecide) {
  for (const int period : {3, 5, 7, 16, 23}) {
    int tries = 0;
    const AdamWTuning tuning = Tuned(2, [&](const AdamWTuning& t) {
      const bool slow = tries++ / period % 2 == 1;
      return (t.prefetch_elements == 256 ? 0.97 : 1.0) * (slow ? 1.5 : 1);
    });
    EXPECT_EQ(tuning.prefetch_elements, 256) << period;
    EXPECT_EQ(tuning.block_elements, AdamWTuning().block_elements) << period;
  }
}

// A tile beyond two tries' size, its last tensor without decay, in a state that depends on the
// element.
struct State {
  State() : layout(MakeLayout()), block(TileBytes(layout.elements, DType::kBF16)) {
    tile = MakeTile(&layout, DType::kBF16, block.data());
    gradient.resize(static_cast<size_t>(layout.elements));
    for (int64_t i = 0; i < layout.elements; ++i) {
      static_cast<bf16_t*>(tile.weights)[i] = static_cast<bf16_t>(0x3c00 + i % 499);
      tile.remainder[i] = static_cast<int16_t>(i % 1009);
      tile.exp_avg[i] = 1e-3f * static_cast<float>(i % 13);
      tile.exp_avg_sq[i] = 1e-4f * static_cast<float>(i % 17);
      gradient[static_cast<size_t>(i)] = 1e-2f * static_cast<float>(i % 23 - 11);
    }
  }
  static TileLayout MakeLayout() {
    TileLayout tile;
    TensorSpec matrix, norm;
    matrix.elements = (int64_t{9} << 20) + 77;
    matrix.decays = true;
    norm.offset = matrix.elements;
    norm.elements = 1001;
    tile.tensors = {matrix, norm};
    tile.elements = tile.parameters = matrix.elements + norm.elements;
    return tile;
  }
  State(const State&) = delete;

  TileLayout layout;
  std::vector<char> block;
  Tile tile;
  std::vector<float> gradient;
};

AdamWStep Step(int64_t number) {
  AdamWStep step;
  step.step = number;
  step.learning_rate = 1e-2;
  step.weight_decay = 0.1;
  return step;
}

TEST(AdamWUpdaterTest, TheBitsOfUpdatesThatAreTunedOn) {
  ThreadPool pool(2);
  AdamWUpdater updater(&pool);
  State tuned, plain;
  for (int64_t step = 1; step <= 60; ++step) {
    ASSERT_TRUE(updater.Update(Step(step), tuned.gradient.data(), DType::kF32, tuned.tile,
                               {ElementRange{0, tuned.layout.elements}}));
    ASSERT_TRUE(AdamWUpdate(pool, Step(step), plain.gradient.data(), DType::kF32, plain.tile));
    ASSERT_EQ(std::memcmp(tuned.block.data(), plain.block.data(), plain.block.size()), 0) << step;
  }
  EXPECT_TRUE(updater.tuned(DType::kBF16));
  EXPECT_FALSE(updater.tuned(DType::kF32)) << "its streams are others";
}

// Ranges of which one is large enough to be tuned on, and what lies between them.
TEST(AdamWUpdaterTest, OfSeveralRangesEachIsUpdatedAndNothingElse) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  ThreadPool pool(2);
  AdamWUpdater updater(&pool);
  State tuned, plain;
  const auto before = [](int64_t at) { return 1e-4f * static_cast<float>(at % 17); };
  const std::vector<ElementRange> ranges = {
      {0, 100}, {kMiB, 6 * kMiB}, {7 * kMiB, 7 * kMiB + 5}, {8 * kMiB, tuned.layout.elements}};
  ASSERT_TRUE(updater.Update(Step(1), tuned.gradient.data(), DType::kF32, tuned.tile, ranges));
  ASSERT_TRUE(AdamWUpdate(pool, Step(1), plain.gradient.data(), DType::kF32, plain.tile, ranges));
  EXPECT_EQ(std::memcmp(tuned.block.data(), plain.block.data(), plain.block.size()), 0);
  // The moments of an element whose gradient is not zero change.
  for (size_t i = 0; i <= ranges.size(); ++i) {
    const int64_t begin = i == 0 ? 0 : ranges[i - 1].end;
    const int64_t end = i == ranges.size() ? tuned.layout.elements : ranges[i].begin;
    for (int64_t at = begin; at < end; ++at) {
      ASSERT_EQ(tuned.tile.exp_avg_sq[at], before(at)) << at;
    }
    if (i == ranges.size()) break;
    for (const int64_t at : {ranges[i].begin, ranges[i].end - 1}) {
      ASSERT_NE(tuned.gradient[static_cast<size_t>(at)], 0) << "choose another range";
      EXPECT_NE(tuned.tile.exp_avg_sq[at], before(at)) << at;
    }
  }
}

TEST(AdamWUpdaterTest, ABadValueIsToldFromEveryPart) {
  ThreadPool pool(2);
  for (const int64_t where : {int64_t{5}, int64_t{5} << 20, (int64_t{9} << 20) + 1000}) {
    AdamWUpdater updater(&pool);
    State state;
    state.gradient[static_cast<size_t>(where)] = HUGE_VALF;
    EXPECT_FALSE(updater.Update(Step(1), state.gradient.data(), DType::kF32, state.tile,
                                {ElementRange{0, state.layout.elements}}))
        << where;
  }
}

TEST(AdamWUpdaterTest, EveryTuningGivesTheSameBits) {
  ThreadPool pool(3);
  State first;
  ASSERT_TRUE(AdamWUpdate(pool, Step(1), first.gradient.data(), DType::kF32, first.tile));
  for (const int prefetch : {0, 256, 1024}) {
    for (const int64_t block : {int64_t{1} << 16, int64_t{1} << 19}) {
      for (const int threads : {0, 1, 2}) {
        State state;
        ASSERT_TRUE(AdamWUpdate(
            pool, Step(1), state.gradient.data(), DType::kF32, state.tile, {},
            {.block_elements = block, .prefetch_elements = prefetch, .threads = threads}));
        ASSERT_EQ(std::memcmp(state.block.data(), first.block.data(), first.block.size()), 0)
            << prefetch << " " << block << " " << threads;
      }
    }
  }
}

}  // namespace
}  // namespace megatrain
