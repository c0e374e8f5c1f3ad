// The places of activations, by the shapes that activations.h and shared_rows.h give. A tensor that
// has too little room would be overwritten by its neighbour, which not every batch shows.
#include "engine/model/layer/activations.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <tuple>
#include <vector>

#include "engine/model/layer/shared_rows.h"
#include "tests/engine/model/layer/placed_tensors.h"

namespace megatrain {
namespace {

// As many that tensors end where the next may begin.
constexpr int64_t kTokens = 128, kChunk = 64;

struct Case {
  const char* name;
  std::function<void(ModelDescription&)> change;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Case kCases[] = {
    {"Plain", [](ModelDescription&) {}},
    {"NormsOfHeadsAndAGate",
     [](ModelDescription& model) {
       AttentionDescription& a = model.layers[1].attention;
       a.qk_norm = QkNorm::kHead;
       a.value_norm = a.output_gate = true;
       model.layers[1].attention_norms.post_norm = "a";
       model.layers[1].feed_forward_norms.post_norm = "b";
     }},
    {"NormsOfAllHeads",
     [](ModelDescription& model) { model.layers[1].attention.qk_norm = QkNorm::kFull; }},
    {"KeysOfAnotherLayer",
     [](ModelDescription& model) {
       for (LayerDescription& layer : model.layers) {
         layer.attention.qk_norm = QkNorm::kHead;
         layer.attention.key_set = 0;
       }
       model.layers[1].attention.projects_keys = false;
     }},
    {"PerLayerInputs",
     [](ModelDescription& model) {
       for (LayerDescription& layer : model.layers) layer.per_layer_input = {5, 11};
     }},
    {"Latents",
     [](ModelDescription& model) {
       model.layers[1].attention.kv_heads = 3;
       model.layers[1].attention.latent = {
           .key_value_rank = 5, .query_rank = 6, .rotary_dim = 2, .value_dim = 3};
     }},
    {"LatentsButOfQueries",
     [](ModelDescription& model) {
       model.layers[1].attention.kv_heads = 3;
       model.layers[1].attention.latent = {.key_value_rank = 5, .rotary_dim = 2, .value_dim = 3};
     }},
    {"ADeltaNet",
     [](ModelDescription& model) {
       model.layers[1].attention = AttentionDescription();
       model.layers[1].delta_net = {
           .key_heads = 1, .value_heads = 2, .key_dim = 3, .value_dim = 5, .kernel = 4};
     }},
    {"TheHalfBeforeExperts",
     [](ModelDescription& model) {
       model.layers[1].feed_forward.intermediate = 0;
       model.layers[1].experts.count = 4;
       model.layers[1].attention_norms.post_norm = "a";
     }},
};

ModelDescription ModelOf(const Case& c) {
  ModelDescription model = UniformModel({.vocabulary = 11,
                                         .hidden = 10,
                                         .layers = 2,
                                         .heads = 3,
                                         .kv_heads = 1,
                                         .head_dim = 4,
                                         .intermediate = 7,
                                         .max_positions = 64});
  c.change(model);
  return model;
}

class ActivationsTest : public testing::TestWithParam<std::tuple<Case, DType, KeepLevel>> {
 protected:
  const ModelDescription model_ = ModelOf(std::get<0>(GetParam()));
  const DType dtype_ = std::get<1>(GetParam());
  const KeepLevel level_ = std::get<2>(GetParam());
  const int64_t element_ = DTypeBytes(dtype_);

  // The tensors by the block that they belong to.
  std::vector<PlacedTensor> kept_, scratch_, chunk_;

  // A tensor of all tokens, kept at `from` and above, else in the scratch.
  void Whole(const char* name, const void* at, KeepLevel from, int64_t bytes_of_token) {
    (level_ >= from ? kept_ : scratch_).push_back({name, at, kTokens * bytes_of_token});
  }
  // A tensor of a chunk unless it is kept.
  void Part(const char* name, const void* at, std::optional<KeepLevel> from, int64_t width) {
    const bool kept = from.has_value() && level_ >= *from;
    (kept ? kept_ : chunk_).push_back({name, at, (kept ? kTokens : kChunk) * width * element_});
  }

  void List(const AttentionDescription& a, const SoftmaxActivations& s) {
    const int64_t kv_heads = a.projects_keys ? a.kv_heads : 0;
    if (a.qk_norm == QkNorm::kHead) {
      Whole("qk_rstd", s.qk_rstd, KeepLevel::kCheapRecomputed, (a.heads + kv_heads) * 4);
    }
    if (a.qk_norm == QkNorm::kFull) {
      Whole("qk_rstd", s.qk_rstd, KeepLevel::kCheapRecomputed, 2 * 4);
    }
    if (a.value_norm) Whole("value_rstd", s.value_rstd, KeepLevel::kCheapRecomputed, kv_heads * 4);
    Whole("lse", s.lse, KeepLevel::kCheapRecomputed, a.heads * 4);
    if (a.output_gate) {
      Whole("attended", s.attended, KeepLevel::kCheapRecomputed, a.heads * a.head_dim * element_);
    }
    if (a.qk_norm != QkNorm::kNone) {
      // Queries, keys, and values if they are normed.
      const int64_t width = a.heads + (a.value_norm ? 2 : 1) * kv_heads;
      Whole("qk_rotated", s.qk_rotated, KeepLevel::kEverything, width * a.head_dim * element_);
    }
  }
  void List(const AttentionDescription& a, const LatentActivations& l) {
    const LatentDescription& latent = a.latent;
    if (latent.query_rank > 0) {
      Whole("query_rstd", l.query_rstd, KeepLevel::kCheapRecomputed, 4);
      Whole("query_normed", l.query_normed, KeepLevel::kEverything, latent.query_rank * element_);
    } else {
      EXPECT_EQ(l.query_rstd, nullptr);
      EXPECT_EQ(l.query_normed, nullptr);
    }
    Whole("key_value_rstd", l.key_value_rstd, KeepLevel::kCheapRecomputed, 4);
    Whole("lse", l.lse, KeepLevel::kCheapRecomputed, a.heads * 4);
    Whole("key_value_normed", l.key_value_normed, KeepLevel::kEverything,
          latent.key_value_rank * element_);
    Whole("queries", l.queries, KeepLevel::kEverything, a.heads * a.head_dim * element_);
    Whole("keys", l.keys, KeepLevel::kEverything, a.heads * a.head_dim * element_);
    Whole("values", l.values, KeepLevel::kEverything, a.heads * latent.value_dim * element_);
    Part("expanded", l.expanded, std::nullopt,
         a.heads * (a.head_dim - latent.rotary_dim + latent.value_dim));
  }
  void List(const DeltaNetDescription& d, const DeltaActivations& a) {
    Whole("out", a.out, KeepLevel::kCheapRecomputed, d.value_heads * d.value_dim * element_);
    Whole("convolved", a.convolved, KeepLevel::kEverything, d.channels() * element_);
  }
  void List(const PerLayerInputDescription& p, const PerLayerActivations& a) {
    Whole("per-layer rstd", a.rstd, KeepLevel::kCheapRecomputed, 4);
    Whole("per-layer post_rstd", a.post_rstd, KeepLevel::kCheapRecomputed, 4);
    Part("per-layer stream", a.stream, KeepLevel::kCheapRecomputed, model_.hidden);
    Part("per-layer projected", a.projected, KeepLevel::kCheapRecomputed, p.width);
    Part("per-layer gate_up", a.gate_up, KeepLevel::kCheapRecomputed, 2 * p.width);
    Part("per-layer branch", a.branch, KeepLevel::kCheapRecomputed, model_.hidden);
    Part("per-layer activated", a.activated, std::nullopt, p.width);
  }
  void List(const LayerDescription& d, const LayerActivations& a) {
    const bool attention_post = !d.attention_norms.post_norm.empty();
    const bool feed_forward_post = !d.feed_forward_norms.post_norm.empty();
    const int64_t hidden = model_.hidden;
    Whole("attention_rstd", a.attention_rstd, KeepLevel::kCheapRecomputed, 4);
    Whole("projected", a.projected, KeepLevel::kCheapRecomputed, d.projected_width() * element_);
    Whole("mixed", a.mixed, d.gates_result() ? KeepLevel::kEverything : KeepLevel::kCheapRecomputed,
          d.mixed_width() * element_);
    switch (d.attention_kind()) {
      case AttentionKind::kSoftmax:
        List(d.attention, a.softmax);
        break;
      case AttentionKind::kLatent:
        List(d.attention, a.latent);
        break;
      case AttentionKind::kDeltaNet:
        List(d.delta_net, a.delta);
        break;
    }
    if (attention_post) {
      Part("attention_branch", a.attention_branch, KeepLevel::kCheapRecomputed, hidden);
      Whole("attention_post_rstd", a.attention_post_rstd, KeepLevel::kCheapRecomputed, 4);
    }
    Part("attention_normed", a.attention_normed, KeepLevel::kEverything, hidden);
    if (attention_post || feed_forward_post || d.per_layer_input.width > 0) {
      Part("branch_gradient", a.branch_gradient, std::nullopt, hidden);
    }
    if (d.per_layer_input.width > 0) List(d.per_layer_input, a.per_layer);
    if (!d.is_dense()) {
      Part("middle", a.middle, std::nullopt, hidden);
      return;
    }
    Part("middle", a.middle, KeepLevel::kCheapRecomputed, hidden);
    Whole("feed_forward_rstd", a.feed_forward_rstd, KeepLevel::kCheapRecomputed, 4);
    Part("gate_up", a.gate_up, KeepLevel::kCheapRecomputed, 2 * d.feed_forward.intermediate);
    Part("activated", a.activated, std::nullopt, d.feed_forward.intermediate);
    if (feed_forward_post) {
      Part("feed_forward_branch", a.feed_forward_branch, KeepLevel::kCheapRecomputed, hidden);
      Whole("feed_forward_post_rstd", a.feed_forward_post_rstd, KeepLevel::kCheapRecomputed, 4);
    }
    if (level_ == KeepLevel::kEverything) {
      Part("feed_forward_normed", a.feed_forward_normed, KeepLevel::kEverything, hidden);
    } else {
      EXPECT_EQ(a.feed_forward_normed, a.attention_normed) << "one chunk's memory in turn";
    }
  }
};

TEST_P(ActivationsTest, EachTensorHasRoomOfItsOwnInItsBlock) {
  for (int layer = 0; layer < 2; ++layer) {
    SCOPED_TRACE(layer);
    char* const kept = BlockAddress(1);
    char* const scratch = BlockAddress(2);
    char* const chunk = BlockAddress(3);
    for (std::vector<PlacedTensor>* list : {&kept_, &scratch_, &chunk_}) list->clear();
    const LayerActivations placed =
        PlaceActivations(model_, layer, dtype_, kTokens, kChunk, level_,
                         level_ == KeepLevel::kNothing ? nullptr : kept, scratch, chunk);
    EXPECT_EQ(placed.keep, level_);
    List(model_.layers[static_cast<size_t>(layer)], placed);
    ExpectApart(kept_, kept, KeptBytes(model_, dtype_, kTokens, level_));
    ExpectApart(scratch_, scratch, LayerScratchBytes(model_, dtype_, kTokens));
    ExpectApart(chunk_, chunk, LayerChunkBytes(model_, dtype_, kChunk));
  }
}

TEST_P(ActivationsTest, WhatLayersShareHasRoomOfItsOwn) {
  for (const bool training : {false, true}) {
    SCOPED_TRACE(training);
    char* const block = BlockAddress(1);
    const SharedRows shared = PlaceSharedRows(model_, dtype_, kTokens, training, block);
    std::vector<PlacedTensor> tensors;
    const AttentionDescription& a = model_.layers[0].attention;
    ASSERT_EQ(shared.key_sets.size(), a.key_set < 0 ? 0u : 1u) << "that of the layer that makes it";
    for (const SharedRows::KeySet& set : shared.key_sets) {
      tensors.push_back({"keys", set.rows, kTokens * 2 * a.kv_width() * element_});
      EXPECT_EQ(set.gradient != nullptr, training);
      if (training) tensors.push_back({"gradient", set.gradient, kTokens * 2 * a.kv_width() * 4});
    }
    const int64_t width = model_.layers[0].per_layer_input.width;
    EXPECT_EQ(shared.embedding != nullptr, width > 0);
    EXPECT_EQ(shared.embedding_gradient != nullptr, width > 0 && training);
    if (width > 0) {
      tensors.push_back({"embedding", shared.embedding, kTokens * model_.hidden * element_});
      tensors.push_back({"norm", shared.per_layer_norm, width * element_});
      if (training) {
        tensors.push_back({"sum", shared.embedding_gradient, kTokens * model_.hidden * 4});
      }
    }
    EXPECT_EQ(shared.per_layer_norm_gradient, nullptr);
    const int64_t bytes = SharedRowsBytes(model_, dtype_, kTokens, training);
    ExpectApart(tensors, block, bytes);
    EXPECT_EQ(bytes == 0, tensors.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, ActivationsTest,
                         testing::Combine(testing::ValuesIn(kCases),
                                          testing::Values(DType::kF32, DType::kBF16),
                                          testing::Values(KeepLevel::kNothing,
                                                          KeepLevel::kCheapRecomputed,
                                                          KeepLevel::kEverything)));

}  // namespace
}  // namespace megatrain
