#include "engine/model/activations.h"

namespace megatrain {
namespace {

struct Blocks {
  TensorCursor kept, scratch, chunk;
};

// The one list of tensors and sizes; cursors may lack a base, then only sizes are counted.
LayerActivations Place(const ModelConfig& c, DType dtype, int64_t t, int64_t chunk_tokens,
                       KeepLevel level, Blocks& blocks) {
  const int64_t e = DTypeBytes(dtype);
  const bool products = level != KeepLevel::kNothing, all = level == KeepLevel::kEverything;
  LayerActivations a;
  a.keep = level;
  TensorCursor& whole = products ? blocks.kept : blocks.scratch;
  whole.Take(&a.input_rstd, t * 4);
  whole.Take(&a.qkv, t * (c.heads + 2 * c.kv_heads) * c.head_dim * e);
  if (c.qk_norm) whole.Take(&a.qk_rstd, t * (c.heads + c.kv_heads) * 4);
  whole.Take(&a.lse, c.heads * t * 4);
  whole.Take(&a.attention, t * c.heads * c.head_dim * e);
  whole.Take(&a.post_rstd, t * 4);
  if (c.qk_norm) {
    (all ? blocks.kept : blocks.scratch)
        .Take(&a.qk_rotated, t * (c.heads + c.kv_heads) * c.head_dim * e);
  }
  const auto take = [&](void** tensor, bool kept, int64_t width) {
    (kept ? blocks.kept : blocks.chunk).Take(tensor, (kept ? t : chunk_tokens) * width * e);
  };
  take(&a.middle, products, c.hidden);
  take(&a.gate_up, products, 2 * c.intermediate);
  take(&a.input_normed, all, c.hidden);
  if (all) {
    take(&a.post_normed, true, c.hidden);
  } else {
    a.post_normed = a.input_normed;
  }
  take(&a.activated, false, c.intermediate);
  return a;
}

}  // namespace

int64_t KeptBytes(const ModelConfig& config, DType dtype, int64_t tokens, KeepLevel level) {
  Blocks blocks;
  Place(config, dtype, tokens, 0, level, blocks);
  return blocks.kept.offset;
}

int64_t LayerScratchBytes(const ModelConfig& config, DType dtype, int64_t tokens) {
  Blocks blocks;
  Place(config, dtype, tokens, 0, KeepLevel::kNothing, blocks);
  return blocks.scratch.offset;
}

int64_t LayerChunkBytes(const ModelConfig& config, DType dtype, int64_t chunk_tokens) {
  Blocks blocks;
  Place(config, dtype, 0, chunk_tokens, KeepLevel::kNothing, blocks);
  return blocks.chunk.offset;
}

LayerActivations PlaceActivations(const ModelConfig& config, DType dtype, int64_t tokens_max,
                                  int64_t chunk_tokens, KeepLevel level, void* kept, void* scratch,
                                  void* chunk) {
  Blocks blocks{
      {static_cast<char*>(kept)}, {static_cast<char*>(scratch)}, {static_cast<char*>(chunk)}};
  return Place(config, dtype, tokens_max, chunk_tokens, level, blocks);
}

}  // namespace megatrain
