// The kernels' suite on the GPU under test, and that cuDNN takes what it is there for.
#include <memory>
#include <string>
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
  std::shared_ptr<CudaApi> api = CudaUnderTest();
  MT_RETURN_IF_ERROR(FindCudaDevice(api.get(), 0).status());
  MT_RETURN_IF_ERROR(CudaStatus(*api, api->SetDevice(0), "cudaSetDevice"));
  MT_ASSIGN_OR_RETURN(const CudaSwitches switches, ReadCudaSwitches());
  MT_RETURN_IF_ERROR(api->LoadLibraries(switches));
  class OnTensorCores : public CudaKernelsUnderTest {
   public:
    using CudaKernelsUnderTest::CudaKernelsUnderTest;
    bool on_tensor_cores() const override { return true; }
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
  std::vector<AttentionCase> cases = {{4, 2, 64, 64, {0, 512, 1024}},
                                      {2, 1, 128, 128, {0, 1024}},
                                      {4, 2, 64, 64, {0, 512, 1024}, /*window=*/200}};
  const absl::StatusOr<CudaDeviceProperties> card = FindCudaDevice(CudaUnderTest().get(), 0);
  ASSERT_TRUE(card.ok()) << card.status();
  constexpr int kHopper = 9;
  if (card->major == kHopper) {
    cases.push_back({4, 2, 128, 128, {0, 100, 612, 620, 1500}});
    cases.push_back({4, 2, 128, 128, {0, 100, 612, 620, 1500}, /*window=*/150});
    cases.push_back({4, 4, 192, 128, {0, 512, 1024}});
    cases.push_back({4, 4, 192, 128, {0, 100, 612, 620, 1500}});
  }
  const absl::StatusOr<std::unique_ptr<KernelsUnderTest>> device = MakeGpuKernels();
  ASSERT_TRUE(device.ok()) << device.status();
  for (AttentionCase& shape : cases) {
    shape.choice = AttentionChoice::kLibrary;
    for (const bool backward : {false, true}) {
      SCOPED_TRACE(shape.Name() + (backward ? ", backward" : ""));
      Operands operands(5);
      KernelCall call;
      MakeAttention(shape, DType::kBF16, backward, &operands, &call);
      ExpectLikeReference(**device, operands, backward ? 8e-3 : 5e-3, call);
    }
  }
}

// The gradient of documents that are too long for one call of cuDNN's goes by blocks of queries and
// keys on Hopper (cudnn_blocks.h): two whole blocks, three with a shorter last one, and a long
// document beside a short one. Held against our own kernels, since the reference would take
// minutes; both are this far from it.
TEST(CudnnTest, LongDocumentsAreLikeOurOwn) {
  const absl::StatusOr<CudaDeviceProperties> card = FindCudaDevice(CudaUnderTest().get(), 0);
  ASSERT_TRUE(card.ok()) << card.status();
  constexpr int kHopper = 9;
  const AttentionChoice choice =
      card->major == kHopper ? AttentionChoice::kLibrary : AttentionChoice::kAuto;
  for (AttentionCase shape :
       {AttentionCase{7, 1, 128, 128, {0, 16'384}}, AttentionCase{2, 1, 64, 64, {0, 32'768}},
        AttentionCase{4, 1, 128, 128, {0, 16'001, 16'101}}}) {
    SCOPED_TRACE(shape.Name());
    const absl::StatusOr<std::unique_ptr<KernelsUnderTest>> device = MakeGpuKernels();
    ASSERT_TRUE(device.ok()) << device.status();
    const int64_t tokens = shape.document_starts.back();
    void* const workspace = (*device)->Allocate(
        (*device)->kernels().AttentionBackwardWorkspaceBytes({.dtype = DType::kBF16,
                                                              .tokens = tokens,
                                                              .sequence = tokens,
                                                              .heads = shape.heads,
                                                              .kv_heads = shape.kv_heads,
                                                              .head_dim = shape.head_dim,
                                                              .value_dim = shape.value_dim}));
    std::vector<Operands::Operand> results[2];
    Operands library(6), own(6);  // alike
    for (Operands* const operands : {&library, &own}) {
      shape.choice = operands == &own ? AttentionChoice::kOwn : choice;
      KernelCall call;
      MakeAttention(shape, DType::kBF16, /*backward=*/true, operands, &call, workspace);
      results[operands == &own] = RunOn(**device, *operands, call);
    }
    for (size_t i = 0; i < results[0].size(); ++i) {
      const Operands::Operand& operand = results[0][i];
      if (operand.kind != Operands::Operand::kF32 && operand.kind != Operands::Operand::kBF16) {
        continue;
      }
      ExpectClose(operand, results[1][i], 1e-2, "operand " + std::to_string(i), &own.all()[i]);
    }
  }
}

}  // namespace
}  // namespace megatrain
