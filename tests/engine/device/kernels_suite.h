// The tests every device's kernels pass: each kernel against the reference on random inputs. A
// device's own test file implements KernelsUnderTest and instantiates the suite:
//
//   INSTANTIATE_TEST_SUITE_P(Cpu, KernelsSuite,
//                            testing::Combine(testing::Values(&MakeCpuKernels),
//                                             testing::Values(DType::kF32, DType::kBF16)));
#ifndef MEGATRAIN_TESTS_ENGINE_DEVICE_KERNELS_SUITE_H_
#define MEGATRAIN_TESTS_ENGINE_DEVICE_KERNELS_SUITE_H_

#include <gtest/gtest.h>

#include <memory>
#include <tuple>

#include "absl/status/statusor.h"
#include "tests/engine/device/kernels_under_test.h"

namespace megatrain {

// NotFound or Unavailable: the machine has no such device, and the tests are skipped with that
// reason.
using KernelsFactory = absl::StatusOr<std::unique_ptr<KernelsUnderTest>> (*)();

class KernelsSuite : public testing::TestWithParam<std::tuple<KernelsFactory, DType>> {
 protected:
  void SetUp() override;
  DType dtype() const { return std::get<1>(GetParam()); }
  // What rounding the results to dtype costs, with room for FP32 sums.
  double tolerance() const { return dtype() == DType::kF32 ? 2e-6 : 3e-3; }
  // The relative error, in the norm, that a product's FP32 sums of k random terms may have before
  // the result is rounded.
  double SumError(int64_t k) const;
  // The relative error, in the norm, that a product's result of this type may have, with a bias or
  // without.
  double ProductError(DType out_dtype, int64_t k, bool with_bias) const;
  KernelsUnderTest& device() { return *device_; }

 private:
  std::unique_ptr<KernelsUnderTest> device_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_DEVICE_KERNELS_SUITE_H_
