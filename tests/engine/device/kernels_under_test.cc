#include "tests/engine/device/kernels_under_test.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/device/reference_kernels.h"

namespace megatrain {
namespace {

template <typename T>
std::vector<char> BytesOf(const std::vector<T>& values) {
  std::vector<char> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace

std::vector<float> Normal(std::mt19937_64& random, int64_t n, double deviation) {
  std::normal_distribution<double> distribution(0.0, deviation);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = static_cast<float>(distribution(random));
  return values;
}

double ValueOf(const Operands::Operand& operand, size_t i) {
  if (operand.kind == Operands::Operand::kF32) {
    float value = 0;
    std::memcpy(&value, operand.bytes.data() + 4 * i, 4);
    return value;
  }
  bf16_t value = 0;
  std::memcpy(&value, operand.bytes.data() + 2 * i, 2);
  return Bf16ToFloat(value);
}

size_t Operands::Random(DType dtype, int64_t n, double deviation) {
  return Values(dtype, Normal(random_, n, deviation));
}

size_t Operands::RandomBefore(DType dtype, int64_t n, int64_t behind) {
  std::vector<float> values = Normal(random_, n, 1.0);
  values.resize(static_cast<size_t>(n + behind), std::numeric_limits<float>::quiet_NaN());
  return Values(dtype, values);
}

size_t Operands::Values(DType dtype, const std::vector<float>& values) {
  if (dtype == DType::kF32) {
    all_.push_back({Operand::kF32, BytesOf(values)});
  } else {
    std::vector<bf16_t> rounded(values.size());
    std::transform(values.begin(), values.end(), rounded.begin(), FloatToBf16);
    all_.push_back({Operand::kBF16, BytesOf(rounded)});
  }
  return all_.size() - 1;
}

size_t Operands::Ints(const std::vector<int32_t>& values) {
  all_.push_back({Operand::kInts, BytesOf(values)});
  return all_.size() - 1;
}

size_t Operands::Raw(int64_t bytes) {
  all_.push_back({Operand::kRaw, std::vector<char>(static_cast<size_t>(bytes))});
  return all_.size() - 1;
}

std::vector<Operands::Operand> RunOn(KernelsUnderTest& device, const Operands& operands,
                                     const KernelCall& call) {
  std::vector<Operands::Operand> results = operands.all();
  std::vector<void*> pointers;
  for (const Operands::Operand& operand : results) {
    const int64_t bytes = static_cast<int64_t>(operand.bytes.size());
    pointers.push_back(device.Allocate(bytes));
    device.CopyIn(pointers.back(), operand.bytes.data(), bytes);
  }
  const absl::Status status = call(device.kernels(), device.stream(), pointers);
  EXPECT_TRUE(status.ok()) << status;
  for (size_t i = 0; i < results.size(); ++i) {
    device.CopyOut(results[i].bytes.data(), pointers[i],
                   static_cast<int64_t>(results[i].bytes.size()));
  }
  return results;
}

void ExpectLikeReference(KernelsUnderTest& device, const Operands& operands, double tolerance,
                         const KernelCall& call) {
  const std::vector<Operands::Operand> results = RunOn(device, operands, call);
  const std::vector<Operands::Operand> again = RunOn(device, operands, call);
  std::vector<Operands::Operand> expected = operands.all();
  std::vector<void*> pointers;
  for (Operands::Operand& operand : expected) pointers.push_back(operand.bytes.data());
  ReferenceKernels reference;
  NoStream no_stream;
  const absl::Status status = call(reference, no_stream, pointers);
  ASSERT_TRUE(status.ok()) << status;
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].kind == Operands::Operand::kRaw) continue;
    EXPECT_EQ(results[i].bytes, again[i].bytes) << "operand " << i << " is not repeatable";
    if (results[i].kind == Operands::Operand::kInts) {
      EXPECT_EQ(results[i].bytes, expected[i].bytes) << "operand " << i;
      continue;
    }
    const size_t size = results[i].kind == Operands::Operand::kF32 ? 4 : 2;
    double difference = 0, norm = 0;
    for (size_t j = 0; j < results[i].bytes.size() / size; ++j) {
      const double want = ValueOf(expected[i], j);
      if (std::isnan(ValueOf(operands.all()[i], j))) {
        // Neither of them has anything to do there.
        ASSERT_TRUE(std::isnan(want)) << "operand " << i << ", element " << j;
        ASSERT_TRUE(std::isnan(ValueOf(results[i], j))) << "operand " << i << ", element " << j;
        continue;
      }
      const double error = ValueOf(results[i], j) - want;
      difference += error * error;
      norm += want * want;
    }
    EXPECT_GT(norm, 0.0) << "operand " << i << " compares nothing";
    EXPECT_LE(std::sqrt(difference), tolerance * std::sqrt(norm)) << "operand " << i;
  }
}

}  // namespace megatrain
