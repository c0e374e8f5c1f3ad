#include "engine/device/cuda/libraries/document_runs.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/libraries/cudnn_sizes.h"

namespace megatrain {
namespace {

std::vector<int32_t> StartsOf(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> starts = {0};
  for (const int32_t length : lengths) starts.push_back(starts.back() + length);
  return starts;
}

bool Always(const DocumentRun&) { return true; }
int64_t NoBlocks(int64_t) { return 0; }

// As the gradient of `group` query heads a key and value head has it.
RunFits Within(int64_t bytes, int64_t group, int64_t head_dim) {
  return [=](const DocumentRun& run) {
    return CudnnGradientBytes(run.documents, run.kv_heads * group, run.length, head_dim) <= bytes;
  };
}

TEST(LengthBucketTest, PowersOfTwoAndThenQuarters) {
  EXPECT_EQ(CudnnLengthBucket(1), 512);
  EXPECT_EQ(CudnnLengthBucket(512), 512);
  EXPECT_EQ(CudnnLengthBucket(513), 1024);
  EXPECT_EQ(CudnnLengthBucket(2049), 4096);
  EXPECT_EQ(CudnnLengthBucket(4096), 4096);
  EXPECT_EQ(CudnnLengthBucket(4097), 5120);
  EXPECT_EQ(CudnnLengthBucket(8192), 8192);
  EXPECT_EQ(CudnnLengthBucket(8193), 10240);
  EXPECT_EQ(CudnnLengthBucket(131'072), 131'072);
  for (int64_t length = 1; length < 70'000; length += 7) {
    EXPECT_GE(CudnnLengthBucket(length), length);
    EXPECT_EQ(CudnnLengthBucket(CudnnLengthBucket(length)), CudnnLengthBucket(length));
  }
}

TEST(DocumentRunsTest, OneDocumentIsOneRun) {
  EXPECT_EQ(CutIntoRuns(StartsOf({37}), 2, Always, NoBlocks),
            (std::vector<DocumentRun>{
                {.first = 0, .documents = 1, .tokens = 37, .length = 512, .kv_heads = 2}}));
}

TEST(DocumentRunsTest, NumbersArePowersOfTwo) {
  const auto runs = CutIntoRuns(StartsOf(std::vector<int32_t>(13, 100)), 1, Always, NoBlocks);
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].documents, 8);
  EXPECT_EQ(runs[1].documents, 4);
  EXPECT_EQ(runs[2].documents, 1);
  EXPECT_EQ(runs[2].first, 12);
}

TEST(DocumentRunsTest, ALongDocumentDoesNotTakeManyShortOnesAlong) {
  std::vector<int32_t> lengths(64, 100);
  lengths[0] = 4000;
  const auto runs = CutIntoRuns(StartsOf(lengths), 1, Always, NoBlocks);
  // 4 documents of up to 4096 tokens are less than four times 4000 + 3 * 100.
  EXPECT_EQ(runs[0].documents, 4);
  EXPECT_EQ(runs[0].length, 4096);
  EXPECT_EQ(runs[1].length, 512);
  EXPECT_EQ(runs[1].documents, 32);
}

TEST(DocumentRunsTest, HeadsAreCutWhereOneDocumentDoesNotFitWithAll) {
  // 4 query heads a head of keys and values: one of the latter takes 142 MiB at 4096 tokens.
  const RunFits fits = Within(int64_t{300} << 20, 4, 128);
  const auto runs = CutIntoRuns(StartsOf({4096, 4096}), 6, fits, NoBlocks);
  ASSERT_EQ(runs.size(), 2u) << "documents go one by one where heads are cut";
  EXPECT_EQ(runs[0].kv_heads, 2);
  EXPECT_EQ(runs[1].kv_heads, 2);
}

TEST(DocumentRunsTest, OneTooLongDocumentAndNothingIsTaken) {
  const RunFits fits = Within(kCudnnWorkspaceBytesMax, 8, 128);
  EXPECT_FALSE(CutIntoRuns(StartsOf({100, 7000, 100}), 4, fits, NoBlocks).empty());
  EXPECT_TRUE(CutIntoRuns(StartsOf({100, 10'000, 100}), 4, fits, NoBlocks).empty());
}

TEST(DocumentRunsTest, ALongDocumentIsARunOfItsOwnInBlocks) {
  const RunFits fits = Within(kCudnnWorkspaceBytesMax, 8, 128);
  const auto runs = CutIntoRuns(StartsOf({100, 10'000, 100, 100}), 4, fits, [](int64_t tokens) {
    EXPECT_EQ(tokens, 10'000);
    return 6144;
  });
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(
      runs[1],
      (DocumentRun{.first = 1, .documents = 1, .tokens = 10'000, .length = 6144, .kv_heads = 1}));
  EXPECT_TRUE(runs[1].in_blocks());
  EXPECT_FALSE(runs[0].in_blocks());
  EXPECT_FALSE(runs[2].in_blocks());
  EXPECT_EQ(runs[2].documents, 2);
}

TEST(DocumentRunsTest, RunsCoverAllDocumentsAndFit) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<int32_t> lengths(1 + random() % 150);
    for (int32_t& length : lengths) {
      length = 1 + static_cast<int32_t>(random() % (random() % 10 == 0 ? 6000 : 500));
    }
    const std::vector<int32_t> starts = StartsOf(lengths);
    const RunFits fits = Within(kCudnnWorkspaceBytesMax, 4, 128);
    const auto runs = CutIntoRuns(starts, 8, fits, NoBlocks);
    int64_t next = 0;
    for (const DocumentRun& run : runs) {
      EXPECT_EQ(run.first, next);
      next += run.documents;
      EXPECT_EQ(run.documents & (run.documents - 1), 0);
      EXPECT_LE(run.documents, cuda::kPackedDocumentsMax);
      EXPECT_EQ(run.tokens, starts[next] - starts[run.first]);
      EXPECT_EQ(8 % run.kv_heads, 0);
      EXPECT_TRUE(fits(run));
      for (int64_t d = run.first; d < next; ++d) EXPECT_LE(lengths[d], run.length);
    }
    EXPECT_EQ(next, static_cast<int64_t>(lengths.size()));
  }
}

}  // namespace
}  // namespace megatrain
