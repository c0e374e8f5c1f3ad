// The recurrence of the gated delta rule, token after token, forwards and backwards. The columns of
// a state do not depend on each other: a block has some of a value head's, in registers, so that a
// token costs neither memory traffic nor a meeting of the block. In FP32 this takes fewer
// operations than the products of a chunk.
#include "engine/device/cuda/kernels/delta/delta_parts.h"
#include "engine/device/cuda/kernels/delta/delta_sizes.h"
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
// A team of threads has a column, each thread some of its rows.
constexpr int kTeam = 8;
constexpr int kColumns = kThreads / kTeam;
// Tokens that are staged in shared memory at once.
constexpr int kStaged = 16;
static_assert(kDeltaChunkTokens % kStaged == 0);

struct alignas(16) Four {
  float v[4];
};

// Shared memory of a block: [kStaged, rows] keys and queries, normalised; [kStaged, kColumns]
// values or gradients; gates.
template <int kRows>
struct Stage {
  static constexpr int kKeys = kTeam * kRows;  // key_dim at most
  static constexpr int kFloats = kStaged * (2 * kKeys + 2 * kColumns + 2);

  __device__ explicit Stage(float* shared)
      : q(shared),
        k(q + kStaged * kKeys),
        in(k + kStaged * kKeys),
        out(in + kStaged * kColumns),
        beta(out + kStaged * kColumns),
        decay(beta + kStaged) {}

  // Stages `count` tokens from `first` on, and columns of their `values`, T [tokens, ...] with a
  // stride, from `column` on. All threads of the block must call it.
  template <typename T>
  __device__ void Load(const GatedDeltaArgs& args, int64_t head, int64_t first, int count,
                       const T* values, int64_t stride, int columns) const {
    const int64_t key_head = head / (args.value_heads / args.key_heads);
    const int keys = static_cast<int>(args.key_dim);
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const float scale = 1.0f / sqrtf(static_cast<float>(keys));
    __syncthreads();  // the tokens before have been used
    for (int i = static_cast<int>(threadIdx.x) / kWarp; i < count; i += kWarps) {
      const T* const q_row = KeyRow<T>(args.q, args.q_stride, first + i, key_head, args.key_dim);
      const T* const k_row = KeyRow<T>(args.k, args.k_stride, first + i, key_head, args.key_dim);
      const float q_inverse = InverseLength(q_row, keys, lane) * scale;
      const float k_inverse = InverseLength(k_row, keys, lane);
      for (int j = lane; j < kKeys; j += kWarp) {
        q[i * kKeys + j] = j < keys ? ToFloat(q_row[j]) * q_inverse : 0.0f;
        k[i * kKeys + j] = j < keys ? ToFloat(k_row[j]) * k_inverse : 0.0f;
      }
      in[i * kColumns + lane] =
          lane < columns ? ToFloat(values[(first + i) * stride + lane]) : 0.0f;
      if (lane == 0) {
        const DeltaGates gates = GatesOf<T>(args, first + i, head);
        beta[i] = gates.beta;
        decay[i] = expf(gates.log_decay);
      }
    }
    __syncthreads();
  }

  // The rows of thread `part` of a team: packs of four in turn, so that a team reads side by side.
  __device__ static int Row(int part, int r) { return r / 4 * (4 * kTeam) + part * 4 + r % 4; }
  __device__ static void LoadRows(const float* row, int part, float (&to)[kRows]) {
#pragma unroll
    for (int r = 0; r < kRows; r += 4) {
      const Four four = *reinterpret_cast<const Four*>(row + Row(part, r));
#pragma unroll
      for (int e = 0; e < 4; ++e) to[r + e] = four.v[e];
    }
  }

  float *q, *k, *in, *out, *beta, *decay;
};
static_assert(kColumns == kWarp, "a warp stages a token's columns");

template <int kRows>
__device__ float Dot(const float (&a)[kRows], const float (&b)[kRows]) {
  float sum = 0;
#pragma unroll
  for (int r = 0; r < kRows; ++r) sum += a[r] * b[r];
  return TeamSum<kTeam>(sum, nullptr);
}

// Where a thread's elements of a state [key_dim, value_dim] lie.
template <int kRows>
struct StatePart {
  int part, column, keys, columns;
  int64_t stride;

  __device__ void Load(const float* state, float (&to)[kRows]) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = Stage<kRows>::Row(part, r);
      to[r] = state != nullptr && row < keys && column < columns ? state[row * stride + column] : 0;
    }
  }
  __device__ void Store(const float (&from)[kRows], float* state) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = Stage<kRows>::Row(part, r);
      if (row < keys && column < columns) state[row * stride + column] = from[r];
    }
  }
};

// The value head and the columns of a block: blockIdx.x counts the list's tokens and slices of
// columns, blockIdx.y value heads from `first_head` on.
struct BlockPlace {
  __device__ BlockPlace(const GatedDeltaArgs& args, const TokenList& list, int64_t first_head) {
    const int slices = static_cast<int>((args.value_dim + kColumns - 1) / kColumns);
    head = first_head + blockIdx.y;
    begin = list.tokens[blockIdx.x / slices];
    end = args.documents.bounds[2 * begin + 1];
    column = static_cast<int64_t>(blockIdx.x % slices) * kColumns;
    columns =
        static_cast<int>(args.value_dim - column < kColumns ? args.value_dim - column : kColumns);
  }
  int64_t head, begin, end, column;
  int columns;
};

// With kKeeps u and the states at the starts of chunks are kept, and there is no output.
template <typename T, int kRows, bool kKeeps>
__global__ void __launch_bounds__(kThreads)
    DeltaKernel(GatedDeltaArgs args, TokenList list, DeltaKept kept, int64_t first_head) {
  const BlockPlace at(args, list, first_head);
  const Stage<kRows> stage(SharedMemory<float>());
  const int part = static_cast<int>(threadIdx.x) % kTeam;
  const int column = static_cast<int>(threadIdx.x) / kTeam;
  const StatePart<kRows> place{part, column, static_cast<int>(args.key_dim), at.columns,
                               args.value_dim};
  const int64_t row =
      args.documents.state_rows != nullptr ? args.documents.state_rows[at.begin] : -1;
  const int64_t state_at =
      (row * args.value_heads + at.head) * args.key_dim * args.value_dim + at.column;
  const int64_t value = at.head * args.value_dim + at.column;
  float state[kRows];
  place.Load(row >= 0 && args.initial_states != nullptr ? args.initial_states + state_at : nullptr,
             state);
  for (int64_t first = at.begin; first < at.end; first += kStaged) {
    const int count = static_cast<int>(at.end - first < kStaged ? at.end - first : kStaged);
    stage.template Load<T>(args, at.head, first, count, static_cast<const T*>(args.v) + value,
                           args.v_stride, at.columns);
    if (kKeeps && first > at.begin && (first - at.begin) % kDeltaChunkTokens == 0) {
      place.Store(state, kept.states + kept.StateOf(args, at.head, first) + at.column);
    }
    for (int i = 0; i < count; ++i) {
      float k[kRows];
      Stage<kRows>::LoadRows(stage.k + i * Stage<kRows>::kKeys, part, k);
#pragma unroll
      for (int r = 0; r < kRows; ++r) state[r] *= stage.decay[i];
      const float known = Dot<kRows>(state, k);
      const float u = stage.beta[i] * (stage.in[i * kColumns + column] - known);
#pragma unroll
      for (int r = 0; r < kRows; ++r) state[r] += k[r] * u;
      float out = u;
      if constexpr (!kKeeps) {
        float q[kRows];
        Stage<kRows>::LoadRows(stage.q + i * Stage<kRows>::kKeys, part, q);
        out = Dot<kRows>(state, q);
      }
      if (part == 0) stage.out[i * kColumns + column] = out;
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < count * kColumns; i += kThreads) {
      const int64_t t = first + i / kColumns;
      const int j = i % kColumns;
      if (j >= at.columns) continue;
      if constexpr (kKeeps) {
        kept.u[kept.ValuesOf(args, at.head, t) + at.column + j] = stage.out[i];
      } else {
        static_cast<T*>(args.out)[t * args.value_heads * args.value_dim + value + j] =
            FromFloat<T>(stage.out[i]);
      }
    }
  }
  if (!kKeeps && row >= 0 && args.final_states != nullptr) {
    place.Store(state, args.final_states + state_at);
  }
}

// With dS the gradient by the state after a token: dS += q dout^T, du = dS^T k, and before the
// token decay * (dS - beta k du^T). dv = beta du.
template <typename T, int kRows>
__global__ void __launch_bounds__(kThreads)
    DeltaBackwardKernel(GatedDeltaBackwardArgs args, TokenList list, DeltaKept kept,
                        int64_t first_head) {
  const GatedDeltaArgs& forward = args.forward;
  const BlockPlace at(forward, list, first_head);
  const Stage<kRows> stage(SharedMemory<float>());
  const int part = static_cast<int>(threadIdx.x) % kTeam;
  const int column = static_cast<int>(threadIdx.x) / kTeam;
  const StatePart<kRows> place{part, column, static_cast<int>(forward.key_dim), at.columns,
                               forward.value_dim};
  const int64_t value = at.head * forward.value_dim + at.column;
  float dstate[kRows];
  place.Load(nullptr, dstate);
  const int64_t stages = (at.end - at.begin + kStaged - 1) / kStaged;
  for (int64_t s = stages - 1; s >= 0; --s) {
    const int64_t first = at.begin + s * kStaged;
    const int count = static_cast<int>(at.end - first < kStaged ? at.end - first : kStaged);
    stage.template Load<T>(forward, at.head, first, count, static_cast<const T*>(args.dout) + value,
                           forward.value_heads * forward.value_dim, at.columns);
    for (int i = count - 1; i >= 0; --i) {
      float q[kRows], k[kRows];
      Stage<kRows>::LoadRows(stage.q + i * Stage<kRows>::kKeys, part, q);
      Stage<kRows>::LoadRows(stage.k + i * Stage<kRows>::kKeys, part, k);
      const float dout = stage.in[i * kColumns + column];
#pragma unroll
      for (int r = 0; r < kRows; ++r) dstate[r] += q[r] * dout;
      const float du = Dot<kRows>(dstate, k);
      if (part == 0) stage.out[i * kColumns + column] = du;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        dstate[r] = stage.decay[i] * (dstate[r] - k[r] * (stage.beta[i] * du));
      }
    }
    if (first > at.begin && (first - at.begin) % kDeltaChunkTokens == 0) {
      place.Store(dstate, kept.dstates + kept.StateOf(forward, at.head, first) + at.column);
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < count * kColumns; i += kThreads) {
      const int64_t t = first + i / kColumns;
      const int j = i % kColumns;
      if (j >= at.columns) continue;
      kept.du[kept.ValuesOf(forward, at.head, t) + at.column + j] = stage.out[i];
      static_cast<T*>(args.dv)[t * args.dv_stride + value + j] =
          FromFloat<T>(stage.beta[i / kColumns] * stage.out[i]);
    }
  }
}

// Calls f with the rows of a thread.
template <typename F>
int WithRows(int64_t key_dim, F f) {
  if (key_dim <= kTeam * 4) return f.template operator()<4>();
  if (key_dim <= kTeam * 16) return f.template operator()<16>();
  static_assert(kDeltaKeyDimMax == kTeam * 32);
  return key_dim <= kDeltaKeyDimMax ? f.template operator()<32>() : kInvalidValue;
}

// Launches a kernel for the documents and `heads` value heads from `first_head` on.
template <int kRows, typename Kernel, typename Args>
int LaunchHeads(Kernel kernel, const Queue& queue, const Args& args, const GatedDeltaArgs& forward,
                const DeltaKept& kept, int64_t first_head, int64_t heads) {
  const int64_t slices = CeilDiv(forward.value_dim, kColumns);
  return ForTokenLists(forward.documents, 0, [&](const TokenList& list) {
    return Launch(
        kernel, dim3(static_cast<unsigned>(list.count * slices), static_cast<unsigned>(heads), 1),
        kThreads, Stage<kRows>::kFloats * int{sizeof(float)}, queue, args, list, kept, first_head);
  });
}

template <typename T>
int KeepStatesOf(const Queue& queue, const GatedDeltaArgs& args, const DeltaKept& kept) {
  const int64_t group = args.value_heads / args.key_heads;
  return WithRows(args.key_dim, [&]<int kRows>() {
    return LaunchHeads<kRows>(DeltaKernel<T, kRows, true>, queue, args, args, kept,
                              kept.first_key_head * group, kept.key_heads * group);
  });
}

template <typename T>
int KeepStateGradientsOf(const Queue& queue, const GatedDeltaBackwardArgs& args,
                         const DeltaKept& kept) {
  const int64_t group = args.forward.value_heads / args.forward.key_heads;
  return WithRows(args.forward.key_dim, [&]<int kRows>() {
    return LaunchHeads<kRows>(DeltaBackwardKernel<T, kRows>, queue, args, args.forward, kept,
                              kept.first_key_head * group, kept.key_heads * group);
  });
}

template <typename T>
int GatedDeltaOf(const Queue& queue, const GatedDeltaArgs& args) {
  return WithRows(args.key_dim, [&]<int kRows>() {
    return LaunchHeads<kRows>(DeltaKernel<T, kRows, false>, queue, args, args, DeltaKept{}, 0,
                              args.value_heads);
  });
}

}  // namespace

int GatedDelta(const Queue& queue, const GatedDeltaArgs& args) {
  return args.dtype == DType::kF32 ? GatedDeltaOf<float>(queue, args)
                                   : GatedDeltaOf<Bf16>(queue, args);
}

int KeepStates(const Queue& queue, const GatedDeltaArgs& args, const DeltaKept& kept) {
  return args.dtype == DType::kF32 ? KeepStatesOf<float>(queue, args, kept)
                                   : KeepStatesOf<Bf16>(queue, args, kept);
}

int KeepStateGradients(const Queue& queue, const GatedDeltaBackwardArgs& args,
                       const DeltaKept& kept) {
  return args.forward.dtype == DType::kF32 ? KeepStateGradientsOf<float>(queue, args, kept)
                                           : KeepStateGradientsOf<Bf16>(queue, args, kept);
}

}  // namespace megatrain::cuda
