#include "engine/device/cpu/attention.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "engine/base/status.h"
#include "engine/device/cpu/attention_blocks.h"
#include "engine/device/cpu/softmax_block.h"

namespace megatrain {
namespace {

using attention::BlockMath;
using attention::CheckAttention;
using attention::HeadRows;
using attention::kBlock;
using attention::kChunk;
using attention::kRows;
using attention::kScores;
using attention::kSums;
using attention::kWideA;
using attention::kWideB;
using attention::kWideC;
using attention::RoundDown;
using attention::RoundUp;
using attention::SightBounds;

// Queries [row, row + rows) of one head against the chunks of keys that they see.
absl::Status ForwardBlock(const AttentionArgs& args, const SightBounds& bounds,
                          const BlockMath& math, int64_t row, int64_t rows, int64_t head,
                          Workspace& workspace) {
  const int64_t kv_head = head / (args.heads / args.kv_heads);
  float* scores = workspace.Floats(kScores, kBlock * kChunk);
  float* sums = workspace.Floats(kSums, rows * args.value_dim);
  std::memset(sums, 0, static_cast<size_t>(rows * args.value_dim) * 4);
  float* largest = workspace.Floats(kRows, 2 * kBlock);
  float* sum = largest + kBlock;
  std::fill_n(largest, rows, SinkOf(args.shaping, args.dtype, head));
  std::fill_n(sum, rows, args.shaping.sinks != nullptr ? 1.0f : 0.0f);
  int32_t first[kBlock], last[kBlock];
  SoftmaxStepArgs step{.dtype = math.compute,
                       .rows = rows,
                       .scale = args.scale,
                       .softcap = args.shaping.softcap,
                       .scores = scores,
                       .stride = kChunk,
                       .p = scores,
                       .p_stride = math.p_stride(),
                       .first = first,
                       .last = last,
                       .largest = largest,
                       .sum = sum,
                       .accumulator = sums,
                       .dim = args.value_dim};
  const HeadRows q =
      math.Operand(args.q, args.q_stride, args.head_dim, head, row, rows, kWideA, workspace);
  const int64_t end = row + rows;
  for (int64_t key = RoundDown(bounds.start[static_cast<size_t>(row)], kBlock); key < end;
       key += kChunk) {
    const int64_t keys = std::min(kChunk, end - key);
    for (int64_t i = 0; i < rows; ++i) {
      first[i] = static_cast<int32_t>(bounds.start[static_cast<size_t>(row + i)] - key);
      last[i] = static_cast<int32_t>(row + i + 1 - key);
    }
    const HeadRows k =
        math.Operand(args.k, args.k_stride, args.head_dim, kv_head, key, keys, kWideB, workspace);
    const HeadRows v =
        math.Operand(args.v, args.v_stride, args.value_dim, kv_head, key, keys, kWideC, workspace);
    MT_RETURN_IF_ERROR(math.Scores(rows, keys, q, k, scores, workspace));
    step.columns = keys;
    SoftmaxStep(step);
    MT_RETURN_IF_ERROR(math.AddProduct(rows, keys, scores, false, v, sums, workspace));
  }
  const int64_t out_stride = args.heads * args.value_dim;
  SoftmaxFinish(step, args.dtype,
                static_cast<char*>(args.out) +
                    (row * out_stride + head * args.value_dim) * DTypeBytes(args.dtype),
                out_stride, args.lse + head * args.tokens + row);
  return absl::OkStatus();
}

}  // namespace

float SinkOf(const AttentionShaping& shaping, DType dtype, int64_t head) {
  if (shaping.sinks == nullptr) return -std::numeric_limits<float>::infinity();
  return dtype == DType::kF32 ? static_cast<const float*>(shaping.sinks)[head]
                              : Bf16ToFloat(static_cast<const bf16_t*>(shaping.sinks)[head]);
}

absl::Status RunAttention(const AttentionArgs& args, bool native_bf16, ThreadPool* pool,
                          WorkspacePool* workspaces) {
  if (args.tokens == 0) return absl::OkStatus();
  MT_RETURN_IF_ERROR(CheckAttention(args));
  const SightBounds bounds(args);
  const BlockMath math(args, native_bf16);
  const int64_t blocks = RoundUp(args.tokens, kBlock) / kBlock;
  FirstError error;
  pool->ParallelFor(blocks * args.heads, [&](int64_t task) {
    const int64_t row = task / args.heads * kBlock;
    const WorkspacePool::Lease workspace = workspaces->Take();
    error.Update(ForwardBlock(args, bounds, math, row, std::min(kBlock, args.tokens - row),
                              task % args.heads, *workspace));
  });
  return error.status();
}

// Scores and their slopes, two sums, the widened rows of a head (kWideA has those of a block, the
// others have those of a chunk in one of the passes), and oneDNN's packing.
int64_t AttentionScratchBytesMax() {
  return 2 * kBlock * kChunk * 4 + 2 * kBlock * kCpuHeadDimMax * 4 +
         (kBlock + 3 * kChunk) * kCpuHeadDimMax * 4 + (int64_t{4} << 20);
}

}  // namespace megatrain
