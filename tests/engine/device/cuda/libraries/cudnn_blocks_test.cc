// The gradient of attention by blocks of queries and keys: the kernels' sources over an emulation
// of blocks and warps, and cuDNN's graphs by plain loops over what a graph is told.
#include "engine/device/cuda/libraries/cudnn_blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/libraries/cudnn_choice.h"
#include "engine/device/cuda/libraries/cudnn_sizes.h"
#include "engine/device/reference_kernels.h"
#include "tests/engine/device/attention_cases.h"
#include "tests/engine/device/cuda/emulation.h"
#include "tests/engine/device/kernels_under_test.h"

namespace megatrain {
namespace {

// One document of a packed gradient's graph, and one head of keys and values. Rows of the results
// beyond the document are spoiled: nothing may depend on them.
class PlainGraph {
 public:
  PlainGraph(const CudnnGraphKey& key, const CudnnAddresses& addresses)
      : key_(key), addresses_(addresses) {}

  void Run() {
    const int64_t queries = Int32At(kLengthsOfQ), keys = Int32At(kLengthsOfK);
    const int64_t d = key_.head_dim, value_dim = key_.value_dim;
    ASSERT_LE(std::max(queries, keys), key_.length);
    for (const PackedTensor tensor : {kPackedQ, kPackedOut, kPackedStatistics, kPackedDQ}) {
      ExpectOffsets(tensor, queries);
    }
    for (const PackedTensor tensor : {kPackedK, kPackedV, kPackedDK, kPackedDV}) {
      ExpectOffsets(tensor, keys);
    }
    const auto size = [&](int64_t width) { return static_cast<size_t>(key_.length * width); };
    std::vector<double> dq(size(key_.heads * d)), dk(size(d)), dv(size(value_dim));
    for (int64_t i = 0; i < queries; ++i) {
      for (int64_t h = 0; h < key_.heads; ++h) {
        const auto* const statistics = static_cast<const float*>(addresses_.at(kStatistics));
        double delta = 0;
        for (int64_t e = 0; e < value_dim; ++e) delta += At(kOut, i, h, e) * At(kDOut, i, h, e);
        for (int64_t j = 0; j < (key_.causal ? i + 1 : keys); ++j) {
          double score = 0, dp = 0;
          for (int64_t e = 0; e < d; ++e) score += At(kQ, i, h, e) * At(kK, j, 0, e);
          for (int64_t e = 0; e < value_dim; ++e) dp += At(kDOut, i, h, e) * At(kV, j, 0, e);
          const double p = std::exp(key_.scale * score - statistics[i * key_.heads + h]);
          const double ds = key_.scale * p * (dp - delta);
          for (int64_t e = 0; e < d; ++e) {
            dq[(i * key_.heads + h) * d + e] += ds * At(kK, j, 0, e);
            dk[j * d + e] += ds * At(kQ, i, h, e);
          }
          for (int64_t e = 0; e < value_dim; ++e) {
            dv[j * value_dim + e] += p * At(kDOut, i, h, e);
          }
        }
      }
    }
    Write(kDQ, dq, queries, key_.heads);
    Write(kDK, dk, keys, 1);
    Write(kDV, dv, keys, 1);
  }

 private:
  int64_t Int32At(int64_t operand) const {
    return *static_cast<const int32_t*>(addresses_.at(operand));
  }
  int64_t StrideOf(CudnnOperand operand) const {
    switch (operand) {
      case kQ:
        return key_.q_stride;
      case kK:
        return key_.k_stride;
      case kV:
        return key_.v_stride;
      case kDQ:
        return key_.dq_stride;
      case kDK:
        return key_.dk_stride;
      case kDV:
        return key_.dv_stride;
      default:
        return key_.out_stride;
    }
  }
  int64_t DimOf(CudnnOperand operand) const {
    const bool of_values = operand == kV || operand == kOut || operand == kDOut || operand == kDV;
    return of_values ? key_.value_dim : key_.head_dim;
  }
  void ExpectOffsets(PackedTensor tensor, int64_t tokens) const {
    static constexpr CudnnOperand kOperandOf[] = {kQ, kK, kV, kOut, kStatistics, kDQ, kDK, kDV};
    const auto* const offsets = static_cast<const int64_t*>(addresses_.at(OffsetsOf(tensor)));
    const int64_t stride = tensor == kPackedStatistics ? key_.heads : StrideOf(kOperandOf[tensor]);
    EXPECT_EQ(offsets[0], 0);
    EXPECT_EQ(offsets[1], tokens * stride);
  }
  double At(CudnnOperand operand, int64_t token, int64_t head, int64_t element) const {
    const auto* const values = static_cast<const bf16_t*>(addresses_.at(operand));
    return Bf16ToFloat(values[token * StrideOf(operand) + head * DimOf(operand) + element]);
  }
  void Write(CudnnOperand operand, const std::vector<double>& values, int64_t tokens,
             int64_t heads) const {
    auto* const to = static_cast<bf16_t*>(addresses_.at(operand));
    const int64_t width = heads * DimOf(operand);
    ASSERT_EQ(StrideOf(operand), width) << "parts are contiguous";
    for (int64_t i = 0; i < key_.length * width; ++i) {
      const float value = i < tokens * width ? static_cast<float>(values[static_cast<size_t>(i)])
                                             : std::numeric_limits<float>::quiet_NaN();
      to[i] = FloatToBf16(value);
    }
  }

  const CudnnGraphKey& key_;
  const CudnnAddresses& addresses_;
};

// The reference's kernels, but for gradients of attention: by blocks of so many tokens.
class ByBlocks : public ReferenceKernels {
 public:
  explicit ByBlocks(int64_t block) : block_(block) {}

  int64_t AttentionBackwardWorkspaceBytes(const AttentionShape& s) const override {
    return CudnnBlockGradientBytes(s.tokens, s.heads / s.kv_heads, block_, s.head_dim);
  }
  absl::Status AttentionBackward(Stream&, const AttentionBackwardArgs& args) override {
    const AttentionArgs& f = args.forward;
    for (int64_t d = 0; d < f.documents; ++d) {
      const DocumentRun run{.first = d,
                            .documents = 1,
                            .tokens = f.document_starts[d + 1] - f.document_starts[d],
                            .length = block_,
                            .kv_heads = 1};
      const std::vector<CudnnGraphKey> keys = KeysOfRun(args, run);
      const int error = CudnnBackwardByBlocks(
          nullptr, args, run,
          [&](const CudnnGraphKey& key, const CudnnAddresses& addresses, void* workspace,
              int64_t bytes) {
            EXPECT_EQ(key, keys[key.causal ? 0 : 1]);
            EXPECT_EQ(key.length, block_);
            EXPECT_EQ(static_cast<char*>(workspace) + bytes,
                      static_cast<char*>(args.workspace) + args.workspace_bytes);
            // What cuDNN asks for, 2 bytes a query and key and FP32 a query, is left to it.
            EXPECT_GE(bytes, CudnnGradientBytes(1, key.heads, block_, key.head_dim) -
                                 kCudnnSlackBytes / 2);
            PlainGraph(key, addresses).Run();
            return 0;
          });
      if (error != 0) return absl::InternalError(absl::StrCat("error ", error));
    }
    return absl::OkStatus();
  }

 private:
  const int64_t block_;
};

// Kernels over the host's memory.
class OnHost : public KernelsUnderTest {
 public:
  explicit OnHost(int64_t block) : kernels_(block) {}
  ~OnHost() override {
    for (void* memory : memory_) std::free(memory);
  }

  Kernels& kernels() override { return kernels_; }
  Stream& stream() override { return stream_; }
  void* Allocate(int64_t bytes) override {
    memory_.push_back(std::aligned_alloc(256, static_cast<size_t>((bytes + 256) / 256 * 256)));
    return memory_.back();
  }
  void CopyIn(void* device, const void* host, int64_t bytes) override {
    std::memcpy(device, host, static_cast<size_t>(bytes));
  }
  void CopyOut(void* host, const void* device, int64_t bytes) override {
    std::memcpy(host, device, static_cast<size_t>(bytes));
  }

 private:
  ByBlocks kernels_;
  NoStream stream_;
  std::vector<void*> memory_;
};

class CudnnBlocksTest : public testing::TestWithParam<bool> {
 protected:
  CudnnBlocksTest() { cuda::SetReverse(GetParam()); }
  ~CudnnBlocksTest() override { cuda::SetReverse(false); }
};
INSTANTIATE_TEST_SUITE_P(Orders, CudnnBlocksTest, testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "Reversed" : "Forward");
});

TEST_P(CudnnBlocksTest, GivesTheGradientOfTheWhole) {
  struct Case {
    int64_t block;
    AttentionCase shape;
  };
  const std::vector<Case> cases = {
      {64, {2, 2, 64, 64, {0, 128}}},         // two blocks, no query head shares keys
      {64, {6, 2, 16, 16, {0, 70, 300}}},     // last blocks of 6 and of 38 tokens
      {32, {7, 1, 8, 8, {0, 33, 161, 290}}},  // of a token, none, and one
      {128, {4, 1, 128, 128, {0, 129}}},     {64, {2, 2, 48, 32, {0, 130}}},  // narrower values
  };
  for (const auto& [block, shape] : cases) {
    SCOPED_TRACE(shape.Name());
    Operands operands(7);
    KernelCall call;
    MakeAttention(shape, DType::kBF16, /*backward=*/true, &operands, &call);
    OnHost device(block);
    ExpectLikeReference(device, operands, 8e-3, call);
  }
}

// Each part is rounded, and nothing else but the sum.
TEST_P(CudnnBlocksTest, PartsAreAddedInFP32) {
  std::mt19937_64 random(3);
  struct Shape {
    int64_t rows, width, out_stride, parts;
  };
  for (const auto [rows, width, out_stride, parts] :
       {Shape{1, 8, 8, 1}, Shape{70, 16, 48, 2}, Shape{37, 896, 1152, 4},
        Shape{129, 128, 512, 3}}) {
    SCOPED_TRACE(absl::StrCat(rows, " x ", width, ", ", parts, " parts"));
    const size_t elements = static_cast<size_t>(rows * width);
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> expected(elements, 0), sum(elements + 4, kNan);
    std::vector<bf16_t> part(elements), out(static_cast<size_t>(rows * out_stride), 0x1234);
    std::vector<bf16_t> expected_out = out;
    for (int64_t p = 0; p < parts; ++p) {
      const std::vector<float> values = Normal(random, rows * width, 1.0);
      for (size_t i = 0; i < elements; ++i) {
        part[i] = FloatToBf16(values[i]);
        expected[i] = p == 0 ? Bf16ToFloat(part[i]) : expected[i] + Bf16ToFloat(part[i]);
      }
      ASSERT_EQ(cuda::AddAttentionPart(nullptr, {.rows = rows,
                                                 .width = width,
                                                 .part = part.data(),
                                                 .sum = sum.data(),
                                                 .first = p == 0,
                                                 .last = p + 1 == parts,
                                                 .out = out.data(),
                                                 .out_stride = out_stride}),
                0);
      EXPECT_TRUE(std::isnan(sum[elements]));
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < width; ++c) {
        expected_out[static_cast<size_t>(r * out_stride + c)] =
            FloatToBf16(expected[static_cast<size_t>(r * width + c)]);
      }
    }
    EXPECT_EQ(out, expected_out) << "and nothing between rows is written";
  }
}

TEST_P(CudnnBlocksTest, PartsThatAreNotAlignedAreRefused) {
  alignas(16) float sum[8] = {};
  alignas(16) bf16_t part[8] = {}, out[8] = {};
  cuda::AttentionPart aligned{.rows = 1,
                              .width = 8,
                              .part = part,
                              .sum = sum,
                              .first = true,
                              .last = true,
                              .out = out,
                              .out_stride = 8};
  EXPECT_EQ(cuda::AddAttentionPart(nullptr, aligned), 0);
  cuda::AttentionPart wrong = aligned;
  wrong.width = 6;
  EXPECT_NE(cuda::AddAttentionPart(nullptr, wrong), 0);
  wrong = aligned;
  wrong.out = out + 1;
  EXPECT_NE(cuda::AddAttentionPart(nullptr, wrong), 0);
  wrong = aligned;
  wrong.out_stride = 4;
  EXPECT_NE(cuda::AddAttentionPart(nullptr, wrong), 0);
}

TEST(CudnnBlocksErrorTest, TheFirstErrorOfAGraphIsReturnedAndEndsTheCall) {
  constexpr int64_t kTokens = 128, kBlock = 64, kHeads = 2, kDim = 16;
  const std::vector<int32_t> starts = {0, kTokens};
  std::vector<bf16_t> rows(static_cast<size_t>(kTokens * kHeads * kDim));
  std::vector<float> lse(static_cast<size_t>(kTokens * kHeads));
  std::vector<char> workspace(
      static_cast<size_t>(CudnnBlockGradientBytes(kTokens, /*group=*/1, kBlock, kDim)));
  AttentionBackwardArgs args;
  AttentionArgs& f = args.forward;
  f.dtype = DType::kBF16;
  f.tokens = kTokens;
  f.heads = f.kv_heads = kHeads;
  f.head_dim = f.value_dim = kDim;
  f.document_starts = starts.data();
  f.documents = 1;
  f.out = rows.data();
  f.q = f.k = f.v = args.dout = rows.data();
  args.dq = args.dk = args.dv = rows.data();
  f.q_stride = f.k_stride = f.v_stride = kHeads * kDim;
  args.dq_stride = args.dk_stride = args.dv_stride = kHeads * kDim;
  f.lse = lse.data();
  args.workspace = workspace.data();
  args.workspace_bytes = static_cast<int64_t>(workspace.size());
  const DocumentRun run{
      .first = 0, .documents = 1, .tokens = kTokens, .length = kBlock, .kv_heads = 1};
  // A head has three calls: the block below the diagonal is the second one.
  constexpr int kError = 7;
  for (const int failing : {1, 2, 3, 4}) {
    int calls = 0;
    const int error = CudnnBackwardByBlocks(
        nullptr, args, run, [&](const CudnnGraphKey&, const CudnnAddresses&, void*, int64_t) {
          return ++calls == failing ? kError : 0;
        });
    EXPECT_EQ(error, kError) << failing;
    EXPECT_EQ(calls, failing);
  }
}

// What lies in a workspace lies apart, and cuDNN's part is as large as the sizes say.
TEST(CudnnBlockWorkspaceTest, HasRoomForAll) {
  const std::vector<int32_t> starts = {0, 40'000};
  alignas(256) static char memory[256];
  AttentionBackwardArgs args;
  args.forward.heads = 14;
  args.forward.kv_heads = 2;
  args.forward.head_dim = 128;
  args.forward.value_dim = 64;
  args.forward.document_starts = starts.data();
  args.forward.documents = 1;
  args.workspace = memory;
  const DocumentRun run{.documents = 1, .tokens = 40'000, .length = 6144, .kv_heads = 1};
  args.workspace_bytes = CudnnBlockGradientBytes(run.tokens, 7, run.length, 128);
  const CudnnBlockWorkspace w(args, run);
  const auto bytes = [](const void* from, const void* to) {
    return static_cast<const char*>(to) - static_cast<const char*>(from);
  };
  EXPECT_GE(bytes(w.index, w.last_index), cuda::kPackedIndexBytes);
  EXPECT_GE(bytes(w.last_index, w.statistics), cuda::kPackedIndexBytes);
  EXPECT_GE(bytes(w.statistics, w.dk_sum), 40'000 * 7 * 4);
  EXPECT_GE(bytes(w.dk_sum, w.dv_sum), 40'000 * 128 * 4);
  EXPECT_GE(bytes(w.dv_sum, w.dq_sum), 40'000 * 64 * 4);
  EXPECT_GE(bytes(w.dq_sum, w.dq_part), 6144 * 7 * 128 * 4);
  EXPECT_GE(bytes(w.dq_part, w.dk_part), 6144 * 7 * 128 * 2);
  EXPECT_GE(bytes(w.dk_part, w.dv_part), 6144 * 128 * 2);
  EXPECT_GE(bytes(w.dv_part, w.rest), 6144 * 64 * 2);
  EXPECT_EQ(bytes(w.index, w.rest) + w.rest_bytes, args.workspace_bytes);
  EXPECT_GE(w.rest_bytes, CudnnGradientBytes(1, 7, 6144, 128) - kCudnnSlackBytes / 2);
}

}  // namespace
}  // namespace megatrain
