#include "engine/model/activations.h"

namespace megatrain {
namespace {

constexpr int64_t kAlignment =
    256;  // of each tensor in a block, bytes: vectorised access on every device

struct Cursor {
  char* base = nullptr;
  int64_t offset = 0;

  template <typename T>
  void Take(T** pointer, int64_t bytes) {
    if (base != nullptr) *pointer = reinterpret_cast<T*>(base + offset);
    offset += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
};

// The one list of tensors and sizes; both cursors may lack a base, then only sizes are counted.
void Place(const ModelConfig& c, DType dtype, int64_t t, Cursor& products, Cursor& cheap,
           LayerActivations& a) {
  const int64_t e = DTypeBytes(dtype);
  products.Take(&a.input_rstd, t * 4);
  products.Take(&a.qkv, t * (c.heads + 2 * c.kv_heads) * c.head_dim * e);
  if (c.qk_norm) products.Take(&a.qk_rstd, t * (c.heads + c.kv_heads) * 4);
  products.Take(&a.lse, c.heads * t * 4);
  products.Take(&a.attention, t * c.heads * c.head_dim * e);
  products.Take(&a.middle, t * c.hidden * e);
  products.Take(&a.post_rstd, t * 4);
  products.Take(&a.gate_up, t * 2 * c.intermediate * e);
  cheap.Take(&a.input_normed, t * c.hidden * e);
  if (c.qk_norm) cheap.Take(&a.qk_rotated, t * (c.heads + c.kv_heads) * c.head_dim * e);
  cheap.Take(&a.post_normed, t * c.hidden * e);
  cheap.Take(&a.activated, t * c.intermediate * e);
}

}  // namespace

int64_t KeptBytes(const ModelConfig& config, DType dtype, int64_t tokens, KeepLevel level) {
  Cursor products, cheap;
  LayerActivations unused;
  Place(config, dtype, tokens, products, cheap, unused);
  switch (level) {
    case KeepLevel::kNothing:
      return 0;
    case KeepLevel::kCheapRecomputed:
      return products.offset;
    case KeepLevel::kEverything:
      return products.offset + cheap.offset;
  }
  return 0;
}

LayerActivations PlaceActivations(const ModelConfig& config, DType dtype, int64_t tokens_max,
                                  KeepLevel level, void* kept, void* scratch) {
  const int64_t product_bytes = KeptBytes(config, dtype, tokens_max, KeepLevel::kCheapRecomputed);
  Cursor products{static_cast<char*>(level == KeepLevel::kNothing ? scratch : kept)};
  Cursor cheap{static_cast<char*>(level == KeepLevel::kEverything ? kept : scratch) +
               product_bytes};
  LayerActivations activations;
  Place(config, dtype, tokens_max, products, cheap, activations);
  return activations;
}

}  // namespace megatrain
