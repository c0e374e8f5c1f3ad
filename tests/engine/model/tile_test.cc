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

// The norms, the router and a projection of a group are frozen: the first two lie at the end, the
// last among the elements with state. A buffer, the router's correction, lies behind the router.
ModelLayout FrozenLayout() {
  ModelDescription model = SmallModel();
  LayerDescription& layer = model.layers[0];
  layer.feed_forward.intermediate = 0;
  layer.experts.count = 300;
  layer.experts.chosen = 2;
  layer.experts.intermediate = 16;
  layer.experts.experts_per_tile = 100;
  layer.experts.router.correction = true;
  return BuildModelLayout(model, [](const std::string& name) {
    return TensorTraits{.frozen = absl::StrContains(name, "norm") ||
                                  absl::StrContains(name, ".gate.") ||
                                  absl::StrContains(name, "k_proj")};
  });
}

std::vector<char> RandomBlock(int64_t bytes, std::mt19937_64& random) {
  std::vector<char> block(static_cast<size_t>(bytes));
  for (char& byte : block) byte = static_cast<char>(random());
  return block;
}

TileParts RandomParts(const TileLayout& layout, DType dtype, int parts, std::mt19937_64& random) {
  const std::vector<int64_t> cuts = RandomCuts(layout.state_elements(), parts, random);
  return {layout, dtype, cuts, RandomCuts(layout.stateless_elements, parts, random)};
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
      TileParts cut = RandomParts(tile_layout, GetParam(), parts, random);
      cut.Split(block.data());
      EXPECT_EQ(cut.Join(), block);
      for (int i = 0; i < parts; ++i) {
        const Tile& part = cut.part(i);
        for (int64_t e = 0; e < tile_layout.elements; ++e) {
          const bool has_state = e < tile_layout.state_elements();
          const ElementRange& held = has_state ? part.held.state : part.held.stateless;
          if (e < held.begin || e >= held.end) continue;
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
    const TileParts cut = RandomParts(tile_layout, GetParam(), 4, random);
    for (const TensorSpec& tensor : tile_layout.tensors) {
      int64_t held = 0;
      for (int i = 0; i < cut.size(); ++i) {
        const Tile place = TensorTile(cut.part(i), tensor);
        const ElementRange own = place.held.state;
        EXPECT_TRUE(own.elements() == 0 || own.begin == held) << tensor.name;
        held += own.elements();
        EXPECT_EQ(place.exp_avg == nullptr, tensor.frozen) << tensor.name;
        int64_t in_runs = 0;
        for (const TensorRun& run : HeldRunsOf(cut.part(i), tensor)) in_runs += run.elements;
        EXPECT_EQ(in_runs, own.elements()) << tensor.name;
        if (own.elements() == 0) continue;
        const int64_t size = tensor.is_buffer && GetParam() == DType::kBF16 ? 2 : 1;
        const Tile& part = cut.part(i);
        const int64_t first = tensor.offset + size * own.begin;
        EXPECT_EQ(place.WeightsAt(own.begin), part.WeightsAt(first));
        if (tensor.frozen) continue;
        EXPECT_EQ(place.RemainderAt(own.begin), part.RemainderAt(first)) << tensor.name;
        EXPECT_EQ(place.ExpAvgAt(own.begin), part.ExpAvgAt(first)) << tensor.name;
        EXPECT_EQ(place.ExpAvgSqAt(own.begin), part.ExpAvgSqAt(first)) << tensor.name;
      }
      EXPECT_EQ(held, tensor.elements) << tensor.name;
    }
  }
}

// Also of tensors whose rows have another order on disk, and of columns of a matrix.
TEST_P(TileTest, TheRunsOfPartsAreThoseOfTheTensor) {
  std::mt19937_64 random(4);
  ModelDescription model = SmallModel();
  model.layers[0].attention = AttentionDescription();
  model.layers[0].delta_net = {.key_heads = 2,
                               .value_heads = 4,
                               .key_dim = 3,
                               .value_dim = 5,
                               .kernel = 4,
                               .tensors = DeltaTensors::kByKeyHead};
  model.layers[0].per_layer_input = {.width = 4, .vocabulary = 50};
  const ModelLayout layout = BuildModelLayout(model);
  for (const TileLayout& tile_layout : layout.tiles) {
    const TileParts cut = RandomParts(tile_layout, GetParam(), 5, random);
    for (const TensorSpec& tensor : tile_layout.tensors) {
      SCOPED_TRACE(tensor.name);
      std::vector<int64_t> sources(static_cast<size_t>(tensor.elements), -1);
      for (const TensorRun& run : RunsOf(tensor)) {
        for (int64_t i = 0; i < run.elements; ++i) {
          sources[static_cast<size_t>(run.place + i)] = run.source + i;
        }
      }
      std::vector<int> seen(sources.size(), 0);
      for (int part = 0; part < cut.size(); ++part) {
        int64_t before = -1;
        for (const TensorRun& run : HeldRunsOf(cut.part(part), tensor)) {
          ASSERT_GT(run.source, before) << "in the order of the whole tensor";
          before = run.source;
          for (int64_t i = 0; i < run.elements; ++i) {
            const size_t place = static_cast<size_t>(run.place + i);
            ASSERT_EQ(run.source + i, sources[place]);
            ++seen[place];
          }
        }
      }
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
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
      const TileParts cut = RandomParts(tile_layout, GetParam(), parts, random);
      for (int i = 0; i < parts; ++i) ZeroPadding(cut.part(i));
      EXPECT_EQ(cut.Join(), block);
    }
  }
}

TEST_P(TileTest, AllButTheTensorsIsPadding) {
  const ModelLayout layout = FrozenLayout();
  const int64_t size = DTypeBytes(GetParam());
  const std::vector<int64_t> state_sizes =
      size == 2 ? std::vector<int64_t>{2, 4, 4} : std::vector<int64_t>{4, 4};
  for (const TileLayout& tile : layout.tiles) {
    std::vector<char> wanted(
        static_cast<size_t>(TileBytes(tile.elements, GetParam(), tile.stateless_elements)), '\0');
    std::vector<char> block(wanted.size(), '\xcd');
    const auto keep = [&](int64_t begin, int64_t bytes) {
      std::memset(&wanted[static_cast<size_t>(begin)], '\xcd', static_cast<size_t>(bytes));
    };
    for (const TensorSpec& tensor : tile.tensors) {
      keep(tensor.offset * size, tensor.elements * (tensor.is_buffer ? 4 : size));
      int64_t section = tile.elements * size;
      for (const int64_t bytes : state_sizes) {
        if (!tensor.frozen) keep(section + tensor.offset * bytes, tensor.elements * bytes);
        section += tile.state_elements() * bytes;
      }
    }
    ZeroPadding(MakeTile(&tile, GetParam(), block.data()));
    EXPECT_TRUE(block == wanted);
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, TileTest, ::testing::Values(DType::kBF16, DType::kF32),
                         [](const auto& info) { return DTypeName(info.param); });

}  // namespace
}  // namespace megatrain
