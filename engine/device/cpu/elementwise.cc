#include "engine/device/cpu/elementwise.h"

#include <cassert>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/device/cpu/elementwise.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again for each target.
#include "engine/device/cpu/loops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain {
namespace HWY_NAMESPACE {

template <bool kSquares>
double SumInDouble(const float* x, size_t n) {
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> dh;  // as many floats as a vector of doubles has lanes
  const size_t lanes = hn::Lanes(dd);
  auto s0 = hn::Zero(dd), s1 = s0, s2 = s0, s3 = s0;
  const auto add = [&](const float* p, auto& sum) HWY_ATTR {
    const auto v = hn::PromoteTo(dd, hn::LoadU(dh, p));
    sum = kSquares ? hn::MulAdd(v, v, sum) : hn::Add(v, sum);
  };
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    add(x + i, s0);
    add(x + i + lanes, s1);
    add(x + i + 2 * lanes, s2);
    add(x + i + 3 * lanes, s3);
  }
  double sum = hn::GetLane(hn::SumOfLanes(dd, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; i < n; ++i) {
    const double v = x[i];
    sum += kSquares ? v * v : v;
  }
  return sum;
}

double SquaresSum(const float* x, int64_t n) {
  return SumInDouble<true>(x, static_cast<size_t>(n));
}
double PlainSum(const float* x, int64_t n) { return SumInDouble<false>(x, static_cast<size_t>(n)); }

// out += scale * x. A scale of 1 gives the bits of plain addition, because there is one rounding.
template <typename T>
void AddRowTo(const T* x, size_t n, float scale, float* out) {
  const size_t lanes = hn::Lanes(DF());
  const VF factor = hn::Set(DF(), scale);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    Store(hn::MulAdd(Load(x + i), factor, Load(out + i)), out + i);
  }
  if (i < n) {
    const size_t rest = n - i;
    StoreFirst(hn::MulAdd(LoadFirst(x + i, rest), factor, LoadFirst(out + i, rest)), out + i, rest);
  }
}

void SumRows(DType dtype, const void* x, int64_t rows, int64_t n, int64_t stride, float* out) {
  for (int64_t row = 0; row < rows; ++row) {
    if (dtype == DType::kF32) {
      AddRowTo(static_cast<const float*>(x) + row * stride, static_cast<size_t>(n), 1.0f, out);
    } else {
      AddRowTo(static_cast<const bf16_t*>(x) + row * stride, static_cast<size_t>(n), 1.0f, out);
    }
  }
}

// y = a (+ b); b is null if there is none.
template <typename A, typename B, typename Y>
void AddRow(const A* a, const B* b, size_t n, Y* y) {
  const size_t lanes = hn::Lanes(DF());
  const auto part = [&]<bool kTail>(size_t i, size_t count) HWY_ATTR {
    VF sum = LoadPart<kTail>(a + i, count);
    if (b != nullptr) sum = hn::Add(sum, LoadPart<kTail>(b + i, count));
    StorePart<kTail>(sum, y + i, count);
  };
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) part.template operator()<false>(i, lanes);
  if (i < n) part.template operator()<true>(i, n - i);
}

template <typename A, typename B, typename Y>
void AddMatrices(const AddArgs& args, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end;) {
    const int64_t row = i / args.width, column = i % args.width;
    const int64_t n = HWY_MIN(end - i, args.width - column);
    const B* const b = static_cast<const B*>(args.b.data);
    AddRow(static_cast<const A*>(args.a.data) + row * args.a.stride + column,
           b != nullptr ? b + row * args.b.stride + column : nullptr, static_cast<size_t>(n),
           static_cast<Y*>(args.y) + row * args.y_stride + column);
    i += n;
  }
}

template <typename A, typename B>
void AddInto(const AddArgs& args, int64_t begin, int64_t end) {
  args.y_dtype == DType::kF32 ? AddMatrices<A, B, float>(args, begin, end)
                              : AddMatrices<A, B, bf16_t>(args, begin, end);
}
template <typename A>
void AddTo(const AddArgs& args, int64_t begin, int64_t end) {
  args.b.dtype == DType::kF32 ? AddInto<A, float>(args, begin, end)
                              : AddInto<A, bf16_t>(args, begin, end);
}
void AddParts(const AddArgs& args, int64_t begin, int64_t end) {
  args.a.dtype == DType::kF32 ? AddTo<float>(args, begin, end) : AddTo<bf16_t>(args, begin, end);
}

template <typename From, typename To>
HWY_INLINE void ConvertRow(const From* x, size_t n, To* out) {
  const size_t lanes = hn::Lanes(DF());
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) Store(Load(x + i), out + i);
  if (i < n) StoreFirst(LoadFirst(x + i, n - i), out + i, n - i);
}

void Narrow(const float* x, int64_t x_stride, int64_t rows, int64_t columns, bf16_t* out,
            int64_t out_stride) {
  for (int64_t row = 0; row < rows; ++row) {
    ConvertRow(x + row * x_stride, static_cast<size_t>(columns), out + row * out_stride);
  }
}

void Widen(const bf16_t* x, int64_t x_stride, int64_t rows, int64_t columns, float* out,
           int64_t out_stride) {
  for (int64_t row = 0; row < rows; ++row) {
    ConvertRow(x + row * x_stride, static_cast<size_t>(columns), out + row * out_stride);
  }
}

// Transposes the 4 x 4 elements at x into those at y.
HWY_INLINE void TransposeFour(const float* x, int64_t x_stride, float* y, int64_t y_stride) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t j = 0; j < 4; ++j) y[j * y_stride + i] = x[i * x_stride + j];
  }
#else
  const hn::FixedTag<float, 4> d;
  const auto r0 = hn::LoadU(d, x), r1 = hn::LoadU(d, x + x_stride);
  const auto r2 = hn::LoadU(d, x + 2 * x_stride), r3 = hn::LoadU(d, x + 3 * x_stride);
  const auto low01 = hn::InterleaveLower(d, r0, r1), low23 = hn::InterleaveLower(d, r2, r3);
  const auto up01 = hn::InterleaveUpper(d, r0, r1), up23 = hn::InterleaveUpper(d, r2, r3);
  hn::StoreU(hn::ConcatLowerLower(d, low23, low01), d, y);
  hn::StoreU(hn::ConcatUpperUpper(d, low23, low01), d, y + y_stride);
  hn::StoreU(hn::ConcatLowerLower(d, up23, up01), d, y + 2 * y_stride);
  hn::StoreU(hn::ConcatUpperUpper(d, up23, up01), d, y + 3 * y_stride);
#endif
}

// Goes by blocks whose transpose is written in whole lines of the cache: rows of `out` may lie a
// power of two apart, which leaves them few places there.
template <typename T>
void TransposeRows(const float* x, int64_t x_stride, int64_t rows, int64_t columns, T* out,
                   int64_t out_stride) {
  constexpr int64_t kBlock = 16;
  HWY_ALIGN float block[kBlock * kBlock];
  for (int64_t row = 0; row < rows; row += kBlock) {
    for (int64_t column = 0; column < columns; column += kBlock) {
      const int64_t height = HWY_MIN(kBlock, rows - row), width = HWY_MIN(kBlock, columns - column);
      for (int64_t i = 0; i < height; i += 4) {
        for (int64_t j = 0; j < width; j += 4) {
          const float* const from = x + (row + i) * x_stride + column + j;
          float* const to = block + j * kBlock + i;
          if (i + 4 <= height && j + 4 <= width) {
            TransposeFour(from, x_stride, to, kBlock);
            continue;
          }
          for (int64_t a = 0; a < HWY_MIN(4, height - i); ++a) {
            for (int64_t b = 0; b < HWY_MIN(4, width - j); ++b) {
              to[b * kBlock + a] = from[a * x_stride + b];
            }
          }
        }
      }
      for (int64_t j = 0; j < width; ++j) {
        ConvertRow(block + j * kBlock, static_cast<size_t>(height),
                   out + (column + j) * out_stride + row);
      }
    }
  }
}

void Transpose(const float* x, int64_t x_stride, int64_t rows, int64_t columns, DType dtype,
               void* out, int64_t out_stride) {
  dtype == DType::kF32
      ? TransposeRows(x, x_stride, rows, columns, static_cast<float*>(out), out_stride)
      : TransposeRows(x, x_stride, rows, columns, static_cast<bf16_t*>(out), out_stride);
}

template <typename T>
void ScaleRow(const T* x, size_t n, float scale, T* out) {
  const size_t lanes = hn::Lanes(DF());
  const VF factor = hn::Set(DF(), scale);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) Store(hn::Mul(Load(x + i), factor), out + i);
  if (i < n) StoreFirst(hn::Mul(LoadFirst(x + i, n - i), factor), out + i, n - i);
}

void Scale(DType dtype, const void* x, int64_t n, float scale, void* out) {
  if (dtype == DType::kF32) {
    ScaleRow(static_cast<const float*>(x), static_cast<size_t>(n), scale, static_cast<float*>(out));
  } else {
    ScaleRow(static_cast<const bf16_t*>(x), static_cast<size_t>(n), scale,
             static_cast<bf16_t*>(out));
  }
}

template <typename T>
void AddIds(const EmbeddingBackwardArgs& args, int64_t begin, int64_t end, int64_t column_begin,
            int64_t column_end) {
  const T* dout = static_cast<const T*>(args.dout);
  const auto id_at = [&](int64_t i) { return args.ids[args.sorted_positions[i]]; };
  int64_t i = begin;
  // An id that began before this range belongs to the range it began in.
  while (i > 0 && i < end && id_at(i) == id_at(i - 1)) ++i;
  while (i < end) {
    const int32_t id = id_at(i);
    assert(id >= 0 && id < args.vocabulary);
    float* sum = args.dtable + static_cast<int64_t>(id) * args.hidden + column_begin;
    for (; i < args.tokens && id_at(i) == id; ++i) {
      if (id == args.padding_id) continue;
      const int64_t row = static_cast<int64_t>(args.sorted_positions[i]) * args.hidden;
      AddRowTo(dout + row + column_begin, static_cast<size_t>(column_end - column_begin),
               args.scale, sum);
    }
  }
}

void AddIdsOf(const EmbeddingBackwardArgs& args, int64_t begin, int64_t end, int64_t column_begin,
              int64_t column_end) {
  if (args.dtype == DType::kF32) {
    AddIds<float>(args, begin, end, column_begin, column_end);
  } else {
    AddIds<bf16_t>(args, begin, end, column_begin, column_end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace megatrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain {

HWY_EXPORT(SquaresSum);
HWY_EXPORT(PlainSum);
HWY_EXPORT(SumRows);
HWY_EXPORT(AddParts);
HWY_EXPORT(Narrow);
HWY_EXPORT(Widen);
HWY_EXPORT(Transpose);
HWY_EXPORT(Scale);
HWY_EXPORT(AddIdsOf);

double SumOfSquaresOf(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(SquaresSum)(x, n); }

double SumOf(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(PlainSum)(x, n); }

void AddUpRows(DType dtype, const void* x, int64_t rows, int64_t n, int64_t stride, float* out) {
  HWY_DYNAMIC_DISPATCH(SumRows)(dtype, x, rows, n, stride, out);
}

void AddElements(const AddArgs& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(AddParts)(args, begin, end);
}

void NarrowToBf16(const float* x, int64_t n, bf16_t* out) { NarrowBlock(x, n, 1, n, out, n); }

void WidenToFloat(const bf16_t* x, int64_t n, float* out) { WidenBlock(x, n, 1, n, out, n); }

void NarrowBlock(const float* x, int64_t x_stride, int64_t rows, int64_t columns, bf16_t* out,
                 int64_t out_stride) {
  HWY_DYNAMIC_DISPATCH(Narrow)(x, x_stride, rows, columns, out, out_stride);
}

void WidenBlock(const bf16_t* x, int64_t x_stride, int64_t rows, int64_t columns, float* out,
                int64_t out_stride) {
  HWY_DYNAMIC_DISPATCH(Widen)(x, x_stride, rows, columns, out, out_stride);
}

void TransposeBlock(const float* x, int64_t x_stride, int64_t rows, int64_t columns, DType dtype,
                    void* out, int64_t out_stride) {
  HWY_DYNAMIC_DISPATCH(Transpose)(x, x_stride, rows, columns, dtype, out, out_stride);
}

void ScaleElements(DType dtype, const void* x, int64_t n, float scale, void* out) {
  HWY_DYNAMIC_DISPATCH(Scale)(dtype, x, n, scale, out);
}

void EmbeddingBackwardIds(const EmbeddingBackwardArgs& args, int64_t place_begin, int64_t place_end,
                          int64_t column_begin, int64_t column_end) {
  HWY_DYNAMIC_DISPATCH(AddIdsOf)(args, place_begin, place_end, column_begin, column_end);
}

}  // namespace megatrain
#endif  // HWY_ONCE
