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
  if (a.qk_norm == QkNorm::kHead) whole.Take(&to.qk_rstd, t * (a.heads + a.kv_heads) * 4);
  if (a.qk_norm == QkNorm::kFull) whole.Take(&to.qk_rstd, t * 2 * 4);
  if (a.value_norm) whole.Take(&to.value_rstd, t * a.kv_heads * 4);
  whole.Take(&to.lse, a.heads * t * 4);
  const int64_t rotated = a.value_norm ? a.qkv_width() : a.q_width() + a.kv_width();
  if (a.qk_norm != QkNorm::kNone) cheap.Take(&to.qk_rotated, t * rotated * e);
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
  whole.Take(&to.attention_rstd, t * 4);
  whole.Take(&to.projected, t * d.projected_width() * e);
  whole.Take(&to.mixed, t * d.mixed_width() * e);
  switch (d.attention_kind()) {
    case AttentionKind::kSoftmax:
      Place(d.attention, e, t, whole, all ? blocks.kept : blocks.scratch, to.softmax);
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
  if (attention_post || feed_forward_post) take(&to.branch_gradient, false, hidden);
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
