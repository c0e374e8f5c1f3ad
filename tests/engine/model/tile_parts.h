// The parts of a tile that several ranks hold, and the whole that they make. Places are counted by
// hand here, not with Tile's own accessors.
#ifndef MEGATRAIN_TESTS_ENGINE_MODEL_TILE_PARTS_H_
#define MEGATRAIN_TESTS_ENGINE_MODEL_TILE_PARTS_H_

#include <cstdint>
#include <random>
#include <vector>

#include "engine/model/tile.h"

namespace megatrain {

// Returns parts + 1 ascending multiples of 128 from 0 to `elements`. Some parts may be empty.
std::vector<int64_t> RandomCuts(int64_t elements, int parts, std::mt19937_64& random);
// Returns the cuts of even shards, as PipelineShape::shard_cut makes them.
std::vector<int64_t> EvenCuts(int64_t elements, int parts);

class TileParts {
 public:
  // Every byte of the parts is 0xcd. `stateless_cuts` are those of the elements without state,
  // counted from their first one; even ones if it is empty.
  TileParts(const TileLayout& layout, DType weight_dtype, const std::vector<int64_t>& cuts,
            std::vector<int64_t> stateless_cuts = {});

  int size() const { return static_cast<int>(tiles_.size()); }
  const Tile& part(int i) const { return tiles_[static_cast<size_t>(i)]; }

  // Fills the parts from the block of a whole tile.
  void Split(const char* whole);
  // Returns the block of the whole tile.
  std::vector<char> Join() const;

 private:
  // Calls copy(offset in part i's block, offset in the whole block, bytes).
  template <typename Copy>
  void ForEachSection(int i, const Copy& copy) const;

  const TileLayout& layout_;
  const DType weight_dtype_;
  std::vector<std::vector<char>> blocks_;
  std::vector<Tile> tiles_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_MODEL_TILE_PARTS_H_
