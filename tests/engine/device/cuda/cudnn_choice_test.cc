// Which graphs a call of attention needs, and that they are built ahead of it.
#include "engine/device/cuda/libraries/cudnn_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  f.head_dim = 64;
  f.scale = 0.125f;
  f.document_starts = starts.data();
  f.documents = static_cast<int64_t>(starts.size()) - 1;
  f.q_stride = f.k_stride = f.v_stride = 12 * 64;
  args.dq_stride = args.dk_stride = args.dv_stride = 12 * 64;
  args.workspace_bytes = CudaKernelSizes().AttentionBackwardWorkspaceBytes(
      {DType::kBF16, f.tokens, f.tokens, f.heads, f.kv_heads, f.head_dim});
  return args;
}

std::vector<CudnnGraphKey> Graphs(const AttentionBackwardArgs& args, bool takes_packed = true) {
  return GraphsOf(args, kProductWorkspaceBytes, takes_packed);
}

TEST(CudnnChoiceTest, UniformDocumentsHaveAGraphForEachDirection) {
  const std::vector<int32_t> starts = {0, 1024, 2048};
  AttentionBackwardArgs args = Call(starts);
  const std::vector<CudnnGraphKey> graphs = Graphs(args, /*takes_packed=*/false);
  EXPECT_THAT(graphs, ElementsAre(UniformKeyOf(args.forward), UniformKeyOf(args)));
  EXPECT_EQ(graphs[0].documents, 2);
  EXPECT_EQ(graphs[0].length, 1024);
  EXPECT_EQ(graphs[1].documents, 1);
  EXPECT_TRUE(graphs[1].backward);
  args.workspace_bytes = 0;
  EXPECT_THAT(Graphs(args), ElementsAre(UniformKeyOf(args.forward)));
}

TEST(CudnnChoiceTest, PackedDocumentsHaveOneForEachRunWhereTheyAreTaken) {
  const std::vector<int32_t> starts = {0, 300, 700, 3000};
  const AttentionBackwardArgs args = Call(starts);
  std::vector<CudnnGraphKey> expected;
  for (const DocumentRun& run : RunsOf(args.forward, kProductWorkspaceBytes, true)) {
    expected.push_back(KeyOfRun(args.forward, run));
  }
  for (const DocumentRun& run : RunsOf(args, true)) expected.push_back(KeyOfRun(args, run));
  ASSERT_GE(expected.size(), 4u);
  EXPECT_EQ(Graphs(args), expected);
  EXPECT_TRUE(Graphs(args, /*takes_packed=*/false).empty());
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
  args.dq_stride = 12 * 64 + 1;
  EXPECT_EQ(Graphs(args).size(), 1u) << "of the forward pass";
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
