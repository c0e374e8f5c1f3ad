// Computes a chunk of the gated delta rule by products of matrices (Yang et al. 2024, section 3.3).
// Take one value head, with the state S at the chunk's start. Q and K have the rows q^ and k^ of
// GatedDeltaArgs, V and U the rows v and u. G is as in ChunkGates, and D[i, j] = exp(G_i - G_j) for
// j <= i, else 0. * is the product by elements. Then the recurrence of GatedDeltaArgs is
//   U = diag(beta) (V - diag(exp G) K S - strictly_lower(D * K K^T) U)
//   out = diag(exp G) Q S + (D * Q K^T) U
//   S at the end = exp(G_last) S + K^T diag(exp(G_last - G)) U
//
// This file is included once for each instruction set (Highway's foreach_target).
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "engine/device/cpu/delta/gates.h"
#include "engine/device/cpu/delta/products-inl.h"
#include "engine/device/delta_args.h"

#if defined(MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_CHUNK_INL_H_
#undef MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_CHUNK_INL_H_
#else
#define MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_CHUNK_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace megatrain {
namespace HWY_NAMESPACE {

inline constexpr size_t kChunk = static_cast<size_t>(kDeltaChunk);
static_assert(kChunk % kPad == 0);

// The sizes of a head's vectors and the strides of rows of them, in floats.
struct HeadSizes {
  explicit HeadSizes(const GatedDeltaArgs& args)
      : key(static_cast<size_t>(args.key_dim)),
        value(static_cast<size_t>(args.value_dim)),
        key_stride(Padded(key)),
        value_stride(Padded(value)),
        state(key * value_stride),
        group(static_cast<size_t>(args.value_heads / args.key_heads)) {}

  size_t key, value, key_stride, value_stride;
  size_t state;  // the floats of a state [key, value]
  size_t group;  // the value heads of a key head
};

// Cuts a buffer of floats, which it does not own, into parts.
class Floats {
 public:
  explicit Floats(float* at) : at_(at) {}
  // Returns the next part, of Padded(count) floats.
  float* Take(size_t count) {
    float* const part = at_;
    at_ += Padded(count);
    return part;
  }

 private:
  float* at_;
};

HWY_INLINE void Fill(float value, size_t n, float* x) {
  for (size_t i = 0; i < n; ++i) x[i] = value;
}

// Copies a row of n elements to `to`, in FP32, and zeros up to Padded(n).
template <typename T>
HWY_INLINE void ReadRow(const T* from, size_t n, float* to) {
  ForVectors(n, [&]<bool kTail>(size_t i, size_t count)
                    HWY_ATTR { Store(LoadPart<kTail>(from + i, count), to + i); });
  const size_t written = (n + hn::Lanes(DF()) - 1) / hn::Lanes(DF()) * hn::Lanes(DF());
  Fill(0, Padded(n) - written, to + written);
}

// Writes n floats to a row of type T, rounded. Reads `from` in whole vectors.
template <typename T>
HWY_INLINE void WriteRow(const float* from, size_t n, T* to) {
  ForVectors(n, [&]<bool kTail>(size_t i, size_t count)
                    HWY_ATTR { StorePart<kTail>(Load(from + i), to + i, count); });
}

// Returns the dot product of two rows of `stride` elements. REQUIRES: stride is a multiple of kPad.
HWY_INLINE float DotRows(const float* a, const float* b, size_t stride) {
  VF sum = hn::Zero(DF());
  for (size_t i = 0; i < stride; i += hn::Lanes(DF())) {
    sum = hn::MulAdd(Load(a + i), Load(b + i), sum);
  }
  return SumLanes(sum);
}

// Computes to = factor * from for a row of `stride` elements. They may be the same. REQUIRES:
// stride is a multiple of kPad.
HWY_INLINE void ScaleRow(const float* from, float factor, size_t stride, float* to) {
  const VF by = hn::Set(DF(), factor);
  for (size_t i = 0; i < stride; i += hn::Lanes(DF())) Store(hn::Mul(by, Load(from + i)), to + i);
}

// The normalized rows of a key head in a chunk and their products, which its value heads share.
// Rows of q and k are sizes.key_stride apart, and rows of the other matrices kChunk. The
// constructor takes FloatsFor(sizes) floats from `memory`, which must outlive this object.
struct KeyChunk {
  static size_t FloatsFor(const HeadSizes& sizes) {
    return 3 * kChunk * sizes.key_stride + 2 * kChunk * kChunk + 2 * kChunk;
  }
  KeyChunk(const HeadSizes& sizes, Floats* memory)
      : q(memory->Take(kChunk * sizes.key_stride)),
        k(memory->Take(kChunk * sizes.key_stride)),
        transposed(memory->Take(kChunk * sizes.key_stride)),
        qk(memory->Take(kChunk * kChunk)),
        kk(memory->Take(kChunk * kChunk)),
        q_inverse(memory->Take(kChunk)),
        k_inverse(memory->Take(kChunk)) {}

  // Computes all members for tokens [first, first + count). REQUIRES: 1 <= count <= kDeltaChunk.
  template <typename T>
  void Read(const GatedDeltaArgs& args, const HeadSizes& sizes, int64_t key_head, int64_t first,
            size_t count) {
    rows = count;
    const float scale = 1.0f / std::sqrt(static_cast<float>(args.key_dim));
    for (size_t i = 0; i < count; ++i) {
      const int64_t t = first + static_cast<int64_t>(i), at = key_head * args.key_dim;
      const size_t row = i * sizes.key_stride;
      q_inverse[i] = ReadUnit(static_cast<const T*>(args.q) + t * args.q_stride + at, sizes.key,
                              scale, q + row);
      k_inverse[i] = ReadUnit(static_cast<const T*>(args.k) + t * args.k_stride + at, sizes.key,
                              1.0f, k + row);
    }
    Transpose(k, sizes.key_stride, count, sizes.key_stride, transposed, kChunk);
    const size_t columns = Padded(count);
    Multiply(count, columns, sizes.key, {q, sizes.key_stride}, transposed, kChunk, {}, qk, kChunk);
    Multiply(count, columns, sizes.key, {k, sizes.key_stride}, transposed, kChunk, {}, kk, kChunk);
  }

  float *q, *k;                  // [rows, key]: q^ and k^ of GatedDeltaArgs
  float* transposed;             // [key, rows]: k
  float *qk, *kk;                // [rows, rows]: q k^T, k k^T
  float *q_inverse, *k_inverse;  // [rows]: 1 / sqrt(sum of squares + 1e-6)
  size_t rows = 0;

 private:
  template <typename T>
  static float ReadUnit(const T* from, size_t n, float scale, float* to) {
    ReadRow(from, n, to);
    const float inverse = 1.0f / std::sqrt(DotRows(to, to, Padded(n)) + 1e-6f);
    ScaleRow(to, inverse * scale, Padded(n), to);
    return inverse;
  }
};

// Returns the mask of the lanes that are before column i, in a vector of columns j, j + 1, ...
HWY_INLINE hn::Mask<DF> ColumnsBefore(size_t i, size_t j) {
  return hn::FirstN(DF(), i > j ? i - j : 0);
}

// The matrices that are made of one value head's gates and its key head's products, with rows
// kChunk apart. The constructor takes FloatsFor() floats from `memory`, which must outlive this
// object.
struct GateMatrices {
  static size_t FloatsFor() { return 3 * kChunk * kChunk; }
  explicit GateMatrices(Floats* memory)
      : decays(memory->Take(kChunk * kChunk)),
        corrections(memory->Take(kChunk * kChunk)),
        attention(memory->Take(kChunk * kChunk)) {}

  // Computes all members. REQUIRES: `keys` and `gates` have been computed for the same tokens.
  void Compute(const KeyChunk& keys, const ChunkGates& gates) {
    const DF df;
    const size_t lanes = hn::Lanes(df), columns = Padded(keys.rows);
    for (size_t i = 0; i < keys.rows; ++i) {
      const VF high = hn::Set(df, gates.high[i]), low = hn::Set(df, gates.low[i]);
      const VF beta = hn::Set(df, -gates.beta[i]);
      for (size_t j = 0; j < columns; j += lanes) {
        const size_t at = i * kChunk + j;
        const VF difference =
            hn::Add(hn::Sub(high, Load(gates.high + j)), hn::Sub(low, Load(gates.low + j)));
        // Behind the diagonal differences may be of any size, or of rows that are not there.
        const VF decay = hn::IfThenElseZero(ColumnsBefore(i, j), ExpNegative(difference));
        Store(hn::Mul(beta, hn::Mul(decay, Load(keys.kk + at))), corrections + at);
        Store(decay, decays + at);
      }
      decays[i * kChunk + i] = 1.0f;
      for (size_t j = 0; j < columns; j += lanes) {
        const size_t at = i * kChunk + j;
        Store(hn::Mul(Load(decays + at), Load(keys.qk + at)), attention + at);
      }
    }
  }

  float* decays;       // [rows, rows]: D
  float* corrections;  // [rows, rows]: -diag(beta) strictly_lower(D * K K^T)
  float* attention;    // [rows, rows]: D * Q K^T
};

// Computes u [rows, value] = U from the state [key, value] at the chunk's start, for value head
// `head` and the chunk that begins at token `first`.
template <typename T>
HWY_INLINE void ComputeUpdates(const GatedDeltaArgs& args, const HeadSizes& sizes,
                               const KeyChunk& keys, const ChunkGates& gates,
                               const GateMatrices& matrices, int64_t head, int64_t first,
                               const float* state, float* u) {
  const size_t stride = sizes.value_stride;
  Multiply(keys.rows, stride, sizes.key, {keys.k, sizes.key_stride}, state, stride, {}, u, stride);
  for (size_t i = 0; i < keys.rows; ++i) {
    const int64_t t = first + static_cast<int64_t>(i);
    const T* const v = static_cast<const T*>(args.v) + t * args.v_stride + head * args.value_dim;
    float* const row = u + i * stride;
    const VF decay = hn::Set(DF(), gates.since_start[i]), beta = hn::Set(DF(), gates.beta[i]);
    ForVectors(sizes.value, [&]<bool kTail>(size_t j, size_t count) HWY_ATTR {
      const VF known = hn::Mul(decay, Load(row + j));
      Store(hn::Mul(beta, hn::Sub(LoadPart<kTail>(v + j, count), known)), row + j);
    });
  }
  SolveLower(keys.rows, stride, {matrices.corrections, kChunk}, u, stride);
}

// Changes the state [key, value] from that at the chunk's start to that at its end. `u` is U.
// `decayed` [rows, value] is overwritten by diag(exp(G_last - G)) U.
HWY_INLINE void AdvanceState(const HeadSizes& sizes, const KeyChunk& keys, const ChunkGates& gates,
                             const float* u, float* decayed, float* state) {
  const size_t stride = sizes.value_stride;
  for (size_t i = 0; i < keys.rows; ++i) {
    ScaleRow(u + i * stride, gates.until_end[i], stride, decayed + i * stride);
  }
  const float whole = gates.whole();
  Multiply(sizes.key, stride, keys.rows, {keys.k, 1, sizes.key_stride}, decayed, stride,
           {&whole, 0}, state, stride);
}

}  // namespace HWY_NAMESPACE
}  // namespace megatrain
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
