// The suite on a GPU. Skipped, with the reason, where there is none.
#include "engine/base/status.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/cuda/cuda_status.h"
#include "tests/engine/device/cuda/cuda_kernels_under_test.h"
#include "tests/engine/device/kernels_suite.h"

namespace megatrain {
namespace {

absl::StatusOr<std::unique_ptr<KernelsUnderTest>> MakeCudaKernels() {
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

INSTANTIATE_TEST_SUITE_P(Cuda, KernelsSuite,
                         testing::Combine(testing::Values(&MakeCudaKernels),
                                          testing::Values(DType::kF32, DType::kBF16)),
                         [](const auto& info) {
                           return std::string(DTypeName(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace megatrain
