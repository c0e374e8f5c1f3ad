// The places of what experts work in, by the shapes that expert_memory.h gives.
#include "engine/model/experts/expert_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "engine/model/layer/layer_context.h"
#include "tests/engine/model/layer/placed_tensors.h"

namespace megatrain {
namespace {

constexpr int64_t kTokens = 128, kHidden = 10;

// Layers whose experts differ: each is the largest in something.
ModelDescription Model() {
  ModelDescription model = UniformModel({.vocabulary = 11,
                                         .hidden = kHidden,
                                         .layers = 4,
                                         .heads = 3,
                                         .kv_heads = 1,
                                         .head_dim = 4,
                                         .intermediate = 31,  // of the dense first layer
                                         .max_positions = 64});
  for (int i = 1; i < 4; ++i) {
    model.layers[i].feed_forward.intermediate = 0;
    model.layers[i].experts.count = 6;
    model.layers[i].experts.chosen = 2;
    model.layers[i].experts.intermediate = 4;
  }
  model.layers[2].experts.count = 5;
  model.layers[2].experts.chosen = 3;
  return model;
}

// With a dense unit beside the experts, a gate of the shared unit, and the router's factors.
ModelDescription RichModel() {
  ModelDescription model = Model();
  model.layers[1].experts.shared_intermediate = 9;
  model.layers[1].experts.shared_gate = true;
  model.layers[2].experts.router.expert_scales = "scales";
  model.layers[3].feed_forward.intermediate = 7;
  return model;
}

TEST(ExpertMemoryTest, RoutedTokensHaveRoomOfTheirOwn) {
  constexpr int64_t kExperts = 6, kChosen = 3;  // the most of any layer
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const bool rich : {false, true}) {
      SCOPED_TRACE(testing::Message() << DTypeName(dtype) << " " << rich);
      const ModelDescription model = rich ? RichModel() : Model();
      char* const block = BlockAddress(1);
      const RoutedTokens r = PlaceRouted(model, dtype, kTokens, block);
      const int64_t rows = kTokens * kHidden * DTypeBytes(dtype), choices = kTokens * kChosen * 4;
      std::vector<PlacedTensor> tensors = {
          {"normed", r.normed, rows},
          {"rstd", r.rstd, kTokens * 4},
          {"sum", r.sum, kTokens * kHidden * 4},
          {"choice", r.choice, choices},
          {"weights", r.weights, choices},
          {"dweights", r.dweights, choices},
          {"entropy", r.entropy, kTokens * 4},
          {"entropy_sum", r.entropy_sum, 8},
          {"probability", r.probability, kExperts * 8},
          {"dprobabilities", r.dprobabilities, kExperts * 4},
          {"assignments", r.assignments, choices},
          {"token_rows", r.token_rows, choices},
          {"device_offsets", r.device_offsets, (kExperts + 1) * 4},
      };
      EXPECT_EQ(r.dsum != nullptr, rich) << "where a layer joins";
      EXPECT_EQ(r.shared.choice != nullptr, rich) << "where a shared unit has a gate";
      if (rich) {
        tensors.insert(tensors.end(), {{"dsum", r.dsum, rows},
                                       {"shared choice", r.shared.choice, kTokens * 4},
                                       {"shared weights", r.shared.weights, kTokens * 4},
                                       {"shared dweights", r.shared.dweights, kTokens * 4},
                                       {"shared assignments", r.shared.assignments, kTokens * 4},
                                       {"shared rows", r.shared.token_rows, kTokens * 4},
                                       {"shared offsets", r.shared.offsets, 2 * 4}});
      }
      EXPECT_EQ(r.offsets, nullptr);
      ExpectApart(tensors, block, RoutedBytes(model, dtype, kTokens));
    }
  }
}

TEST(ExpertMemoryTest, TheScratchHasRoomForTheWidestUnitAndForWholeRows) {
  constexpr int64_t kExperts = 6, kRows = kTokens + kWholeRowsMax;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const bool rich : {false, true}) {
      SCOPED_TRACE(testing::Message() << DTypeName(dtype) << " " << rich);
      ModelDescription model = rich ? RichModel() : Model();
      // Each of the three units is the widest once.
      for (const int widest : {0, 1, 2}) {
        int64_t intermediate = rich ? 9 : 4;
        if (widest == 1) model.layers[1].experts.intermediate = intermediate = 12;
        if (widest == 2 && rich) model.layers[3].feed_forward.intermediate = intermediate = 15;
        if (widest == 2 && !rich) intermediate = 12;
        char* const block = BlockAddress(1);
        const ExpertScratch s = PlaceExpertScratch(model, dtype, kTokens, block);
        const int64_t e = DTypeBytes(dtype), hidden = kTokens * kHidden * e;
        std::vector<PlacedTensor> tensors = {
            {"logits", s.logits, kTokens * kExperts * 4},
            {"dlogits", s.dlogits, kTokens * kExperts * e},
            {"gate_up", s.gate_up, kRows * 2 * intermediate * e},
            {"activated", s.activated, kRows * intermediate * e},
            {"dactivated", s.dactivated, kRows * intermediate * e},
            {"in", s.in, kRows * kHidden * e},
            {"out", s.out, kRows * kHidden * e},
        };
        EXPECT_EQ(s.dexpert_scales != nullptr, rich);
        EXPECT_EQ(s.rstd != nullptr, rich);
        EXPECT_EQ(s.joined != nullptr, rich);
        if (rich) {
          tensors.insert(tensors.end(),
                         {{"dexpert_scales", s.dexpert_scales, kTokens * kExperts * 4},
                          {"rstd", s.rstd, 4 * kTokens * 4},
                          {"rounded", s.rounded, hidden},
                          {"joined", s.joined, hidden},
                          {"djoined", s.djoined, hidden}});
        }
        ExpectApart(tensors, block, ExpertScratchBytes(model, dtype, kTokens));
      }
    }
  }
  // Norms of the router's own input have statistics too.
  ModelDescription model = Model();
  model.layers[1].experts.router.input_scale = "scale";
  EXPECT_NE(PlaceExpertScratch(model, DType::kF32, kTokens, BlockAddress(1)).rstd, nullptr);
}

TEST(ExpertMemoryTest, WithoutExpertsThereIsNone) {
  ModelDescription model = Model();
  model.layers.resize(1);
  EXPECT_EQ(RoutedBytes(model, DType::kF32, kTokens), 0);
  EXPECT_EQ(ExpertScratchBytes(model, DType::kF32, kTokens), 0);
}

}  // namespace
}  // namespace megatrain
