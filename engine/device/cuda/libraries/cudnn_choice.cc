#include "engine/device/cuda/libraries/cudnn_choice.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <optional>

#include "engine/device/cuda/libraries/cudnn_sizes.h"

namespace megatrain {
namespace {

// Lengths of unpacked documents are multiples of this, as those of sequences are; single documents
// and growing texts have other lengths.
constexpr int64_t kLengthStep = 512;
// Documents and runs are kept below this, because cuDNN's 32-bit arithmetic within a document has
// not been tested beyond it.
constexpr int64_t kRunElementsMax = std::numeric_limits<int32_t>::max();

// The length of the gradient's blocks. For each two blocks of n tokens with g query heads of d
// elements, cuDNN does 10 n^2 g d operations, and adding up the parts moves up to 10 (g + 2) n d
// bytes: a part is read in BF16, its sum read and written in FP32. An H200 does 581 TFLOP/s of
// these operations and copies 4.3 TB/s, 135 operations a byte, so that the sums take 135 (g + 2) /
// (g n) of cuDNN's time: 2.1% with the 8192 tokens that fit at 7 heads of 128, 2.0% with 10240
// at 4. Where they would take more than 1 / kSumsPart of it, which is beyond 27 such heads, our own
// kernel is used, which has no parts.
constexpr int64_t kOperationsAByte = 135;
constexpr int64_t kSumsPart = 25;
// Work is handed out by 128 keys and a head: one head of this many fills an H200's 132
// multiprocessors once, and a few more tokens would take them twice as long.
constexpr int64_t kBlockMax = 16'384;

// The distance between tokens in elements, of the operand where it is longest.
int64_t TokenElements(const AttentionArgs& args) {
  return std::max({args.q_stride, args.k_stride, args.v_stride, args.heads * args.value_dim});
}
int64_t TokenElements(const AttentionBackwardArgs& args) {
  return std::max({TokenElements(args.forward), args.dq_stride, args.dk_stride, args.dv_stride});
}

// The length of all documents, or 0 if they differ.
int64_t CommonLength(const AttentionArgs& args) {
  const int64_t length = args.document_starts[1] - args.document_starts[0];
  for (int64_t d = 1; d < args.documents; ++d) {
    if (args.document_starts[d + 1] - args.document_starts[d] != length) return 0;
  }
  return length;
}

bool HasEmptyDocument(const AttentionArgs& args) {
  for (int64_t d = 0; d < args.documents; ++d) {
    if (args.document_starts[d + 1] == args.document_starts[d]) return true;
  }
  return false;
}

bool Aligned(std::initializer_list<const void*> addresses,
             std::initializer_list<int64_t> distances) {
  for (const void* address : addresses) {
    if (reinterpret_cast<uintptr_t>(address) % 16 != 0) return false;
  }
  for (const int64_t distance : distances) {
    if (distance * 2 % 16 != 0) return false;
  }
  return true;
}

// The window, or 0 if no document is longer.
int64_t WindowOf(const AttentionArgs& args) {
  for (int64_t d = 0; d < args.documents; ++d) {
    if (args.document_starts[d + 1] - args.document_starts[d] > args.shaping.window) {
      return args.shaping.window;
    }
  }
  return 0;
}

CudnnGraphKey KeyOf(const AttentionArgs& args) {
  return {.window = WindowOf(args),
          .head_dim = args.head_dim,
          .value_dim = args.value_dim,
          .q_stride = args.q_stride,
          .k_stride = args.k_stride,
          .v_stride = args.v_stride,
          .out_stride = args.heads * args.value_dim,
          .scale = args.scale};
}
CudnnGraphKey KeyOf(const AttentionBackwardArgs& args) {
  CudnnGraphKey key = KeyOf(args.forward);
  key.backward = true;
  key.dq_stride = args.dq_stride;
  key.dk_stride = args.dk_stride;
  key.dv_stride = args.dv_stride;
  return key;
}

CudnnGraphKey KeyOfRun(CudnnGraphKey key, const DocumentRun& run, int64_t group) {
  key.packed = true;
  key.documents = run.documents;
  key.length = run.length;
  key.kv_heads = run.kv_heads;
  key.heads = run.kv_heads * group;
  return key;
}

}  // namespace

bool CudnnMayTake(const AttentionArgs& args) {
  return args.dtype == DType::kBF16 && args.tokens > 0 &&
         CudnnTakesHeads(args.head_dim, args.value_dim) && args.shaping.softcap == 0 &&
         args.shaping.sinks == nullptr &&
         Aligned({args.q, args.k, args.v, args.out}, {args.q_stride, args.k_stride, args.v_stride});
}

bool CudnnMayTake(const AttentionBackwardArgs& args) {
  return CudnnMayTake(args.forward) && Aligned({args.dout, args.dq, args.dk, args.dv},
                                               {args.dq_stride, args.dk_stride, args.dv_stride});
}

bool IsUniform(const AttentionArgs& args) {
  const int64_t length = CommonLength(args);
  return length > 0 && length % kLengthStep == 0 && length * TokenElements(args) <= kRunElementsMax;
}

CudnnGraphKey UniformKeyOf(const AttentionArgs& args) {
  CudnnGraphKey key = KeyOf(args);
  key.documents = args.documents;
  key.length = CommonLength(args);
  key.heads = args.heads;
  key.kv_heads = args.kv_heads;
  key.statistics_stride = args.tokens;
  return key;
}

std::optional<CudnnGraphKey> UniformKeyOf(const AttentionBackwardArgs& args) {
  const AttentionArgs& f = args.forward;
  if (!IsUniform(f)) return std::nullopt;
  CudnnGraphKey key = KeyOf(args);
  key.documents = 1;
  key.length = CommonLength(f);
  key.kv_heads = f.kv_heads;
  const auto too_many = [&] {
    return f.kv_heads % key.kv_heads != 0 ||
           CudnnGradientBytes(1, key.kv_heads * GroupOf(f), key.length, key.head_dim) >
               args.workspace_bytes;
  };
  while (key.kv_heads > 0 && too_many()) --key.kv_heads;
  if (key.kv_heads == 0) return std::nullopt;
  key.heads = key.kv_heads * GroupOf(f);
  key.statistics_stride = key.length;  // packed
  return key;
}

std::vector<DocumentRun> RunsOf(const AttentionArgs& args, int64_t workspace_bytes,
                                bool takes_packed) {
  if (!takes_packed || HasEmptyDocument(args)) return {};
  const auto fits = [&](const DocumentRun& run) {
    return CudnnPackedForwardBytes(run.tokens, run.kv_heads * GroupOf(args)) <= workspace_bytes &&
           run.tokens * TokenElements(args) <= kRunElementsMax;
  };
  return CutIntoRuns(StartsOf(args), args.kv_heads, fits, [](int64_t) { return 0; });
}

int64_t BlockLengthOf(const AttentionBackwardArgs& args, int64_t tokens) {
  if (WindowOf(args.forward) > 0) return 0;
  const int64_t group = GroupOf(args.forward);
  for (int64_t block = kBlockMax; block > 0; block -= kCudnnLengthMin) {
    if (block >= tokens || block != CudnnLengthBucket(block)) continue;
    if (kSumsPart * kOperationsAByte * (group + 2) > group * block) return 0;
    if (block * TokenElements(args) <= kRunElementsMax &&
        CudnnBlockGradientBytes(tokens, group, block, args.forward.head_dim) <=
            args.workspace_bytes) {
      return block;
    }
  }
  return 0;
}

std::vector<DocumentRun> RunsOf(const AttentionBackwardArgs& args, bool takes_packed) {
  const AttentionArgs& f = args.forward;
  if (!takes_packed || HasEmptyDocument(f)) return {};
  const auto fits = [&](const DocumentRun& run) {
    return CudnnGradientBytes(run.documents, run.kv_heads * GroupOf(f), run.length, f.head_dim) <=
               args.workspace_bytes &&
           run.tokens * TokenElements(args) <= kRunElementsMax;
  };
  return CutIntoRuns(StartsOf(f), f.kv_heads, fits,
                     [&](int64_t tokens) { return BlockLengthOf(args, tokens); });
}

std::vector<CudnnGraphKey> KeysOfRun(const AttentionArgs& args, const DocumentRun& run) {
  return {KeyOfRun(KeyOf(args), run, GroupOf(args))};
}
std::vector<CudnnGraphKey> KeysOfRun(const AttentionBackwardArgs& args, const DocumentRun& run) {
  CudnnGraphKey key = KeyOfRun(KeyOf(args), run, GroupOf(args.forward));
  if (!run.in_blocks()) return {key};
  // The parts are contiguous.
  key.dq_stride = key.heads * key.head_dim;
  key.dk_stride = key.kv_heads * key.head_dim;
  key.dv_stride = key.kv_heads * key.value_dim;
  CudnnGraphKey below = key;
  below.causal = false;
  return {key, below};
}

std::vector<CudnnGraphKey> GraphsOf(const AttentionBackwardArgs& args, int64_t workspace_bytes,
                                    bool takes_packed) {
  const AttentionArgs& f = args.forward;
  std::vector<CudnnGraphKey> keys;
  if (!CudnnMayTake(f)) return keys;
  const bool gradient = args.workspace_bytes > 0 && CudnnMayTake(args);
  const auto add = [&](const auto& call, const std::vector<DocumentRun>& runs) {
    for (const DocumentRun& run : runs) {
      for (const CudnnGraphKey& key : KeysOfRun(call, run)) keys.push_back(key);
    }
  };
  if (IsUniform(f)) {
    keys.push_back(UniformKeyOf(f));
  } else {
    add(f, RunsOf(f, workspace_bytes, takes_packed));
  }
  if (!gradient) return keys;
  if (const std::optional<CudnnGraphKey> key = UniformKeyOf(args)) {
    keys.push_back(*key);
  } else {
    add(args, RunsOf(args, takes_packed));
  }
  return keys;
}

}  // namespace megatrain
