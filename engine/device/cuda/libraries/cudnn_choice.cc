#include "engine/device/cuda/libraries/cudnn_choice.h"

#include <algorithm>
#include <initializer_list>
#include <limits>

#include "engine/device/cuda/libraries/cudnn_sizes.h"

namespace megatrain {
namespace {

// Of documents that are not packed: lengths that sequences have, not those that single documents or
// a text that grows by a token happen to have.
constexpr int64_t kLengthStep = 512;
// What cuDNN reckons with in 32 bits inside a document has not been looked at: no document and no
// run is so large that it would matter.
constexpr int64_t kRunElementsMax = std::numeric_limits<int32_t>::max();

// The distance between tokens in elements, of the operand where it is longest.
int64_t TokenElements(const AttentionArgs& args) {
  return std::max({args.q_stride, args.k_stride, args.v_stride, args.heads * args.head_dim});
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

CudnnGraphKey KeyOf(const AttentionArgs& args) {
  return {.head_dim = args.head_dim,
          .q_stride = args.q_stride,
          .k_stride = args.k_stride,
          .v_stride = args.v_stride,
          .out_stride = args.heads * args.head_dim,
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

CudnnGraphKey OfRun(CudnnGraphKey key, const DocumentRun& run, int64_t group) {
  key.packed = true;
  key.documents = run.documents;
  key.length = run.length;
  key.kv_heads = run.kv_heads;
  key.heads = run.kv_heads * group;
  return key;
}

}  // namespace

bool CudnnTakes(const AttentionArgs& args) {
  return args.dtype == DType::kBF16 && args.tokens > 0 && args.head_dim % 8 == 0 &&
         args.head_dim <= kCudnnHeadDimMax &&
         Aligned({args.q, args.k, args.v, args.out}, {args.q_stride, args.k_stride, args.v_stride});
}

bool CudnnTakes(const AttentionBackwardArgs& args) {
  return CudnnTakes(args.forward) && Aligned({args.dout, args.dq, args.dk, args.dv},
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

CudnnGraphKey UniformKeyOf(const AttentionBackwardArgs& args) {
  const AttentionArgs& f = args.forward;
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
  return CutIntoRuns(StartsOf(args), args.kv_heads, fits);
}

std::vector<DocumentRun> RunsOf(const AttentionBackwardArgs& args, bool takes_packed) {
  const AttentionArgs& f = args.forward;
  if (!takes_packed || HasEmptyDocument(f)) return {};
  const auto fits = [&](const DocumentRun& run) {
    return CudnnGradientBytes(run.documents, run.kv_heads * GroupOf(f), run.length, f.head_dim) <=
               args.workspace_bytes &&
           run.tokens * TokenElements(args) <= kRunElementsMax;
  };
  return CutIntoRuns(StartsOf(f), f.kv_heads, fits);
}

CudnnGraphKey KeyOfRun(const AttentionArgs& args, const DocumentRun& run) {
  return OfRun(KeyOf(args), run, GroupOf(args));
}
CudnnGraphKey KeyOfRun(const AttentionBackwardArgs& args, const DocumentRun& run) {
  return OfRun(KeyOf(args), run, GroupOf(args.forward));
}

std::vector<CudnnGraphKey> GraphsOf(const AttentionBackwardArgs& args, int64_t workspace_bytes,
                                    bool takes_packed) {
  const AttentionArgs& f = args.forward;
  std::vector<CudnnGraphKey> keys;
  if (!CudnnTakes(f)) return keys;
  const bool gradient = args.workspace_bytes > 0 && CudnnTakes(args);
  if (IsUniform(f)) {
    keys.push_back(UniformKeyOf(f));
    if (!gradient) return keys;
    if (const CudnnGraphKey key = UniformKeyOf(args); key.kv_heads > 0) keys.push_back(key);
    return keys;
  }
  for (const DocumentRun& run : RunsOf(f, workspace_bytes, takes_packed)) {
    keys.push_back(KeyOfRun(f, run));
  }
  if (!gradient) return keys;
  for (const DocumentRun& run : RunsOf(args, takes_packed)) keys.push_back(KeyOfRun(args, run));
  return keys;
}

}  // namespace megatrain
