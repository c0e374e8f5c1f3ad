// The counts against those by hand, from the calls of kernels in the sources of the templates. The
// time that a plan tells follows them.
#include "engine/model/cost/layer_work.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/engine/model/cost/work_expectation.h"

namespace megatrain {
namespace {

constexpr double kTokens = 30;
constexpr double kHidden = 10, kIntermediate = 7, kVocabulary = 13;
constexpr double kQueries = 12, kKeys = 4;  // widths: 3 heads and 1 head of 4
constexpr double kProjected = kQueries + 2 * kKeys;
// Of a layer: the input projection, that of attention's result, gate and up, down.
constexpr double kMatrices = kHidden * (kProjected + kQueries + 3 * kIntermediate);
constexpr double kElement = 2;                  // BF16
constexpr double kColumn = kTokens * kElement;  // the bytes of an element of every token
constexpr double kSum = 8;                      // bytes of an FP32 sum that is read and written

ModelDescription Model() {
  return UniformModel({.vocabulary = 13,
                       .hidden = 10,
                       .layers = 1,
                       .heads = 3,
                       .kv_heads = 1,
                       .head_dim = 4,
                       .intermediate = 7,
                       .max_positions = 64});
}

WorkShape ShapeOf(const ModelDescription& model) {
  return {.model = &model,
          .dtype = DType::kBF16,
          .tokens = 30,
          .sequence_length = 30,
          .layer_chunk_tokens = 30,
          .head_chunk_tokens = 30};
}

// A token sees 15 of 30 on average; each pair takes 2 operations for an element of a head.
constexpr double kPairProduct = 30 * 15 * 2 * kQueries;

LayerWork PlainForward() {
  // Two norms, the rotation, the unit, and the residual stream that both last products add.
  const double elements =
      2 * 2 * kHidden + 2 * (kQueries + kKeys) + 3 * kIntermediate + 2 * kHidden;
  return {.product_flops = 2 * kTokens * kMatrices,
          .attention_forward_flops = 2 * kPairProduct,
          .device_bytes = elements * kColumn,
          .launches = 9};
}
LayerWork PlainBackward() {
  // Two norms, the rotation and the unit. Each of four products has two gradients, and the sums
  // over rows of norms' weights have a launch more.
  const double elements = 2 * 4 * kHidden + 2 * (kQueries + kKeys) + 6 * kIntermediate;
  return {.product_flops = 2 * 2 * kTokens * kMatrices,
          .attention_backward_flops = 5 * kPairProduct,
          .device_bytes = elements * kColumn + kMatrices * kSum,
          .launches = 8 + 4 + 1 + 3 + 1};
}
// All but the last product, and attention's norm twice.
LayerWork PlainRecompute() {
  const double elements = 3 * 2 * kHidden + 2 * (kQueries + kKeys) + kHidden;
  return {.product_flops = 2 * kTokens * (kMatrices - kHidden * kIntermediate),
          .attention_forward_flops = 2 * kPairProduct,
          .device_bytes = elements * kColumn,
          .launches = 8};
}

TEST(LayerWorkTest, APlainLayer) {
  const ModelDescription model = Model();
  const WorkShape shape = ShapeOf(model);
  ExpectWork(DecoderLayerForwardWork(shape), PlainForward(), "forward");
  ExpectWork(DecoderLayerBackwardWork(shape, /*first=*/false), PlainBackward(), "backward");
  ExpectWork(DecoderLayerRecomputeWork(shape, KeepLevel::kNothing), PlainRecompute(), "nothing");
  ExpectWork(DecoderLayerRecomputeWork(shape, KeepLevel::kCheapRecomputed),
             {.device_bytes = 2 * 2 * kHidden * kColumn, .launches = 2}, "the norms");
  ExpectWork(DecoderLayerRecomputeWork(shape, KeepLevel::kEverything), {}, "everything");
  ExpectWork(
      DecoderLayerWeightGradientWork(shape),
      {.product_flops = 2 * kTokens * kMatrices, .device_bytes = kMatrices * kSum, .launches = 4},
      "weights");
}

// Every chunk launches its own kernels and adds to the sums; only the first of all writes them.
TEST(LayerWorkTest, ChunksAddToTheSums) {
  const ModelDescription model = Model();
  WorkShape shape = ShapeOf(model);
  shape.layer_chunk_tokens = 11;  // the last of three has 8
  const LayerWork whole = PlainBackward();
  const LayerWork added = DecoderLayerBackwardWork(shape, /*first=*/false);
  EXPECT_DOUBLE_EQ(added.device_bytes, whole.device_bytes + 2 * kMatrices * kSum);
  EXPECT_DOUBLE_EQ(added.product_flops, whole.product_flops);
  EXPECT_GT(added.launches, 2 * whole.launches);
  EXPECT_DOUBLE_EQ(DecoderLayerBackwardWork(shape, /*first=*/true).device_bytes,
                   added.device_bytes - kMatrices * kSum / 2);
  EXPECT_DOUBLE_EQ(DecoderLayerWeightGradientWork(shape).device_bytes, 3 * kMatrices * kSum);
  EXPECT_DOUBLE_EQ(DecoderLayerWeightGradientWork(shape).launches, 3 * 4);
  EXPECT_DOUBLE_EQ(DecoderLayerForwardWork(shape).device_bytes, PlainForward().device_bytes);
}

// Elements of a token that are read or written, and launches.
struct More {
  double elements = 0, launches = 0;
};
struct Trait {
  const char* name;
  std::function<void(LayerDescription&)> change;
  More forward = {}, backward = {};
  More cheap = {}, nothing = {};  // recomputed at these levels
  double matrices = 0;            // parameters
};

const Trait kTraits[] = {
    {.name = "post-norms",  // each adds the residual stream in place of the product
     .change =
         [](LayerDescription& l) {
           l.attention_norms.post_norm = "a";
           l.feed_forward_norms.post_norm = "b";
         },
     .forward = {4 * kHidden, 2},
     .backward = {2 * 3 * kHidden, 4},
     // The unit and its last product are needed too.
     .nothing = {2 * kHidden + 3 * kIntermediate + 3 * kHidden, 4}},
    {.name = "no norm before attention",  // its product's gradient adds instead
     .change = [](LayerDescription& l) { l.attention_norms.norm = ""; },
     .forward = {-2 * kHidden, -1},
     .backward = {-3 * kHidden, -2},
     .cheap = {-2 * kHidden, -1},
     .nothing = {-4 * kHidden, -2}},
    {.name = "bias of q, k, v",
     .change = [](LayerDescription& l) { l.attention.qkv_bias = true; },
     .backward = {kProjected, 2}},
    {.name = "bias of o",
     .change = [](LayerDescription& l) { l.attention.output_bias = true; },
     .backward = {kHidden, 2}},
    {.name = "norms of queries and keys",  // their rotation is computed again with them
     .change = [](LayerDescription& l) { l.attention.qk_norm = QkNorm::kHead; },
     .forward = {2 * (kQueries + kKeys), 2},
     .backward = {3 * (kQueries + kKeys), 4},
     .cheap = {4 * (kQueries + kKeys), 3},
     .nothing = {2 * (kQueries + kKeys), 2}},
    {.name = "norms of queries, keys and values",
     .change =
         [](LayerDescription& l) {
           l.attention.qk_norm = QkNorm::kHead;
           l.attention.value_norm = true;
         },
     .forward = {2 * (kQueries + 2 * kKeys), 3},
     .backward = {3 * (kQueries + 2 * kKeys), 5},
     .cheap = {4 * (kQueries + kKeys) + 2 * kKeys, 4},
     .nothing = {2 * (kQueries + 2 * kKeys), 3}},
    {.name = "a gate",
     .change = [](LayerDescription& l) { l.attention.output_gate = true; },
     .forward = {3 * kQueries, 1},
     .backward = {6 * kQueries, 1},
     .cheap = {3 * kQueries, 1},
     .nothing = {3 * kQueries, 1},
     .matrices = kHidden * kQueries},
    {.name = "keys alone are rotated",
     .change = [](LayerDescription& l) { l.attention.query_rope = -1; },
     .forward = {-2 * kQueries, 0},
     .backward = {-2 * kQueries, 0},
     .nothing = {-2 * kQueries, 0}},
    {.name = "queries alone are rotated",
     .change = [](LayerDescription& l) { l.attention.key_rope = -1; },
     .forward = {-2 * kKeys, 0},
     .backward = {-2 * kKeys, 0},
     .nothing = {-2 * kKeys, 0}},
    {.name = "nothing is rotated",
     .change = [](LayerDescription& l) { l.attention.query_rope = l.attention.key_rope = -1; },
     .forward = {-2 * (kQueries + kKeys), -1},
     .backward = {-2 * (kQueries + kKeys), -1},
     .nothing = {-2 * (kQueries + kKeys), -1}},
    {.name = "a rope for each",
     .change = [](LayerDescription& l) { l.attention.key_rope = 1; },
     .forward = {0, 1},
     .backward = {0, 1},
     .nothing = {0, 1}},
    {.name = "a factor of the result",
     .change = [](LayerDescription& l) { l.output_scale = true; },
     .forward = {2 * kHidden, 1},
     .backward = {2 * kHidden, 1}},
};

TEST(LayerWorkTest, WhatALayerHasBesidesIsCounted) {
  for (const Trait& trait : kTraits) {
    SCOPED_TRACE(trait.name);
    ModelDescription model = Model();
    trait.change(model.layers[0]);
    const WorkShape shape = ShapeOf(model);
    const auto expect = [&](const LayerWork& actual, const LayerWork& plain, const More& more,
                            double sums, const char* what) {
      EXPECT_DOUBLE_EQ(actual.device_bytes, plain.device_bytes + more.elements * kColumn + sums)
          << what;
      EXPECT_DOUBLE_EQ(actual.launches, plain.launches + more.launches) << what;
    };
    expect(DecoderLayerForwardWork(shape), PlainForward(), trait.forward, 0, "forward");
    expect(DecoderLayerBackwardWork(shape, /*first=*/false), PlainBackward(), trait.backward,
           trait.matrices * kSum, "backward");
    expect(DecoderLayerRecomputeWork(shape, KeepLevel::kCheapRecomputed),
           {.device_bytes = 2 * 2 * kHidden * kColumn, .launches = 2}, trait.cheap, 0, "cheap");
    expect(DecoderLayerRecomputeWork(shape, KeepLevel::kNothing), PlainRecompute(), trait.nothing,
           0, "nothing");
    EXPECT_DOUBLE_EQ(DecoderLayerForwardWork(shape).product_flops,
                     2 * kTokens * (kMatrices + trait.matrices));
  }
}

TEST(LayerWorkTest, ALayerWithPerLayerInputs) {
  constexpr double kWidth = 4, kTable = 17;
  ModelDescription model = Model();
  model.layers[0].per_layer_input = {.width = 4, .vocabulary = 17};
  const WorkShape shape = ShapeOf(model);
  constexpr double kParameters = 3 * kHidden * kWidth;
  const double forward = 12 * kWidth + 3 * kHidden;
  ExpectWork(DecoderLayerForwardWork(shape),
             PlainForward() + LayerWork{.product_flops = 2 * kTokens * kParameters,
                                        .device_bytes = forward * kColumn,
                                        .launches = 9},
             "forward");
  // Sums of the embeddings' gradients and of the table's rows are FP32.
  const double added =
      (13 * kWidth + 3 * kHidden) * kColumn + kTokens * (2 * kHidden + 2 * kWidth) * 4;
  const LayerWork backward =
      PlainBackward() + LayerWork{.product_flops = 2 * 2 * kTokens * kParameters,
                                  .device_bytes = added + kParameters * kSum,
                                  .launches = 6 + 10};
  ExpectWork(DecoderLayerBackwardWork(shape, /*first=*/false), backward, "backward");
  // The first sums are written, and the whole table's is set to zero.
  EXPECT_DOUBLE_EQ(
      DecoderLayerBackwardWork(shape, /*first=*/true).device_bytes,
      backward.device_bytes - (kMatrices + kParameters) * kSum / 2 + kTable * kWidth * 4);
  // The stream after the unit is needed for it.
  ExpectWork(DecoderLayerRecomputeWork(shape, KeepLevel::kNothing),
             PlainRecompute() +
                 LayerWork{.product_flops = 2 * kTokens * (kParameters + kHidden * kIntermediate),
                           .device_bytes = (3 * kIntermediate + kHidden + forward) * kColumn,
                           .launches = 2 + 9},
             "nothing");
  EXPECT_DOUBLE_EQ(DecoderLayerWeightGradientWork(shape).device_bytes,
                   (kMatrices + kParameters) * kSum);
  EXPECT_DOUBLE_EQ(DecoderLayerWeightGradientWork(shape).launches, 4 + 3);
  ExpectWork(EmbeddingForwardWork(shape), {.device_bytes = 4 * kHidden * kColumn, .launches = 2},
             "the embeddings are copied for it");
}

TEST(LayerWorkTest, ALayerWithLatents) {
  ModelDescription model = Model();
  AttentionDescription& a = model.layers[0].attention;
  a.kv_heads = 3;
  a.latent = {.key_value_rank = 5, .query_rank = 6, .rotary_dim = 2, .value_dim = 3};
  const WorkShape shape = ShapeOf(model);
  // Queries of 12 elements, keys of 12 and values of 9, of which 15 are expanded.
  constexpr double kExpansions = 12 * 6 + 15 * 5, kLatents = 6 + 5;
  constexpr double kAll = kHidden * (6 + 5 + 2) + kExpansions + 9 * kHidden + 210;
  constexpr double kCopies = 2 * (12 + 9), kRest = 2 * 2 * kHidden + 2 * kHidden + 3 * 7;
  constexpr double kKeyProduct = 450 * 2 * 12, kValueProduct = 450 * 2 * 9;
  ExpectWork(DecoderLayerForwardWork(shape),
             {.product_flops = 2 * kTokens * kAll,
              .attention_forward_flops = kKeyProduct + kValueProduct,
              // The ends of all queries and all keys are rotated.
              .device_bytes = (kRest + 2 * kLatents + kCopies + 2 * 2 * (3 + 3)) * kColumn,
              .launches = 8 + 4 + 3 + 2},
             "forward");
  ExpectWork(DecoderLayerBackwardWork(shape, /*first=*/false),
             {.product_flops = 2 * 2 * kTokens * kAll,
              .attention_backward_flops = 3 * kKeyProduct + 2 * kValueProduct,
              // The gradient by the keys' one end is rotated once.
              .device_bytes =
                  (2 * 4 * kHidden + 6 * 7 + 2 * 2 * (3 + 1) + kCopies + 3 * kLatents) * kColumn +
                  kAll * kSum,
              .launches = 12 + 4 + 1 + 2 + 3 + 3 + 4},
             "backward");
  ExpectWork(
      DecoderLayerRecomputeWork(shape, KeepLevel::kCheapRecomputed),
      {.product_flops = 2 * kTokens * kExpansions,
       .device_bytes = (2 * 2 * kHidden + 2 * kLatents + kCopies + 2 * 2 * (3 + 3)) * kColumn,
       .launches = 2 + 4 + 3 + 2},
      "cheap");
  // Queries without a latent are copied too.
  a.latent.query_rank = 0;
  const LayerWork forward = DecoderLayerForwardWork(shape);
  EXPECT_DOUBLE_EQ(forward.device_bytes, (kRest + 2 * 5 + kCopies + 2 * 12 + 24) * kColumn);
  EXPECT_DOUBLE_EQ(forward.launches, 8 + 2 + 4 + 2);
}

TEST(LayerWorkTest, ALayerWithADeltaNet) {
  ModelDescription model = Model();
  model.layers[0].attention = AttentionDescription();
  model.layers[0].delta_net = {
      .key_heads = 1, .value_heads = 2, .key_dim = 3, .value_dim = 5, .kernel = 4};
  const WorkShape shape = ShapeOf(model);
  constexpr double kValues = 10, kChannels = 2 * 3 + kValues;
  constexpr double kAll = kHidden * (kChannels + kValues + 4) + kValues * kHidden + 210;
  constexpr double kRule = kTokens * 7 * kValues * 3;
  constexpr double kConvAndNorm = 2 * kChannels + 3 * kValues;
  ExpectWork(DecoderLayerForwardWork(shape),
             {.product_flops = 2 * kTokens * kAll,
              .attention_forward_flops = kRule,
              .device_bytes = (2 * 2 * kHidden + 2 * kHidden + 21 + kConvAndNorm) * kColumn,
              .launches = 10},
             "forward");
  ExpectWork(
      DecoderLayerBackwardWork(shape, /*first=*/false),
      {.product_flops = 2 * 2 * kTokens * kAll,
       .attention_backward_flops = 3 * kRule,
       .device_bytes = (2 * 4 * kHidden + 42 + 3 * kChannels + 6 * kValues) * kColumn + kAll * kSum,
       .launches = 8 + 4 + 1 + 4 + 2},
      "backward");
  ExpectWork(DecoderLayerRecomputeWork(shape, KeepLevel::kCheapRecomputed),
             {.device_bytes = (2 * 2 * kHidden + kConvAndNorm) * kColumn, .launches = 4}, "cheap");
}

// Its other half is counted by expert_work.h.
TEST(LayerWorkTest, OfALayerWithExpertsTheAttentionHalf) {
  ModelDescription model = Model();
  model.layers[0].feed_forward.intermediate = 0;
  model.layers[0].experts.count = 4;
  const WorkShape shape = ShapeOf(model);
  constexpr double kHalf = kHidden * (kProjected + kQueries);
  constexpr double kRope = 2 * (kQueries + kKeys);
  ExpectWork(DecoderLayerForwardWork(shape),
             {.product_flops = 2 * kTokens * kHalf,
              .attention_forward_flops = 2 * kPairProduct,
              .device_bytes = (2 * kHidden + kRope + kHidden) * kColumn,
              .launches = 5},
             "forward");
  const LayerWork backward = DecoderLayerBackwardWork(shape, /*first=*/false);
  EXPECT_DOUBLE_EQ(backward.product_flops, 2 * 2 * kTokens * kHalf);
  EXPECT_DOUBLE_EQ(backward.device_bytes, (4 * kHidden + kRope) * kColumn + kHalf * kSum);
  // Nothing reads its result, unless a norm follows it.
  EXPECT_DOUBLE_EQ(DecoderLayerRecomputeWork(shape, KeepLevel::kNothing).product_flops,
                   2 * kTokens * kHidden * kProjected);
  model.layers[0].attention_norms.post_norm = "a";
  EXPECT_DOUBLE_EQ(DecoderLayerRecomputeWork(shape, KeepLevel::kNothing).product_flops,
                   2 * kTokens * kHalf);
}

TEST(LayerWorkTest, TheEmbedding) {
  const ModelDescription model = Model();
  const WorkShape shape = ShapeOf(model);
  ExpectWork(EmbeddingForwardWork(shape), {.device_bytes = 2 * kHidden * kColumn, .launches = 1},
             "forward");
  const LayerWork added = {.device_bytes = kHidden * kColumn + kTokens * kHidden * kSum,
                           .launches = 2};
  ExpectWork(EmbeddingBackwardWork(shape, /*first=*/false), added, "added");
  ExpectWork(EmbeddingBackwardWork(shape, /*first=*/true),
             added + LayerWork{.device_bytes = kVocabulary * kHidden * 4, .launches = 1},
             "the whole sum is set to zero first");
}

TEST(LayerWorkTest, TheHead) {
  const ModelDescription model = Model();
  WorkShape shape = ShapeOf(model);
  constexpr double kMatrix = kVocabulary * kHidden;
  constexpr double kProduct = 2 * kTokens * kMatrix;
  // FP32 logits, of which half is more than a BF16 result has, are read twice, and their gradient
  // is written. The norm, and its gradient, which adds to none.
  const double bytes = kTokens * kVocabulary * (2 + 2 * 4 + 2) + (2 + 3) * kHidden * kColumn;
  for (const int64_t chunk : {30, 16}) {
    SCOPED_TRACE(chunk);
    shape.head_chunk_tokens = chunk;
    const double chunks = chunk == 30 ? 1 : 2;
    ExpectWork(HeadForwardBackwardWork(shape, /*first=*/false),
               {.product_flops = 3 * kProduct,
                .device_bytes = bytes + chunks * kMatrix * kSum,
                .launches = (3 + 1 + 1 + 2) * chunks + 1},
               "forward and backward");
    EXPECT_DOUBLE_EQ(HeadForwardBackwardWork(shape, /*first=*/true).device_bytes,
                     bytes + (2 * chunks - 1) * kMatrix * 4);
    ExpectWork(HeadLossWork(shape),
               {.product_flops = kProduct,
                .device_bytes = kTokens * kVocabulary * (2 + 4) + 2 * kHidden * kColumn,
                .launches = 3 * chunks + 1},
               "loss");
    ExpectWork(
        HeadWeightGradientWork(shape),
        {.product_flops = kProduct, .device_bytes = chunks * kMatrix * kSum, .launches = chunks},
        "weights");
  }
}

// It is read for its norm, and read and written in half of its bytes where it is rounded.
TEST(LayerWorkTest, AFinishedGradient) {
  ExpectWork(FinishGradientWork(100, 4), {.device_bytes = 400, .launches = 2}, "FP32");
  ExpectWork(FinishGradientWork(100, 2), {.device_bytes = 1000, .launches = 3}, "BF16");
}

TEST(LayerWorkTest, SumsAndMultiplesHaveAllParts) {
  const LayerWork a = {1, 2, 3, 4, 5}, b = {10, 20, 30, 40, 50};
  ExpectWork(a + b, {11, 22, 33, 44, 55}, "sum");
  ExpectWork(3 * a, {3, 6, 9, 12, 15}, "multiple");
}

}  // namespace
}  // namespace megatrain
