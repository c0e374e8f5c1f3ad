#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/device/cpu/delta/backward_task.h"
#include "engine/device/cpu/delta/gated_delta.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/device/cpu/delta/gated_delta_backward.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again for each target.
#include "engine/device/cpu/delta/chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain {
namespace HWY_NAMESPACE {

// The second sweep's buffers for a chunk.
struct BackwardBuffers {
  static size_t FloatsFor(const HeadSizes& sizes) {
    return sizes.group * sizes.state + sizes.value_stride * sizes.key_stride +
           kChunk * (5 * sizes.value_stride + 3 * sizes.key_stride) + 2 * kChunk * kChunk;
  }
  BackwardBuffers(const HeadSizes& sizes, Floats* memory)
      : dstates(memory->Take(sizes.group * sizes.state)),
        dstate_transposed(memory->Take(sizes.value_stride * sizes.key_stride)),
        dout(memory->Take(kChunk * sizes.value_stride)),
        decayed_dout(memory->Take(kChunk * sizes.value_stride)),
        du(memory->Take(kChunk * sizes.value_stride)),
        rows(memory->Take(kChunk * sizes.value_stride)),
        u_transposed(memory->Take(kChunk * sizes.value_stride)),
        dq(memory->Take(kChunk * sizes.key_stride)),
        dk(memory->Take(kChunk * sizes.key_stride)),
        part(memory->Take(kChunk * sizes.key_stride)),
        by_qk(memory->Take(kChunk * kChunk)),
        by_kk(memory->Take(kChunk * kChunk)) {}

  float* dstates;            // [group, key, value]: the gradients by the states at the chunk's end
  float* dstate_transposed;  // [value, key]
  float* dout;               // [rows, value]
  float* decayed_dout;       // [rows, value]: diag(exp G) dout
  float* du;                 // [rows, value]: all of the gradient by U
  float* rows;               // [rows, value]
  float* u_transposed;       // [value, rows]
  float *dq, *dk;            // [rows, key]: sums over the value heads
  float* part;               // [rows, key]
  float *by_qk, *by_kk;      // [rows, rows]: the gradients by Q K^T and K K^T
};

size_t BackwardFloats(const GatedDeltaArgs& args) {
  const HeadSizes sizes(args);
  return KeyChunk::FloatsFor(sizes) + GateMatrices::FloatsFor() + BackwardBuffers::FloatsFor(sizes);
}

// With dU the gradient by U and dS that by the state at the chunk's end, the formulas of
// chunk-inl.h give backwards
//   dU = (D * Q K^T)^T dout + diag(exp(G_last - G)) K dS - strictly_lower(..)^T dU
//   dV = diag(beta) dU,  dbeta = rowsum(dU * U) / beta
//   R = -diag(beta) dU, the gradient by what is known of V: diag(exp G) K S + (D * K K^T) U
//   dQ = diag(exp G) dout S^T + (D * dout U^T) K
//   dK = diag(exp G) R S^T + (X + X^T) K + (D * dout U^T)^T Q + diag(exp(G_last - G)) U dS^T
//        with X = strictly_lower(D * R U^T)
//   dS at the start = exp(G_last) dS + Q^T diag(exp G) dout + K^T diag(exp G) R
// A decay g_t is in each product of something that is written before token t and read from t on.
// Its gradient is the sum of just those products, without any difference of large sums.
template <typename T>
class DocumentBackward {
 public:
  DocumentBackward(const GatedDeltaBackwardArgs& args, const BackwardTask& task)
      : args_(args),
        forward_(args.forward),
        task_(task),
        sizes_(forward_),
        memory_(task.buffer),
        keys_(sizes_, &memory_),
        matrices_(&memory_),
        buffers_(sizes_, &memory_) {}

  void Run() {
    const int64_t group = static_cast<int64_t>(sizes_.group);
    Fill(0, sizes_.group * sizes_.state, buffers_.dstates);
    for (int64_t first = task_.begin; first < task_.end; first += kDeltaChunk) {
      keys_.Read<T>(forward_, sizes_, task_.key_head, first, RowsFrom(first));
      for (int64_t g = 0; g < group; ++g) KeepHead(first, g);
    }
    const int64_t chunks = (task_.end - task_.begin + kDeltaChunk - 1) / kDeltaChunk;
    for (int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
      const int64_t first = task_.begin + chunk * kDeltaChunk;
      const size_t rows = RowsFrom(first);
      keys_.Read<T>(forward_, sizes_, task_.key_head, first, rows);
      Fill(0, rows * sizes_.key_stride, buffers_.dq);
      Fill(0, rows * sizes_.key_stride, buffers_.dk);
      for (int64_t g = 0; g < group; ++g) Head(first, g);
      const float scale = 1.0f / std::sqrt(static_cast<float>(forward_.key_dim));
      for (size_t i = 0; i < rows; ++i) {
        const int64_t t = first + static_cast<int64_t>(i), at = task_.key_head * forward_.key_dim;
        const size_t row = i * sizes_.key_stride;
        WriteUnitGradient(keys_.q + row, keys_.q_inverse[i], scale, buffers_.dq + row,
                          static_cast<T*>(args_.dq) + t * args_.dq_stride + at);
        WriteUnitGradient(keys_.k + row, keys_.k_inverse[i], 1.0f, buffers_.dk + row,
                          static_cast<T*>(args_.dk) + t * args_.dk_stride + at);
      }
    }
  }

 private:
  size_t RowsFrom(int64_t first) const {
    return static_cast<size_t>(std::min(kDeltaChunk, task_.end - first));
  }
  int64_t HeadOf(int64_t g) const {
    return task_.key_head * static_cast<int64_t>(sizes_.group) + g;
  }

  // The first sweep: keeps U and the states at the starts of chunks.
  void KeepHead(int64_t first, int64_t g) {
    float* const state = buffers_.dstates + static_cast<size_t>(g) * sizes_.state;
    float* const u = task_.kept.u(g) + first * task_.kept.value_stride;
    if (first > task_.begin) {
      Transpose(state, sizes_.value_stride, sizes_.key, sizes_.value_stride,
                task_.kept.state(g, first), sizes_.key_stride);
    }
    LoadGates(forward_, HeadOf(g), first, keys_.rows, &gates_);
    matrices_.Compute(keys_, gates_);
    ComputeUpdates<T>(forward_, sizes_, keys_, gates_, matrices_, HeadOf(g), first, state, u);
    if (first + kDeltaChunk < task_.end) {
      AdvanceState(sizes_, keys_, gates_, u, buffers_.rows, state);
    } else {
      Fill(0, sizes_.state, state);  // the memory is that of dstates
    }
  }

  void Head(int64_t first, int64_t g) {
    const int64_t head = HeadOf(g);
    const bool is_first = first == task_.begin, is_last = first + kDeltaChunk >= task_.end;
    const size_t rows = keys_.rows, columns = Padded(rows), stride = sizes_.value_stride;
    const float* const u = task_.kept.u(g) + first * task_.kept.value_stride;
    float* const dstate = buffers_.dstates + static_cast<size_t>(g) * sizes_.state;
    LoadGates(forward_, head, first, rows, &gates_);
    matrices_.Compute(keys_, gates_);
    for (size_t i = 0; i < rows; ++i) {
      const int64_t t = first + static_cast<int64_t>(i);
      ReadRow(static_cast<const T*>(args_.dout) +
                  (t * forward_.value_heads + head) * forward_.value_dim,
              sizes_.value, buffers_.dout + i * stride);
      read_[i] = written_[i] = 0;
    }
    if (!is_last) {
      Multiply(rows, stride, sizes_.key, {keys_.k, sizes_.key_stride}, dstate, stride, {},
               buffers_.du, stride);
    }
    MultiplyUpper(rows, stride, {matrices_.attention, 1, kChunk}, buffers_.dout, stride,
                  is_last ? Kept{} : Kept{gates_.until_end, 1}, buffers_.du, stride);
    SolveUpper(rows, stride, {matrices_.corrections, 1, kChunk}, buffers_.du, stride);

    Transpose(u, stride, rows, stride, buffers_.u_transposed, kChunk);
    Multiply(rows, columns, sizes_.value, {buffers_.dout, stride}, buffers_.u_transposed, kChunk,
             {}, buffers_.by_qk, kChunk);
    Multiply(rows, columns, sizes_.value, {buffers_.du, stride}, buffers_.u_transposed, kChunk, {},
             buffers_.by_kk, kChunk);
    GradientsOfProducts();
    float whole = 0;  // the products of what is written before the chunk and read after it
    if (!is_last) whole = WrittenForLater(u, dstate, is_first, first, g);
    WriteValueGradients(first, head, u);  // du becomes R from here on
    if (!is_first) ReadFromEarlier(first, g, dstate, is_last);
    const size_t keys = sizes_.key_stride;
    MultiplyLower(rows, keys, {buffers_.by_qk, kChunk}, keys_.k, keys, kAdd, buffers_.dq, keys);
    MultiplyUpper(rows, keys, {buffers_.by_qk, 1, kChunk}, keys_.q, keys, kAdd, buffers_.dk, keys);
    MultiplyLower(rows, keys, {buffers_.by_kk, kChunk}, keys_.k, keys, kAdd, buffers_.dk, keys);
    MultiplyUpper(rows, keys, {buffers_.by_kk, 1, kChunk}, keys_.k, keys, kAdd, buffers_.dk, keys);
    WriteGateGradients(first, head, whole, task_.sums[g]);
  }

  // by_qk and by_kk become the gradients by the products q k^T and k k^T; spanned[i, j] what the
  // decays between j and i have in common.
  void GradientsOfProducts() {
    const DF df;
    float* const spanned = matrices_.attention;
    for (size_t i = 0; i < keys_.rows; ++i) {
      const VF beta = hn::Set(df, -gates_.beta[i]);
      for (size_t j = 0; j < Padded(keys_.rows); j += hn::Lanes(df)) {
        const size_t at = i * kChunk + j;
        const VF decay = Load(matrices_.decays + at);
        const VF by_qk = hn::Mul(decay, Load(buffers_.by_qk + at));
        const VF by_kk = hn::IfThenElseZero(
            ColumnsBefore(i, j), hn::Mul(hn::Mul(beta, decay), Load(buffers_.by_kk + at)));
        const VF both = hn::MulAdd(by_qk, Load(keys_.qk + at), hn::Mul(by_kk, Load(keys_.kk + at)));
        Store(by_qk, buffers_.by_qk + at);
        Store(by_kk, buffers_.by_kk + at);
        Store(hn::IfThenElseZero(ColumnsBefore(i, j), both), spanned + at);
      }
    }
  }

  // Adds U dS^T to dk. Returns exp(G_last) <S, dS>.
  float WrittenForLater(const float* u, const float* dstate, bool is_first, int64_t first,
                        int64_t g) {
    const size_t keys = sizes_.key_stride, stride = sizes_.value_stride;
    Transpose(dstate, stride, sizes_.key, stride, buffers_.dstate_transposed, keys);
    for (size_t i = 0; i < keys_.rows; ++i) {
      ScaleRow(u + i * stride, gates_.until_end[i], stride, buffers_.rows + i * stride);
    }
    Multiply(keys_.rows, keys, sizes_.value, {buffers_.rows, stride}, buffers_.dstate_transposed,
             keys, {}, buffers_.part, keys);
    AddPart(keys_.k, buffers_.dk, written_);
    if (is_first) return 0;
    return gates_.whole() *
           DotRows(task_.kept.state(g, first), buffers_.dstate_transposed, sizes_.value * keys);
  }

  // Writes dv and db, and makes R of du.
  void WriteValueGradients(int64_t first, int64_t head, const float* u) {
    const size_t stride = sizes_.value_stride;
    for (size_t i = 0; i < keys_.rows; ++i) {
      const int64_t t = first + static_cast<int64_t>(i);
      float* const row = buffers_.du + i * stride;
      const float beta = gates_.beta[i];
      const float db = DotRows(row, u + i * stride, stride) * (1.0f - beta);
      WriteElement(db, static_cast<T*>(args_.db) + t * args_.db_stride + head);
      ScaleRow(row, beta, stride, row);
      WriteRow(row, sizes_.value,
               static_cast<T*>(args_.dv) + t * args_.dv_stride + head * forward_.value_dim);
      ScaleRow(row, -1.0f, stride, row);
    }
  }

  // Adds dout S^T to dq and R S^T to dk; dstate becomes the gradient by the chunk's first state.
  void ReadFromEarlier(int64_t first, int64_t g, float* dstate, bool is_last) {
    const size_t keys = sizes_.key_stride, stride = sizes_.value_stride, rows = keys_.rows;
    const float* const state = task_.kept.state(g, first);
    for (size_t i = 0; i < rows; ++i) {
      ScaleRow(buffers_.dout + i * stride, gates_.since_start[i], stride,
               buffers_.decayed_dout + i * stride);
      ScaleRow(buffers_.du + i * stride, gates_.since_start[i], stride, buffers_.rows + i * stride);
    }
    Multiply(rows, keys, sizes_.value, {buffers_.decayed_dout, stride}, state, keys, {},
             buffers_.part, keys);
    AddPart(keys_.q, buffers_.dq, read_);
    Multiply(rows, keys, sizes_.value, {buffers_.rows, stride}, state, keys, {}, buffers_.part,
             keys);
    AddPart(keys_.k, buffers_.dk, read_);
    const float whole = gates_.whole();
    Multiply(sizes_.key, stride, rows, {keys_.q, 1, keys}, buffers_.decayed_dout, stride,
             is_last ? Kept{} : Kept{&whole, 0}, dstate, stride);
    Multiply(sizes_.key, stride, rows, {keys_.k, 1, keys}, buffers_.rows, stride, kAdd, dstate,
             stride);
  }

  // sum += part, and products[i] += vectors[i] . part[i].
  void AddPart(const float* vectors, float* sum, float* products) {
    const size_t keys = sizes_.key_stride;
    for (size_t i = 0; i < keys_.rows; ++i) {
      const float* const part = buffers_.part + i * keys;
      products[i] += DotRows(vectors + i * keys, part, keys);
      for (size_t j = 0; j < keys; j += hn::Lanes(DF())) {
        Store(hn::Add(Load(sum + i * keys + j), Load(part + j)), sum + i * keys + j);
      }
    }
  }

  // The gradient by g_t sums what is written before token t and read from t on: spanned[i, j] for j
  // < t <= i, what is read from earlier chunks by t and later tokens, what tokens before t write
  // for later chunks, and what passes through.
  void WriteGateGradients(int64_t first, int64_t head, float whole, GateSums& sums) {
    const DF df;
    const size_t lanes = hn::Lanes(df), rows = keys_.rows;
    HWY_ALIGN float columns[kChunk];
    Fill(0, Padded(rows), columns);
    float passing[kChunk];
    for (size_t t = 0; t < rows; ++t) {
      passing[t] = whole;
      whole += written_[t];
    }
    float read = 0;
    for (size_t t = rows; t-- > 0;) {
      read += read_[t];
      VF sum = hn::Zero(df);
      for (size_t j = 0; j < Padded(rows); j += lanes) {
        const VF column = hn::Add(Load(columns + j), Load(matrices_.attention + t * kChunk + j));
        Store(column, columns + j);
        sum = hn::Add(sum, hn::IfThenElseZero(ColumnsBefore(t, j), column));
      }
      const float gradient = SumLanes(sum) + read + passing[t];
      const float by_a = gradient * gates_.slope[t];
      WriteElement(by_a, static_cast<T*>(args_.da) +
                             (first + static_cast<int64_t>(t)) * args_.da_stride + head);
      sums.a_log += double{gradient} * gates_.log_decay[t];
      sums.dt_bias += double{by_a};
    }
  }

  static void WriteElement(float x, T* to) {
    if constexpr (sizeof(T) == 4) {
      *to = x;
    } else {
      *to = FloatToBf16(x);
    }
  }

  // With y = scale * x / |x| written as x * inverse * scale: dx = inverse * scale * (dy - y (y .
  // dy) / scale^2).
  void WriteUnitGradient(const float* y, float inverse, float scale, float* dy, T* dx) const {
    const float along = DotRows(y, dy, sizes_.key_stride) / (scale * scale);
    const VF by = hn::Set(DF(), inverse * scale), less = hn::Set(DF(), along);
    for (size_t i = 0; i < sizes_.key_stride; i += hn::Lanes(DF())) {
      Store(hn::Mul(by, hn::NegMulAdd(Load(y + i), less, Load(dy + i))), dy + i);
    }
    WriteRow(dy, sizes_.key, dx);
  }

  const GatedDeltaBackwardArgs& args_;
  const GatedDeltaArgs& forward_;
  const BackwardTask& task_;
  const HeadSizes sizes_;
  Floats memory_;
  KeyChunk keys_;
  GateMatrices matrices_;
  BackwardBuffers buffers_;
  ChunkGates gates_;
  float read_[kChunk], written_[kChunk];
};

void Backward(const GatedDeltaBackwardArgs& args, const BackwardTask& task) {
  args.forward.dtype == DType::kF32 ? DocumentBackward<float>(args, task).Run()
                                    : DocumentBackward<bf16_t>(args, task).Run();
}

}  // namespace HWY_NAMESPACE
}  // namespace megatrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain {

HWY_EXPORT(Backward);
HWY_EXPORT(BackwardFloats);

namespace {

// The memory kept for the second sweep is at most this, or what one key head needs.
constexpr int64_t kKeptBytesMax = int64_t{256} << 20;

KeptForBackward KeptFor(const GatedDeltaShape& shape) {
  constexpr int64_t kStride = 16;
  KeptForBackward kept;
  kept.tokens = shape.tokens;
  kept.key_stride = (shape.key_dim + kStride - 1) / kStride * kStride;
  kept.value_stride = (shape.value_dim + kStride - 1) / kStride * kStride;
  kept.head_floats =
      kept.value_stride * (shape.tokens + shape.tokens / kDeltaChunk * kept.key_stride);
  return kept;
}

// Returns the key heads that are worked on at once. No bit depends on it.
int64_t KeyHeadsAtOnce(const GatedDeltaShape& shape) {
  const int64_t group = shape.value_heads / shape.key_heads;
  const int64_t bytes = KeptFor(shape).head_floats * group * int64_t{sizeof(float)};
  return std::clamp(kKeptBytesMax / std::max<int64_t>(1, bytes), int64_t{1}, shape.key_heads);
}

void AddSums(const std::vector<GateSums>& sums, const GatedDeltaBackwardArgs& args) {
  const int64_t heads = args.forward.value_heads;
  for (int64_t h = 0; h < heads; ++h) {
    GateSums sum;
    for (int64_t d = 0; d < args.forward.documents.documents; ++d) {
      sum.a_log += sums[static_cast<size_t>(d * heads + h)].a_log;
      sum.dt_bias += sums[static_cast<size_t>(d * heads + h)].dt_bias;
    }
    const auto write = [&](double x, float* to) {
      if (to != nullptr) to[h] = static_cast<float>((args.add_parameters ? to[h] : 0.0) + x);
    };
    write(sum.a_log, args.da_log);
    write(sum.dt_bias, args.ddt_bias);
  }
}

}  // namespace

int64_t CpuGatedDeltaWorkspaceBytes(const GatedDeltaShape& shape) {
  return KeyHeadsAtOnce(shape) * (shape.value_heads / shape.key_heads) *
         KeptFor(shape).head_floats * int64_t{sizeof(float)};
}

absl::Status RunGatedDeltaBackward(const GatedDeltaBackwardArgs& args, ThreadPool* pool,
                                   WorkspacePool* workspaces) {
  const GatedDeltaArgs& forward = args.forward;
  const DeltaDocuments& documents = forward.documents;
  const GatedDeltaShape shape{documents.tokens, forward.key_heads, forward.value_heads,
                              forward.key_dim, forward.value_dim};
  const int64_t group = forward.value_heads / forward.key_heads;
  // A workspace for more tokens may be for fewer key heads at once, and then for fewer bytes.
  const int64_t key_head_bytes =
      std::max<int64_t>(1, KeptFor(shape).head_floats * group * int64_t{sizeof(float)});
  if (args.workspace_bytes < key_head_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("a workspace of ", args.workspace_bytes,
                                                   " bytes, where the gated delta rule takes ",
                                                   key_head_bytes));
  }
  const int64_t at_once = std::min(KeyHeadsAtOnce(shape), args.workspace_bytes / key_head_bytes);
  const int64_t floats = static_cast<int64_t>(HWY_DYNAMIC_DISPATCH(BackwardFloats)(forward));
  std::vector<GateSums> sums(static_cast<size_t>(documents.documents * forward.value_heads));
  for (int64_t first = 0; first < forward.key_heads; first += at_once) {
    const int64_t heads = std::min(at_once, forward.key_heads - first);
    pool->ParallelFor(documents.documents * heads, [&](int64_t task) {
      const int64_t document = task / heads, i = task % heads;
      KeptForBackward kept = KeptFor(shape);
      kept.memory = static_cast<float*>(args.workspace) + i * group * kept.head_floats;
      const WorkspacePool::Lease workspace = workspaces->Take();
      HWY_DYNAMIC_DISPATCH(Backward)
      (args,
       {.begin = documents.starts[document],
        .end = documents.starts[document + 1],
        .key_head = first + i,
        .kept = kept,
        .sums = &sums[static_cast<size_t>(document * forward.value_heads + (first + i) * group)],
        .buffer = workspace->Floats(1, floats)});
    });
  }
  AddSums(sums, args);
  return absl::OkStatus();
}

}  // namespace megatrain
#endif  // HWY_ONCE
