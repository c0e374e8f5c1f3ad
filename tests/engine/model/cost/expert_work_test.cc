// The counts against those by hand, from the calls of kernels in engine/model/experts.
#include "engine/model/cost/expert_work.h"

#include <gtest/gtest.h>

#include "tests/engine/model/cost/work_expectation.h"

namespace megatrain {
namespace {

constexpr double kTokens = 30, kHidden = 10, kExperts = 6, kChosen = 2, kIntermediate = 4;
constexpr double kRow = kTokens * kHidden * 2;      // bytes of BF16 rows of every token
constexpr double kRow32 = kTokens * kHidden * 4;    // of FP32 rows
constexpr double kLogits = kTokens * kExperts * 4;  // of the logits, which are FP32
constexpr double kRouter = kHidden * kExperts;      // parameters
constexpr double kExpert = 3 * kHidden * kIntermediate;
constexpr double kSum = 8;  // bytes of an FP32 sum that is read and written

// Half of the experts are in a tile, which has half of the tokens' two choices: 30 rows.
constexpr double kTileExperts = 3, kRows = 30;

ModelDescription Model() {
  ModelDescription model = UniformModel({.vocabulary = 13,
                                         .hidden = 10,
                                         .layers = 1,
                                         .heads = 3,
                                         .kv_heads = 1,
                                         .head_dim = 4,
                                         .intermediate = 0,
                                         .max_positions = 64});
  ExpertsDescription& experts = model.layers[0].experts;
  experts.count = 6;
  experts.chosen = 2;
  experts.intermediate = 4;
  experts.experts_per_tile = 3;
  return model;
}

WorkShape ShapeOf(const ModelDescription& model) {
  return {.model = &model,
          .dtype = DType::kBF16,
          .tokens = 30,
          .sequence_length = 30,
          .layer_chunk_tokens = 30,
          .head_chunk_tokens = 30};
}

constexpr double Flops(double rows, double parameters) { return 2 * rows * parameters; }

// The norm; the logits, written and read; and the choices sorted, with three launches more.
LayerWork PlainRouting() {
  return {.product_flops = Flops(kTokens, kRouter),
          .device_bytes = 2 * kRow + kLogits + kTokens * kChosen * 6 * 4,
          .launches = 1 + 2 + 4};
}
LayerWork PlainRouterBackward() {
  return {.product_flops = 3 * Flops(kTokens, kRouter),
          // The logits and their gradient; the sum rounded, and the gradient of the norm.
          .device_bytes =
              kLogits + kTokens * kExperts * (4 + 2) + kRouter * kSum + 3 * kRow32 + 5 * kRow,
          .launches = 2 + 2 + 1 + 3};
}

TEST(ExpertWorkTest, TheRouter) {
  const ModelDescription model = Model();
  const WorkShape shape = ShapeOf(model);
  const LayerWork zeroed = {.device_bytes = kRow32, .launches = 1};  // the sum of results
  const LayerWork finished = {.device_bytes = kRow32 + 2 * kRow, .launches = 1};
  ExpectWork(RouteWork(shape, /*backward=*/false), PlainRouting() + zeroed + finished, "forward");
  ExpectWork(RouteWork(shape, /*backward=*/true), PlainRouting() + zeroed, "again");
  ExpectWork(RouterBackwardWork(shape, /*first=*/false), PlainRouterBackward(), "backward");
  EXPECT_DOUBLE_EQ(RouterBackwardWork(shape, /*first=*/true).device_bytes,
                   PlainRouterBackward().device_bytes - kRouter * kSum / 2);
  EXPECT_DOUBLE_EQ(RouterWeightGradientWork(shape).product_flops, Flops(kTokens, kRouter));
  EXPECT_DOUBLE_EQ(RouterWeightGradientWork(shape).device_bytes, kRouter * kSum);
}

TEST(ExpertWorkTest, WhatARouterHasBesides) {
  ModelDescription model = Model();
  const WorkShape shape = ShapeOf(model);
  const LayerWork forward = RouteWork(shape, /*backward=*/false);
  model.layers[0].experts.router.expert_scales = "scales";
  ExpectWork(RouteWork(shape, /*backward=*/false), forward, "factors cost nothing");
  ExpectWork(RouterBackwardWork(shape, /*first=*/false),
             PlainRouterBackward() + LayerWork{.device_bytes = 2 * kLogits, .launches = 2},
             "each token's part of their gradient");
  model.layers[0].experts.router.expert_scales = "";
  model.layers[0].experts.router.input_scale = "scale";
  ExpectWork(RouteWork(shape, /*backward=*/false),
             forward + LayerWork{.device_bytes = 2 * kRow, .launches = 1}, "a norm of its own");
  ExpectWork(RouterBackwardWork(shape, /*first=*/false),
             PlainRouterBackward() + LayerWork{.device_bytes = 6 * kRow, .launches = 3},
             "the norm again, and its gradient");
}

TEST(ExpertWorkTest, ASharedUnit) {
  constexpr double kShared = 5, kUnit = 3 * kHidden * kShared;
  ModelDescription model = Model();
  model.layers[0].experts.shared_intermediate = 5;
  const WorkShape shape = ShapeOf(model);
  const LayerWork finished = {.device_bytes = kRow32 + 2 * kRow, .launches = 1};
  // Its result is written as the sum, in FP32.
  const LayerWork unit = {.product_flops = Flops(kTokens, kUnit),
                          .device_bytes = kTokens * 3 * kShared * 2 + kRow32 - kRow,
                          .launches = 2 + 1};
  const LayerWork forward = PlainRouting() + finished + unit;
  ExpectWork(RouteWork(shape, /*backward=*/false), forward, "forward");
  ExpectWork(RouteWork(shape, /*backward=*/true),
             PlainRouting() + LayerWork{.device_bytes = kRow32, .launches = 1},
             "the backward pass routes without it");
  // Gate and up once more, and two gradients of each product.
  const LayerWork unit_backward = {
      .product_flops = Flops(kTokens, 2 * kHidden * kShared) + 2 * Flops(kTokens, kUnit),
      .device_bytes = kTokens * 6 * kShared * 2 + 2 * kRow32 + kUnit * kSum,
      .launches = 1 + 4 + 1};
  ExpectWork(RouterBackwardWork(shape, /*first=*/false), PlainRouterBackward() + unit_backward,
             "backward");
  EXPECT_DOUBLE_EQ(
      RouterBackwardWork(shape, /*first=*/true).device_bytes,
      (PlainRouterBackward() + unit_backward).device_bytes - (kRouter + kUnit) * kSum / 2);
  EXPECT_DOUBLE_EQ(RouterWeightGradientWork(shape).product_flops, Flops(kTokens, kRouter + kUnit));
  EXPECT_DOUBLE_EQ(RouterWeightGradientWork(shape).device_bytes, (kRouter + kUnit) * kSum);

  // A gate is one row more; gated results are added to a sum that is zero first.
  model.layers[0].experts.shared_gate = true;
  ExpectWork(RouteWork(shape, /*backward=*/false),
             forward + LayerWork{.product_flops = Flops(kTokens, kHidden),
                                 .device_bytes = kRow + 3 * kRow32,
                                 .launches = 4 + 4},
             "gated");
  ExpectWork(RouterBackwardWork(shape, /*first=*/false),
             PlainRouterBackward() + unit_backward +
                 LayerWork{.product_flops = 2 * Flops(kTokens, kHidden),
                           .device_bytes = kTokens * 6 * kShared * 2 + 2 * kRow + kHidden * kSum,
                           .launches = 7},
             "gated, backward");
}

TEST(ExpertWorkTest, ATileOfExperts) {
  ModelDescription model = Model();
  WorkShape shape = ShapeOf(model);
  const double gather = kRows * 2 * kHidden * 2, add = kRows * kHidden * (2 + 2 * 4);
  const double column = kRows * kIntermediate * 2;
  const double sums = kTileExperts * kExpert * kSum;
  const LayerWork forward = {.product_flops = Flops(kRows, kExpert),
                             .device_bytes = gather + 3 * column + add,
                             .launches = 1 + 2 * kTileExperts + 1 + 1};
  ExpectWork(ExpertsForwardWork(shape), forward, "forward");
  // Gate and up again, two gradients of each product. The input and twice the gradient by the
  // result are gathered; the unit's output, the weighing of rows and the unit's gradient.
  const LayerWork backward = {
      .product_flops = Flops(kRows, 2 * kHidden * kIntermediate) + 2 * Flops(kRows, kExpert),
      .device_bytes = 3 * gather + (3 + 3 + 6) * column + add + sums,
      .launches = 3 + 5 * kTileExperts + 3 + 1};
  ExpectWork(ExpertsBackwardWork(shape, /*first=*/false), backward, "backward");
  EXPECT_DOUBLE_EQ(ExpertsBackwardWork(shape, /*first=*/true).device_bytes,
                   backward.device_bytes - sums / 2);
  ExpectWork(ExpertsWeightGradientWork(shape),
             {.product_flops = Flops(kRows, kExpert),
              .device_bytes = gather + sums,
              .launches = 1 + 2 * kTileExperts},
             "weights");
  // Rows go through in packs of at most a chunk, and every expert's products are there once.
  shape.layer_chunk_tokens = 12;
  EXPECT_DOUBLE_EQ(ExpertsForwardWork(shape).launches, 3 * 3 + 2 * kTileExperts);
  EXPECT_DOUBLE_EQ(ExpertsForwardWork(shape).device_bytes, forward.device_bytes);
  shape.layer_chunk_tokens = 30;
  // A tile with room for more experts than there are has all of them.
  model.layers[0].experts.experts_per_tile = 8;
  EXPECT_DOUBLE_EQ(ExpertsForwardWork(shape).product_flops, 2 * forward.product_flops);
  EXPECT_DOUBLE_EQ(ExpertsForwardWork(shape).launches, 3 * 2 + 2 * kExperts);
}

TEST(ExpertWorkTest, ADenseUnitBesideThem) {
  constexpr double kDense = 7, kUnit = 3 * kHidden * kDense;
  ModelDescription model = Model();
  model.layers[0].feed_forward.intermediate = 7;
  const WorkShape shape = ShapeOf(model);
  ExpectWork(RouteWork(shape, /*backward=*/false),
             PlainRouting() + LayerWork{.device_bytes = kRow32, .launches = 1},
             "the join finishes the layer");
  // The experts' sum rounded; four norms, of which two add.
  const LayerWork forward = {
      .product_flops = Flops(kTokens, kUnit),
      .device_bytes = kTokens * 3 * kDense * 2 + kRow32 + kRow + (4 * 2 + 2) * kRow,
      .launches = 2 + 1 + 1 + 4};
  ExpectWork(JoinForwardWork(shape), forward, "forward");
  // All of it again; then the unit's gradients, and those of the norms, of which one adds.
  const LayerWork backward =
      forward + LayerWork{.product_flops = 2 * Flops(kTokens, kUnit),
                          .device_bytes =
                              kTokens * 6 * kDense * 2 + (3 * 3 + 4) * kRow + kRow32 + kUnit * kSum,
                          .launches = 4 + 1 + 8 + 1};
  ExpectWork(JoinBackwardWork(shape, /*first=*/false), backward, "backward");
  EXPECT_DOUBLE_EQ(JoinBackwardWork(shape, /*first=*/true).device_bytes,
                   backward.device_bytes - kUnit * kSum / 2);
  ExpectWork(JoinWeightGradientWork(shape),
             {.product_flops = Flops(kTokens, kUnit), .device_bytes = kUnit * kSum, .launches = 2},
             "weights");
  model.layers[0].output_scale = true;
  ExpectWork(JoinForwardWork(shape), forward + LayerWork{.device_bytes = 2 * kRow, .launches = 1},
             "a factor of the result");
}

}  // namespace
}  // namespace megatrain
