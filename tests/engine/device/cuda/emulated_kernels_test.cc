// The suite on the cuda device's kernels without a GPU: their sources over an emulation of blocks
// and warps, products over plain loops in cuBLAS' terms.
#include "tests/engine/device/cuda/cuda_kernels_under_test.h"
#include "tests/engine/device/cuda/emulated_cuda.h"
#include "tests/engine/device/kernels_suite.h"

namespace megatrain {
namespace {

absl::StatusOr<std::unique_ptr<KernelsUnderTest>> MakeEmulated() {
  return std::make_unique<CudaKernelsUnderTest>(std::make_unique<EmulatedCuda>());
}

// The threads of a block run in the reverse order between meetings.
absl::StatusOr<std::unique_ptr<KernelsUnderTest>> MakeReversed() {
  cuda::SetReverse(true);
  class Reversed : public CudaKernelsUnderTest {
   public:
    using CudaKernelsUnderTest::CudaKernelsUnderTest;
    ~Reversed() override { cuda::SetReverse(false); }
  };
  return std::make_unique<Reversed>(std::make_unique<EmulatedCuda>());
}

// Without the paths that are there for speed.
absl::StatusOr<std::unique_ptr<KernelsUnderTest>> MakePlain() {
  return std::make_unique<CudaKernelsUnderTest>(
      std::make_unique<EmulatedCuda>(),
      cuda::FastPaths{.tensor_core_attention = false, .vector_loads = false, .split_sums = false});
}

const auto name = [](const auto& info) { return std::string(DTypeName(std::get<1>(info.param))); };
INSTANTIATE_TEST_SUITE_P(EmulatedCuda, KernelsSuite,
                         testing::Combine(testing::Values(&MakeEmulated),
                                          testing::Values(DType::kF32, DType::kBF16)),
                         name);
INSTANTIATE_TEST_SUITE_P(EmulatedCudaReversed, KernelsSuite,
                         testing::Combine(testing::Values(&MakeReversed),
                                          testing::Values(DType::kF32, DType::kBF16)),
                         name);
INSTANTIATE_TEST_SUITE_P(EmulatedCudaPlain, KernelsSuite,
                         testing::Combine(testing::Values(&MakePlain),
                                          testing::Values(DType::kF32, DType::kBF16)),
                         name);

void Embed(int32_t id) {
  CudaKernelsUnderTest device(std::make_unique<EmulatedCuda>());
  Operands operands(1);
  const size_t ids = operands.Ints({0, id}), table = operands.Random(DType::kF32, 3 * 8);
  const size_t out = operands.Raw(2 * 8 * 4);
  RunOn(device, operands, [&](Kernels& kernels, Stream& stream, const std::vector<void*>& at) {
    return kernels.Embedding(stream, {.tokens = 2,
                                      .hidden = 8,
                                      .vocabulary = 3,
                                      .ids = static_cast<const int32_t*>(at[ids]),
                                      .table = at[table],
                                      .out = at[out]});
  });
}

// The kernels' assertions hold here, however the test is built.
TEST(EmulatedKernelsDeathTest, AnIdThatTheTableHasNotIsCaught) {
  Embed(2);
  EXPECT_DEATH(Embed(3), "vocabulary");
  EXPECT_DEATH(Embed(-1), "vocabulary");
}

}  // namespace
}  // namespace megatrain
