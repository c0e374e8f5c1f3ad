// Products of a chunk's small FP32 matrices. The matrices stay in a core's caches, so that they
// need not be packed. Except for left operands (Left), matrices are row-major, and their strides
// are multiples of kPad. So is n, the number of columns of a result. Results must not overlap
// operands. This file is included once for each instruction set (Highway's foreach_target).
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

// A multiple of the number of FP32 lanes of every instruction set.
inline constexpr size_t kPad = 16;
// Returns n rounded up to a multiple of kPad.
HWY_INLINE size_t Padded(size_t n) { return (n + kPad - 1) / kPad * kPad; }

// The left operand of a product: element (i, l) is data[i * row + l * column].
struct Left {
  const float* data;
  size_t row, column = 1;

  // Returns the operand from row i and column l on.
  Left From(size_t i, size_t l) const { return {data + i * row + l * column, row, column}; }
};

// The part of its old content that a result keeps. Row i is multiplied by factors[i * step] before
// row i of the product is added. With null factors the result is overwritten.
struct Kept {
  const float* factors = nullptr;
  size_t step = 0;

  // Returns the factors from row i on.
  Kept From(size_t i) const { return {factors != nullptr ? factors + i * step : nullptr, step}; }
};
// kAdd keeps all of the old content.
inline constexpr float kOne = 1.0f;
inline constexpr Kept kAdd = {&kOne, 0};

// Computes Multiply (below) for kRows rows and kVectors vectors of columns. GCC keeps the sums in
// registers if it unrolls these loops early.
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

// The most rows that ProductTile computes at once.
inline constexpr size_t kTileRows = 6;

// Computes Multiply (below) for m rows and kVectors vectors of columns.
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

// Computes c[m, n] = kept * c + a[m, k] b[k, n]. The terms of an element are added in the order of
// k, so that its bits do not depend on m and n.
HWY_NOINLINE inline void Multiply(size_t m, size_t n, size_t k, const Left& a, const float* b,
                                  size_t b_stride, const Kept& kept, float* c, size_t c_stride) {
  const size_t lanes = hn::Lanes(DF());
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    ProductColumns<2>(m, k, a, b + i, b_stride, kept, c + i, c_stride);
  }
  for (; i < n; i += lanes) ProductColumns<1>(m, k, a, b + i, b_stride, kept, c + i, c_stride);
}

// A product with a triangular left operand is computed by bands of this many rows of that operand.
// The columns in which a whole band is beyond the triangle are left out. In the other columns the
// elements beyond the triangle are read, so they must be zeros.
inline constexpr size_t kBandRows = 2 * kTileRows;

// Computes Multiply for a lower triangular a[m, m].
HWY_INLINE void MultiplyLower(size_t m, size_t n, const Left& a, const float* b, size_t b_stride,
                              const Kept& kept, float* c, size_t c_stride) {
  for (size_t i = 0; i < m; i += kBandRows) {
    const size_t end = std::min(m, i + kBandRows);
    Multiply(end - i, n, end, a.From(i, 0), b, b_stride, kept.From(i), c + i * c_stride, c_stride);
  }
}

// Computes Multiply for an upper triangular a[m, m].
HWY_INLINE void MultiplyUpper(size_t m, size_t n, const Left& a, const float* b, size_t b_stride,
                              const Kept& kept, float* c, size_t c_stride) {
  for (size_t i = 0; i < m; i += kBandRows) {
    Multiply(std::min(m, i + kBandRows) - i, n, m - i, a.From(i, i), b + i * b_stride, b_stride,
             kept.From(i), c + i * c_stride, c_stride);
  }
}

// Solves x = y + a x with a strictly lower triangular a[m, m]. At first x holds y [m, n], and then
// the solution. Rows are solved one after another. What the rows before a tile of kTileRows rows
// add to it is computed for the whole tile at once.
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

// Solves the same equation with a strictly upper triangular a[m, m], from the last row to the
// first.
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

// Computes to[n, m] = from[m, n] transposed. Rows of `to` are filled with zeros up to Padded(m)
// elements.
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
