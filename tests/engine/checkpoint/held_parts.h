// Models with tiles of all kinds, and the parts of them that several ranks hold.
#ifndef MEGATRAIN_TESTS_ENGINE_CHECKPOINT_HELD_PARTS_H_
#define MEGATRAIN_TESTS_ENGINE_CHECKPOINT_HELD_PARTS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/engine/checkpoint/checkpoint_fixture.h"
#include "tests/engine/model/tile_parts.h"

namespace megatrain {

enum class Kind { kPlain, kFrozen, kTied, kExperts, kLarge };

inline ModelLayout LayoutOf(Kind kind) {
  ModelDescription model = TinyConfig();
  if (kind == Kind::kLarge) {
    model.vocabulary = 40000;
    model.hidden = 64;
  }
  model.tied_embeddings = kind == Kind::kTied;
  // The rows of q lie in the file among those of its gate.
  for (LayerDescription& layer : model.layers) {
    layer.attention.output_gate = kind == Kind::kFrozen;
  }
  if (kind == Kind::kExperts) {
    LayerDescription& layer = model.layers[0];
    layer.feed_forward.intermediate = 0;
    layer.experts.count = 5;
    layer.experts.chosen = 2;
    layer.experts.intermediate = 16;
    layer.experts.tensors = ExpertTensors::kTransposed;
    layer.experts.bias = true;
    layer.experts.experts_per_tile = 2;
    layer.experts.router.correction = true;
  }
  return BuildModelLayout(model, [&](const std::string& name) {
    return TensorTraits{.frozen = kind == Kind::kFrozen && (absl::StrContains(name, "norm") ||
                                                            absl::StrContains(name, "k_proj"))};
  });
}

// The parts of all tiles that ranks hold.
class Parts {
 public:
  using Cuts = std::function<std::vector<int64_t>(int64_t elements)>;
  Parts(const ModelLayout& layout, DType dtype, const Cuts& cuts) {
    for (const TileLayout& tile : layout.tiles) {
      tiles_.push_back(std::make_unique<TileParts>(tile, dtype, cuts(tile.state_elements()),
                                                   cuts(tile.stateless_elements)));
    }
  }
  void Split(const TileSet& whole) {
    for (int i = 0; i < size(); ++i) {
      tiles_[i]->Split(static_cast<const char*>(whole.tile(i).weights));
    }
  }
  // Checks that the parts make the tiles of `whole`.
  void ExpectAre(const TileSet& whole) const {
    for (int i = 0; i < size(); ++i) {
      const std::vector<char> joined = tiles_[i]->Join();
      EXPECT_EQ(std::memcmp(joined.data(), whole.tile(i).weights, joined.size()), 0)
          << "tile " << i;
    }
  }
  int size() const { return static_cast<int>(tiles_.size()); }
  const Tile& part(int tile, int rank) const { return tiles_[tile]->part(rank); }

 private:
  std::vector<std::unique_ptr<TileParts>> tiles_;
};

using Case = std::tuple<Kind, DType>;

inline std::string CaseName(const Case& one) {
  const char* const names[] = {"Plain", "Frozen", "Tied", "Experts", "Large"};
  return absl::StrCat(names[static_cast<int>(std::get<0>(one))], DTypeName(std::get<1>(one)));
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_CHECKPOINT_HELD_PARTS_H_
