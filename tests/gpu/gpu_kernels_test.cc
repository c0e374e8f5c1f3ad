// The kernels' suite on the GPU under test, and that cuDNN takes what it is there for.
#include <memory>
#include <vector>

#include "engine/base/status.h"
#include "engine/device/cuda/cuda_status.h"
#include "tests/engine/device/attention_cases.h"
#include "tests/engine/device/cuda/cuda_kernels_under_test.h"
#include "tests/engine/device/kernels_suite.h"
#include "tests/gpu/gpu_under_test.h"

namespace megatrain {
namespace {

absl::StatusOr<std::unique_ptr<KernelsUnderTest>> MakeGpuKernels() {
  std::unique_ptr<CudaApi> api = OpenCudaApi();
  MT_RETURN_IF_ERROR(FindCudaDevice(api.get(), 0).status());
  MT_RETURN_IF_ERROR(CudaStatus(*api, api->SetDevice(0), "cudaSetDevice"));
  MT_ASSIGN_OR_RETURN(const CudaSwitches switches, ReadCudaSwitches());
  MT_RETURN_IF_ERROR(api->LoadLibraries(switches));
  class OnTensorCores : public CudaKernelsUnderTest {
   public:
    using CudaKernelsUnderTest::CudaKernelsUnderTest;
    bool truncates_sums() const override { return true; }
  };
  return std::make_unique<OnTensorCores>(std::move(api), switches.kernels);
}

INSTANTIATE_TEST_SUITE_P(Gpu, KernelsSuite,
                         testing::Combine(testing::Values(&MakeGpuKernels),
                                          testing::Values(DType::kF32, DType::kBF16)),
                         [](const auto& info) {
                           return std::string(DTypeName(std::get<1>(info.param)));
                         });

// With the choice kLibrary a call that cuDNN does not take is an error: the suite alone would not
// tell that our own kernels computed it all.
TEST(CudnnTest, TakesSequencesAndPackedDocuments) {
  constexpr AttentionChoice kLibrary = AttentionChoice::kLibrary;
  std::vector<AttentionCase> cases = {{4, 2, 64, {0, 512, 1024}, kLibrary},
                                      {2, 1, 128, {0, 1024}, kLibrary}};
  const absl::StatusOr<CudaDeviceProperties> card = FindCudaDevice(OpenCudaApi().get(), 0);
  ASSERT_TRUE(card.ok()) << card.status();
  constexpr int kHopper = 9;
  if (card->major == kHopper) cases.push_back({4, 2, 128, {0, 100, 612, 620, 1500}, kLibrary});
  const absl::StatusOr<std::unique_ptr<KernelsUnderTest>> device = MakeGpuKernels();
  ASSERT_TRUE(device.ok()) << device.status();
  for (const AttentionCase& shape : cases) {
    for (const bool backward : {false, true}) {
      SCOPED_TRACE(shape.Name() + (backward ? ", backward" : ""));
      Operands operands(5);
      KernelCall call;
      MakeAttention(shape, DType::kBF16, backward, &operands, &call);
      ExpectLikeReference(**device, operands, backward ? 8e-3 : 5e-3, call);
    }
  }
}

}  // namespace
}  // namespace megatrain
