// Tile is the host state of a tile: four sections in one page-aligned block, in this order:
//   weights     BF16 (the upper half of the master) or FP32 (the master itself); streamed
//   remainder   int16, the lower half of the master; with BF16 weights only
//   exp_avg     FP32
//   exp_avg_sq  FP32
// The weights have `layout->elements` elements, the other sections layout->state_elements(). In
// either precision this is 12 bytes for a parameter with state. One without state (a frozen
// tensor's) has only its weight.
//
// If several ranks share the tiles, each has a part of each tile, in a block of its own. The
// sections of such a part have only the elements of Tile::held. Its weights are those of the
// elements with state, then those of the elements without. Its other sections have the elements
// with state.
#ifndef MEGATRAIN_ENGINE_MODEL_TILE_H_
#define MEGATRAIN_ENGINE_MODEL_TILE_H_

#include <cstdint>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/model/model_layout.h"

namespace megatrain {

// The elements that a rank has of a tile, as ranges of the whole tile's elements.
struct HeldElements {
  ElementRange state;      // of those with state
  ElementRange stateless;  // of those without

  int64_t elements() const { return state.elements() + stateless.elements(); }
  friend bool operator==(const HeldElements&, const HeldElements&) = default;
};
// Returns the elements of a whole tile.
inline HeldElements AllElements(const TileLayout& layout) {
  return {{0, layout.state_elements()}, {layout.state_elements(), layout.elements}};
}

// Returns the bytes of the block of a tile that holds `elements` elements, of which the last
// `stateless_elements` have no state.
constexpr int64_t TileBytes(int64_t elements, DType weight_dtype, int64_t stateless_elements = 0) {
  const int64_t remainder = weight_dtype == DType::kBF16 ? 2 : 0;
  return elements * DTypeBytes(weight_dtype) +
         (elements - stateless_elements) * (remainder + 4 + 4);
}
inline int64_t TileBytes(const HeldElements& held, DType weight_dtype) {
  return TileBytes(held.elements(), weight_dtype, held.stateless.elements());
}

// Pointers to the sections of a tile. Does not own them; valid as long as the lease of the block.
// Some functions allow null sections and say so.
struct Tile {
  const TileLayout* layout = nullptr;
  DType weight_dtype = DType::kF32;
  HeldElements held;
  // Each begins with element held.state.begin, but the weights with held.stateless.begin if
  // held.state is empty.
  void* weights = nullptr;
  int16_t* remainder = nullptr;  // null with FP32 weights
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;

  // Returns where the weight of an element is; `element` counts in the whole tile. REQUIRES: this
  // tile has it, and `weights` is not null.
  void* WeightsAt(int64_t element) const {
    const int64_t index = element <= held.state.end
                              ? element - held.state.begin
                              : element - held.stateless.begin + held.state.elements();
    return static_cast<char*>(weights) + index * DTypeBytes(weight_dtype);
  }
  // Return the same in the other sections, or null if a section is null. REQUIRES: the element is
  // in held.state.
  int16_t* RemainderAt(int64_t element) const { return At(remainder, element); }
  float* ExpAvgAt(int64_t element) const { return At(exp_avg, element); }
  float* ExpAvgSqAt(int64_t element) const { return At(exp_avg_sq, element); }

  int64_t weight_bytes() const { return held.elements() * DTypeBytes(weight_dtype); }

 private:
  template <typename T>
  T* At(T* section, int64_t element) const {
    return section == nullptr ? nullptr : section + (element - held.state.begin);
  }
};

// A ProcessTile is what a process has of a tile. It has a part for each of the process's ranks, in
// their order, so that a part begins where the one before ends. A rank's part lies near its device.
using ProcessTile = std::vector<Tile>;

// Cuts `block`, which has TileBytes bytes, into the sections of a tile that holds `held`, or of a
// whole tile if `held` is not given. Does not touch the content. `layout` and `block` must outlive
// the result.
Tile MakeTile(const TileLayout* layout, DType weight_dtype, void* block, const HeldElements& held);
inline Tile MakeTile(const TileLayout* layout, DType weight_dtype, void* block) {
  return MakeTile(layout, weight_dtype, block, AllElements(*layout));
}
// Returns a whole tile whose weights begin at `weights` and whose other sections are null. `layout`
// and `weights` must outlive the result.
Tile MakeWeightsTile(const TileLayout* layout, DType weight_dtype, void* weights);

// Returns the type that the tensor's weights have in a tile or a file of `dtype`: buffers are FP32.
inline DType WeightDType(const TensorSpec& tensor, DType dtype) {
  return tensor.is_buffer ? DType::kF32 : dtype;
}

// Returns the elements of the tensor that a tile of `weight_dtype` with the elements `held` has,
// counted from the tensor's first in the tile; empty if it has none. REQUIRES, here and below:
// `tensor` is one of the layout's.
ElementRange HeldOf(const TileLayout& layout, DType weight_dtype, const HeldElements& held,
                    const TensorSpec& tensor);
// Returns the runs of HeldOf, in the order of the whole tensor.
std::vector<TensorRun> HeldRunsOf(const Tile& tile, const TensorSpec& tensor);

// Returns the tensor's part of `tile`, as a tile whose held.state is HeldOf.
// - Elements are counted from the tensor's first.
// - A frozen tensor has weights alone; its other sections are null.
// - The weight_dtype of a buffer is FP32.
// - The layout stays that of `tile`. weight_bytes() is that of the part.
// - The remainder and the moments are null if those of `tile` are.
// REQUIRES: the weights of `tile` are not null, or those of the part are not used.
Tile TensorTile(const Tile& tile, const TensorSpec& tensor);

// Sets to zero the elements that belong to no tensor, in every section that is not null. In the
// remainder and the moments the elements of frozen tensors become zero too.
void ZeroPadding(const Tile& tile);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_TILE_H_
