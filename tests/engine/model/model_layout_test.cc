#include "engine/model/model_layout.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/model/parameter_count.h"

namespace megatrain {
namespace {

// Three layers, of which the second has experts.
ModelDescription Sparse(ExpertTensors tensors, int64_t experts_per_tile) {
  ModelDescription model = UniformModel({.vocabulary = 11,
                                         .hidden = 20,
                                         .layers = 3,
                                         .heads = 3,
                                         .kv_heads = 1,
                                         .head_dim = 6,
                                         .intermediate = 14,
                                         .max_positions = 32});
  LayerDescription& layer = model.layers[1];
  layer.attention.sinks = true;
  layer.feed_forward.intermediate = 0;
  layer.experts.count = 7;
  layer.experts.chosen = 2;
  layer.experts.intermediate = 10;
  layer.experts.tensors = tensors;
  layer.experts.bias = tensors == ExpertTensors::kTransposed;
  layer.experts.experts_per_tile = experts_per_tile;
  layer.experts.router.bias = true;
  layer.experts.router.correction = true;
  layer.experts.shared_intermediate = 4;
  return model;
}

using Case = std::tuple<ExpertTensors, int64_t, bool>;
class ModelLayoutTest : public ::testing::TestWithParam<Case> {
 protected:
  ModelLayout Build() const {
    return BuildModelLayout(
        Sparse(std::get<0>(GetParam()), per_tile_), [&](const std::string& name) {
          TensorTraits traits;
          traits.frozen = std::get<2>(GetParam()) &&
                          (name.ends_with("down_proj") || name.ends_with("mlp.gate.weight"));
          return traits;
        });
  }
  const int64_t per_tile_ = std::get<1>(GetParam());
};

TEST_P(ModelLayoutTest, StagesNameTheirTiles) {
  const ModelLayout layout = Build();
  const int expert_tiles = static_cast<int>((7 + per_tile_ - 1) / per_tile_);
  ASSERT_EQ(layout.tile_count(), 1 + 1 + 2 + expert_tiles + 1 + 1);
  ASSERT_EQ(layout.stages.size(), 4u);
  EXPECT_EQ(layout.stages[1].kind, StageKind::kAttention);
  EXPECT_EQ(layout.stages[2].kind, StageKind::kExperts);
  EXPECT_EQ(layout.stages[2].tile, 3);
  EXPECT_EQ(layout.stages[2].expert_tiles, expert_tiles);
  EXPECT_EQ(layout.stages[3].tile, 4 + expert_tiles);
  EXPECT_EQ(layout.tiles[2].kind, TileKind::kAttention);
  EXPECT_EQ(layout.tiles[3].kind, TileKind::kRouter);
  int64_t expert = 0;
  for (int i = 4; i < 4 + expert_tiles; ++i) {
    const TileLayout& tile = layout.tiles[i];
    EXPECT_EQ(tile.kind, TileKind::kExperts);
    EXPECT_EQ(tile.layer, 1);
    EXPECT_EQ(tile.first_expert, expert);
    expert += tile.experts;
  }
  EXPECT_EQ(expert, 7);
}

TEST_P(ModelLayoutTest, TensorsOfATileHavePlacesOfTheirOwn) {
  for (const TileLayout& tile : Build().tiles) {
    int64_t end = 0;
    for (const TensorSpec& tensor : tile.tensors) {
      EXPECT_GE(tensor.offset, end) << tensor.name;
      end = tensor.offset + tensor.tile_elements();
      if (tensor.is_buffer) {
        EXPECT_EQ(tensor.offset % kTensorAlignmentElements, 0);
        EXPECT_GE(tensor.offset, tile.state_elements());
        EXPECT_TRUE(tensor.frozen);
        EXPECT_FALSE(tensor.decays);
      }
      EXPECT_TRUE(tensor.frozen || end <= tile.state_elements()) << tensor.name;
    }
    EXPECT_LE(end, tile.elements);
    EXPECT_EQ(tile.elements % kTensorAlignmentElements, 0);
  }
}

TEST_P(ModelLayoutTest, PartsCoverEachTensorOnceInOrder) {
  const ModelLayout layout = Build();
  std::map<std::string, std::pair<int64_t, int64_t>> covered;  // elements so far, of the whole
  int64_t parameters = 0;
  ForEachTensor(layout, [&](int, const TensorSpec& tensor) {
    auto& [elements, whole] = covered[tensor.name];
    EXPECT_EQ(tensor.source_begin, elements) << tensor.name;
    elements += tensor.elements;
    whole = tensor.whole_elements();
    if (!tensor.is_buffer) parameters += tensor.elements;
  });
  for (const auto& [name, elements] : covered) EXPECT_EQ(elements.first, elements.second) << name;
  EXPECT_EQ(layout.parameters, parameters);
  EXPECT_EQ(ParameterCount(layout.model), parameters) << "whatever is frozen";
  const int64_t experts = 7 * 3 * 10 * 20,
                biases = layout.model.layers[1].experts.bias ? 7 * 40 : 0;
  const int64_t attention = (3 + 2) * 6 * 20 + 3 * 6 * 20, norms = 2 * 20;
  const int64_t router = 7 * 20 + 7, shared = 3 * 4 * 20, sinks = 3;
  EXPECT_EQ(parameters, 2 * 11 * 20 + 20 + 3 * (attention + norms) + 2 * 3 * 14 * 20 + experts +
                            biases + router + shared + sinks);
}

TEST_P(ModelLayoutTest, GroupsOfExpertsAreAdjacent) {
  const ModelLayout layout = Build();
  for (const TileLayout& tile : layout.tiles) {
    if (tile.kind != TileKind::kExperts) continue;
    const auto expect_group = [&](int64_t offset, int64_t expert_elements, const char* what) {
      int64_t end = offset;
      for (const TensorSpec& tensor : tile.tensors) {
        if (tensor.offset == end) end += tensor.elements;
      }
      EXPECT_GE(end - offset, tile.experts * expert_elements) << what;
    };
    expect_group(tile.offsets.expert_gate_up, 2 * 10 * 20, "gate_up");
    expect_group(tile.offsets.expert_down, 10 * 20, "down");
    if (layout.model.layers[1].experts.bias) {
      expect_group(tile.offsets.expert_gate_up_bias, 2 * 10, "gate_up_bias");
      expect_group(tile.offsets.expert_down_bias, 20, "down_bias");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, ModelLayoutTest,
                         ::testing::Combine(::testing::Values(ExpertTensors::kApart,
                                                              ExpertTensors::kStacked,
                                                              ExpertTensors::kTransposed),
                                            ::testing::Values(1, 3, 7), ::testing::Bool()));

// The rows of Q, K, V, Z, b and a of all heads, whatever the order on disk.
TEST(RowGroupsTest, BringRowsOfKeyHeadsTogether) {
  ModelDescription model = Sparse(ExpertTensors::kApart, 7);
  LayerDescription& layer = model.layers[0];
  layer.attention = AttentionDescription();
  layer.delta_net = {.key_heads = 2,
                     .value_heads = 4,
                     .key_dim = 3,
                     .value_dim = 5,
                     .kernel = 4,
                     .tensors = DeltaTensors::kByKeyHead};
  model.layers[2].attention.output_gate = true;
  const ModelLayout layout = BuildModelLayout(model);
  // The rows on disk in the order of the tile.
  const auto rows_of = [](const TensorSpec& tensor) {
    const int64_t row = tensor.elements / tensor.shape[0];
    std::vector<int64_t> rows(static_cast<size_t>(tensor.shape[0]), -1);
    int64_t source = 0;
    for (const TensorRun& run : RunsOf(tensor)) {
      EXPECT_EQ(run.source, source) << "in the order of the file";
      source += run.elements;
      for (int64_t i = 0; i < run.elements / row; ++i) {
        rows[static_cast<size_t>(run.place / row + i)] = run.source / row + i;
      }
    }
    EXPECT_EQ(source, tensor.elements);
    return rows;
  };
  int seen = 0;
  ForEachTensor(layout, [&](int, const TensorSpec& tensor) {
    if (tensor.name.ends_with("in_proj_ba.weight")) {
      EXPECT_EQ(rows_of(tensor), (std::vector<int64_t>{0, 1, 4, 5, 2, 3, 6, 7}));
    } else if (tensor.name.ends_with("in_proj_qkvz.weight")) {
      // A key head has 3 rows of q, 3 of k, 2 x 5 of v and 2 x 5 of z.
      const std::vector<int64_t> rows = rows_of(tensor);
      EXPECT_EQ(std::vector<int64_t>(rows.begin(), rows.begin() + 12),
                (std::vector<int64_t>{0, 1, 2, 26, 27, 28, 3, 4, 5, 29, 30, 31}));
      EXPECT_EQ(rows[12], 6);
      EXPECT_EQ(rows[22], 32);
      EXPECT_EQ(rows[32], 16);
      EXPECT_EQ(rows.back(), 51);
    } else if (tensor.name == "model.layers.2.self_attn.q_proj.weight") {
      const std::vector<int64_t> rows = rows_of(tensor);
      EXPECT_EQ(rows[5], 5);
      EXPECT_EQ(rows[6], 12) << "the queries of the second head";
      EXPECT_EQ(rows[18], 6) << "the gates of the first head";
    } else {
      EXPECT_EQ(RunsOf(tensor).size(), 1u) << tensor.name;
      return;
    }
    ++seen;
  });
  EXPECT_EQ(seen, 3);
}

TEST(RolesTest, TensorsDecayAndBeginAsInTransformers) {
  ModelDescription model = Sparse(ExpertTensors::kTransposed, 7);
  model.layers[0].attention = AttentionDescription();
  model.layers[0].delta_net = {
      .key_heads = 2, .value_heads = 4, .key_dim = 3, .value_dim = 5, .kernel = 4};
  model.layers[1].attention.qkv_bias = true;
  model.layers[1].attention.qk_norm = QkNorm::kHead;
  model.layers[1].experts.router.input_scale = "router.scale";
  model.layers[1].experts.router.expert_scales = "router.per_expert_scale";
  model.layers[2].output_scale = true;
  struct Kind {
    const char* name;
    bool decays;
    Initial initial;
    Initial with_one_plus_norms;
  };
  constexpr Initial kNormal = Initial::kNormal, kZero = Initial::kZero, kOne = Initial::kOne;
  constexpr Kind kKinds[] = {
      {"model.embed_tokens.weight", true, kNormal, kNormal},
      {"model.layers.0.input_layernorm.weight", false, kOne, kZero},
      {"model.layers.0.linear_attn.conv1d.weight", true, kNormal, kNormal},
      {"model.layers.0.linear_attn.A_log", true, Initial::kLogUniform, Initial::kLogUniform},
      {"model.layers.0.linear_attn.dt_bias", false, kOne, kOne},
      {"model.layers.0.linear_attn.norm.weight", false, kOne, kOne},
      {"model.layers.1.self_attn.q_proj.bias", false, kZero, kZero},
      {"model.layers.1.self_attn.k_norm.weight", false, kOne, kZero},
      {"model.layers.1.self_attn.sinks", true, kNormal, kNormal},
      {"model.layers.1.mlp.gate.weight", true, kNormal, kNormal},
      {"model.layers.1.mlp.gate.bias", false, kNormal, kNormal},
      {"model.layers.1.mlp.gate.e_score_correction_bias", false, kZero, kZero},
      {"model.layers.1.router.scale", true, kOne, kOne},
      {"model.layers.1.router.per_expert_scale", true, kOne, kOne},
      {"model.layers.1.mlp.experts.down_proj", true, kNormal, kNormal},
      {"model.layers.1.mlp.experts.down_proj_bias", false, kZero, kZero},
      {"model.layers.2.layer_scalar", false, kOne, kOne},
      {"model.norm.weight", false, kOne, kZero},
      {"lm_head.weight", true, kNormal, kNormal},
  };
  for (const bool one_plus : {false, true}) {
    model.one_plus_norms = one_plus;
    std::map<std::string, TensorSpec> tensors;
    ForEachTensor(BuildModelLayout(model),
                  [&](int, const TensorSpec& tensor) { tensors[tensor.name] = tensor; });
    for (const Kind& one : kKinds) {
      ASSERT_TRUE(tensors.contains(one.name)) << one.name;
      const TensorSpec& tensor = tensors[one.name];
      EXPECT_EQ(tensor.decays, one.decays) << one.name;
      EXPECT_EQ(tensor.initial, one_plus ? one.with_one_plus_norms : one.initial) << one.name;
      EXPECT_EQ(tensor.frozen, tensor.is_never_trained()) << one.name;
    }
    EXPECT_TRUE(tensors["model.layers.2.layer_scalar"].is_constant);
  }
}

TEST(ActiveParametersTest, ExpertsThatATokenDoesNotGoToAndOtherTokensRowsDoNotCount) {
  const auto idle = [](const ModelDescription& model) {
    return ParameterCount(model) - ActiveParameterCount(model);
  };
  // Five of seven experts.
  EXPECT_EQ(idle(Sparse(ExpertTensors::kStacked, 3)), 5 * 3 * 10 * 20);
  EXPECT_EQ(idle(Sparse(ExpertTensors::kTransposed, 3)), 5 * (3 * 10 * 20 + 2 * 10 + 20));
  ModelDescription dense = Sparse(ExpertTensors::kApart, 7);
  dense.layers[1] = dense.layers[0];
  EXPECT_EQ(idle(dense), 0);
  for (LayerDescription& layer : dense.layers) layer.per_layer_input = {4, 11};
  EXPECT_EQ(idle(dense), 3 * 10 * 4);
}

TEST(ExpertsPerTileTest, SpreadsExpertsEvenlyOverTilesOfALimitedSize) {
  EXPECT_EQ(ExpertsPerTile(4, 8, 8), 4) << "small: one tile";
  EXPECT_EQ(ExpertsPerTile(8, 4096, 14336), 1) << "Mixtral: an expert has 176 million elements";
  const int64_t per_tile = ExpertsPerTile(128, 4096, 1536);
  EXPECT_LE(per_tile * 3 * 4096 * 1536, kExpertTileElements);
  EXPECT_EQ(per_tile, 7) << "seven have room, in 19 tiles";
}

}  // namespace
}  // namespace megatrain
