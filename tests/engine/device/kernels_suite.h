// The tests every device's kernels pass: each kernel against the reference on random inputs. A
// device's own test file implements KernelsUnderTest and instantiates the suite:
//
//   INSTANTIATE_TEST_SUITE_P(Cpu, KernelsSuite,
//                            testing::Combine(testing::Values(&MakeCpuKernels),
//                                             testing::Values(DType::kF32, DType::kBF16)));
#ifndef MEGATRAIN_TESTS_ENGINE_DEVICE_KERNELS_SUITE_H_
#define MEGATRAIN_TESTS_ENGINE_DEVICE_KERNELS_SUITE_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/device/kernels.h"

namespace megatrain {

// One device: its kernels, and memory they can use. Everything is freed with the object.
class KernelsUnderTest {
 public:
  virtual ~KernelsUnderTest() = default;
  virtual Kernels& kernels() = 0;
  virtual Stream& stream() = 0;
  virtual void* Allocate(int64_t bytes) = 0;
  // Ordered after, and finished before the return.
  virtual void CopyIn(void* device, const void* host, int64_t bytes) = 0;
  virtual void CopyOut(void* host, const void* device, int64_t bytes) = 0;
};
// NotFound or Unavailable: the machine has no such device, and the tests are skipped with that
// reason.
using KernelsFactory = absl::StatusOr<std::unique_ptr<KernelsUnderTest>> (*)();

// The operands of one call, made on the host and copied to wherever the call runs.
class Operands {
 public:
  explicit Operands(uint64_t seed) : random_(seed) {}

  // Each returns the operand's index. Normal values with the given deviation, rounded to dtype.
  size_t Random(DType dtype, int64_t n, double deviation = 1.0);
  size_t Values(DType dtype, const std::vector<float>& values);
  size_t Ints(const std::vector<int32_t>& values);
  size_t Raw(int64_t bytes);  // zeros, not compared

  struct Operand {
    enum Kind { kF32, kBF16, kInts, kRaw } kind;
    std::vector<char> bytes;
  };
  const std::vector<Operand>& all() const { return all_; }
  std::mt19937_64& random() { return random_; }

 private:
  std::mt19937_64 random_;
  std::vector<Operand> all_;
};

using KernelCall =
    std::function<absl::Status(Kernels&, Stream&, const std::vector<void*>& operands)>;

// Runs the call on the device; returns the operands afterwards.
std::vector<Operands::Operand> RunOn(KernelsUnderTest& device, const Operands& operands,
                                     const KernelCall& call);

// Runs the call on the device and on the reference and expects, of every operand, |device -
// reference| <= tolerance * |reference| in the Euclidean norm, and bitwise the same from a second
// run on the device.
void ExpectLikeReference(KernelsUnderTest& device, const Operands& operands, double tolerance,
                         const KernelCall& call);

class KernelsSuite : public testing::TestWithParam<std::tuple<KernelsFactory, DType>> {
 protected:
  void SetUp() override;
  DType dtype() const { return std::get<1>(GetParam()); }
  // What rounding the results to dtype costs, with room for FP32 sums.
  double tolerance() const { return dtype() == DType::kF32 ? 2e-6 : 3e-3; }
  KernelsUnderTest& device() { return *device_; }

 private:
  std::unique_ptr<KernelsUnderTest> device_;
};

// The cases of the suite that take many shapes, for tests that compare pool sizes too.
struct AttentionCase {
  int64_t heads, kv_heads, head_dim;
  std::vector<int32_t> document_starts;
};
const std::vector<AttentionCase>& AttentionCases();
// Operands and calls of one case: forward, or forward and backward.
void MakeAttention(const AttentionCase& shape, DType dtype, bool backward, Operands* operands,
                   KernelCall* call);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_DEVICE_KERNELS_SUITE_H_
