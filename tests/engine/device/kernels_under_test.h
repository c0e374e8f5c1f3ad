// A device's kernels called on operands that are made on the host, and compared with the reference.
#ifndef MEGATRAIN_TESTS_ENGINE_DEVICE_KERNELS_UNDER_TEST_H_
#define MEGATRAIN_TESTS_ENGINE_DEVICE_KERNELS_UNDER_TEST_H_

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/device/device.h"
#include "engine/device/kernels.h"

namespace megatrain {

// One device: its kernels, and memory they can use. Everything is freed with the object.
class KernelsUnderTest {
 public:
  virtual ~KernelsUnderTest() = default;
  virtual Kernels& kernels() = 0;
  virtual Stream& stream() = 0;
  // Called before each of the two runs of a call.
  virtual void BeforeRun() {}
  // Whether cuBLASLt makes the products, those of BF16 on tensor cores, which cut sums off.
  virtual bool on_tensor_cores() const { return false; }
  virtual void* Allocate(int64_t bytes) = 0;
  // Ordered after, and finished before the return.
  virtual void CopyIn(void* device, const void* host, int64_t bytes) = 0;
  virtual void CopyOut(void* host, const void* device, int64_t bytes) = 0;
};
// The operands of one call, made on the host and copied to wherever the call runs.
class Operands {
 public:
  explicit Operands(uint64_t seed) : seed_(seed), random_(seed) {}

  // Each returns the operand's index. Normal values with the given deviation, rounded to dtype.
  size_t Random(DType dtype, int64_t n, double deviation = 1.0);
  // The same, and `behind` NaNs after them.
  size_t RandomBefore(DType dtype, int64_t n, int64_t behind);
  size_t Values(DType dtype, const std::vector<float>& values);
  size_t Ints(const std::vector<int32_t>& values);
  size_t Raw(int64_t bytes);                          // zeros, not compared
  size_t Doubles(const std::vector<double>& values);  // not compared

  struct Operand {
    enum Kind { kF32, kBF16, kInts, kRaw } kind;
    std::vector<char> bytes;
  };
  const std::vector<Operand>& all() const { return all_; }
  uint64_t seed() const { return seed_; }
  std::mt19937_64& random() { return random_; }

 private:
  const uint64_t seed_;
  std::mt19937_64 random_;
  std::vector<Operand> all_;
};

// Whether cases of this many elements or products are tested. Environment variable
// MEGATRAIN_TEST_SIZES=small leaves the larger ones out: under a sanitizer a kernel takes a hundred
// times as long.
bool SizeIsTested(int64_t elements);

// Of an operand of floats, F32 or BF16.
double ValueOf(const Operands::Operand& operand, size_t i);
std::vector<float> Normal(std::mt19937_64& random, int64_t n, double deviation);

// The reference's, which needs none.
class NoStream : public Stream {};

using KernelCall =
    std::function<absl::Status(Kernels&, Stream&, const std::vector<void*>& operands)>;

// Runs the call on the device twice and expects the same bits of every operand but the raw ones.
// Returns the operands after the first run.
std::vector<Operands::Operand> RunOn(KernelsUnderTest& device, const Operands& operands,
                                     const KernelCall& call);

// Runs the call on the reference; returns the operands afterwards.
std::vector<Operands::Operand> RunOnReference(const Operands& operands, const KernelCall& call);

// Expects |got - want| <= tolerance * |want| in the Euclidean norm, and a norm that is not 0.
// Elements that are NaN in `before` must be NaN in both. A failure says whether elements are NaN or
// wrong, and shows the first ones with their neighbours.
void ExpectClose(const Operands::Operand& got, const Operands::Operand& want, double tolerance,
                 const std::string& name, const Operands::Operand* before = nullptr);

// Expects the same bits. A failure shows the first elements that differ with their neighbours.
void ExpectSame(const Operands::Operand& got, const Operands::Operand& want,
                const std::string& name);

// Returns the number, type, size and seed of an operand, for messages.
std::string NameOf(const Operands& operands, size_t i);

// RunOn, and ExpectClose to the reference of every operand of floats; integers are the same.
void ExpectLikeReference(KernelsUnderTest& device, const Operands& operands, double tolerance,
                         const KernelCall& call);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_DEVICE_KERNELS_UNDER_TEST_H_
