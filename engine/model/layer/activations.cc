#include "engine/model/layer/activations.h"

#include <algorithm>

namespace megatrain {
namespace {

struct Blocks {
  TensorCursor kept, scratch, chunk;
};

// `whole` takes what is kept from kCheapRecomputed on, `cheap` what is kept at kEverything.
void Place(const AttentionDescription& a, int64_t e, int64_t t, TensorCursor& whole,
           TensorCursor& cheap, SoftmaxActivations& to) {
  const int64_t kv_heads = a.projects_keys ? a.kv_heads : 0;
  if (a.qk_norm == QkNorm::kHead) whole.Take(&to.qk_rstd, t * (a.heads + kv_heads) * 4);
  if (a.qk_norm == QkNorm::kFull) whole.Take(&to.qk_rstd, t * 2 * 4);
  if (a.value_norm && a.projects_keys) whole.Take(&to.value_rstd, t * a.kv_heads * 4);
  whole.Take(&to.lse, a.heads * t * 4);
  if (a.output_gate) whole.Take(&to.attended, t * a.q_width() * e);
  if (a.qk_norm != QkNorm::kNone) cheap.Take(&to.qk_rotated, t * a.rotated_width() * e);
}

void Place(const AttentionDescription& a, int64_t e, int64_t t, int64_t chunk_tokens,
           TensorCursor& whole, TensorCursor& cheap, TensorCursor& chunk, LatentActivations& to) {
  const LatentDescription& latent = a.latent;
  if (latent.query_rank > 0) whole.Take(&to.query_rstd, t * 4);
  whole.Take(&to.key_value_rstd, t * 4);
  whole.Take(&to.lse, a.heads * t * 4);
  if (latent.query_rank > 0) cheap.Take(&to.query_normed, t * latent.query_rank * e);
  cheap.Take(&to.key_value_normed, t * latent.key_value_rank * e);
  cheap.Take(&to.queries, t * a.q_width() * e);
  cheap.Take(&to.keys, t * a.kv_width() * e);
  cheap.Take(&to.values, t * a.kv_heads * latent.value_dim * e);
  chunk.Take(&to.expanded, chunk_tokens * a.expanded_width() * e);
}

void Place(const DeltaNetDescription& d, int64_t e, int64_t t, TensorCursor& whole,
           TensorCursor& cheap, DeltaActivations& to) {
  whole.Take(&to.out, t * d.values_width() * e);
  cheap.Take(&to.convolved, t * d.channels() * e);
}

// The one list of tensors and sizes; cursors may lack a base, then only sizes are counted.
LayerActivations Place(int64_t hidden, const LayerDescription& d, DType dtype, int64_t t,
                       int64_t chunk_tokens, KeepLevel level, Blocks& blocks) {
  const int64_t e = DTypeBytes(dtype);
  const bool products = level != KeepLevel::kNothing, all = level == KeepLevel::kEverything;
  const bool attention_post = !d.attention_norms.post_norm.empty();
  const bool dense = d.is_dense();
  const bool feed_forward_post = dense && !d.feed_forward_norms.post_norm.empty();
  const int64_t intermediate = dense ? d.feed_forward.intermediate : 0;
  LayerActivations to;
  to.keep = level;
  TensorCursor& whole = products ? blocks.kept : blocks.scratch;
  TensorCursor& cheap = all ? blocks.kept : blocks.scratch;
  whole.Take(&to.attention_rstd, t * 4);
  whole.Take(&to.projected, t * d.projected_width() * e);
  (d.gates_result() ? cheap : whole).Take(&to.mixed, t * d.mixed_width() * e);
  switch (d.attention_kind()) {
    case AttentionKind::kSoftmax:
      Place(d.attention, e, t, whole, cheap, to.softmax);
      break;
    case AttentionKind::kLatent:
      Place(d.attention, e, t, chunk_tokens, whole, cheap, blocks.chunk, to.latent);
      break;
    case AttentionKind::kDeltaNet:
      Place(d.delta_net, e, t, whole, cheap, to.delta);
      break;
  }
  if (dense) whole.Take(&to.feed_forward_rstd, t * 4);
  if (attention_post) whole.Take(&to.attention_post_rstd, t * 4);
  if (feed_forward_post) whole.Take(&to.feed_forward_post_rstd, t * 4);
  const auto take = [&](void** tensor, bool kept, int64_t width) {
    (kept ? blocks.kept : blocks.chunk).Take(tensor, (kept ? t : chunk_tokens) * width * e);
  };
  take(&to.middle, products && dense, hidden);
  take(&to.gate_up, products, 2 * intermediate);
  if (attention_post) take(&to.attention_branch, products, hidden);
  if (feed_forward_post) take(&to.feed_forward_branch, products, hidden);
  take(&to.attention_normed, all, hidden);
  if (all && dense) {
    take(&to.feed_forward_normed, true, hidden);
  } else {
    to.feed_forward_normed = to.attention_normed;
  }
  take(&to.activated, false, intermediate);
  const int64_t per_layer = d.per_layer_input.width;
  if (per_layer > 0) {
    whole.Take(&to.per_layer.rstd, t * 4);
    whole.Take(&to.per_layer.post_rstd, t * 4);
    take(&to.per_layer.stream, products, hidden);
    take(&to.per_layer.projected, products, per_layer);
    take(&to.per_layer.gate_up, products, 2 * per_layer);
    take(&to.per_layer.branch, products, hidden);
    take(&to.per_layer.activated, false, per_layer);
  }
  if (attention_post || feed_forward_post || per_layer > 0) {
    take(&to.branch_gradient, false, hidden);
  }
  return to;
}

// Returns the largest of the layers' sizes of one block.
int64_t LargestOf(const ModelDescription& model, DType dtype, int64_t tokens, int64_t chunk_tokens,
                  KeepLevel level, TensorCursor Blocks::*block) {
  int64_t largest = 0;
  const LayerDescription* before = nullptr;
  for (const LayerDescription& layer : model.layers) {
    if (before == nullptr || !(layer == *before)) {
      Blocks blocks;
      Place(model.hidden, layer, dtype, tokens, chunk_tokens, level, blocks);
      largest = std::max(largest, (blocks.*block).offset);
    }
    before = &layer;
  }
  return largest;
}

}  // namespace

int64_t KeptBytes(const ModelDescription& model, DType dtype, int64_t tokens, KeepLevel level) {
  return LargestOf(model, dtype, tokens, 0, level, &Blocks::kept);
}

int64_t LayerScratchBytes(const ModelDescription& model, DType dtype, int64_t tokens) {
  return LargestOf(model, dtype, tokens, 0, KeepLevel::kNothing, &Blocks::scratch);
}

int64_t LayerChunkBytes(const ModelDescription& model, DType dtype, int64_t chunk_tokens) {
  return LargestOf(model, dtype, 0, chunk_tokens, KeepLevel::kNothing, &Blocks::chunk);
}

LayerActivations PlaceActivations(const ModelDescription& model, int layer, DType dtype,
                                  int64_t tokens_max, int64_t chunk_tokens, KeepLevel level,
                                  void* kept, void* scratch, void* chunk) {
  Blocks blocks{
      {static_cast<char*>(kept)}, {static_cast<char*>(scratch)}, {static_cast<char*>(chunk)}};
  return Place(model.hidden, model.layers[static_cast<size_t>(layer)], dtype, tokens_max,
               chunk_tokens, level, blocks);
}

}  // namespace megatrain
