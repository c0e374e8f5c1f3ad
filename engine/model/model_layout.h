// Which tensors lie in which tile, and where. One traversal (ForEachTensor) serves load, save,
// optimizer, checkpoint and the HF names.
//
// Tiles in forward order: the embedding, one a decoder layer, final norm + LM head. With tied
// embeddings the first tile holds the final norm too and stands for both ends: tiles = 1 + layers.
#ifndef MEGATRAIN_ENGINE_MODEL_MODEL_LAYOUT_H_
#define MEGATRAIN_ENGINE_MODEL_MODEL_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/model/model_config.h"

namespace megatrain {

// Elements between the starts of groups of tensors in a tile: 128 FP32 or 256 BF16 bytes, whole
// cache lines.
inline constexpr int64_t kTensorAlignmentElements = 128;

struct TensorSpec {
  std::string name;            // HF name: "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;  // HF shape: [out, in] or [width]
  int64_t offset = 0;          // elements from the start of the tile's section
  int64_t elements = 0;
  bool decays = false;   // weight decay: matrices only (as in HF Trainer)
  bool is_norm = false;  // initialised to 1
  bool is_bias = false;  // initialised to 0
};

enum class TileKind { kEmbedding, kLayer, kHead, kTiedEmbedding };

struct TileLayout {
  TileKind kind = TileKind::kLayer;
  int64_t layer = -1;  // kLayer: its index
  // Elements of one section with padding, a multiple of kTensorAlignmentElements. Padding is zero
  // and stays zero.
  int64_t elements = 0;
  int64_t parameters = 0;           // without padding
  std::vector<TensorSpec> tensors;  // by offset
};

// Element offsets of one decoder layer's groups within its tile; -1 if absent. Fused groups are
// adjacent tensors without padding between them: qkv = q, k, v rows; gate_up = gate, up rows.
struct LayerOffsets {
  int64_t input_norm = 0;  // [hidden]
  int64_t qkv = 0;         // [(heads + 2 kv_heads) head_dim, hidden]
  int64_t qkv_bias = -1;   // [(heads + 2 kv_heads) head_dim]
  int64_t q_norm = -1;     // [head_dim]
  int64_t k_norm = -1;     // [head_dim]
  int64_t o = 0;           // [hidden, heads head_dim]
  int64_t post_norm = 0;   // [hidden]
  int64_t gate_up = 0;     // [2 intermediate, hidden]
  int64_t down = 0;        // [hidden, intermediate]
};

struct ModelLayout {
  ModelConfig config;
  std::vector<TileLayout> tiles;  // forward order
  LayerOffsets layer_offsets;
  int64_t embedding_offset = 0;   // in tiles[0]: [vocabulary, hidden]
  int64_t final_norm_offset = 0;  // in tiles[head_tile]: [hidden]
  int64_t head_offset = 0;        // in tiles[head_tile]: [vocabulary, hidden]
  int head_tile = 0;              // 0 if tied, else layers + 1
  int64_t parameters = 0;         // a tied matrix counted once
  int64_t tile_elements_max = 0;

  int tile_count() const { return static_cast<int>(tiles.size()); }
};

ModelLayout BuildModelLayout(const ModelConfig& config);

// Every tensor of the model in forward order.
void ForEachTensor(const ModelLayout& layout,
                   absl::FunctionRef<void(int tile, const TensorSpec& tensor)> visit);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_MODEL_LAYOUT_H_
