// What decoder layers say of the memory that they need. What they compute is compared in
// tests/engine/numerics.
#include "engine/model/layer/decoder_layer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "engine/device/reference_kernels.h"

namespace megatrain {
namespace {

ModelDescription Model() {
  return UniformModel({.vocabulary = 11,
                       .hidden = 10,
                       .layers = 3,
                       .heads = 3,
                       .kv_heads = 1,
                       .head_dim = 4,
                       .intermediate = 7,
                       .max_positions = 64});
}

void MakeLatent(LayerDescription& layer) {
  layer.attention.kv_heads = 3;
  layer.attention.latent = {.key_value_rank = 5, .query_rank = 6, .rotary_dim = 2, .value_dim = 3};
}
void MakeDeltaNet(LayerDescription& layer) {
  layer.attention = AttentionDescription();
  layer.delta_net = {.key_heads = 1, .value_heads = 2, .key_dim = 3, .value_dim = 5, .kernel = 4};
}

TEST(LayerCacheTest, HasTheKeysAndValuesOfEveryTokenOrTheStatesOfEverySequence) {
  const CacheSize size = {.rows = 100, .sequences = 7};
  LayerDescription layer = Model().layers[0];
  EXPECT_EQ(LayerCacheBytes(layer, DType::kBF16, size), 100 * (4 + 4) * 2);
  EXPECT_EQ(LayerCacheBytes(layer, DType::kF32, size), 100 * (4 + 4) * 4);
  layer.attention.projects_keys = false;
  EXPECT_EQ(LayerCacheBytes(layer, DType::kBF16, size), 0) << "it uses that of another";
  layer = Model().layers[0];
  MakeLatent(layer);
  EXPECT_EQ(LayerCacheBytes(layer, DType::kBF16, size), 100 * 3 * (4 + 3) * 2);
  // The last kernel - 1 tokens of 16 channels, 672 bytes; a state of 3 x 5 for each of two heads,
  // in FP32, 840 bytes. Each begins at a multiple of 256.
  MakeDeltaNet(layer);
  EXPECT_EQ(LayerCacheBytes(layer, DType::kBF16, size), 768 + 1024);
  EXPECT_EQ(LayerCacheBytes(layer, DType::kF32, size), 1536 + 1024);
}

TEST(BackwardWidthsTest, SufficeForEachOfTheLayers) {
  ModelDescription model = Model();
  const auto expect = [&](int64_t mixed, int64_t projected, int64_t expanded) {
    const LayerBackwardWidths widths = BackwardWidths(model);
    EXPECT_EQ(widths.mixed, mixed);
    EXPECT_EQ(widths.projected, projected);
    EXPECT_EQ(widths.expanded, expanded);
  };
  expect(12, 12 + 2 * 4, 0);
  MakeLatent(model.layers[1]);
  expect(12, 12 + 2 * 4, 12 + 3 * (4 + 3));
  MakeDeltaNet(model.layers[2]);
  expect(12, 16 + 10 + 4, 12 + 3 * (4 + 3));
  for (LayerDescription& layer : model.layers) layer.per_layer_input = {50, 11};
  expect(12, 50, 12 + 3 * (4 + 3));
}

// Asks for a byte for each token and head.
class Sizes : public ReferenceKernels {
 public:
  int64_t AttentionBackwardWorkspaceBytes(const AttentionShape& shape) const override {
    shapes.push_back(shape);
    return shape.tokens * shape.heads;
  }
  int64_t GatedDeltaBackwardWorkspaceBytes(const GatedDeltaShape& shape) const override {
    deltas.push_back(shape);
    return 1000;
  }
  mutable std::vector<AttentionShape> shapes;
  mutable std::vector<GatedDeltaShape> deltas;
};

TEST(AttentionWorkspaceTest, IsTheLargestThatAnyLayerAsksFor) {
  ModelDescription model = Model();
  AttentionDescription& a = model.layers[1].attention;
  a.heads = 6;
  a.kv_heads = 2;
  a.window = 9;
  a.softcap = 30;
  a.sinks = true;
  Sizes sizes;
  EXPECT_EQ(AttentionWorkspaceBytes(model, DType::kBF16, 40, 20, sizes), 40 * 6);
  ASSERT_EQ(sizes.shapes.size(), 2u) << "the third layer is like the first";
  for (const AttentionShape& shape : sizes.shapes) {
    EXPECT_EQ(shape.dtype, DType::kBF16);
    EXPECT_EQ(shape.tokens, 40);
    EXPECT_EQ(shape.sequence, 20);
    EXPECT_EQ(shape.head_dim, 4);
    EXPECT_EQ(shape.value_dim, 4);
  }
  EXPECT_EQ(sizes.shapes[0].kv_heads, 1);
  EXPECT_EQ(sizes.shapes[0].window, 0);
  EXPECT_FALSE(sizes.shapes[0].sinks);
  EXPECT_EQ(sizes.shapes[1].kv_heads, 2);
  EXPECT_EQ(sizes.shapes[1].window, 9);
  EXPECT_EQ(sizes.shapes[1].softcap, 30);
  EXPECT_TRUE(sizes.shapes[1].sinks);

  // The largest may be that of an earlier layer, and values may have another size than keys.
  MakeLatent(model.layers[2]);
  sizes.shapes.clear();
  EXPECT_EQ(AttentionWorkspaceBytes(model, DType::kBF16, 40, 20, sizes), 40 * 6);
  ASSERT_EQ(sizes.shapes.size(), 3u);
  EXPECT_EQ(sizes.shapes[2].head_dim, 4);
  EXPECT_EQ(sizes.shapes[2].value_dim, 3);
}

TEST(AttentionWorkspaceTest, ADeltaNetHasAGradientOfItsConvolutionBesides) {
  ModelDescription model = Model();
  MakeDeltaNet(model.layers[2]);
  const Sizes sizes;
  EXPECT_EQ(AttentionWorkspaceBytes(model, DType::kBF16, 40, 20, sizes), 40 * 16 * 2 + 1000);
  ASSERT_EQ(sizes.deltas.size(), 1u);
  EXPECT_EQ(sizes.deltas[0].tokens, 40);
  EXPECT_EQ(sizes.deltas[0].key_heads, 1);
  EXPECT_EQ(sizes.deltas[0].value_heads, 2);
  EXPECT_EQ(sizes.deltas[0].key_dim, 3);
  EXPECT_EQ(sizes.deltas[0].value_dim, 5);
}

}  // namespace
}  // namespace megatrain
