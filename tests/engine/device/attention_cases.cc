#include "tests/engine/device/attention_cases.h"

#include <cmath>

#include "engine/base/status.h"
#include "engine/device/cuda/libraries/cudnn_sizes.h"

namespace megatrain {

namespace {

// More than go in one call of a library's, of 1 to 9 tokens.
std::vector<int32_t> ManyDocuments() {
  std::vector<int32_t> starts = {0};
  for (int d = 0; d < 71; ++d) starts.push_back(starts.back() + 1 + d * 5 % 9);
  return starts;
}

}  // namespace

std::string AttentionCase::Name() const {
  std::string name = std::to_string(heads) + " heads, " + std::to_string(kv_heads) +
                     " of keys, head_dim " + std::to_string(head_dim);
  if (value_dim != head_dim) name += ", values of " + std::to_string(value_dim);
  name += ", documents end at";
  for (size_t d = 1; d < document_starts.size(); ++d) {
    name += " " + std::to_string(document_starts[d]);
  }
  if (window > 0) name += ", window " + std::to_string(window);
  if (softcap > 0) name += ", softcap " + std::to_string(softcap);
  if (sinks) name += ", sinks";
  return name;
}

const std::vector<AttentionCase>& AttentionCases() {
  static const std::vector<AttentionCase>& cases = *new std::vector<AttentionCase>{
      {2, 2, 64, 64, {0, 300}},
      {4, 2, 32, 32, {0, 1, 130, 131, 257, 600}},
      {3, 1, 16, 16, {0, 128, 256, 700}},
      {2, 1, 96, 96, {0, 5, 40, 77}},
      {1, 1, 128, 128, {0, 650, 651, 660}},
      {2, 2, 256, 256, {0, 140}},
      {2, 1, 512, 512, {0, 70, 101}},
      {1, 1, 300, 300, {0, 50}},
      {2, 1, 64, 64, {0, 512, 1024}},  // documents of one length, as sequences without packing have
      {2, 1, 160, 160, {0, 65, 130}},
      {2, 1, 24, 24, {0, 33, 200}},
      {2, 2, 20, 20, {0, 90, 100}},  // not a multiple of 8
      {2, 1, 8, 8, {0, 513, 1100, 1700, 2300}},
      {7, 1, 64, 64, {0, 20, 70}},
      // Many heads: a device may have enough to do without cutting a head's work.
      {88, 88, 8, 8, {0, 40, 140}},
      {264, 264, 104, 104, {0, 9}},
      {2, 1, 16, 16, ManyDocuments()},
      // Shorter than any tile.
      {2, 1, 64, 64, {0, 11, 40}},
      {1, 1, 128, 128, {0, 50}},
      // Small enough for tools that check every access.
      {2, 1, 64, 64, {0, 11, 40}, 5},
      {2, 1, 64, 64, {0, 40}, 0, 1.5f},
      {6, 2, 8, 8, {0, 11, 100}, 7, 1.5f, true},
      // Windows: of the token itself, shorter and longer than documents, and more than a block.
      {2, 1, 64, 64, {0, 40, 300}, 1},
      {4, 2, 32, 32, {0, 1, 130, 131, 257, 600}, 2},
      {3, 1, 96, 96, {0, 5, 40, 177}, 7},
      {2, 1, 64, 64, {0, 512, 1024}, 200},
      {1, 1, 128, 128, {0, 650, 651, 660}, 100},
      {2, 2, 256, 256, {0, 140}, 33},
      {2, 1, 512, 512, {0, 90}, 33},
      {2, 1, 64, 64, {0, 20, 70}, 50},
      {7, 1, 64, 64, {0, 20, 70}, 1000},
      {1, 1, 16, 16, {0, 300, 1900}, 129},
      {1, 1, 8, 8, {0, 1200}, 641},
      {2, 2, 20, 20, {0, 90, 100}, 9},
      // Softcaps, near the scores' deviation of 1, and sinks. The gradient of a sink is a sum of
      // both signs, which may be small by chance; that of six hardly is.
      {2, 1, 64, 64, {0, 90, 300}, 0, 1.5f},
      {2, 2, 128, 128, {0, 70, 140}, 37, 1.5f},
      {2, 1, 256, 256, {0, 65, 130}, 50, 2.0f},
      {1, 1, 32, 32, {0, 700}, 300, 30.0f},
      {6, 2, 32, 32, {0, 33, 200}, 0, 0, true},
      {6, 2, 64, 64, {0, 90, 300}, 128, 0, true},
      {6, 3, 16, 16, {0, 1, 300}, 2, 0, true},
      {6, 1, 160, 160, {0, 100}, 31, 1.0f, true},
      {6, 6, 20, 20, {0, 90, 100}, 9, 1.5f, true},
      {88, 88, 8, 8, {0, 40, 140}, 35, 1.0f, true},
      // Values of another size than keys: of latent attention, narrower and wider ones.
      {2, 2, 192, 128, {0, 65, 200}},
      {3, 3, 192, 128, {0, 70, 140}, 37, 1.5f},
      {4, 2, 160, 96, {0, 1, 90}, 31},
      {3, 3, 24, 16, {0, 33, 200}},
      {2, 1, 24, 16, {0, 512, 1024}, 100},
      {6, 2, 24, 16, {0, 33, 200}, 0, 0, true},
      {4, 4, 20, 36, {0, 90, 100}},
      {6, 6, 20, 36, {0, 90, 100}, 9, 1.5f},
      {2, 1, 40, 104, {0, 90, 300}},
      {2, 2, 128, 256, {0, 140}, 50},
      {2, 1, 256, 64, {0, 65, 130}, 0, 2.0f},
      {88, 88, 24, 16, {0, 40, 140}},
  };
  return cases;
}

void MakeAttention(const AttentionCase& shape, DType dtype, bool backward, Operands* operands,
                   KernelCall* call, void* workspace) {
  const int64_t tokens = shape.document_starts.back();
  const int64_t q_width = shape.heads * shape.head_dim, k_width = shape.kv_heads * shape.head_dim;
  const int64_t out_width = shape.heads * shape.value_dim;
  // q, k, v side by side, as the layers keep them
  const int64_t stride = q_width + k_width + shape.kv_heads * shape.value_dim;
  std::vector<int32_t> bounds_of;
  for (size_t d = 0; d + 1 < shape.document_starts.size(); ++d) {
    for (int32_t t = shape.document_starts[d]; t < shape.document_starts[d + 1]; ++t) {
      bounds_of.insert(bounds_of.end(), {shape.document_starts[d], shape.document_starts[d + 1]});
    }
  }
  const size_t bounds = operands->Ints(bounds_of);
  // What lies behind the last token is neither used, not even times zero, nor written.
  constexpr int64_t kBehind = 128;
  const size_t qkv = operands->RandomBefore(dtype, tokens * stride, kBehind * stride);
  const size_t out = operands->RandomBefore(dtype, tokens * out_width, kBehind * out_width);
  const size_t lse =
      operands->RandomBefore(DType::kF32, tokens * shape.heads, kBehind * shape.heads);
  const size_t sinks = shape.sinks ? operands->Random(dtype, shape.heads, 2.0) : 0;
  AttentionArgs args{.dtype = dtype,
                     .tokens = tokens,
                     .heads = shape.heads,
                     .kv_heads = shape.kv_heads,
                     .head_dim = shape.head_dim,
                     .value_dim = shape.value_dim,
                     .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim)),
                     .shaping = {.window = shape.window, .softcap = shape.softcap},
                     .choice = shape.choice,
                     .document_starts = shape.document_starts.data(),
                     .documents = static_cast<int64_t>(shape.document_starts.size()) - 1,
                     .q_stride = stride,
                     .k_stride = stride,
                     .v_stride = stride};
  const auto bind = [=](const std::vector<void*>& p, void* to) {
    AttentionArgs bound = args;
    if (shape.sinks) bound.shaping.sinks = p[sinks];
    bound.q = p[qkv];
    bound.k = static_cast<char*>(p[qkv]) + q_width * DTypeBytes(dtype);
    bound.v = static_cast<char*>(p[qkv]) + (q_width + k_width) * DTypeBytes(dtype);
    bound.out = to;
    bound.lse = static_cast<float*>(p[lse]);
    bound.document_bounds = static_cast<int32_t*>(p[bounds]);
    return bound;
  };
  if (!backward) {
    *call = [=](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
      return kernels.Attention(stream, bind(p, p[out]));
    };
    return;
  }
  const size_t dout = operands->RandomBefore(dtype, tokens * out_width, kBehind * out_width);
  const size_t dsinks = shape.sinks ? operands->Random(DType::kF32, shape.heads) : 0;
  const size_t dqkv = operands->RandomBefore(dtype, tokens * stride, kBehind * stride);
  // A generous bound that is linear in tokens, and a library's room.
  const int64_t workspace_max =
      tokens * shape.heads * (shape.head_dim + 8) * 16 +
      (dtype == DType::kBF16
           ? CudnnGradientBytes(1, shape.heads, CudnnLengthBucket(tokens), shape.head_dim)
           : 0);
  const size_t raw = operands->Raw(workspace == nullptr ? workspace_max : 0);
  *call = [=](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
    const AttentionArgs forward = bind(p, p[out]);
    MT_RETURN_IF_ERROR(kernels.Attention(stream, forward));
    const int64_t workspace_bytes =
        kernels.AttentionBackwardWorkspaceBytes({.dtype = dtype,
                                                 .tokens = tokens,
                                                 .sequence = tokens,
                                                 .heads = shape.heads,
                                                 .kv_heads = shape.kv_heads,
                                                 .head_dim = shape.head_dim,
                                                 .value_dim = shape.value_dim,
                                                 .window = shape.window,
                                                 .softcap = shape.softcap,
                                                 .sinks = shape.sinks});
    if (workspace == nullptr && workspace_bytes > workspace_max)
      return absl::InternalError("the workspace is too large");
    return kernels.AttentionBackward(
        stream, {.forward = forward,
                 .dout = p[dout],
                 .dq = p[dqkv],
                 .dq_stride = stride,
                 .dk = static_cast<char*>(p[dqkv]) + q_width * DTypeBytes(dtype),
                 .dk_stride = stride,
                 .dv = static_cast<char*>(p[dqkv]) + (q_width + k_width) * DTypeBytes(dtype),
                 .dv_stride = stride,
                 .dsinks = shape.sinks ? static_cast<float*>(p[dsinks]) : nullptr,
                 .add_dsinks = shape.window == 0,
                 .workspace = workspace == nullptr ? p[raw] : workspace,
                 .workspace_bytes = workspace_bytes});
  };
}

}  // namespace megatrain
