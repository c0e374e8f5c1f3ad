#include "engine/device/cpu/delta/gated_delta.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/device/cpu/delta/gated_delta.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again for each target.
#include "engine/device/cpu/delta/chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain {
namespace HWY_NAMESPACE {

size_t ForwardFloats(const GatedDeltaArgs& args) {
  const HeadSizes sizes(args);
  return KeyChunk::FloatsFor(sizes) + GateMatrices::FloatsFor() + 2 * kChunk * sizes.value_stride +
         sizes.group * sizes.state;
}

// A document and the value heads of one key head.
template <typename T>
void ForwardDocument(const GatedDeltaArgs& args, int64_t begin, int64_t end, int64_t key_head,
                     float* buffer) {
  const HeadSizes sizes(args);
  const size_t stride = sizes.value_stride;
  Floats memory(buffer);
  KeyChunk keys(sizes, &memory);
  GateMatrices matrices(&memory);
  float* const u = memory.Take(kChunk * stride);
  float* const other = memory.Take(kChunk * stride);
  float* const states = memory.Take(sizes.group * sizes.state);
  const int64_t group = args.value_heads / args.key_heads, first_head = key_head * group;
  const int64_t row = args.documents.state_rows != nullptr ? args.documents.state_rows[begin] : -1;
  const int64_t states_at = (row * args.value_heads + first_head) * args.key_dim * args.value_dim;
  const size_t state_rows = sizes.group * sizes.key;
  if (row >= 0 && args.initial_states != nullptr) {
    for (size_t i = 0; i < state_rows; ++i) {
      ReadRow(args.initial_states + states_at + static_cast<int64_t>(i) * args.value_dim,
              sizes.value, states + i * stride);
    }
  } else {
    Fill(0, sizes.group * sizes.state, states);
  }
  ChunkGates gates;
  for (int64_t first = begin; first < end; first += kDeltaChunk) {
    const size_t rows = static_cast<size_t>(std::min(kDeltaChunk, end - first));
    keys.Read<T>(args, sizes, key_head, first, rows);
    for (int64_t g = 0; g < group; ++g) {
      const int64_t head = first_head + g;
      float* const state = states + static_cast<size_t>(g) * sizes.state;
      LoadGates(args, head, first, rows, &gates);
      matrices.Compute(keys, gates);
      ComputeUpdates<T>(args, sizes, keys, gates, matrices, head, first, state, u);
      float* const out = other;
      Multiply(rows, stride, sizes.key, {keys.q, sizes.key_stride}, state, stride, {}, out, stride);
      MultiplyLower(rows, stride, {matrices.attention, kChunk}, u, stride, {gates.since_start, 1},
                    out, stride);
      for (size_t i = 0; i < rows; ++i) {
        const int64_t t = first + static_cast<int64_t>(i);
        WriteRow(out + i * stride, sizes.value,
                 static_cast<T*>(args.out) + (t * args.value_heads + head) * args.value_dim);
      }
      AdvanceState(sizes, keys, gates, u, other, state);
    }
  }
  for (size_t i = 0; row >= 0 && args.final_states != nullptr && i < state_rows; ++i) {
    WriteRow(states + i * stride, sizes.value,
             args.final_states + states_at + static_cast<int64_t>(i) * args.value_dim);
  }
}

void Forward(const GatedDeltaArgs& args, int64_t begin, int64_t end, int64_t key_head,
             float* buffer) {
  args.dtype == DType::kF32 ? ForwardDocument<float>(args, begin, end, key_head, buffer)
                            : ForwardDocument<bf16_t>(args, begin, end, key_head, buffer);
}

}  // namespace HWY_NAMESPACE
}  // namespace megatrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain {

HWY_EXPORT(Forward);
HWY_EXPORT(ForwardFloats);

void RunGatedDelta(const GatedDeltaArgs& args, ThreadPool* pool, WorkspacePool* workspaces) {
  const int32_t* const starts = args.documents.starts;
  const size_t floats = HWY_DYNAMIC_DISPATCH(ForwardFloats)(args);
  pool->ParallelFor(args.documents.documents * args.key_heads, [&](int64_t task) {
    const int64_t document = task / args.key_heads;
    const WorkspacePool::Lease workspace = workspaces->Take();
    HWY_DYNAMIC_DISPATCH(Forward)
    (args, starts[document], starts[document + 1], task % args.key_heads,
     workspace->Floats(1, static_cast<int64_t>(floats)));
  });
}

}  // namespace megatrain
#endif  // HWY_ONCE
