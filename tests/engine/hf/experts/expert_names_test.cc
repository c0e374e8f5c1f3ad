#include "engine/hf/experts/expert_names.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "engine/model/model_layout.h"

namespace megatrain {
namespace {

// Two layers, of which the first is dense.
ModelDescription Model(const std::string& unit, ExpertTensors tensors) {
  ModelDescription model = UniformModel({.vocabulary = 11,
                                         .hidden = 8,
                                         .layers = 2,
                                         .heads = 2,
                                         .kv_heads = 1,
                                         .head_dim = 4,
                                         .intermediate = 12,
                                         .max_positions = 32});
  model.layers[1].feed_forward.intermediate = 0;
  ExpertsDescription& experts = model.layers[1].experts;
  experts.count = 4;
  experts.chosen = 2;
  experts.intermediate = 6;
  experts.experts_per_tile = 3;
  experts.tensors = tensors;
  experts.name = unit + ".experts";
  experts.router.name = unit + ".gate";
  return model;
}

ModelDescription Mixtral(ExpertTensors tensors) {
  ModelDescription model = Model("block_sparse_moe", tensors);
  ExpertsDescription& experts = model.layers[1].experts;
  experts.gate_name = "w1";
  experts.up_name = "w3";
  experts.down_name = "w2";
  return model;
}

// Returns `model` after it has seen the names of `files`.
ModelDescription Settled(ModelDescription model, const ModelDescription& files) {
  std::set<std::string> names;
  ForEachTensor(BuildModelLayout(files),
                [&](int, const TensorSpec& tensor) { names.insert(tensor.name); });
  SettleExpertNames([&](const std::string& name) { return names.contains(name); }, model);
  return model;
}

TEST(ExpertNamesTest, FilesTellWhetherExpertsLieApartOrStacked) {
  for (const ExpertTensors described : {ExpertTensors::kApart, ExpertTensors::kStacked}) {
    for (const ExpertTensors stored : {ExpertTensors::kApart, ExpertTensors::kStacked}) {
      EXPECT_EQ(Settled(Model("mlp", described), Model("mlp", stored)).layers,
                Model("mlp", stored).layers);
    }
  }
}

TEST(ExpertNamesTest, WhatIsStackedMayHaveTheNamesOfTransformersInMemory) {
  const ModelDescription apart = Mixtral(ExpertTensors::kApart);
  EXPECT_EQ(Settled(apart, apart).layers, apart.layers);
  ModelDescription stacked = Mixtral(ExpertTensors::kStacked);
  stacked.layers[1].experts.name = "mlp.experts";
  stacked.layers[1].experts.router.name = "mlp.gate";
  EXPECT_EQ(Settled(apart, stacked).layers, stacked.layers);
  // Under the family's own names too.
  EXPECT_EQ(Settled(apart, Mixtral(ExpertTensors::kStacked)).layers,
            Mixtral(ExpertTensors::kStacked).layers);
}

TEST(ExpertNamesTest, WithoutExpertsInTheFilesTheFamilysNamesStay) {
  ModelDescription dense = Model("mlp", ExpertTensors::kApart);
  dense.layers[1].experts = {};
  EXPECT_EQ(Settled(Mixtral(ExpertTensors::kApart), dense).layers,
            Mixtral(ExpertTensors::kApart).layers);
  const ModelDescription transposed = Model("mlp", ExpertTensors::kTransposed);
  EXPECT_EQ(Settled(transposed, Model("mlp", ExpertTensors::kApart)).layers, transposed.layers);
}

}  // namespace
}  // namespace megatrain
