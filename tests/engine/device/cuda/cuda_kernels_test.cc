// What the suite's shapes do not reach of the cuda device's kernels: nothing to do, and more
// experts than a kernel takes at once.
#include "engine/device/cuda/cuda_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "tests/engine/device/cuda/cuda_kernels_under_test.h"
#include "tests/engine/device/cuda/emulated_cuda.h"
#include "tests/engine/device/delta_cases.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

class CudaKernelsTest : public testing::Test {
 protected:
  CudaKernelsTest() {
    auto edge = std::make_unique<EmulatedCuda>();
    edge_ = edge.get();
    device_ = std::make_unique<CudaKernelsUnderTest>(std::move(edge));
  }

  Kernels& kernels() { return device_->kernels(); }
  Stream& stream() { return device_->stream(); }

  EmulatedCuda* edge_ = nullptr;
  std::unique_ptr<CudaKernelsUnderTest> device_;
};

TEST_F(CudaKernelsTest, ProductsWithoutRowsOrColumnsDoNothing) {
  edge_->Fail("Product", kProductFailed + 7);
  edge_->Fail("Launch", 1);
  MatMulArgs args{.n = 8, .k = 8};
  EXPECT_TRUE(kernels().MatMul(stream(), args).ok());
  args.m = 8;
  args.n = 0;
  EXPECT_TRUE(kernels().MatMul(stream(), args).ok());
  args.k = 0;
  EXPECT_TRUE(kernels().MatMul(stream(), args).ok());
}

TEST_F(CudaKernelsTest, AProductWithoutTermsIsRefused) {
  EXPECT_EQ(kernels().MatMul(stream(), {.m = 8, .n = 8}).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(CudaKernelsTest, ABiasThatTheScratchMemoryDoesNotHoldWidenedIsRefused) {
  edge_->Fail("Launch", 1);
  const bf16_t bias = 0;
  MatMulArgs args{.m = 1, .n = cuda::kScratchBytes / 4 + 1, .k = 8};
  args.dtype = DType::kBF16;
  args.bias = &bias;
  EXPECT_EQ(kernels().MatMul(stream(), args).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(CudaKernelsTest, NoTokensAndNoRowsAreNothingToDo) {
  Operands operands(1);
  const size_t offsets = operands.Ints({7, 7, 7});
  const auto got =
      RunOn(*device_, operands, [&](Kernels& k, Stream& s, const std::vector<void*>& p) {
        return k.SortAssignments(
            s, {.experts = 2, .chosen = 1, .offsets = static_cast<int32_t*>(p[offsets])});
      });
  EXPECT_EQ(got[offsets].bytes, std::vector<char>(12, 0));
  edge_->Fail("Launch", 1);
  const ExpertRows none{.first = 3, .tokens = 5, .chosen = 2};
  EXPECT_TRUE(kernels().Route(stream(), {.experts = 4, .chosen = 2}).ok());
  EXPECT_TRUE(kernels().RouteBackward(stream(), {.forward = {.experts = 4, .chosen = 2}}).ok());
  EXPECT_TRUE(kernels().RouterSums(stream(), {.experts = 4}).ok());
  EXPECT_TRUE(kernels().GatherRows(stream(), {.width = 8, .range = none}).ok());
  EXPECT_TRUE(kernels().AddRows(stream(), {.width = 8, .range = none}).ok());
  EXPECT_TRUE(kernels().WeighRows(stream(), {.width = 8, .range = none}).ok());
  EXPECT_TRUE(kernels().Add(stream(), {}).ok());
  EXPECT_TRUE(kernels().Scale(stream(), DType::kBF16, nullptr, 0, nullptr).ok());
  EXPECT_TRUE(kernels().CausalConv(stream(), {}).ok());
  EXPECT_TRUE(kernels().CausalConvBackward(stream(), {}).ok());
  EXPECT_TRUE(kernels().GatedDelta(stream(), {}).ok());
  EXPECT_TRUE(kernels().GatedDeltaBackward(stream(), {}).ok());
  EXPECT_TRUE(kernels().GatedNorm(stream(), {}).ok());
  EXPECT_TRUE(kernels().GatedNormBackward(stream(), {}).ok());
}

TEST_F(CudaKernelsTest, LongKeysOfADeltaNetAreRefused) {
  const absl::Status status = kernels().GatedDelta(stream(), {.key_dim = 257});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("keys of 257 elements"));
  EXPECT_EQ(kernels().GatedDeltaBackward(stream(), {.forward = {.key_dim = 257}}).code(),
            absl::StatusCode::kInvalidArgument);
}

// More documents, and more chunks, than one launch takes.
TEST_F(CudaKernelsTest, ManyDocumentsOfADeltaNet) {
  std::vector<int32_t> starts = {0};
  while (starts.size() <= 600)
    starts.push_back(starts.back() + 1 + (starts.size() == 300 ? 70 : 0));
  const DeltaCase shape{1, 1, 4, 4, starts, -2};
  Operands operands(9);
  KernelCall call;
  MakeGatedDelta(shape, DType::kF32, /*backward=*/true, &operands, &call);
  ExpectLikeReference(*device_, operands, 8e-6, call);
}

// The scan goes by 512 experts, and a piece is longer than a warp.
TEST_F(CudaKernelsTest, ManyExpertsAreSorted) {
  constexpr int64_t kTokens = 3001, kExperts = 1300, kChosen = 3;
  Operands operands(5);
  std::vector<int32_t> choice_of;
  for (int64_t t = 0; t < kTokens; ++t) {
    const int32_t expert = static_cast<int32_t>(operands.random()() % kExperts);
    for (int32_t j = 0; j < kChosen; ++j) choice_of.push_back((expert + 433 * j) % kExperts);
  }
  const size_t choice = operands.Ints(choice_of);
  const size_t offsets = operands.Ints(std::vector<int32_t>(kExperts + 1, -1));
  const size_t assignments = operands.Ints(std::vector<int32_t>(kTokens * kChosen, -1));
  const size_t rows = operands.Ints(std::vector<int32_t>(kTokens * kChosen, -1));
  ExpectLikeReference(
      *device_, operands, 0, [&](Kernels& k, Stream& s, const std::vector<void*>& p) {
        return k.SortAssignments(s, {.tokens = kTokens,
                                     .experts = kExperts,
                                     .chosen = kChosen,
                                     .choice = static_cast<const int32_t*>(p[choice]),
                                     .offsets = static_cast<int32_t*>(p[offsets]),
                                     .assignments = static_cast<int32_t*>(p[assignments]),
                                     .rows = static_cast<int32_t*>(p[rows])});
      });
}

// So many that a block has one token, and more than lanes are chosen.
TEST_F(CudaKernelsTest, ManyExpertsAreChosenFrom) {
  constexpr int64_t kTokens = 3, kExperts = 9000, kChosen = 40;
  for (const RouterScores scores : {RouterScores::kSoftmax, RouterScores::kSigmoid}) {
    Operands operands(6);
    const size_t logits = operands.Random(DType::kF32, kTokens * kExperts);
    const size_t choice = operands.Ints(std::vector<int32_t>(kTokens * kChosen, -1));
    const size_t weights = operands.Random(DType::kF32, kTokens * kChosen);
    const size_t dweights = operands.Random(DType::kF32, kTokens * kChosen);
    const size_t dlogits = operands.Random(DType::kF32, kTokens * kExperts);
    ExpectLikeReference(
        *device_, operands, 4e-6, [&](Kernels& k, Stream& s, const std::vector<void*>& p) {
          RouteBackwardArgs args{.forward = {.tokens = kTokens,
                                             .experts = kExperts,
                                             .chosen = kChosen,
                                             .scores = scores,
                                             .groups = 100,
                                             .chosen_groups = 7,
                                             .logits = static_cast<const float*>(p[logits]),
                                             .choice = static_cast<int32_t*>(p[choice]),
                                             .weights = static_cast<float*>(p[weights])},
                                 .dweights = static_cast<const float*>(p[dweights]),
                                 .dlogits = p[dlogits]};
          MT_RETURN_IF_ERROR(k.Route(s, args.forward));
          return k.RouteBackward(s, args);
        });
  }
  const absl::Status status = kernels().Route(
      stream(), {.tokens = 1, .experts = 12288, .chosen = 1, .groups = 1, .chosen_groups = 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a router of 12288 experts"));
}

}  // namespace
}  // namespace megatrain
