#include "tests/engine/device/kernels_under_test.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>

#include "engine/device/reference_kernels.h"

namespace megatrain {
namespace {

template <typename T>
std::vector<char> BytesOf(const std::vector<T>& values) {
  std::vector<char> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

using Operand = Operands::Operand;

size_t SizeOf(const Operand& operand) {
  return operand.kind == Operand::kBF16 ? 2 : operand.kind == Operand::kRaw ? 1 : 4;
}

std::string TextOf(const Operand& operand, size_t i) {
  char text[32];
  if (operand.kind == Operand::kInts) {
    int32_t value = 0;
    std::memcpy(&value, operand.bytes.data() + 4 * i, 4);
    std::snprintf(text, sizeof(text), "%d", static_cast<int>(value));
  } else {
    std::snprintf(text, sizeof(text), "%.9g", ValueOf(operand, i));
  }
  return text;
}

// The first of the `chosen` elements of both operands, marked *, between their neighbours.
std::string Show(const Operand& a, const char* a_name, const Operand& b, const char* b_name,
                 const std::vector<size_t>& chosen) {
  constexpr size_t kShown = 3, kNeighbours = 2;
  const size_t count = a.bytes.size() / SizeOf(a);
  std::string text =
      "  " + std::to_string(chosen.size()) + " of " + std::to_string(count) + " elements";
  if (chosen.empty()) return text + " (spread: none stands out)\n";
  text += ", the first " + std::to_string(chosen.front()) + ", the last " +
          std::to_string(chosen.back()) + "\n";
  size_t next = 0;  // not shown yet
  for (size_t c = 0; c < std::min(kShown, chosen.size()); ++c) {
    const size_t begin = chosen[c] < kNeighbours ? 0 : chosen[c] - kNeighbours;
    for (size_t j = std::max(begin, next); j < std::min(count, chosen[c] + kNeighbours + 1); ++j) {
      const bool is_chosen = std::binary_search(chosen.begin(), chosen.end(), j);
      text += std::string(is_chosen ? "  * [" : "    [") + std::to_string(j) + "] " + a_name + " " +
              TextOf(a, j) + ", " + b_name + " " + TextOf(b, j) + "\n";
      next = j + 1;
    }
  }
  return text;
}

std::vector<Operand> RunOnce(KernelsUnderTest& device, const Operands& operands,
                             const KernelCall& call) {
  std::vector<Operand> results = operands.all();
  std::vector<void*> pointers;
  for (const Operand& operand : results) {
    const int64_t bytes = static_cast<int64_t>(operand.bytes.size());
    pointers.push_back(device.Allocate(bytes));
    device.CopyIn(pointers.back(), operand.bytes.data(), bytes);
  }
  device.BeforeRun();
  const absl::Status status = call(device.kernels(), device.stream(), pointers);
  EXPECT_TRUE(status.ok()) << status;
  for (size_t i = 0; i < results.size(); ++i) {
    device.CopyOut(results[i].bytes.data(), pointers[i],
                   static_cast<int64_t>(results[i].bytes.size()));
  }
  return results;
}

std::vector<size_t> DifferentElements(const Operand& a, const Operand& b) {
  const size_t size = SizeOf(a), count = a.bytes.size() / size;
  std::vector<size_t> different;
  for (size_t j = 0; j < count; ++j) {
    if (std::memcmp(&a.bytes[size * j], &b.bytes[size * j], size) != 0) different.push_back(j);
  }
  return different;
}

}  // namespace

std::string NameOf(const Operands& operands, size_t i) {
  static constexpr const char* kNames[] = {"fp32", "bf16", "int32", "bytes"};
  const Operand& operand = operands.all()[i];
  return "operand " + std::to_string(i) + " (" + kNames[operand.kind] + " [" +
         std::to_string(operand.bytes.size() / SizeOf(operand)) + "], seed " +
         std::to_string(operands.seed()) + ")";
}

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

size_t Operands::Doubles(const std::vector<double>& values) {
  all_.push_back({Operand::kRaw, BytesOf(values)});
  return all_.size() - 1;
}

bool SizeIsTested(int64_t elements) {
  static const bool small = [] {
    const char* const sizes = std::getenv("MEGATRAIN_TEST_SIZES");
    return sizes != nullptr && std::string_view(sizes) == "small";
  }();
  constexpr int64_t kSmall = 1 << 13;
  return !small || elements <= kSmall;
}

std::vector<Operands::Operand> RunOn(KernelsUnderTest& device, const Operands& operands,
                                     const KernelCall& call) {
  std::vector<Operands::Operand> results = RunOnce(device, operands, call);
  const std::vector<Operands::Operand> again = RunOnce(device, operands, call);
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].kind == Operands::Operand::kRaw || results[i].bytes == again[i].bytes) continue;
    ADD_FAILURE() << "DIFFERENT FROM RUN TO RUN: " << NameOf(operands, i) << "\n"
                  << Show(again[i], "then", results[i], "first",
                          DifferentElements(results[i], again[i]));
  }
  return results;
}

std::vector<Operands::Operand> RunOnReference(const Operands& operands, const KernelCall& call) {
  std::vector<Operands::Operand> results = operands.all();
  std::vector<void*> pointers;
  for (Operands::Operand& operand : results) pointers.push_back(operand.bytes.data());
  ReferenceKernels reference;
  NoStream no_stream;
  const absl::Status status = call(reference, no_stream, pointers);
  EXPECT_TRUE(status.ok()) << status;
  return results;
}

void ExpectClose(const Operands::Operand& got, const Operands::Operand& want, double tolerance,
                 const std::string& name, const Operands::Operand* before) {
  const size_t count = want.bytes.size() / SizeOf(want);
  double difference = 0, norm = 0;
  std::vector<size_t> not_numbers, touched;
  for (size_t j = 0; j < count; ++j) {
    const double expected = ValueOf(want, j), value = ValueOf(got, j);
    if (before != nullptr && std::isnan(ValueOf(*before, j))) {
      ASSERT_TRUE(std::isnan(expected)) << name << ": the reference writes element " << j;
      if (!std::isnan(value)) touched.push_back(j);
      continue;
    }
    if (!std::isfinite(value) || !std::isfinite(expected)) {
      not_numbers.push_back(j);
      continue;
    }
    difference += (value - expected) * (value - expected);
    norm += expected * expected;
  }
  EXPECT_TRUE(touched.empty()) << "WRONG: " << name << ": written beyond its end\n"
                               << Show(got, "got", want, "want", touched);
  EXPECT_TRUE(not_numbers.empty()) << "NAN: " << name << "\n"
                                   << Show(got, "got", want, "want", not_numbers);
  if (!not_numbers.empty()) return;
  EXPECT_GT(norm, 0.0) << name << " compares nothing";
  const double error = std::sqrt(difference), limit = tolerance * std::sqrt(norm);
  if (error <= limit) return;
  // Elements that are off by more than all may be on average; if there is none, all are.
  const double typical = std::sqrt(norm / static_cast<double>(std::max<size_t>(count, 1)));
  std::vector<size_t> wrong;
  for (size_t j = 0; j < count; ++j) {
    const double expected = ValueOf(want, j);
    if (std::abs(ValueOf(got, j) - expected) > 4 * tolerance * (std::abs(expected) + typical)) {
      wrong.push_back(j);
    }
  }
  ADD_FAILURE() << "WRONG: " << name << ": relative error " << error / std::sqrt(norm)
                << ", at most " << tolerance << "\n"
                << Show(got, "got", want, "want", wrong);
}

void ExpectSame(const Operands::Operand& got, const Operands::Operand& want,
                const std::string& name) {
  ASSERT_EQ(got.bytes.size(), want.bytes.size()) << name;
  const std::vector<size_t> different = DifferentElements(got, want);
  EXPECT_TRUE(different.empty()) << "WRONG: " << name << "\n"
                                 << Show(got, "got", want, "want", different);
}

void ExpectLikeReference(KernelsUnderTest& device, const Operands& operands, double tolerance,
                         const KernelCall& call) {
  const std::vector<Operands::Operand> results = RunOn(device, operands, call);
  const std::vector<Operands::Operand> expected = RunOnReference(operands, call);
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string name = NameOf(operands, i);
    if (results[i].kind == Operands::Operand::kInts) {
      ExpectSame(results[i], expected[i], name);
    } else if (results[i].kind != Operands::Operand::kRaw) {
      ExpectClose(results[i], expected[i], tolerance, name, &operands.all()[i]);
    }
  }
}

}  // namespace megatrain
