// Products of a chunk's small FP32 matrices. They stay in a core's caches, so that nothing is
// packed. Matrices are row-major, and their strides and the columns of results are multiples of
// kPad. This file is included once for each instruction set (Highway's foreach_target).
#include <algorithm>
#include <cstddef>

#include "engine/device/cpu/loops/simd-inl.h"

#if defined(MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_PRODUCTS_INL_H_
#undef MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_PRODUCTS_INL_H_
#else
#define MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_PRODUCTS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace megatrain {
namespace HWY_NAMESPACE {

// A multiple of every target's lanes.
inline constexpr size_t kPad = 16;
HWY_INLINE size_t Padded(size_t n) { return (n + kPad - 1) / kPad * kPad; }

// The left operand of a product: element (i, l) is data[i * row + l * column].
struct Left {
  const float* data;
  size_t row, column = 1;

  Left From(size_t i, size_t l) const { return {data + i * row + l * column, row, column}; }
};

// The part of its old content that a result keeps: row i is multiplied by factors[i * step] before
// row i of the product is added. Null factors keep nothing.
struct Kept {
  const float* factors = nullptr;
  size_t step = 0;

  Kept From(size_t i) const { return {factors != nullptr ? factors + i * step : nullptr, step}; }
};
inline constexpr float kOne = 1.0f;
inline constexpr Kept kAdd = {&kOne, 0};

// Multiply for kRows rows and kVectors vectors of columns. GCC keeps the sums in registers if it
// unrolls these loops early.
template <int kRows, int kVectors>
HWY_INLINE void ProductTile(const Left& a, const float* HWY_RESTRICT b, size_t b_stride, size_t k,
                            const Kept& kept, float* HWY_RESTRICT c, size_t c_stride) {
  const DF df;
  const size_t lanes = hn::Lanes(df);
  VF sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const size_t row = static_cast<size_t>(r);
      sums[r][v] = hn::Zero(df);
      if (kept.factors != nullptr) {
        sums[r][v] = hn::Mul(hn::Set(df, kept.factors[row * kept.step]),
                             Load(c + row * c_stride + static_cast<size_t>(v) * lanes));
      }
    }
  }
  for (size_t l = 0; l < k; ++l) {
    VF right[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      right[v] = Load(b + l * b_stride + static_cast<size_t>(v) * lanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const VF left = hn::Set(df, a.data[static_cast<size_t>(r) * a.row + l * a.column]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(left, right[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      Store(sums[r][v], c + static_cast<size_t>(r) * c_stride + static_cast<size_t>(v) * lanes);
    }
  }
}

// The most rows of a tile.
inline constexpr size_t kTileRows = 6;

// Multiply for kVectors vectors of columns.
template <int kVectors>
HWY_INLINE void ProductColumns(size_t m, size_t k, const Left& a, const float* b, size_t b_stride,
                               const Kept& kept, float* c, size_t c_stride) {
  const auto tile = [&]<int kRows>(size_t i) HWY_ATTR {
    ProductTile<kRows, kVectors>(a.From(i, 0), b, b_stride, k, kept.From(i), c + i * c_stride,
                                 c_stride);
  };
  size_t i = 0;
  for (; i + kTileRows <= m; i += kTileRows) tile.template operator()<int{kTileRows}>(i);
  for (; i + 2 <= m; i += 2) tile.template operator()<2>(i);
  if (i < m) tile.template operator()<1>(i);
}

// Computes c[m, n] = kept * c + a[m, k] b[k, n]. An element's terms are added in the order of k,
// whatever m and n are.
HWY_NOINLINE inline void Multiply(size_t m, size_t n, size_t k, const Left& a, const float* b,
                                  size_t b_stride, const Kept& kept, float* c, size_t c_stride) {
  const size_t lanes = hn::Lanes(DF());
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    ProductColumns<2>(m, k, a, b + i, b_stride, kept, c + i, c_stride);
  }
  for (; i < n; i += lanes) ProductColumns<1>(m, k, a, b + i, b_stride, kept, c + i, c_stride);
}

// A product with a triangular operand goes by bands of this many of its rows, and leaves out the
// columns in which a band has only zeros. Zeros in the other columns are read.
inline constexpr size_t kBandRows = 2 * kTileRows;

// Multiply with a lower triangular a[m, m].
HWY_INLINE void MultiplyLower(size_t m, size_t n, const Left& a, const float* b, size_t b_stride,
                              const Kept& kept, float* c, size_t c_stride) {
  for (size_t i = 0; i < m; i += kBandRows) {
    const size_t end = std::min(m, i + kBandRows);
    Multiply(end - i, n, end, a.From(i, 0), b, b_stride, kept.From(i), c + i * c_stride, c_stride);
  }
}

// Multiply with an upper triangular a[m, m].
HWY_INLINE void MultiplyUpper(size_t m, size_t n, const Left& a, const float* b, size_t b_stride,
                              const Kept& kept, float* c, size_t c_stride) {
  for (size_t i = 0; i < m; i += kBandRows) {
    Multiply(std::min(m, i + kBandRows) - i, n, m - i, a.From(i, i), b + i * b_stride, b_stride,
             kept.From(i), c + i * c_stride, c_stride);
  }
}

// Solves x = y + a x in place of y [m, n], with a strictly lower triangular a[m, m]: row after row,
// the rows of a tile at once as far as the rows before the tile are concerned.
HWY_INLINE void SolveLower(size_t m, size_t n, const Left& a, float* x, size_t stride) {
  for (size_t tile = 0; tile < m; tile += kTileRows) {
    const size_t end = std::min(m, tile + kTileRows);
    if (tile > 0) {
      Multiply(end - tile, n, tile, a.From(tile, 0), x, stride, kAdd, x + tile * stride, stride);
    }
    for (size_t i = tile + 1; i < end; ++i) {
      Multiply(1, n, i - tile, a.From(i, tile), x + tile * stride, stride, kAdd, x + i * stride,
               stride);
    }
  }
}

// Solves the same with a strictly upper triangular a[m, m], from the last row to the first.
HWY_INLINE void SolveUpper(size_t m, size_t n, const Left& a, float* x, size_t stride) {
  for (size_t end = m; end > 0;) {
    const size_t tile = (end - 1) / kTileRows * kTileRows;
    if (end < m) {
      Multiply(end - tile, n, m - end, a.From(tile, end), x + end * stride, stride, kAdd,
               x + tile * stride, stride);
    }
    for (size_t i = end - 1; i > tile; --i) {
      Multiply(1, n, end - i, a.From(i - 1, i), x + i * stride, stride, kAdd, x + (i - 1) * stride,
               stride);
    }
    end = tile;
  }
}

// to[n, m] = from[m, n] transposed. Rows of `to` are filled up with zeros to a multiple of kPad.
HWY_INLINE void Transpose(const float* from, size_t from_stride, size_t m, size_t n, float* to,
                          size_t to_stride) {
  const DF df;
  const hn::RebindToSigned<DF> di;
  const size_t lanes = hn::Lanes(df);
  const auto places = hn::Mul(hn::Iota(di, 0), hn::Set(di, static_cast<int32_t>(from_stride)));
  size_t i = 0;
  for (; i + lanes <= m; i += lanes) {
    for (size_t j = 0; j < n; ++j) {
      Store(hn::GatherIndex(df, from + i * from_stride + j, places), to + j * to_stride + i);
    }
  }
  for (; i < Padded(m); ++i) {
    for (size_t j = 0; j < n; ++j) {
      to[j * to_stride + i] = i < m ? from[i * from_stride + j] : 0.0f;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace megatrain
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
