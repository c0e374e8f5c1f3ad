#include "engine/model/tile.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/engine/model/tile_parts.h"

namespace megatrain {
namespace {

ModelDescription SmallModel() {
  return UniformModel({.vocabulary = 50,
                       .hidden = 24,
                       .layers = 1,
                       .heads = 2,
                       .kv_heads = 1,
                       .head_dim = 6,
                       .intermediate = 40,
                       .max_positions = 64});
}

// The norms and a projection of a group are frozen: the first lie at the end, the other among the
// elements with state.
ModelLayout FrozenLayout() {
  return BuildModelLayout(SmallModel(), [](const std::string& name) {
    return TensorTraits{.frozen =
                            absl::StrContains(name, "norm") || absl::StrContains(name, "k_proj")};
  });
}

std::vector<char> RandomBlock(int64_t bytes, std::mt19937_64& random) {
  std::vector<char> block(static_cast<size_t>(bytes));
  for (char& byte : block) byte = static_cast<char>(random());
  return block;
}

class TileTest : public ::testing::TestWithParam<DType> {};

TEST_P(TileTest, APartHasTheElementsOfTheWhole) {
  std::mt19937_64 random(1);
  const ModelLayout layout = FrozenLayout();
  for (const TileLayout& tile_layout : layout.tiles) {
    std::vector<char> block = RandomBlock(
        TileBytes(tile_layout.elements, GetParam(), tile_layout.stateless_elements), random);
    const Tile whole = MakeTile(&tile_layout, GetParam(), block.data());
    for (int parts = 1; parts <= 5; ++parts) {
      TileParts cut(tile_layout, GetParam(),
                    RandomCuts(tile_layout.state_elements(), parts, random));
      cut.Split(block.data());
      EXPECT_EQ(cut.Join(), block);
      for (int i = 0; i < parts; ++i) {
        const Tile& part = cut.part(i);
        for (int64_t e = 0; e < tile_layout.elements; ++e) {
          const bool has_state = e < tile_layout.state_elements();
          if (has_state && (e < part.held.begin || e >= part.held.end)) continue;
          ASSERT_EQ(std::memcmp(part.WeightsAt(e), whole.WeightsAt(e),
                                static_cast<size_t>(DTypeBytes(GetParam()))),
                    0)
              << e;
          if (!has_state) continue;
          ASSERT_EQ(std::memcmp(part.ExpAvgAt(e), whole.ExpAvgAt(e), 4), 0) << e;
          ASSERT_EQ(std::memcmp(part.ExpAvgSqAt(e), whole.ExpAvgSqAt(e), 4), 0) << e;
          if (GetParam() == DType::kBF16) {
            ASSERT_EQ(*part.RemainderAt(e), *whole.RemainderAt(e)) << e;
          }
        }
      }
    }
  }
}

TEST_P(TileTest, ThePartsOfATensorMakeTheTensor) {
  std::mt19937_64 random(2);
  const ModelLayout layout = FrozenLayout();
  for (const TileLayout& tile_layout : layout.tiles) {
    std::vector<char> block(static_cast<size_t>(
        TileBytes(tile_layout.elements, GetParam(), tile_layout.stateless_elements)));
    TileParts cut(tile_layout, GetParam(), RandomCuts(tile_layout.state_elements(), 4, random));
    for (const TensorSpec& tensor : tile_layout.tensors) {
      int64_t held = 0;
      for (int i = 0; i < cut.size(); ++i) {
        const Tile place = PlaceOf(cut.part(i), tensor);
        if (tensor.offset >= tile_layout.state_elements()) {
          EXPECT_EQ(place.held, (ElementRange{0, tensor.elements})) << tensor.name;
        } else {
          EXPECT_TRUE(place.held.elements() == 0 || place.held.begin == held) << tensor.name;
        }
        held += place.held.elements();
        EXPECT_EQ(place.exp_avg == nullptr, tensor.frozen) << tensor.name;
        int64_t in_runs = 0;
        for (const TensorRun& run : HeldRunsOf(cut.part(i), tensor)) in_runs += run.elements;
        EXPECT_EQ(in_runs, place.held.elements()) << tensor.name;
        if (place.held.elements() == 0) continue;
        EXPECT_EQ(place.WeightsAt(place.held.begin),
                  cut.part(i).WeightsAt(tensor.offset + place.held.begin));
      }
      const bool everywhere = tensor.offset >= tile_layout.state_elements();
      EXPECT_EQ(held, tensor.elements * (everywhere ? cut.size() : 1)) << tensor.name;
    }
  }
}

TEST_P(TileTest, ThePaddingOfPartsIsThatOfTheWhole) {
  std::mt19937_64 random(3);
  const ModelLayout layout = FrozenLayout();
  for (const TileLayout& tile_layout : layout.tiles) {
    std::vector<char> block(static_cast<size_t>(TileBytes(tile_layout.elements, GetParam(),
                                                          tile_layout.stateless_elements)),
                            '\xcd');
    ZeroPadding(MakeTile(&tile_layout, GetParam(), block.data()));
    for (int parts = 1; parts <= 4; ++parts) {
      const TileParts cut(tile_layout, GetParam(),
                          RandomCuts(tile_layout.state_elements(), parts, random));
      for (int i = 0; i < parts; ++i) ZeroPadding(cut.part(i));
      EXPECT_EQ(cut.Join(), block);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, TileTest, ::testing::Values(DType::kBF16, DType::kF32),
                         [](const auto& info) { return DTypeName(info.param); });

}  // namespace
}  // namespace megatrain
