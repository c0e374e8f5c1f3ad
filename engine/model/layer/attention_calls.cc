#include "engine/model/layer/attention_calls.h"

#include "engine/base/status.h"
#include "engine/device/device.h"

namespace megatrain {

absl::Status RotateHeads(const BoundLayer& l, const Chunk& chunk, void* x, int64_t stride,
                         int64_t heads, int rope, bool inverse) {
  if (rope < 0) return absl::OkStatus();
  const RopeConfig& config = l.model.ropes[static_cast<size_t>(rope)];
  const RopeTable& table = l.context.ropes[static_cast<size_t>(rope)];
  RopeArgs args;
  args.dtype = l.context.dtype;
  args.tokens = chunk.tokens;
  args.heads = heads;
  args.head_dim = l.d.attention.head_dim;
  args.rotary_dim = config.rotary_dim;
  args.interleaved = config.interleaved;
  args.x = x;
  args.stride = stride;
  args.positions = l.batch.positions + chunk.begin;
  args.cosine = table.cosine;
  args.sine = table.sine;
  args.inverse = inverse;
  return l.kernels.Rope(l.stream, args);
}

AttentionArgs AttentionCall(const BoundLayer& l) {
  const AttentionDescription& a = l.d.attention;
  AttentionArgs args;
  args.dtype = l.context.dtype;
  args.choice = l.context.attention;
  args.tokens = l.batch.tokens;
  args.heads = a.heads;
  args.kv_heads = a.kv_heads;
  args.head_dim = a.head_dim;
  args.value_dim = a.value_dim();
  args.scale = static_cast<float>(a.score_scale);
  args.shaping.window = a.window;
  args.shaping.softcap = static_cast<float>(a.softcap);
  if (a.sinks) args.shaping.sinks = l.Offset(l.weights, l.o.sinks);
  args.document_bounds = l.batch.document_bounds;
  args.document_starts = l.batch.document_starts;
  args.documents = l.batch.documents;
  return args;
}

absl::Status Attend(const BoundLayer& l, const AttentionArgs& args) {
  if (l.context.cache.rows == nullptr) return l.kernels.Attention(l.stream, args);
  CachedAttentionArgs cached;
  cached.dtype = args.dtype;
  cached.tokens = args.tokens;
  cached.heads = args.heads;
  cached.kv_heads = args.kv_heads;
  cached.head_dim = args.head_dim;
  cached.value_dim = args.value_dim;
  cached.scale = args.scale;
  cached.shaping = args.shaping;
  cached.first_rows = l.batch.first_rows;
  cached.positions = l.batch.positions;
  cached.q = args.q;
  cached.q_stride = args.q_stride;
  cached.k = args.k;
  cached.k_stride = args.k_stride;
  cached.v = args.v;
  cached.v_stride = args.v_stride;
  cached.cache = l.context.cache.rows;
  cached.out = args.out;
  if (l.d.attention.projects_keys) MT_RETURN_IF_ERROR(l.kernels.StoreInCache(l.stream, cached));
  return l.context.cache.attend ? l.kernels.CachedAttention(l.stream, cached)
                                : l.kernels.Attention(l.stream, args);
}

int64_t AttentionCallWorkspaceBytes(const LayerDescription& layer, DType dtype, int64_t tokens,
                                    int64_t sequence, const KernelSizes& sizes) {
  const AttentionDescription& a = layer.attention;
  return sizes.AttentionBackwardWorkspaceBytes({.dtype = dtype,
                                                .tokens = tokens,
                                                .sequence = sequence,
                                                .heads = a.heads,
                                                .kv_heads = a.kv_heads,
                                                .head_dim = a.head_dim,
                                                .value_dim = a.value_dim(),
                                                .window = a.window,
                                                .softcap = static_cast<float>(a.softcap),
                                                .sinks = a.sinks});
}

}  // namespace megatrain
