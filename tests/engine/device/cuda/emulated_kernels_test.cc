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

}  // namespace
}  // namespace megatrain
