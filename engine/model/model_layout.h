// ModelLayout assigns the tensors of a model to tiles and to places within them. Loading, saving,
// checkpoints, the optimizer and the Hugging Face names all follow this one list
// (TileLayout::tensors).
//
// The tiles in forward order are the embedding, those of each decoder layer, and the final norm
// with the LM head. With tied embeddings the first tile also holds the final norm and serves both
// ends. If layers have per-layer inputs, the first tile also holds the norm that they share. A
// dense layer has one tile. A layer with experts has one tile for attention and one for the norm,
// the router and a shared expert. The tiles of the experts follow, each of at most
// ExpertsDescription::experts_per_tile experts. If the layer has a dense unit beside the experts, a
// last tile has that unit and the norms of both results (JoinDescription).
//
// A frozen tensor has a weight but no gradient, remainder or moments. Groups whose tensors are all
// frozen lie at the end of their tile, so that a tile's gradient and state are a prefix of its
// elements. A group of which only some tensors are frozen (q but not v) lies in this prefix, where
// the frozen ones are treated as padding.
#ifndef MEGATRAIN_ENGINE_MODEL_MODEL_LAYOUT_H_
#define MEGATRAIN_ENGINE_MODEL_MODEL_LAYOUT_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "engine/model/model_description.h"

namespace megatrain {

// The names of the two ends of a model, which may be tied, and of the tables of all layers'
// per-layer inputs.
inline constexpr char kEmbeddingTensorName[] = "model.embed_tokens.weight";
inline constexpr char kHeadTensorName[] = "lm_head.weight";
inline constexpr char kPerLayerTableTensorName[] = "model.embed_tokens_per_layer.weight";

// Groups of tensors in a tile start at multiples of this many elements: 512 bytes of FP32 or 256 of
// BF16, whole cache lines.
inline constexpr int64_t kTensorAlignmentElements = 128;

// The order of a tensor's rows on disk, if it differs from that in the tile. On disk there are
// `groups` groups, each with part_rows[0] rows of the first part, then part_rows[1] of the second,
// and so on. In the tile the first parts of all groups come first, then the second parts, and so
// on. With 2 groups and part_rows {1, 2} the rows "q k K Q l L" on disk are "q Q k K l L" there.
struct RowGroups {
  int64_t groups = 1;
  std::vector<int64_t> part_rows;  // empty: the same order
};

// The values of a tensor before any training.
enum class Initial {
  kNormal,      // mean 0, standard deviation ModelDescription::initializer_range
  kZero,        // also the weights of norms that multiply by 1 + weight
  kOne,         // the weights of other norms; factors; a delta net's dt_bias
  kLogUniform,  // log(u), u uniform in (0.01, 16): the decays of a delta net
};

// A tensor, or the part of it that lies in one tile.
struct TensorSpec {
  std::string name;                // as in transformers: "model.layers.0.self_attn.q_proj.weight"
  std::string other_name_on_disk;  // if it differs (WrapperDescription::OnDisk); else empty
  std::vector<int64_t> shape;      // of the whole tensor, as in transformers: [out, in], say
  int64_t source_begin = 0;        // the part's first element in the whole tensor
  int64_t offset = 0;              // in elements from the start of the tile's section
  int64_t elements = 0;
  RowGroups rows;
  // > 0: the part is this many columns of a matrix, from column source_begin on, and each of its
  // rows in the tile has `columns` elements.
  int64_t columns = 0;
  bool decays = false;  // has weight decay: as in transformers' Trainer all but norms and biases
  Initial initial = Initial::kNormal;
  bool frozen = false;  // not trained
  // A factor that is never trained. It has the weights' type.
  bool is_constant = false;
  // Values that are never trained and need FP32 in every precision (a router's correction). They
  // lie in the weights as FP32, from a multiple of kTensorAlignmentElements on, and so take 2 *
  // `elements` elements of a BF16 tile. As many are reserved in an FP32 tile, where the second half
  // is padding.
  bool is_buffer = false;
  int rate_group = 0;  // > 0: its rates are AdamWStep::groups[rate_group - 1]; 0: those of the step

  bool is_never_trained() const { return is_buffer || is_constant; }
  const std::string& name_on_disk() const {
    return other_name_on_disk.empty() ? name : other_name_on_disk;
  }
  // Returns the elements of the tile that it takes.
  int64_t tile_elements() const { return is_buffer ? 2 * elements : elements; }
  int64_t whole_elements() const {
    int64_t product = 1;
    for (const int64_t size : shape) product *= size;
    return product;
  }
};

// Elements [begin, end) of a tile's sections, or of a part of them.
struct ElementRange {
  int64_t begin = 0, end = 0;

  int64_t elements() const { return end - begin; }
  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

// Returns the elements that are in both. If there are none, the result is empty and its begin is in
// [a.begin, a.end].
inline ElementRange Intersection(ElementRange a, ElementRange b) {
  const int64_t begin = std::clamp(b.begin, a.begin, a.end);
  return {begin, std::clamp(b.end, begin, a.end)};
}

// Elements that are neighbors both in the whole tensor and in the tile.
struct TensorRun {
  int64_t source = 0;  // the first one in the whole tensor
  int64_t place = 0;   // the first one in the tile, from the tensor's offset on
  int64_t elements = 0;
};
// Returns the runs of what the tile has of a tensor, in the order of the whole tensor. Most
// tensors have one.
std::vector<TensorRun> RunsOf(const TensorSpec& tensor);
// Returns the runs of `part` only, whose elements are counted from the tensor's offset on.
// REQUIRES: `part` is [0, tensor.elements), or whole rows of a tensor with columns.
std::vector<TensorRun> RunsOf(const TensorSpec& tensor, ElementRange part);

enum class TileKind {
  kEmbedding,
  kLayer,  // a whole dense layer
  // The four kinds of a layer with experts:
  kAttention,      // its first half
  kRouter,         // the norm, the router and a shared expert
  kExperts,        // some of the experts
  kJoin,           // a dense unit beside the experts, and the norms of both results
  kHead,           // the final norm and the LM head
  kTiedEmbedding,  // the embedding, which is the LM head too, and the final norm
};

// Offsets, in elements, of the groups of tensors in a tile of a decoder layer; -1 if absent. The
// tensors of a group are adjacent without padding: in_projection is the rows of q, k and v (or
// those that the layer's AttentionPart says), gate_up those of gate and up. In a tile of experts a
// group has the tensors of all its experts, one after another.
struct LayerOffsets {
  int64_t attention_norm = -1;      // [hidden]
  int64_t in_projection = -1;       // [projected_width, hidden]
  int64_t in_projection_bias = -1;  // [projected_width]
  // With latents.
  int64_t q_a_norm = -1;   // [query_rank]
  int64_t q_b = -1;        // [heads head_dim, query_rank]
  int64_t kv_a_norm = -1;  // [key_value_rank]
  int64_t kv_b = -1;    // [heads (head_dim - rotary_dim + value_dim), key_value_rank], head by head
  int64_t q_norm = -1;  // [head_dim], or [heads head_dim] (QkNorm)
  int64_t k_norm = -1;  // [head_dim], or [kv_heads head_dim]
  int64_t o = -1;       // [hidden, mixed_width]
  int64_t o_bias = -1;  // [hidden]
  int64_t attention_post_norm = -1;     // [hidden]
  int64_t feed_forward_norm = -1;       // [hidden]
  int64_t gate_up = -1;                 // [2 intermediate, hidden]
  int64_t down = -1;                    // [hidden, intermediate]
  int64_t feed_forward_post_norm = -1;  // [hidden]
  int64_t sinks = -1;                   // [heads]
  // Those of a delta net.
  int64_t conv = -1;          // [channels, kernel]
  int64_t a_log = -1;         // [value_heads]
  int64_t dt_bias = -1;       // [value_heads]
  int64_t gated_norm = -1;    // [value_dim]
  int64_t output_scale = -1;  // [1], never trained; of any dense layer or kJoin
  // Those of PerLayerInputDescription.
  int64_t per_layer_table = -1;             // [vocabulary, width]
  int64_t per_layer_model_projection = -1;  // [width, hidden]
  int64_t per_layer_gate = -1;              // [width, hidden]
  int64_t per_layer_out = -1;               // [hidden, width]
  int64_t per_layer_norm = -1;              // [hidden]
  // kRouter, where feed_forward_norm is the norm before the experts, and gate_up and down are the
  // shared expert's.
  int64_t router = -1;                // [experts, hidden]
  int64_t router_bias = -1;           // [experts]
  int64_t router_correction = -1;     // [experts], a buffer
  int64_t router_input_scale = -1;    // [hidden]
  int64_t router_expert_scales = -1;  // [experts]
  int64_t shared_gate = -1;           // [1, hidden]
  // kJoin, where feed_forward_norm, gate_up and down are the dense unit's.
  int64_t dense_post_norm = -1;    // [hidden]
  int64_t experts_post_norm = -1;  // [hidden]
  // kExperts: of each expert of the tile, transposed if ExpertsDescription::transposed.
  int64_t expert_gate_up = -1;       // [experts of the tile, 2 intermediate, hidden]
  int64_t expert_gate_up_bias = -1;  // [experts of the tile, 2 intermediate]
  int64_t expert_down = -1;          // [experts of the tile, hidden, intermediate]
  int64_t expert_down_bias = -1;     // [experts of the tile, hidden]
};

struct TileLayout {
  TileKind kind = TileKind::kLayer;
  int64_t layer = -1;    // the index of the layer, for tiles of layers
  LayerOffsets offsets;  // for tiles of layers
  // kExperts: its experts are [first_expert, first_expert + experts).
  int64_t first_expert = 0, experts = 0;
  // Elements of the weights with padding, a multiple of kTensorAlignmentElements. Padding is always
  // zero.
  int64_t elements = 0;
  // The last elements, which have neither gradient nor state; a multiple of
  // kTensorAlignmentElements.
  int64_t stateless_elements = 0;
  int64_t parameters = 0;           // without padding, buffers and constants
  std::vector<TensorSpec> tensors;  // ordered by offset

  // Returns the elements of the gradient and of every section of the state but the weights.
  int64_t state_elements() const { return elements - stateless_elements; }
};

// Returns the parts of `range`, elements of the whole tile, that belong to tensors which are not
// frozen, in order. Neighbours are one part.
absl::InlinedVector<ElementRange, 2> TrainedRanges(const TileLayout& tile, ElementRange range);
// Returns true if a tensor that is not frozen begins at `offset`. An offset of -1 gives false.
bool IsTrained(const TileLayout& tile, int64_t offset);

// A stage is the forward pass between two boundaries of hidden states: a whole dense layer, or a
// half of a layer with experts.
enum class StageKind { kLayer, kAttention, kExperts };
struct Stage {
  StageKind kind = StageKind::kLayer;
  int layer = 0;
  int tile = 0;          // the index of its tile; for kExperts the router's
  int expert_tiles = 0;  // the number of tiles of experts, which follow the router's
  bool joins = false;    // a kJoin tile follows the tiles of experts

  // REQUIRES: joins.
  int join_tile() const { return tile + expert_tiles + 1; }
};

struct ModelLayout {
  ModelDescription model;
  std::vector<TileLayout> tiles;       // forward order
  std::vector<Stage> stages;           // forward order
  int64_t embedding_offset = 0;        // in tiles[0]: [vocabulary, hidden]
  int64_t final_norm_offset = 0;       // in tiles[head_tile]: [hidden]
  int64_t head_offset = 0;             // in tiles[head_tile]: [vocabulary, hidden]
  int64_t per_layer_norm_offset = -1;  // in tiles[0]: [width], if layers have per-layer inputs
  int head_tile = 0;                   // 0 if tied, else the last
  int64_t parameters = 0;              // a tied matrix counted once
  int64_t trained_parameters = 0;      // those of tensors that are not frozen
  int64_t tile_elements_max = 0;       // the largest TileLayout::elements

  int tile_count() const { return static_cast<int>(tiles.size()); }
};

// The part of a tensor's specification that a job chooses.
struct TensorTraits {
  bool frozen = false;
  int rate_group = 0;
};

// Returns the layout of a model whose tensors are all trained alike. The same description gives the
// same layout. REQUIRES, here and below: CheckModel (model_check.h) accepts the model.
ModelLayout BuildModelLayout(const ModelDescription& model);
// Returns the layout of a model whose tensors have the traits that `traits` returns for their names
// (TensorSpec::name). `traits` is called during the call only. It must always answer alike for a
// name. It is not called for tensors that are never trained, which are frozen.
ModelLayout BuildModelLayout(const ModelDescription& model,
                             absl::FunctionRef<TensorTraits(const std::string& name)> traits);

// Calls `visit` for every TensorSpec of the model in forward order. `tile` is an index in
// layout.tiles. A tensor of which several tiles have a part (stacked experts, the matrices of
// per-layer inputs) comes once for each of these tiles, a tied matrix once.
void ForEachTensor(const ModelLayout& layout,
                   absl::FunctionRef<void(int tile, const TensorSpec& tensor)> visit);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_MODEL_LAYOUT_H_
