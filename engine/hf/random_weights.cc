#include "engine/hf/random_weights.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/master_convert.h"

namespace megatrain {
namespace {

constexpr int64_t kBlockElements = int64_t{1} << 16;
// 256 KiB of FP32, which a processor's cache holds.
constexpr int64_t kConvertElements = kBlockElements;

// The n-th output of SplitMix64 (Steele, Lea, Flood 2014) started at `key`: its state is a counter,
// so that any element can be had without those before it.
uint64_t SplitMix(uint64_t key, uint64_t n) {
  uint64_t z = key + (n + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Natural logarithm from additions and multiplications alone, so that weights do not depend on the
// C library. x = m 2^e with m in [sqrt(1/2), sqrt(2)); ln m = 2 atanh(s), s = (m - 1) / (m + 1),
// |s| <= 0.172: the series' first neglected term is 2 s^13 / 13 < 2e-11. REQUIRES: x > 0, normal.
double Log(double x) {
  uint64_t bits = std::bit_cast<uint64_t>(x);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  bits = (bits & 0xfffffffffffffu) | 0x3ff0000000000000u;
  double m = std::bit_cast<double>(bits);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0), t = s * s;
  const double series =
      1.0 + t * (1.0 / 3 + t * (1.0 / 5 + t * (1.0 / 7 + t * (1.0 / 9 + t * (1.0 / 11)))));
  return static_cast<double>(exponent) * 0.6931471805599453 + 2.0 * s * series;
}

constexpr double kDecayMin = 0.01, kDecayMax = 16.0;  // of Initial::kLogUniform

// A double in (0, 1), symmetric about 1/2, from 32 bits.
double Uniform(uint32_t bits) { return (static_cast<double>(bits) + 0.5) * 0x1p-32; }

}  // namespace

// Wichura's AS 241 (1988), the seven-digit version: a rational function near the middle, and two of
// sqrt(-ln p) for the tails.
float InverseNormal(double p) {
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return static_cast<float>(
        q *
        (((5.9109374720e+01 * r + 1.5929113202e+02) * r + 5.0434271938e+01) * r +
         3.3871327179e+00) /
        (((6.7187563600e+01 * r + 7.8757757664e+01) * r + 1.7895169469e+01) * r + 1.0));
  }
  double r = std::sqrt(-Log(q < 0.0 ? p : 1.0 - p));
  double value;
  if (r <= 5.0) {
    r -= 1.6;
    value = (((1.7023821103e-01 * r + 1.3067284816e+00) * r + 2.7568153900e+00) * r +
             1.4234372777e+00) /
            ((1.2021132975e-01 * r + 7.3700164250e-01) * r + 1.0);
  } else {
    r -= 5.0;
    value = (((1.7337203997e-02 * r + 4.2868294337e-01) * r + 3.0812263860e+00) * r +
             6.6579051150e+00) /
            ((1.2258202635e-02 * r + 2.4197894225e-01) * r + 1.0);
  }
  return static_cast<float>(q < 0.0 ? -value : value);
}

void FillRandomWeights(const ModelDescription& config, uint64_t seed, const TensorSpec& tensor,
                       int64_t begin, int64_t elements, float* out, ThreadPool* pool) {
  if (tensor.initial == Initial::kZero || tensor.initial == Initial::kOne) {
    std::fill(out, out + elements, tensor.initial == Initial::kOne ? 1.0f : 0.0f);
    return;
  }
  const uint64_t key = XXH3_64bits_withSeed(tensor.name.data(), tensor.name.size(), seed);
  const float deviation = static_cast<float>(config.initializer_range);
  const auto fill = [&](int64_t block) {
    const int64_t first = block * kBlockElements;
    const int64_t last = std::min(first + kBlockElements, elements);
    for (int64_t i = first; i < last; ++i) {
      // Two elements share the halves of one 64-bit output.
      const uint64_t element = static_cast<uint64_t>(begin + i);
      const uint64_t random = SplitMix(key, element / 2);
      const uint32_t half = static_cast<uint32_t>(element % 2 == 0 ? random : random >> 32);
      const double uniform = Uniform(half);
      out[i] = tensor.initial == Initial::kLogUniform
                   ? static_cast<float>(Log(kDecayMin + (kDecayMax - kDecayMin) * uniform))
                   : InverseNormal(uniform) * deviation;
    }
  };
  const int64_t blocks = (elements + kBlockElements - 1) / kBlockElements;
  if (pool != nullptr) {
    pool->ParallelFor(blocks, fill);
  } else {
    for (int64_t block = 0; block < blocks; ++block) fill(block);
  }
  const bool is_table =
      tensor.name == kEmbeddingTensorName || tensor.name == kPerLayerTableTensorName;
  if (config.padding_id < 0 || !is_table) return;
  // As torch.nn.Embedding does, which never trains this row.
  const int64_t width = tensor.shape.back(), row = config.padding_id * width - begin;
  const int64_t first = std::clamp<int64_t>(row, 0, elements);
  const int64_t last = std::clamp<int64_t>(row + width, 0, elements);
  std::fill(out + first, out + last, 0.0f);
}

void InitializeTile(const ModelDescription& config, uint64_t seed, const Tile& tile) {
  ZeroPaddingAndMoments(tile);
  std::vector<float> values;
  for (const TensorSpec& tensor : tile.layout->tensors) {
    const Tile place = TensorTile(tile, tensor);
    for (const TensorRun& run : HeldRunsOf(tile, tensor)) {
      if (place.weight_dtype == DType::kF32) {
        FillRandomWeights(config, seed, tensor, run.source, run.elements,
                          static_cast<float*>(place.WeightsAt(run.place)), nullptr);
        continue;
      }
      values.resize(std::min(run.elements, kConvertElements));
      for (int64_t done = 0; done < run.elements;) {
        const int64_t elements = std::min(run.elements - done, kConvertElements);
        FillRandomWeights(config, seed, tensor, run.source + done, elements, values.data(),
                          nullptr);
        // Every value is finite: a deviate is below 7, initializer_range at most 1000.
        StoreMaster(FileDType::kF32, values.data(), elements, place, run.place + done);
        done += elements;
      }
    }
  }
}

}  // namespace megatrain
