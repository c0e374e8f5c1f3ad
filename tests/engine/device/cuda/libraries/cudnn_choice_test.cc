// Which graphs a call of attention needs, and that they are built ahead of it.
#include "engine/device/cuda/libraries/cudnn_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/device/cuda/cuda_kernel_sizes.h"
#include "engine/device/cuda/libraries/cudnn_graph_cache.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Eight heads of 64 over two of keys and values, side by side.
AttentionBackwardArgs Call(const std::vector<int32_t>& starts) {
  AttentionBackwardArgs args;
  AttentionArgs& f = args.forward;
  f.dtype = DType::kBF16;
  f.tokens = starts.back();
  f.heads = 8;
  f.kv_heads = 2;
  f.head_dim = f.value_dim = 64;
  f.scale = 0.125f;
  f.document_starts = starts.data();
  f.documents = static_cast<int64_t>(starts.size()) - 1;
  f.q_stride = f.k_stride = f.v_stride = 12 * 64;
  args.dq_stride = args.dk_stride = args.dv_stride = 12 * 64;
  args.workspace_bytes = CudaKernelSizes().AttentionBackwardWorkspaceBytes(
      {DType::kBF16, f.tokens, f.tokens, f.heads, f.kv_heads, f.head_dim, f.value_dim});
  return args;
}

std::vector<CudnnGraphKey> Graphs(const AttentionBackwardArgs& args, bool takes_packed = true) {
  return GraphsOf(args, kProductWorkspaceBytes, takes_packed);
}

TEST(CudnnChoiceTest, UniformDocumentsHaveAGraphForEachDirection) {
  const std::vector<int32_t> starts = {0, 1024, 2048};
  AttentionBackwardArgs args = Call(starts);
  const std::vector<CudnnGraphKey> graphs = Graphs(args, /*takes_packed=*/false);
  EXPECT_THAT(graphs, ElementsAre(UniformKeyOf(args.forward), UniformKeyOf(args).value()));
  EXPECT_EQ(graphs[0].documents, 2);
  EXPECT_EQ(graphs[0].length, 1024);
  EXPECT_EQ(graphs[1].documents, 1);
  EXPECT_TRUE(graphs[1].backward);
  EXPECT_EQ(graphs[0].statistics_stride, 2048) << "between heads of all tokens";
  EXPECT_EQ(graphs[1].statistics_stride, 1024) << "between heads of a document's copy";
  args.workspace_bytes = 0;
  EXPECT_THAT(Graphs(args), ElementsAre(UniformKeyOf(args.forward)));
}

TEST(CudnnChoiceTest, PackedDocumentsHaveOneForEachRunWhereTheyAreTaken) {
  const std::vector<int32_t> starts = {0, 300, 700, 3000};
  const AttentionBackwardArgs args = Call(starts);
  std::vector<CudnnGraphKey> expected;
  for (const DocumentRun& run : RunsOf(args.forward, kProductWorkspaceBytes, true)) {
    expected.push_back(KeysOfRun(args.forward, run).front());
  }
  for (const DocumentRun& run : RunsOf(args, true)) {
    ASSERT_EQ(KeysOfRun(args, run).size(), 1u);
    expected.push_back(KeysOfRun(args, run).front());
  }
  ASSERT_GE(expected.size(), 4u);
  EXPECT_EQ(Graphs(args), expected);
  EXPECT_TRUE(Graphs(args, /*takes_packed=*/false).empty());
}

// cuDNN's arithmetic within a run is of 32 bits.
TEST(CudnnChoiceTest, ElementsOfARunAreCountedInThirtyTwoBits) {
  const std::vector<int32_t> uniform = {0, 1024, 2048};
  AttentionBackwardArgs args = Call(uniform);
  args.forward.k_stride = (1 << 21) - 8;
  EXPECT_TRUE(IsUniform(args.forward));
  args.forward.k_stride = 1 << 21;
  EXPECT_FALSE(IsUniform(args.forward));

  const std::vector<int32_t> packed = {0, 300, 700};
  args = Call(packed);
  const auto runs_of_forward = [&] {
    return RunsOf(args.forward, kProductWorkspaceBytes, /*takes_packed=*/true).size();
  };
  const auto runs_of_gradient = [&] { return RunsOf(args, /*takes_packed=*/true).size(); };
  EXPECT_EQ(runs_of_forward(), 1u);
  EXPECT_EQ(runs_of_gradient(), 1u);
  args.dv_stride = 1 << 22;  // 400 tokens are below the limit, and 700 beyond it
  EXPECT_EQ(runs_of_forward(), 1u);
  EXPECT_EQ(runs_of_gradient(), 2u);
  args.forward.v_stride = 1 << 22;
  EXPECT_EQ(runs_of_forward(), 2u);
}

TEST(CudnnChoiceTest, WhatIsNotTakenHasNoGraphs) {
  const std::vector<int32_t> starts = {0, 1024};
  AttentionBackwardArgs args = Call(starts);
  args.forward.dtype = DType::kF32;
  EXPECT_TRUE(Graphs(args).empty());
  args = Call(starts);
  args.forward.head_dim = 60;
  EXPECT_TRUE(Graphs(args).empty());
  args = Call(starts);
  args.forward.value_dim = 60;
  EXPECT_TRUE(Graphs(args).empty());
  args.forward.value_dim = 72;
  EXPECT_TRUE(Graphs(args).empty()) << "wider than keys";
  args = Call(starts);
  args.dq_stride = 12 * 64 + 1;
  EXPECT_EQ(Graphs(args).size(), 1u) << "of the forward pass";
  args = Call(starts);
  args.forward.shaping.softcap = 50;
  EXPECT_TRUE(Graphs(args).empty());
  args = Call(starts);
  args.forward.shaping.sinks = &args;
  EXPECT_TRUE(Graphs(args).empty());
}

TEST(CudnnChoiceTest, AnEmptyDocumentIsNotTaken) {
  const std::vector<int32_t> starts = {0, 300, 300, 700};
  const AttentionBackwardArgs args = Call(starts);
  EXPECT_TRUE(RunsOf(args.forward, kProductWorkspaceBytes, /*takes_packed=*/true).empty());
  EXPECT_TRUE(RunsOf(args, /*takes_packed=*/true).empty());
  EXPECT_TRUE(Graphs(args).empty());
}

TEST(CudnnChoiceTest, AWindowIsTheGraphsUnlessAllDocumentsAreShorter) {
  for (const std::vector<int32_t>& starts :
       {std::vector<int32_t>{0, 1024, 2048}, std::vector<int32_t>{0, 300, 1324}}) {
    AttentionBackwardArgs args = Call(starts);
    const std::vector<CudnnGraphKey> without = Graphs(args);
    args.forward.shaping.window = 1024;
    EXPECT_EQ(Graphs(args), without);
    args.forward.shaping.window = 1023;
    std::vector<CudnnGraphKey> expected = without;
    for (CudnnGraphKey& key : expected) key.window = 1023;
    EXPECT_EQ(Graphs(args), expected);
  }
}

TEST(CudnnChoiceTest, WhatIsNotAlignedIsNotTaken) {
  alignas(16) static char memory[32];
  const std::vector<int32_t> starts = {0, 1024};
  for (auto operand : {&AttentionArgs::q, &AttentionArgs::k, &AttentionArgs::v}) {
    AttentionBackwardArgs args = Call(starts);
    args.forward.*operand = memory + 16;
    EXPECT_EQ(Graphs(args).size(), 2u);
    args.forward.*operand = memory + 8;
    EXPECT_TRUE(Graphs(args).empty());
  }
  for (auto stride :
       {&AttentionArgs::q_stride, &AttentionArgs::k_stride, &AttentionArgs::v_stride}) {
    AttentionBackwardArgs args = Call(starts);
    args.forward.*stride += 4;
    EXPECT_TRUE(Graphs(args).empty());
  }
  for (auto gradient :
       {&AttentionBackwardArgs::dq, &AttentionBackwardArgs::dk, &AttentionBackwardArgs::dv}) {
    AttentionBackwardArgs args = Call(starts);
    args.*gradient = memory + 8;
    EXPECT_EQ(Graphs(args).size(), 1u) << "of the forward pass";
  }
  for (auto stride : {&AttentionBackwardArgs::dq_stride, &AttentionBackwardArgs::dk_stride,
                      &AttentionBackwardArgs::dv_stride}) {
    AttentionBackwardArgs args = Call(starts);
    args.*stride += 4;
    EXPECT_EQ(Graphs(args).size(), 1u) << "of the forward pass";
  }
}

TEST(CudnnChoiceTest, WhatCudnnNeverTakesHasNoRoomInThePlan) {
  AttentionShape shape{.dtype = DType::kBF16,
                       .tokens = 65'536,
                       .sequence = 65'536,
                       .heads = 32,
                       .kv_heads = 8,
                       .head_dim = 128,
                       .value_dim = 128};
  const auto bytes = [&] { return CudaKernelSizes().AttentionBackwardWorkspaceBytes(shape); };
  const int64_t own = cuda::AttentionBackwardWorkspaceBytes(shape.tokens, shape.heads);
  EXPECT_EQ(bytes(), kCudnnWorkspaceBytesMax);
  // Shorter documents of the same job fit, whatever the window.
  shape.window = 4096;
  EXPECT_EQ(bytes(), kCudnnWorkspaceBytesMax);
  shape.sequence = 8192;
  EXPECT_EQ(bytes(), kCudnnWorkspaceBytesMax);
  shape.softcap = 50;
  EXPECT_EQ(bytes(), own);
  shape.softcap = 0;
  shape.sinks = true;
  EXPECT_EQ(bytes(), own);
}

TEST(CudnnChoiceTest, TheGradientOfUniformDocumentsTakesEqualPartsOfTheHeads) {
  const std::vector<int32_t> starts = {0, 1024, 2048};
  AttentionBackwardArgs args = Call(starts);
  args.forward.heads = 24;
  args.forward.kv_heads = 6;
  // There is room for five heads of keys and values.
  args.workspace_bytes = CudnnGradientBytes(1, 5 * 4, 1024, 64);
  const auto key = UniformKeyOf(args);
  ASSERT_TRUE(key.has_value());
  EXPECT_EQ(key->kv_heads, 3);
  EXPECT_EQ(key->heads, 12);
  args.workspace_bytes = CudnnGradientBytes(1, 4, 1024, 64) - 1;
  EXPECT_FALSE(UniformKeyOf(args).has_value());
}

// A layer of so many heads over documents that lie between `starts`, with the workspace of a plan.
AttentionBackwardArgs LayerCall(const std::vector<int32_t>& starts, int64_t heads, int64_t kv_heads,
                                int64_t head_dim = 128) {
  AttentionBackwardArgs args = Call(starts);
  AttentionArgs& f = args.forward;
  f.heads = heads;
  f.kv_heads = kv_heads;
  f.head_dim = f.value_dim = head_dim;
  f.q_stride = f.k_stride = f.v_stride = (heads + 2 * kv_heads) * head_dim;
  args.dq_stride = args.dk_stride = args.dv_stride = f.q_stride;
  args.workspace_bytes = CudaKernelSizes().AttentionBackwardWorkspaceBytes(
      {DType::kBF16, f.tokens, f.tokens, heads, kv_heads, head_dim, head_dim});
  return args;
}
int64_t BlockOf(int32_t tokens, int64_t heads, int64_t kv_heads, int64_t head_dim = 128) {
  const std::vector<int32_t> starts = {0, tokens};
  return BlockLengthOf(LayerCall(starts, heads, kv_heads, head_dim), tokens);
}

TEST(CudnnChoiceTest, LongDocumentsGoByBlocksOfTheLongestLengthThatFits) {
  // 7 query heads a head of keys and values, as 7B models have: FP32 sums for keys and values of
  // the whole document take 1 KiB a token.
  EXPECT_EQ(BlockOf(16'384, 28, 4), 8192);
  EXPECT_EQ(BlockOf(32'768, 28, 4), 8192);
  EXPECT_EQ(BlockOf(131'072, 28, 4), 7168);
  EXPECT_EQ(BlockOf(524'288, 28, 4), 5120);
  EXPECT_EQ(BlockOf(32'768, 32, 8), 10'240);
  EXPECT_EQ(BlockOf(131'072, 64, 8), 7168);
  // With one query head a whole document of 16,384 tokens fits.
  EXPECT_EQ(BlockOf(32'768, 32, 32), 16'384);
}

TEST(CudnnChoiceTest, ElementsOfABlockAreCountedInThirtyTwoBits) {
  const std::vector<int32_t> starts = {0, 32'768};
  AttentionBackwardArgs args = LayerCall(starts, 28, 4);
  args.dq_stride = (1 << 18) - 8;
  EXPECT_EQ(BlockLengthOf(args, 32'768), 8192);
  args.dq_stride = 1 << 18;
  EXPECT_EQ(BlockLengthOf(args, 32'768), 7168);
}

TEST(CudnnChoiceTest, BlocksFitTheWorkspaceOfThePlan) {
  for (const int64_t group : {1, 2, 4, 5, 6, 7, 8, 16}) {
    for (const int64_t head_dim : {64, 96, 128, 256}) {
      for (int32_t tokens = 4096; tokens <= 400'000; tokens += tokens / 3) {
        SCOPED_TRACE(testing::Message() << group << " heads of " << head_dim << ", " << tokens);
        const std::vector<int32_t> starts = {0, tokens};
        const AttentionBackwardArgs args = LayerCall(starts, 4 * group, 4, head_dim);
        ASSERT_LE(args.workspace_bytes, kCudnnWorkspaceBytesMax);
        for (const DocumentRun& run : RunsOf(args, true)) {
          if (!run.in_blocks()) continue;
          EXPECT_EQ(run.kv_heads, 1);
          EXPECT_EQ(run.length, CudnnLengthBucket(run.length));
          EXPECT_LE(CudnnBlockGradientBytes(tokens, group, run.length, head_dim),
                    args.workspace_bytes);
          EXPECT_LE(
              135.0 * static_cast<double>(group + 2) / static_cast<double>(group * run.length),
              0.04)
              << "of cuDNN's time goes to the sums";
        }
      }
    }
  }
}

TEST(CudnnChoiceTest, WhereBlocksAreTooShortOrDoNotFitTheGradientIsOurs) {
  EXPECT_EQ(BlockOf(32'768, 64, 1), 0) << "parts of 64 heads would be added every 2048 keys";
  EXPECT_EQ(BlockOf(2'000'000, 28, 4), 0) << "the sums alone take more than the workspace";
  const std::vector<int32_t> starts = {0, 32'768};
  EXPECT_THAT(Graphs(LayerCall(starts, 64, 1)),
              ElementsAre(testing::Field(&CudnnGraphKey::backward, false)));
}

TEST(CudnnChoiceTest, AWindowThatIsShorterThanTheDocumentAllowsNoBlocks) {
  const std::vector<int32_t> starts = {0, 32'768};
  AttentionBackwardArgs args = LayerCall(starts, 28, 4);
  args.forward.shaping.window = 32'768;
  EXPECT_EQ(BlockLengthOf(args, 32'768), 8192) << "every token is seen";
  args.forward.shaping.window = 32'767;
  EXPECT_EQ(BlockLengthOf(args, 32'768), 0);
  EXPECT_TRUE(RunsOf(args, /*takes_packed=*/true).empty());
}

TEST(CudnnChoiceTest, TwoGraphsDoForLongDocumentsOfAnyLength) {
  const std::vector<int32_t> uniform = {0, 16'384, 32'768};
  const std::vector<int32_t> packed = {0, 9000, 9001 + 8192, 32'768};
  std::vector<CudnnGraphKey> gradients;
  for (const std::vector<int32_t>& starts : {uniform, packed}) {
    for (const CudnnGraphKey& key : Graphs(LayerCall(starts, 28, 4))) {
      if (!key.backward) continue;
      EXPECT_TRUE(key.packed);
      EXPECT_EQ(key.documents, 1);
      EXPECT_EQ(key.length, 8192);
      EXPECT_EQ(key.heads, 7);
      EXPECT_EQ(key.dq_stride, 7 * 128);
      EXPECT_EQ(key.dk_stride, 128);
      if (std::find(gradients.begin(), gradients.end(), key) == gradients.end()) {
        gradients.push_back(key);
      }
    }
  }
  ASSERT_EQ(gradients.size(), 2u);
  EXPECT_TRUE(gradients[0].causal);
  EXPECT_FALSE(gradients[1].causal);
  // Where packed documents are not taken, neither are blocks of them.
  EXPECT_EQ(Graphs(LayerCall(uniform, 28, 4), /*takes_packed=*/false).size(), 1u);
}

// Graphs that are built when the test says so; of negative lengths there are none.
class HeldGraphs : public CudnnGraphs {
 public:
  struct Graph : CudnnGraph {
    explicit Graph(int64_t bytes) : bytes(bytes) {}
    int64_t workspace_bytes() const override { return bytes; }
    const int64_t bytes;
  };

  CudaLibrary Library() const override { return {}; }
  absl::StatusOr<std::unique_ptr<CudnnGraph>> Make(const CudnnGraphKey& key) override {
    std::unique_lock<std::mutex> lock(mutex_);
    made_.push_back(key.length);
    changed_.notify_all();
    changed_.wait(lock, [&] { return allowed_ >= static_cast<int>(made_.size()); });
    if (key.length < 0) return absl::UnimplementedError("no engine");
    return std::make_unique<Graph>(key.length);
  }
  int Run(void*, const CudnnGraph&, CudnnAddresses, void*) override { return 0; }

  void Allow(int more) {
    std::lock_guard<std::mutex> lock(mutex_);
    allowed_ += more;
    changed_.notify_all();
  }
  // Once so many are begun: their lengths.
  std::vector<int64_t> AwaitBegun(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return made_.size() >= count; });
    return made_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int allowed_ = 0;
  std::vector<int64_t> made_;
};

CudnnGraphKey Length(int64_t length) {
  CudnnGraphKey key;
  key.length = length;
  return key;
}

TEST(CudnnGraphCacheTest, WhatIsWantedIsBuiltBesideTheCallerAndOnce) {
  HeldGraphs graphs;
  bool begun = false;
  CudnnGraphCache cache(&graphs, [&] { begun = true; });
  cache.Want({Length(1), Length(2)});  // returns though nothing may be built
  cache.Want({Length(2), Length(1)});
  EXPECT_THAT(graphs.AwaitBegun(1), ElementsAre(1));
  EXPECT_TRUE(begun);
  graphs.Allow(2);
  EXPECT_THAT(graphs.AwaitBegun(2), ElementsAre(1, 2));
  EXPECT_EQ(cache.Get(Length(2))->workspace_bytes(), 2);
  EXPECT_EQ(cache.Get(Length(1))->workspace_bytes(), 1);
  EXPECT_THAT(graphs.AwaitBegun(2), ElementsAre(1, 2));
  EXPECT_EQ(cache.DescribeRefused(), "");
}

// Of what waits, not of what is being built.
TEST(CudnnGraphCacheTest, ACallWaitsForItsGraphAndNoOther) {
  HeldGraphs graphs;
  CudnnGraphCache cache(&graphs, nullptr);
  cache.Want({Length(1), Length(2), Length(3)});
  graphs.AwaitBegun(1);
  const CudnnGraph* found = nullptr;
  std::thread call([&] { found = cache.Get(Length(1)); });
  graphs.Allow(1);
  call.join();
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->workspace_bytes(), 1);
  graphs.Allow(2);  // the one that is being built when the cache ends
}

TEST(CudnnGraphCacheTest, WhatThereIsNoGraphOfIsTold) {
  HeldGraphs graphs;
  CudnnGraphCache cache(&graphs, nullptr);
  graphs.Allow(2);
  EXPECT_EQ(cache.Get(Length(-1)), nullptr);
  EXPECT_EQ(cache.Get(Length(-1)), nullptr);
  EXPECT_EQ(cache.Get(Length(-2)), nullptr);
  EXPECT_THAT(cache.DescribeRefused(), HasSubstr("2 shapes are left to our own kernels"));
  EXPECT_THAT(cache.DescribeRefused(), HasSubstr("no engine"));
}

}  // namespace
}  // namespace megatrain
