// Makes the layouts of tiles (TileLayout in model_layout.h) from groups of tensors.
#ifndef MEGATRAIN_ENGINE_MODEL_TENSOR_ROLES_H_
#define MEGATRAIN_ENGINE_MODEL_TENSOR_ROLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/model/model_layout.h"

namespace megatrain {

// The role of a tensor in its layer. It decides the tensor's Initial, with which each comment below
// begins, whether the tensor has weight decay (as in transformers' Trainer), and whether it can be
// trained (all but the last two can).
enum class Role {
  kMatrix,      // kNormal; has weight decay
  kNorm,        // kOne, or kZero with one_plus_norms
  kPlainNorm,   // kOne; multiplies by its weight in every model
  kBias,        // kZero
  kRouterBias,  // kNormal, as in transformers
  kScale,       // kOne; has weight decay
  kDecay,       // kLogUniform; a delta net's A_log; has weight decay
  kTimeStep,    // kOne; a delta net's dt_bias
  kBuffer,      // kZero; TensorSpec::is_buffer
  kConstant,    // kOne; TensorSpec::is_constant
};

// A tensor of a group, or the part of it that lies in this tile.
struct TensorPart {
  std::string name;
  std::vector<int64_t> shape;  // of the whole tensor
  // The part's first index and length in the first dimension; a count of 0 means the whole tensor.
  int64_t begin = 0, count = 0;
  RowGroups rows = {};
  // begin and count are of the second dimension. REQUIRES: the tensor is a matrix, and count > 0.
  bool of_columns = false;
};

// Tensors that lie side by side in a tile, for example because one product takes them all.
struct TensorGroup {
  Role role;
  std::vector<TensorPart> parts;
  // Receives the offset of the group's first tensor, in elements from the start of the tile's
  // section. Must be valid when PlaceGroups is called; it may point into the tile.
  int64_t* offset;
};

using TraitsOf = absl::FunctionRef<TensorTraits(const std::string& name)>;

// Appends the tensors of the groups to `tile`, which has none yet, and sets its elements,
// stateless_elements and parameters. Writes the offset of each group to TensorGroup::offset. Groups
// whose tensors are all frozen come last; otherwise the order is kept. `traits` is called during
// the call only, with the names of tensors that can be trained. `one_plus_norms` is
// ModelDescription::one_plus_norms.
void PlaceGroups(std::vector<TensorGroup> groups, TraitsOf traits, bool one_plus_norms,
                 TileLayout& tile);

// Returns the layout of a tile of decoder layer `layer` (from 0). For kExperts the tile has the
// experts [first_expert, first_expert + experts); other kinds ignore both. The groups are in
// layer_tile.cc. REQUIRES: `kind` is kLayer, kAttention, kRouter, kExperts or kJoin.
TileLayout LayerTileLayout(const ModelDescription& model, int layer, TileKind kind, TraitsOf traits,
                           int64_t first_expert = 0, int64_t experts = 0);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_TENSOR_ROLES_H_
