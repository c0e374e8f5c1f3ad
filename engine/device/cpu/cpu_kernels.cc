#include "engine/device/cpu/cpu_kernels.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <cstring>
#include <vector>

#include "engine/base/status.h"
#include "engine/device/cpu/attention.h"
#include "engine/device/cpu/cross_entropy.h"
#include "engine/device/cpu/delta/causal_conv.h"
#include "engine/device/cpu/delta/gated_delta.h"
#include "engine/device/cpu/delta/gated_norm.h"
#include "engine/device/cpu/elementwise.h"
#include "engine/device/cpu/experts/router.h"
#include "engine/device/cpu/experts/rows.h"
#include "engine/device/cpu/experts/sort_assignments.h"
#include "engine/device/cpu/glu.h"
#include "engine/device/cpu/heads.h"
#include "engine/device/cpu/loops/ranges.h"
#include "engine/device/cpu/matmul.h"
#include "engine/device/cpu/norm.h"
#include "engine/device/cpu/rope.h"
#include "engine/device/preference_term.h"
#include "engine/optim/kernel/adamw_kernel.h"

namespace megatrain {
namespace {

void PreferenceLossOfPair(const PreferenceLossArgs& args, int64_t pair) {
  const int32_t* const bounds = args.bounds + 4 * pair;
  double logps[2] = {0, 0}, tokens[2] = {0, 0};
  for (int side = 0; side < 2; ++side) {
    for (int32_t t = bounds[2 * side]; t < bounds[2 * side + 1]; ++t) {
      if (args.labels[t] < 0) continue;
      logps[side] -= args.losses[t];
      tokens[side] += 1;
    }
  }
  const double* const reference = args.reference + 2 * pair;
  const PreferenceTerm term = PreferenceTermOf(args.objective, logps[0] - reference[0],
                                               logps[1] - reference[1], tokens[0], tokens[1]);
  args.results[pair] = {logps[0], logps[1], term.loss};
  if (args.weights == nullptr) return;
  // A token's loss is minus its log-probability.
  for (int side = 0; side < 2; ++side) {
    const double by_loss = -(side == 0 ? term.by_chosen : term.by_rejected) * args.scale;
    std::fill(args.weights + bounds[2 * side], args.weights + bounds[2 * side + 1],
              static_cast<float>(by_loss));
  }
}

}  // namespace

CpuKernels::CpuKernels(ThreadPool* pool)
    : pool_(pool), sizes_(pool->threads()), native_bf16_(HasNativeBf16()) {}

void CpuKernels::SumInParts(int64_t rows, int64_t row_elements, int64_t width, float* sums,
                            bool add,
                            absl::FunctionRef<void(int64_t begin, int64_t end, float* part)> run) {
  const int64_t size = RowsInPart(rows, row_elements);
  const int64_t count = CeilDiv(rows, size);
  const WorkspacePool::Lease workspace = workspaces_.Take();
  float* const parts = workspace->Floats(1, count * width);
  ForRanges(pool_, rows, size,
            [&](int64_t begin, int64_t end) { run(begin, end, parts + begin / size * width); });
  if (sums == nullptr) return;
  ForRanges(pool_, width, 4096, [&](int64_t begin, int64_t end) {
    if (!add) std::fill(sums + begin, sums + end, 0.0f);
    AddUpRows(DType::kF32, parts + begin, count, end - begin, width, sums + begin);
  });
}

absl::Status CpuKernels::MatMul(Stream&, const MatMulArgs& args) {
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = RunMatMul(args, native_bf16_, pool_, &workspaces_);
  matmul_nanoseconds_.fetch_add(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start)
          .count(),
      std::memory_order_relaxed);
  return status;
}

absl::Status CpuKernels::RmsNorm(Stream&, const RmsNormArgs& args) {
  ForRanges(pool_, args.rows, RowsInBlock(args.groups * args.width),
            [&](int64_t begin, int64_t end) { RmsNormRows(args, begin, end); });
  return absl::OkStatus();
}

absl::Status CpuKernels::RmsNormBackward(Stream&, const RmsNormBackwardArgs& args) {
  SumInParts(args.rows, args.groups * args.width, args.width, args.dweight, args.add_dweight,
             [&](int64_t begin, int64_t end, float* part) {
               RmsNormBackwardRows(args, begin, end, part);
             });
  return absl::OkStatus();
}

absl::Status CpuKernels::Rope(Stream&, const RopeArgs& args) {
  ForRanges(pool_, args.tokens, RowsInBlock(args.heads * args.head_dim),
            [&](int64_t begin, int64_t end) { RopeTokens(args, begin, end); });
  return absl::OkStatus();
}

absl::Status CpuKernels::CopyHeads(Stream&, const CopyHeadsArgs& args) {
  ForRanges(pool_, args.tokens, RowsInBlock(args.heads * args.width),
            [&](int64_t begin, int64_t end) { CopyHeadsOfTokens(args, begin, end); });
  return absl::OkStatus();
}

absl::Status CpuKernels::SumHeads(Stream&, const SumHeadsArgs& args) {
  ForRanges(pool_, args.tokens, RowsInBlock(args.heads * args.width),
            [&](int64_t begin, int64_t end) { SumHeadsOfTokens(args, begin, end); });
  return absl::OkStatus();
}

absl::Status CpuKernels::Attention(Stream&, const AttentionArgs& args) {
  return RunAttention(args, native_bf16_, pool_, &workspaces_);
}

absl::Status CpuKernels::AttentionBackward(Stream&, const AttentionBackwardArgs& args) {
  return RunAttentionBackward(args, native_bf16_, pool_, &workspaces_);
}

absl::Status CpuKernels::StoreInCache(Stream&, const CachedAttentionArgs& args) {
  ForRanges(pool_, args.tokens, RowsInBlock(args.cache_row()),
            [&](int64_t begin, int64_t end) { StoreTokensInCache(args, begin, end); });
  return absl::OkStatus();
}

absl::Status CpuKernels::CachedAttention(Stream&, const CachedAttentionArgs& args) {
  RunCachedAttention(args, pool_, &workspaces_);
  return absl::OkStatus();
}

absl::Status CpuKernels::Glu(Stream&, const GluArgs& args) {
  ForRanges(pool_, args.tokens, RowsInBlock(args.width),
            [&](int64_t begin, int64_t end) { GluTokens(args, begin, end); });
  return absl::OkStatus();
}

absl::Status CpuKernels::GluBackward(Stream&, const GluBackwardArgs& args) {
  ForRanges(pool_, args.tokens, RowsInBlock(args.width),
            [&](int64_t begin, int64_t end) { GluBackwardTokens(args, begin, end); });
  return absl::OkStatus();
}

absl::Status CpuKernels::SigmoidGate(Stream&, const SigmoidGateArgs& args) {
  ForRanges(pool_, args.tokens, RowsInBlock(args.heads * args.head_dim),
            [&](int64_t begin, int64_t end) { SigmoidGateTokens(args, begin, end); });
  return absl::OkStatus();
}

absl::Status CpuKernels::SigmoidGateBackward(Stream&, const SigmoidGateBackwardArgs& args) {
  ForRanges(pool_, args.forward.tokens, RowsInBlock(args.forward.heads * args.forward.head_dim),
            [&](int64_t begin, int64_t end) { SigmoidGateBackwardTokens(args, begin, end); });
  return absl::OkStatus();
}

absl::Status CpuKernels::Route(Stream&, const RouteArgs& args) {
  RunRoute(args, pool_);
  return absl::OkStatus();
}

absl::Status CpuKernels::RouteBackward(Stream&, const RouteBackwardArgs& args) {
  RunRouteBackward(args, pool_);
  return absl::OkStatus();
}

absl::Status CpuKernels::RouterSums(Stream&, const RouterSumsArgs& args) {
  RunRouterSums(args, pool_);
  return absl::OkStatus();
}

absl::Status CpuKernels::SortAssignments(Stream&, const SortAssignmentsArgs& args) {
  RunSortAssignments(args, pool_);
  return absl::OkStatus();
}

absl::Status CpuKernels::GatherRows(Stream&, const GatherRowsArgs& args) {
  RunGatherRows(args, pool_);
  return absl::OkStatus();
}

absl::Status CpuKernels::AddRows(Stream&, const AddRowsArgs& args) {
  RunAddRows(args, pool_);
  return absl::OkStatus();
}

absl::Status CpuKernels::WeighRows(Stream&, const WeighRowsArgs& args) {
  RunWeighRows(args, pool_);
  return absl::OkStatus();
}

absl::Status CpuKernels::Add(Stream&, const AddArgs& args) {
  ForRanges(pool_, args.rows * args.width, kBlockElements,
            [&](int64_t begin, int64_t end) { AddElements(args, begin, end); });
  return absl::OkStatus();
}

absl::Status CpuKernels::CausalConv(Stream&, const CausalConvArgs& args) {
  RunCausalConv(args, pool_, &workspaces_);
  return absl::OkStatus();
}

absl::Status CpuKernels::CausalConvBackward(Stream&, const CausalConvBackwardArgs& args) {
  RunCausalConvBackward(args, pool_, &workspaces_);
  return absl::OkStatus();
}

absl::Status CpuKernels::GatedDelta(Stream&, const GatedDeltaArgs& args) {
  RunGatedDelta(args, pool_, &workspaces_);
  return absl::OkStatus();
}

absl::Status CpuKernels::GatedDeltaBackward(Stream&, const GatedDeltaBackwardArgs& args) {
  return RunGatedDeltaBackward(args, pool_, &workspaces_);
}

absl::Status CpuKernels::GatedNorm(Stream&, const GatedNormArgs& args) {
  ForRanges(pool_, args.tokens, RowsInBlock(args.heads * args.head_dim),
            [&](int64_t begin, int64_t end) { GatedNormTokens(args, begin, end); });
  return absl::OkStatus();
}

absl::Status CpuKernels::GatedNormBackward(Stream&, const GatedNormBackwardArgs& args) {
  const int64_t tokens = args.forward.tokens, width = args.forward.head_dim;
  SumInParts(tokens, args.forward.heads * width, width, args.dweight, args.add_dweight,
             [&](int64_t begin, int64_t end, float* part) {
               GatedNormBackwardTokens(args, begin, end, part);
             });
  return absl::OkStatus();
}

absl::Status CpuKernels::Embedding(Stream&, const EmbeddingArgs& args) {
  const size_t row_bytes = static_cast<size_t>(args.hidden * DTypeBytes(args.dtype));
  ForRanges(pool_, args.tokens, RowsInBlock(args.hidden), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      assert(args.ids[t] >= 0 && args.ids[t] < args.vocabulary);
      const char* const row =
          static_cast<const char*>(args.table) + static_cast<size_t>(args.ids[t]) * row_bytes;
      char* const out = static_cast<char*>(args.out) + static_cast<size_t>(t) * row_bytes;
      if (args.scale == 1.0f) {
        std::memcpy(out, row, row_bytes);
      } else {
        ScaleElements(args.dtype, row, args.hidden, args.scale, out);
      }
    }
  });
  return absl::OkStatus();
}

// Columns are cut too: a batch may be one token over and over, and one id has one writer. Most rows
// of a table have no token, so that writing all of it first is hardly more than writing those.
absl::Status CpuKernels::EmbeddingBackward(Stream& stream, const EmbeddingBackwardArgs& args) {
  if (!args.add) {
    MT_RETURN_IF_ERROR(
        Zero(stream, args.dtable, args.vocabulary * args.hidden * int64_t{sizeof(float)}));
  }
  constexpr int64_t kColumns = 512;
  const int64_t across = CeilDiv(args.hidden, kColumns);
  const int64_t tokens = RowsInBlock(std::min(args.hidden, kColumns));
  pool_->ParallelFor(CeilDiv(args.tokens, tokens) * across, [&](int64_t block) {
    const int64_t begin = block / across * tokens;
    const int64_t column = block % across * kColumns;
    EmbeddingBackwardIds(args, begin, std::min(args.tokens, begin + tokens), column,
                         std::min(args.hidden, column + kColumns));
  });
  return absl::OkStatus();
}

absl::Status CpuKernels::CrossEntropy(Stream&, const CrossEntropyArgs& args) {
  ForRanges(pool_, args.tokens, RowsInBlock(args.vocabulary),
            [&](int64_t begin, int64_t end) { CrossEntropyTokens(args, begin, end); });
  return absl::OkStatus();
}

absl::Status CpuKernels::PreferenceLoss(Stream&, const PreferenceLossArgs& args) {
  pool_->ParallelFor(args.pairs, [&](int64_t pair) { PreferenceLossOfPair(args, pair); });
  return absl::OkStatus();
}

absl::Status CpuKernels::BiasBackward(Stream&, DType dtype, int64_t rows, int64_t n, const void* dy,
                                      int64_t stride, float* dbias, bool add) {
  SumInParts(rows, n, n, dbias, add, [&](int64_t begin, int64_t end, float* part) {
    std::fill_n(part, n, 0.0f);
    AddUpRows(dtype, static_cast<const char*>(dy) + begin * stride * DTypeBytes(dtype), end - begin,
              n, stride, part);
  });
  return absl::OkStatus();
}

absl::Status CpuKernels::SumOfSquares(Stream&, const float* x, int64_t n, double* sum) {
  std::vector<double> parts(static_cast<size_t>(CeilDiv(n, kBlockElements)));
  ForRanges(pool_, n, kBlockElements, [&](int64_t begin, int64_t end) {
    parts[static_cast<size_t>(begin / kBlockElements)] = SumOfSquaresOf(x + begin, end - begin);
  });
  *sum = 0;
  for (double part : parts) *sum += part;
  return absl::OkStatus();
}

absl::Status CpuKernels::Sum(Stream&, const float* x, int64_t n, double* sum) {
  std::vector<double> parts(static_cast<size_t>(CeilDiv(n, kBlockElements)));
  ForRanges(pool_, n, kBlockElements, [&](int64_t begin, int64_t end) {
    parts[static_cast<size_t>(begin / kBlockElements)] = SumOf(x + begin, end - begin);
  });
  *sum = 0;
  for (double part : parts) *sum += part;
  return absl::OkStatus();
}

// Element i moves from byte 4 i to byte 2 i. The range [s, 2 s) lands in bytes [2 s, 4 s), where
// [s / 2, s) was: so once [0, s) is done, all of [s, 2 s) can be done at once.
absl::Status CpuKernels::CastToBf16InPlace(Stream&, void* x, int64_t n) {
  const float* from = static_cast<const float*>(x);
  bf16_t* to = static_cast<bf16_t*>(x);
  int64_t done = std::min(n, kBlockElements);
  pool_->ParallelFor(1, [&](int64_t) { NarrowToBf16(from, done, to); });
  while (done < n) {
    const int64_t count = std::min(done, n - done);
    ForRanges(pool_, count, kBlockElements, [&](int64_t begin, int64_t end) {
      NarrowToBf16(from + done + begin, end - begin, to + done + begin);
    });
    done += count;
  }
  return absl::OkStatus();
}

absl::Status CpuKernels::Zero(Stream&, void* x, int64_t bytes) {
  ForRanges(pool_, bytes, int64_t{1} << 18, [&](int64_t begin, int64_t end) {
    std::memset(static_cast<char*>(x) + begin, 0, static_cast<size_t>(end - begin));
  });
  return absl::OkStatus();
}

absl::Status CpuKernels::Scale(Stream&, DType dtype, void* x, int64_t n, const void* factor) {
  const float scale = dtype == DType::kF32 ? *static_cast<const float*>(factor)
                                           : Bf16ToFloat(*static_cast<const bf16_t*>(factor));
  ForRanges(pool_, n, kBlockElements, [&](int64_t begin, int64_t end) {
    char* const part = static_cast<char*>(x) + begin * DTypeBytes(dtype);
    ScaleElements(dtype, part, end - begin, scale, part);
  });
  return absl::OkStatus();
}

absl::Status CpuKernels::AdamW(Stream&, const AdamWArgs& args) {
  const float decay = args.decays ? args.constants.decay : 1.0f;
  const int64_t weight_bytes = args.span.remainder == nullptr ? 4 : 2;
  const int64_t gradient_bytes = DTypeBytes(args.gradient_dtype);
  ForRanges(pool_, args.span.elements, kBlockElements, [&](int64_t begin, int64_t end) {
    AdamWSpan span = args.span;
    span.gradient = static_cast<const char*>(span.gradient) + begin * gradient_bytes;
    span.weights = static_cast<char*>(span.weights) + begin * weight_bytes;
    if (span.remainder != nullptr) span.remainder += begin;
    span.exp_avg += begin;
    span.exp_avg_sq += begin;
    span.elements = end - begin;
    if (!AdamWUpdateSpan(args.constants, decay, args.gradient_dtype, span)) {
      std::atomic_ref<int32_t>(*args.untrusted).store(1, std::memory_order_relaxed);
    }
  });
  return absl::OkStatus();
}

int64_t CpuKernelSizes::AttentionBackwardWorkspaceBytes(const AttentionShape& s) const {
  return AttentionWorkspaceBytes(s.tokens, s.heads, s.head_dim);
}

int64_t CpuKernelSizes::GatedDeltaBackwardWorkspaceBytes(const GatedDeltaShape& shape) const {
  return CpuGatedDeltaWorkspaceBytes(shape);
}

// Every thread's workspace; one more for the caller's parts of sums (of rows at most as wide as a
// matrix has elements over kPartsMax); oneDNN's generated code.
int64_t CpuKernelSizes::ScratchBytesMax() const {
  constexpr int64_t kParts = int64_t{16} << 20, kCode = int64_t{32} << 20;
  return threads_ * (MatMulScratchBytesMax() + AttentionScratchBytesMax()) + kParts + kCode;
}

double CpuKernels::MatMulSeconds() const {
  return static_cast<double>(matmul_nanoseconds_.load(std::memory_order_relaxed)) * 1e-9;
}

}  // namespace megatrain
