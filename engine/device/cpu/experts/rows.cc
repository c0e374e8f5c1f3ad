#include "engine/device/cpu/experts/rows.h"

#include <algorithm>
#include <cstring>

#include "engine/device/cpu/loops/ranges.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/device/cpu/experts/rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again for each target.
#include "engine/device/cpu/loops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE void ScaleRowTo(const T* x, int64_t width, float weight, T* out) {
  const size_t lanes = hn::Lanes(DF()), n = static_cast<size_t>(width);
  const VF factor = hn::Set(DF(), weight);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) Store(hn::Mul(Load(x + i), factor), out + i);
  if (i < n) StoreFirst(hn::Mul(LoadFirst(x + i, n - i), factor), out + i, n - i);
}

template <typename T>
void GatherOf(const GatherRowsArgs& args, int64_t begin, int64_t end) {
  const int32_t* const assignments = args.range.assignments + args.range.first;
  for (int64_t row = begin; row < end; ++row) {
    const int32_t assignment = assignments[row];
    const T* const x = static_cast<const T*>(args.x) + assignment / args.range.chosen * args.width;
    T* const out = static_cast<T*>(args.out) + row * args.width;
    if (args.weights == nullptr) {
      std::memcpy(out, x, static_cast<size_t>(args.width) * sizeof(T));
    } else {
      ScaleRowTo(x, args.width, args.weights[assignment], out);
    }
  }
}

// sum += weight * x. A weight of 1 gives the bits of plain addition, because there is one rounding.
template <typename T>
HWY_INLINE void AddRow(const T* x, int64_t width, float weight, float* sum) {
  const size_t lanes = hn::Lanes(DF()), n = static_cast<size_t>(width);
  const VF factor = hn::Set(DF(), weight);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    Store(hn::MulAdd(Load(x + i), factor, Load(sum + i)), sum + i);
  }
  if (i < n) {
    const size_t rest = n - i;
    StoreFirst(hn::MulAdd(LoadFirst(x + i, rest), factor, LoadFirst(sum + i, rest)), sum + i, rest);
  }
}

// Adds columns [begin, end) of one row.
template <typename T>
HWY_INLINE void AddPartOfRow(const AddRowsArgs& args, int64_t row, int64_t begin, int64_t end) {
  const int32_t assignment = args.range.assignments[args.range.first + row];
  AddRow(static_cast<const T*>(args.x) + row * args.width + begin, end - begin,
         args.weights != nullptr ? args.weights[assignment] : 1.0f,
         args.sum + assignment / args.range.chosen * args.width + begin);
}

template <typename T>
void AddColumnsOf(const AddRowsArgs& args, int64_t begin, int64_t end) {
  for (int64_t row = 0; row < args.range.rows; ++row) AddPartOfRow<T>(args, row, begin, end);
}

template <typename T>
void AddTokensOf(const AddRowsArgs& args, int64_t begin, int64_t end) {
  const ExpertRows& range = args.range;
  for (int64_t i = begin * range.chosen; i < end * range.chosen; ++i) {
    const int64_t row = range.token_rows[i] - range.first;
    if (row >= 0 && row < range.rows) AddPartOfRow<T>(args, row, 0, args.width);
  }
}

template <typename T>
HWY_INLINE float Dot(const T* a, const T* b, int64_t width) {
  const size_t lanes = hn::Lanes(DF()), n = static_cast<size_t>(width);
  VF s0 = hn::Zero(DF()), s1 = s0, s2 = s0, s3 = s0;
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = hn::MulAdd(Load(a + i), Load(b + i), s0);
    s1 = hn::MulAdd(Load(a + i + lanes), Load(b + i + lanes), s1);
    s2 = hn::MulAdd(Load(a + i + 2 * lanes), Load(b + i + 2 * lanes), s2);
    s3 = hn::MulAdd(Load(a + i + 3 * lanes), Load(b + i + 3 * lanes), s3);
  }
  for (; i + lanes <= n; i += lanes) s0 = hn::MulAdd(Load(a + i), Load(b + i), s0);
  if (i < n) s1 = hn::MulAdd(LoadFirst(a + i, n - i), LoadFirst(b + i, n - i), s1);
  return SumLanes(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

template <typename T>
void WeighOf(const WeighRowsArgs& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int32_t assignment = args.range.assignments[args.range.first + row];
    T* const dout = static_cast<T*>(args.dout) + row * args.width;
    float sum = Dot(dout, static_cast<const T*>(args.out) + row * args.width, args.width);
    if (args.bias != nullptr) {
      const int64_t expert = args.choice[assignment] - args.first_expert;
      sum += Dot(static_cast<const T*>(args.dy) + row * args.bias_width,
                 static_cast<const T*>(args.bias) + expert * args.bias_width, args.bias_width);
    }
    args.dweights[assignment] = sum;
    ScaleRowTo(dout, args.width, args.weights[assignment], dout);
  }
}

void GatherRange(const GatherRowsArgs& args, int64_t begin, int64_t end) {
  args.dtype == DType::kF32 ? GatherOf<float>(args, begin, end)
                            : GatherOf<bf16_t>(args, begin, end);
}
void AddColumns(const AddRowsArgs& args, int64_t begin, int64_t end) {
  args.dtype == DType::kF32 ? AddColumnsOf<float>(args, begin, end)
                            : AddColumnsOf<bf16_t>(args, begin, end);
}
void AddTokens(const AddRowsArgs& args, int64_t begin, int64_t end) {
  args.dtype == DType::kF32 ? AddTokensOf<float>(args, begin, end)
                            : AddTokensOf<bf16_t>(args, begin, end);
}
void WeighRange(const WeighRowsArgs& args, int64_t begin, int64_t end) {
  args.dtype == DType::kF32 ? WeighOf<float>(args, begin, end) : WeighOf<bf16_t>(args, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace megatrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain {

HWY_EXPORT(GatherRange);
HWY_EXPORT(AddColumns);
HWY_EXPORT(AddTokens);
HWY_EXPORT(WeighRange);

void RunGatherRows(const GatherRowsArgs& args, ThreadPool* pool) {
  ForRanges(pool, args.range.rows, RowsInBlock(args.width), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(GatherRange)(args, begin, end);
  });
}

// Many rows are added by token, whose sum then stays in the cache. Among few rows most tokens have
// none, and looking for those that have one would take longer than adding: they are added by
// columns.
void RunAddRows(const AddRowsArgs& args, ThreadPool* pool) {
  const ExpertRows& range = args.range;
  if (range.rows > range.tokens / 4) {
    const int64_t rows_of_token = CeilDiv(range.rows, std::max<int64_t>(1, range.tokens));
    ForRanges(pool, range.tokens, RowsInBlock(rows_of_token * args.width),
              [&](int64_t begin, int64_t end) {
                HWY_DYNAMIC_DISPATCH(AddTokens)(args, begin, end);
              });
    return;
  }
  constexpr int64_t kColumns = 128;  // some cache lines of each row
  const int64_t columns = CeilDiv(RowsInBlock(range.rows), kColumns) * kColumns;
  ForRanges(pool, args.width, columns, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(AddColumns)(args, begin, end);
  });
}

void RunWeighRows(const WeighRowsArgs& args, ThreadPool* pool) {
  const int64_t width = args.width + (args.bias != nullptr ? args.bias_width : 0);
  ForRanges(pool, args.range.rows, RowsInBlock(width), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(WeighRange)(args, begin, end);
  });
}

}  // namespace megatrain
#endif  // HWY_ONCE
