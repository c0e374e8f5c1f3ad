// The suite on the cuda device's kernels without a GPU: their sources over an emulation of blocks
// and warps, products over plain loops in cuBLAS' terms.
#include "tests/engine/device/cuda/cuda_kernels_under_test.h"
#include "tests/engine/device/cuda/emulated_cuda.h"
#include "tests/engine/device/kernels_suite.h"

namespace megatrain {
namespace {

// The threads of a block run in one order between meetings, then, when a call is run again and
// expected to give the same bits, in the reverse order.
class BothOrders : public CudaKernelsUnderTest {
 public:
  explicit BothOrders(const cuda::FastPaths& paths = {})
      : CudaKernelsUnderTest(std::make_unique<EmulatedCuda>(), paths) {}
  ~BothOrders() override { cuda::SetReverse(false); }
  void BeforeRun() override {
    cuda::SetReverse(reverse_);
    reverse_ = !reverse_;
  }

 private:
  bool reverse_ = false;
};

absl::StatusOr<std::unique_ptr<KernelsUnderTest>> MakeEmulated() {
  return std::make_unique<BothOrders>();
}

// Without the paths that are there for speed.
absl::StatusOr<std::unique_ptr<KernelsUnderTest>> MakePlain() {
  return std::make_unique<BothOrders>(
      cuda::FastPaths{.tensor_core_attention = false, .vector_loads = false, .split_sums = false});
}

const auto name = [](const auto& info) { return std::string(DTypeName(std::get<1>(info.param))); };
INSTANTIATE_TEST_SUITE_P(EmulatedCuda, KernelsSuite,
                         testing::Combine(testing::Values(&MakeEmulated),
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
