// The gradient of the gated delta rule. Two sweeps of the recurrence keep u, du and, at chunks'
// bounds, states and their gradients. With those all chunks are independent: their products give
// dq, dk and the gradients by the gates. The formulas are those of
// engine/device/cpu/delta/gated_delta_backward.cc.
#include <algorithm>

#include "engine/device/cuda/kernels/delta/chunk_product.h"
#include "engine/device/cuda/kernels/delta/delta_parts.h"
#include "engine/device/cuda/kernels/delta/delta_sizes.h"
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

// The shared memory of a block.
struct Shared : ProductStage {
  static constexpr int kFloats = ProductStage::kFloats + 2 * kChunk * kPitch + 8 * kChunk;
  static constexpr int kBytes = kFloats * int{sizeof(float)} + kChunk * int{sizeof(double)};

  __device__ explicit Shared(double* memory)
      : ProductStage(reinterpret_cast<float*>(memory + kChunk)),
        log_decays(memory),
        by_qk(right + kDepth * kStagePitch),
        by_kk(by_qk + kChunk * kPitch),
        q_inverse(by_kk + kChunk * kPitch),
        k_inverse(q_inverse + kChunk),
        beta(k_inverse + kChunk),
        log_decay(beta + kChunk),
        slope(log_decay + kChunk),
        read(slope + kChunk),
        written(read + kChunk),
        sums(written + kChunk) {}

  double* log_decays;               // [chunk]: sums from the chunk's start
  float *by_qk, *by_kk;             // [chunk, kPitch]
  float *q_inverse, *k_inverse;     // [chunk]
  float *beta, *log_decay, *slope;  // [chunk]
  float *read, *written, *sums;     // [chunk]
};

// A chunk of a document and a key head.
template <typename T>
class ChunkGradient {
 public:
  __device__ ChunkGradient(const GatedDeltaBackwardArgs& args, const DeltaKept& kept, int64_t first,
                           int64_t key_head)
      : args_(args),
        forward_(args.forward),
        kept_(kept),
        s_(SharedMemory<double>()),
        first_(first),
        key_head_(key_head),
        keys_(static_cast<int>(forward_.key_dim)),
        values_(static_cast<int>(forward_.value_dim)),
        scale_(1.0f / sqrtf(static_cast<float>(keys_))) {
    const int64_t begin = forward_.documents.bounds[2 * first];
    const int64_t end = forward_.documents.bounds[2 * first + 1];
    rows_ = static_cast<int>(end - first < kChunk ? end - first : kChunk);
    is_first_ = first == begin;
    is_last_ = first + rows_ == end;
  }

  __device__ void Run() {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    for (int i = static_cast<int>(threadIdx.x) / kWarp; i < rows_; i += kWarps) {
      const float q = InverseLength(QRow(i), keys_, lane), k = InverseLength(KRow(i), keys_, lane);
      if (lane == 0) {
        s_.q_inverse[i] = q;
        s_.k_inverse[i] = k;
      }
    }
    const int64_t group = forward_.value_heads / forward_.key_heads;
    for (int64_t g = 0; g < group; ++g) ValueHead(key_head_ * group + g, g == 0);
    __syncthreads();  // the last sums have been written
    for (int i = static_cast<int>(threadIdx.x) / kWarp; i < rows_; i += kWarps) {
      const int64_t t = first_ + i, sums = kept_.KeysOf(forward_, key_head_, t);
      WriteUnitGradient(
          QRow(i), s_.q_inverse[i], scale_, kept_.dq + sums, lane,
          static_cast<T*>(args_.dq) + t * args_.dq_stride + key_head_ * forward_.key_dim);
      WriteUnitGradient(
          KRow(i), s_.k_inverse[i], 1.0f, kept_.dk + sums, lane,
          static_cast<T*>(args_.dk) + t * args_.dk_stride + key_head_ * forward_.key_dim);
    }
  }

 private:
  __device__ const T* QRow(int i) const {
    return KeyRow<T>(forward_.q, forward_.q_stride, first_ + i, key_head_, forward_.key_dim);
  }
  __device__ const T* KRow(int i) const {
    return KeyRow<T>(forward_.k, forward_.k_stride, first_ + i, key_head_, forward_.key_dim);
  }
  // Elements of the normalised rows, and zeros beside them.
  __device__ float Q(int i, int j) const {
    return i < rows_ && j < keys_ ? ToFloat(QRow(i)[j]) * s_.q_inverse[i] * scale_ : 0.0f;
  }
  __device__ float K(int i, int j) const {
    return i < rows_ && j < keys_ ? ToFloat(KRow(i)[j]) * s_.k_inverse[i] : 0.0f;
  }
  __device__ float Dout(int64_t head, int i, int j) const {
    if (i >= rows_ || j >= values_) return 0.0f;
    return ToFloat(static_cast<const T*>(
        args_.dout)[((first_ + i) * forward_.value_heads + head) * forward_.value_dim + j]);
  }
  __device__ float U(const float* u, int i, int j) const {
    return i < rows_ && j < values_ ? u[static_cast<int64_t>(i) * values_ + j] : 0.0f;
  }
  // Element (l, column) of a transposed state.
  __device__ float Transposed(const float* state, int l, int column) const {
    return column < keys_ ? state[static_cast<int64_t>(column) * values_ + l] : 0.0f;
  }
  __device__ float SinceStart(int i) const {
    return i < rows_ ? expf(static_cast<float>(s_.log_decays[i])) : 0.0f;
  }
  __device__ float UntilEnd(int i) const {
    return i < rows_ ? expf(static_cast<float>(s_.log_decays[rows_ - 1] - s_.log_decays[i])) : 0.0f;
  }

  __device__ void LoadGates(int64_t head) {
    __syncthreads();  // those of the head before have been used
    for (int i = static_cast<int>(threadIdx.x); i < kChunk; i += kThreads) {
      s_.read[i] = s_.written[i] = 0;
      if (i >= rows_) continue;
      const DeltaGates gates = GatesOf<T>(forward_, first_ + i, head);
      s_.beta[i] = gates.beta;
      s_.log_decay[i] = gates.log_decay;
      s_.slope[i] = gates.slope;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      double sum = 0;
      for (int i = 0; i < rows_; ++i) {
        sum += s_.log_decay[i];
        s_.log_decays[i] = sum;
      }
    }
    __syncthreads();
  }

  __device__ void ValueHead(int64_t head, bool is_first_head) {
    LoadGates(head);
    const int64_t at = kept_.ValuesOf(forward_, head, first_);
    const float* const u = kept_.u + at;
    const float* const du = kept_.du + at;
    // What is read from the state at the chunk's start, and the gradient by that at its end.
    const float* const state =
        is_first_ ? nullptr : kept_.states + kept_.StateOf(forward_, head, first_);
    const float* const dstate =
        is_last_ ? nullptr : kept_.dstates + kept_.StateOf(forward_, head, first_ + kChunk);
    GradientsOfProducts(head, u, du);
    for (int column = 0; column < keys_; column += kChunk) {
      KeyColumns(head, column, u, du, state, dstate, is_first_head);
    }
    GateGradients(head, u, du, state, dstate);
  }

  // by_qk and by_kk become the gradients by the products q k^T and k k^T. s_.sums becomes what the
  // products that span token t give its decay.
  __device__ void GradientsOfProducts(int64_t head, const float* u, const float* du) {
    Tile qk, kk, by_qk, by_kk;
    const auto k_transposed = [&](int l, int column) { return K(column, l); };
    const auto u_transposed = [&](int l, int column) { return U(u, column, l); };
    AddProduct<true, true>(
        s_, keys_, [&](int i, int l) { return Q(i, l); }, k_transposed, qk);
    AddProduct<true, true>(
        s_, keys_, [&](int i, int l) { return K(i, l); }, k_transposed, kk);
    AddProduct<true, true>(
        s_, values_, [&](int i, int l) { return Dout(head, i, l); }, u_transposed, by_qk);
    AddProduct<true, true>(
        s_, values_, [&](int i, int l) { return U(du, i, l); }, u_transposed, by_kk);
    float* const spanned = s_.by_qk;
    const auto decay = [&](int i, int j) {
      return expf(static_cast<float>(s_.log_decays[i] - s_.log_decays[j]));
    };
#pragma unroll
    for (int a = 0; a < kSquare; ++a) {
#pragma unroll
      for (int b = 0; b < kSquare; ++b) {
        const int i = Tile::Row(a), j = Tile::Column(b);
        const bool is_before = j < i && i < rows_;
        by_qk.v[a][b] *= is_before ? decay(i, j) : (i == j && i < rows_ ? 1.0f : 0.0f);
        by_kk.v[a][b] *= is_before ? -s_.beta[i] * decay(i, j) : 0.0f;
        spanned[i * kPitch + j] =
            is_before ? by_qk.v[a][b] * qk.v[a][b] + by_kk.v[a][b] * kk.v[a][b] : 0.0f;
      }
    }
    __syncthreads();
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < kChunk) {  // sums over the rows from each on
      for (int i = kChunk - 2; i >= 0; --i) {
        spanned[i * kPitch + thread] += spanned[(i + 1) * kPitch + thread];
      }
    }
    __syncthreads();
    if (thread < kChunk) {
      float sum = 0;
      for (int j = 0; j < thread; ++j) sum += spanned[thread * kPitch + j];
      s_.sums[thread] = sum;
    }
    __syncthreads();
    by_qk.ForEach([&](int i, int j, float x) { s_.by_qk[i * kPitch + j] = x; });
    by_kk.ForEach([&](int i, int j, float x) { s_.by_kk[i * kPitch + j] = x; });
    // AddProduct begins with a meeting.
  }

  // products[row] += the sum over the tile's columns of vector(row, column) * tile.
  template <typename V>
  __device__ void AddRowProducts(Tile& tile, int column, const V& vector, float* products) {
    float sums[kSquare];
#pragma unroll
    for (int i = 0; i < kSquare; ++i) {
      sums[i] = 0;
#pragma unroll
      for (int j = 0; j < kSquare; ++j) {
        sums[i] += vector(Tile::Row(i), column + Tile::Column(j)) * tile.v[i][j];
      }
    }
    TeamSums<kTeam>(sums, nullptr);
    if (threadIdx.x % kTeam == 0) {
#pragma unroll
      for (int i = 0; i < kSquare; ++i) products[Tile::Row(i)] += sums[i];
    }
  }

  // Columns of dq and dk from `column` on.
  __device__ void KeyColumns(int64_t head, int column, const float* u, const float* du,
                             const float* state, const float* dstate, bool is_first_head) {
    const auto q = [&](int i, int j) { return Q(i, j); };
    const auto k = [&](int i, int j) { return K(i, j); };
    const auto k_columns = [&](int l, int j) { return K(l, column + j); };
    const auto q_columns = [&](int l, int j) { return Q(l, column + j); };
    const auto by_qk = [&](int i, int l) { return s_.by_qk[i * kPitch + l]; };
    const auto by_kk = [&](int i, int l) { return s_.by_kk[i * kPitch + l]; };
    const auto by_qk_transposed = [&](int i, int l) { return by_qk(l, i); };
    const auto by_kk_transposed = [&](int i, int l) { return by_kk(l, i); };
    const auto state_columns = [&](int l, int j) { return Transposed(state, l, column + j); };
    Tile dq, dk;
    if (state != nullptr) {
      AddProduct<true, true>(
          s_, values_, [&](int i, int l) { return SinceStart(i) * Dout(head, i, l); },
          state_columns, dq);
      AddRowProducts(dq, column, q, s_.read);
      AddProduct<true, true>(
          s_, values_,
          [&](int i, int l) {
            return i < rows_ ? -s_.beta[i] * SinceStart(i) * U(du, i, l) : 0.0f;
          },
          state_columns, dk);
      AddRowProducts(dk, column, k, s_.read);
    }
    if (dstate != nullptr) {
      Tile written;
      AddProduct<true, true>(
          s_, values_, [&](int i, int l) { return UntilEnd(i) * U(u, i, l); },
          [&](int l, int j) { return Transposed(dstate, l, column + j); }, written);
      AddRowProducts(written, column, k, s_.written);
#pragma unroll
      for (int i = 0; i < kSquare; ++i) {
#pragma unroll
        for (int j = 0; j < kSquare; ++j) dk.v[i][j] += written.v[i][j];
      }
    }
    AddProduct<false, false>(s_, kChunk, by_qk, k_columns, dq);
    AddProduct<false, false>(s_, kChunk, by_qk_transposed, q_columns, dk);
    AddProduct<false, false>(s_, kChunk, by_kk, k_columns, dk);
    AddProduct<false, false>(s_, kChunk, by_kk_transposed, k_columns, dk);
    const auto add = [&](Tile& tile, float* sums) {
      tile.ForEach([&](int i, int j, float x) {
        if (i >= rows_ || column + j >= keys_) return;
        float* const to = sums + kept_.KeysOf(forward_, key_head_, first_ + i) + column + j;
        *to = is_first_head ? x : *to + x;
      });
    };
    add(dq, kept_.dq);
    add(dk, kept_.dk);
  }

  // The gradients by a and b, and the chunk's sums for a_log and dt_bias.
  __device__ void GateGradients(int64_t head, const float* u, const float* du, const float* state,
                                const float* dstate) {
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % kWarp;
    __syncthreads();  // what is staged has been used
    for (int i = thread / kWarp; i < rows_; i += kWarps) {
      float sum = 0;
      for (int j = lane; j < values_; j += kWarp) sum += U(u, i, j) * U(du, i, j);
      sum = TeamSum<kWarp>(sum, nullptr) * (1.0f - s_.beta[i]);
      if (lane == 0) {
        static_cast<T*>(args_.db)[(first_ + i) * args_.db_stride + head] = FromFloat<T>(sum);
      }
    }
    float through = 0;  // of what passes the whole chunk
    if (state != nullptr && dstate != nullptr) {
      for (int i = thread; i < keys_ * values_; i += kThreads) through += state[i] * dstate[i];
    }
    through = TeamSum<kThreads>(through, s_.left) * SinceStart(rows_ - 1);
    // TeamSum has met: s_.read and s_.written are whole.
    if (thread == 0) {
      float written = through;
      for (int t = 0; t < rows_; ++t) {
        s_.sums[t] += written;
        written += s_.written[t];
      }
      float read = 0, by_a_log = 0, by_dt_bias = 0;
      for (int t = rows_ - 1; t >= 0; --t) {
        read += s_.read[t];
        const float gradient = s_.sums[t] + read;
        const float by_a = gradient * s_.slope[t];
        static_cast<T*>(args_.da)[(first_ + t) * args_.da_stride + head] = FromFloat<T>(by_a);
        by_a_log += gradient * s_.log_decay[t];
        by_dt_bias += by_a;
      }
      float* const sums = kept_.gate_sums + 2 * (first_ * forward_.value_heads + head);
      sums[0] = by_a_log;
      sums[1] = by_dt_bias;
    }
  }

  // With y = x * inverse * scale: dx = inverse * scale * (dy - y (y . dy) / scale^2).
  __device__ void WriteUnitGradient(const T* x, float inverse, float scale, const float* dy,
                                    int lane, T* dx) const {
    float along = 0;
    for (int j = lane; j < keys_; j += kWarp) along += ToFloat(x[j]) * inverse * dy[j];
    along = TeamSum<kWarp>(along, nullptr);
    for (int j = lane; j < keys_; j += kWarp) {
      dx[j] = FromFloat<T>(inverse * scale * (dy[j] - ToFloat(x[j]) * inverse * along));
    }
  }

  const GatedDeltaBackwardArgs& args_;
  const GatedDeltaArgs& forward_;
  const DeltaKept& kept_;
  const Shared s_;
  const int64_t first_, key_head_;
  const int keys_, values_;
  const float scale_;
  int rows_;
  bool is_first_, is_last_;
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    ChunkGradientKernel(GatedDeltaBackwardArgs args, TokenList list, DeltaKept kept) {
  ChunkGradient<T>(args, kept, list.tokens[blockIdx.x], kept.first_key_head + blockIdx.y).Run();
}

// Adds the chunks' sums of a value head, in an order that the documents alone decide.
__global__ void __launch_bounds__(kThreads)
    AddGateSumsKernel(GatedDeltaBackwardArgs args, const float* gate_sums) {
  const DeltaDocuments& documents = args.forward.documents;
  const int64_t head = blockIdx.x;
  float sums[2] = {};
  for (int64_t t = threadIdx.x; t < documents.tokens; t += kThreads) {
    if ((t - documents.bounds[2 * t]) % kChunk != 0) continue;
    const float* const of_chunk = gate_sums + 2 * (t * args.forward.value_heads + head);
    sums[0] += of_chunk[0];
    sums[1] += of_chunk[1];
  }
  TeamSums<kThreads>(sums, SharedMemory<float>());
  if (threadIdx.x != 0) return;
  float* const to[2] = {args.da_log, args.ddt_bias};
  for (int i = 0; i < 2; ++i) {
    if (to[i] != nullptr) to[i][head] = (args.add_parameters ? to[i][head] : 0.0f) + sums[i];
  }
}

}  // namespace

int GatedDeltaBackward(const Queue& queue, const GatedDeltaBackwardArgs& with_states) {
  GatedDeltaBackwardArgs args = with_states;
  args.forward.initial_states = nullptr;
  args.forward.final_states = nullptr;
  const GatedDeltaArgs& forward = args.forward;
  const GatedDeltaShape shape{forward.documents.tokens, forward.key_heads, forward.value_heads,
                              forward.key_dim, forward.value_dim};
  if (shape.tokens == 0) return 0;
  // A workspace for more tokens may be for fewer key heads at once, and then for fewer bytes.
  const int64_t sums_bytes = 2 * shape.tokens * shape.value_heads * int64_t{sizeof(float)};
  const int64_t key_head_bytes = DeltaFloatsOfKeyHead(shape) * int64_t{sizeof(float)};
  if (args.workspace_bytes < sums_bytes + key_head_bytes) return kInvalidValue;
  const int64_t at_once =
      std::min(DeltaKeyHeadsAtOnce(shape), (args.workspace_bytes - sums_bytes) / key_head_bytes);
  const int64_t values = at_once * (shape.value_heads / shape.key_heads);
  const int64_t states = values * (shape.tokens / kDeltaChunk) * shape.key_dim * shape.value_dim;
  const int64_t rows = values * shape.tokens * shape.value_dim;
  const int64_t keys = at_once * shape.tokens * shape.key_dim;
  DeltaKept kept;
  kept.gate_sums = static_cast<float*>(args.workspace);
  kept.states = kept.gate_sums + 2 * shape.tokens * shape.value_heads;
  kept.dstates = kept.states + states;
  kept.u = kept.dstates + states;
  kept.du = kept.u + rows;
  kept.dq = kept.du + rows;
  kept.dk = kept.dq + keys;
  for (int64_t first = 0; first < shape.key_heads; first += at_once) {
    kept.first_key_head = first;
    kept.key_heads = std::min(at_once, shape.key_heads - first);
    if (const int error = KeepStates(queue, forward, kept); error != 0) return error;
    if (const int error = KeepStateGradients(queue, args, kept); error != 0) return error;
    const int error = ForTokenLists(forward.documents, kDeltaChunk, [&](const TokenList& list) {
      return Launch(
          forward.dtype == DType::kF32 ? ChunkGradientKernel<float> : ChunkGradientKernel<Bf16>,
          dim3(static_cast<unsigned>(list.count), static_cast<unsigned>(kept.key_heads), 1),
          kThreads, Shared::kBytes, queue, args, list, kept);
    });
    if (error != 0) return error;
  }
  return Launch(AddGateSumsKernel, Grid(shape.value_heads), kThreads,
                2 * kWarps * int{sizeof(float)}, queue, args,
                static_cast<const float*>(kept.gate_sums));
}

}  // namespace megatrain::cuda
