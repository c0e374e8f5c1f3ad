// The groups of tensors of a tile, from which PlaceGroups makes its layout.
#ifndef MEGATRAIN_ENGINE_MODEL_TILE_GROUPS_H_
#define MEGATRAIN_ENGINE_MODEL_TILE_GROUPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/model/model_layout.h"

namespace megatrain {

// What a tensor is. It decides the tensor's Initial, and whether it has weight decay and is trained
// at all. A bias is initialised to 0; transformers initialises that of a router like a matrix. A
// plain norm multiplies by its weight in every model. kDecay and kTimeStep are a delta net's A_log
// and dt_bias. Matrices, scales and kDecay have weight decay, as in transformers' Trainer. kBuffer
// and kConstant are TensorSpec::is_buffer and is_constant.
enum class Role {
  kMatrix,
  kNorm,
  kPlainNorm,
  kBias,
  kRouterBias,
  kScale,
  kDecay,
  kTimeStep,
  kBuffer,
  kConstant
};

// A tensor of a group, or the part of it that lies in this tile.
struct TensorPart {
  std::string name;
  std::vector<int64_t> shape;
  // The part's first index and length in the first dimension; a count of 0 means the whole tensor.
  int64_t begin = 0, count = 0;
  RowGroups rows = {};
  bool of_columns = false;  // begin and count are of the second dimension
};

// Tensors that lie side by side, because one product takes them all.
struct TensorGroup {
  Role role;
  std::vector<TensorPart> parts;
  int64_t* offset;  // receives the group's place
};

using TraitsOf = absl::FunctionRef<TensorTraits(const std::string& name)>;

// Lays out the groups in an empty `tile`, in their order but those whose tensors are all frozen
// behind the others. Writes the groups' offsets.
void PlaceGroups(std::vector<TensorGroup> groups, TraitsOf traits, bool one_plus_norms,
                 TileLayout& tile);

// Returns the layout of a tile of a decoder layer. `first_expert` and `experts` are for kExperts.
// REQUIRES: a `kind` of tiles of layers.
TileLayout LayerTileLayout(const ModelDescription& model, int layer, TileKind kind, TraitsOf traits,
                           int64_t first_expert = 0, int64_t experts = 0);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_TILE_GROUPS_H_
