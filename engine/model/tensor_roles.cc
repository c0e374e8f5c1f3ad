#include "engine/model/tensor_roles.h"

#include <algorithm>
#include <utility>

namespace megatrain {
namespace {

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

bool IsNeverTrained(Role role) { return role == Role::kBuffer || role == Role::kConstant; }

// As transformers' Trainer, which decides by the names of tensors: norms and biases do not decay.
bool Decays(Role role) {
  return role == Role::kMatrix || role == Role::kScale || role == Role::kDecay;
}

Initial InitialOf(Role role, bool one_plus_norms) {
  switch (role) {
    case Role::kMatrix:
    case Role::kRouterBias:
      break;
    case Role::kNorm:
      return one_plus_norms ? Initial::kZero : Initial::kOne;
    case Role::kPlainNorm:
    case Role::kScale:
    case Role::kTimeStep:
    case Role::kConstant:
      return Initial::kOne;
    case Role::kBias:
    case Role::kBuffer:
      return Initial::kZero;
    case Role::kDecay:
      return Initial::kLogUniform;
  }
  return Initial::kNormal;
}

bool IsFrozen(const TensorGroup& group, TraitsOf traits) {
  return IsNeverTrained(group.role) ||
         std::all_of(group.parts.begin(), group.parts.end(),
                     [&](const TensorPart& part) { return traits(part.name).frozen; });
}

void Align(TileLayout& tile) { tile.elements = RoundUp(tile.elements, kTensorAlignmentElements); }

// Appends the group's tensors, the first one aligned.
void Append(const TensorGroup& group, TraitsOf traits, bool one_plus_norms, TileLayout& tile) {
  Align(tile);
  *group.offset = tile.elements;
  for (const TensorPart& part : group.parts) {
    TensorSpec tensor;
    tensor.name = part.name;
    tensor.shape = part.shape;
    tensor.offset = tile.elements;
    tensor.elements = tensor.whole_elements();
    if (part.of_columns) {
      tensor.source_begin = part.begin;
      tensor.columns = part.count;
      tensor.elements = part.shape.front() * part.count;
    } else if (part.count > 0) {
      const int64_t row = tensor.elements / part.shape.front();
      tensor.source_begin = part.begin * row;
      tensor.elements = part.count * row;
    }
    tensor.rows = part.rows;
    tensor.decays = Decays(group.role);
    tensor.initial = InitialOf(group.role, one_plus_norms);
    tensor.is_buffer = group.role == Role::kBuffer;
    tensor.is_constant = group.role == Role::kConstant;
    const bool never = IsNeverTrained(group.role);
    const TensorTraits chosen = never ? TensorTraits() : traits(part.name);
    tensor.frozen = chosen.frozen || never;
    tensor.rate_group = chosen.rate_group;
    tile.elements += tensor.tile_elements();
    if (!never) tile.parameters += tensor.elements;
    tile.tensors.push_back(std::move(tensor));
  }
}

}  // namespace

void PlaceGroups(std::vector<TensorGroup> groups, TraitsOf traits, bool one_plus_norms,
                 TileLayout& tile) {
  const auto frozen =
      std::stable_partition(groups.begin(), groups.end(),
                            [&](const TensorGroup& group) { return !IsFrozen(group, traits); });
  const auto append = [&](const TensorGroup& group) {
    Append(group, traits, one_plus_norms, tile);
  };
  std::for_each(groups.begin(), frozen, append);
  Align(tile);
  const int64_t state_elements = tile.elements;
  std::for_each(frozen, groups.end(), append);
  Align(tile);
  tile.stateless_elements = tile.elements - state_elements;
}

}  // namespace megatrain
