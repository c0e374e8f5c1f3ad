// The groups of tensors of a decoder layer's tiles (tensor_roles.h).
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/tensor_roles.h"

namespace megatrain {
namespace {

// Collects the groups of a decoder layer's tile.
class LayerTile {
 public:
  LayerTile(const ModelDescription& model, int layer, TileKind kind)
      : d_(model.layers[static_cast<size_t>(layer)]),
        hidden_(model.hidden),
        layers_(model.layer_count()),
        one_plus_norms_(model.one_plus_norms),
        prefix_(absl::StrCat("model.layers.", layer, ".")) {
    tile_.kind = kind;
    tile_.layer = layer;
  }

  LayerTile& FirstHalf() {
    Norm(d_.attention_norms.norm, hidden_, &o_.attention_norm);
    switch (d_.attention_kind()) {
      case AttentionKind::kSoftmax:
        Attention();
        break;
      case AttentionKind::kLatent:
        Latents();
        break;
      case AttentionKind::kDeltaNet:
        DeltaNet();
        break;
    }
    Norm(d_.attention_norms.post_norm, hidden_, &o_.attention_post_norm);
    return *this;
  }
  LayerTile& FeedForward() {
    Norm(d_.feed_forward_norms.norm, hidden_, &o_.feed_forward_norm);
    GatedUnit("mlp", d_.feed_forward.intermediate, d_.feed_forward.fused_gate_up);
    Norm(d_.feed_forward_norms.post_norm, hidden_, &o_.feed_forward_post_norm);
    PerLayerInput();
    OutputScale();
    return *this;
  }

  LayerTile& Join() {
    Norm(d_.feed_forward_norms.norm, hidden_, &o_.feed_forward_norm);
    GatedUnit("mlp", d_.feed_forward.intermediate, d_.feed_forward.fused_gate_up);
    Norm(d_.join.dense_post_norm, hidden_, &o_.dense_post_norm);
    Norm(d_.join.experts.post_norm, hidden_, &o_.experts_post_norm);
    Norm(d_.feed_forward_norms.post_norm, hidden_, &o_.feed_forward_post_norm);
    OutputScale();
    return *this;
  }

  LayerTile& Router() {
    const ExpertsDescription& e = d_.experts;
    Norm(d_.experts_norm(), hidden_, &o_.feed_forward_norm);
    if (!e.router.input_scale.empty()) {
      Add(Role::kScale, {{e.router.input_scale, {hidden_}}}, &o_.router_input_scale);
    }
    Matrix({{e.router.name + ".weight", {e.count, hidden_}}}, &o_.router);
    if (e.router.bias) {
      Add(Role::kRouterBias, {{e.router.name + ".bias", {e.count}}}, &o_.router_bias);
    }
    if (e.router.correction) {
      Add(Role::kBuffer, {{e.router.name + ".e_score_correction_bias", {e.count}}},
          &o_.router_correction);
    }
    if (!e.router.expert_scales.empty()) {
      Add(Role::kScale, {{e.router.expert_scales, {e.count}}}, &o_.router_expert_scales);
    }
    if (e.shared_intermediate > 0) GatedUnit(e.shared_name, e.shared_intermediate, false);
    if (e.shared_gate) Matrix({{e.shared_name + "_gate.weight", {1, hidden_}}}, &o_.shared_gate);
    return *this;
  }

  LayerTile& Experts(int64_t first, int64_t experts) {
    const ExpertsDescription& e = d_.experts;
    tile_.first_expert = first;
    tile_.experts = experts;
    const auto stacked = [&](const std::string& name, std::vector<int64_t> shape) {
      shape.insert(shape.begin(), e.count);
      return std::vector<TensorPart>{
          {absl::StrCat(e.name, ".", name), std::move(shape), first, experts}};
    };
    if (e.tensors == ExpertTensors::kApart) {
      std::vector<TensorPart> gate_up, down;
      for (int64_t expert = first; expert < first + experts; ++expert) {
        const std::string name = absl::StrCat(e.name, ".", expert, ".");
        gate_up.push_back({name + e.gate_name + ".weight", {e.intermediate, hidden_}});
        gate_up.push_back({name + e.up_name + ".weight", {e.intermediate, hidden_}});
        down.push_back({name + e.down_name + ".weight", {hidden_, e.intermediate}});
      }
      Matrix(std::move(gate_up), &o_.expert_gate_up);
      Matrix(std::move(down), &o_.expert_down);
    } else {
      const int64_t up = 2 * e.intermediate, down = e.intermediate;
      Matrix(stacked("gate_up_proj", e.transposed() ? std::vector<int64_t>{hidden_, up}
                                                    : std::vector<int64_t>{up, hidden_}),
             &o_.expert_gate_up);
      Matrix(stacked("down_proj", e.transposed() ? std::vector<int64_t>{down, hidden_}
                                                 : std::vector<int64_t>{hidden_, down}),
             &o_.expert_down);
    }
    if (e.bias) {
      Bias(stacked("gate_up_proj_bias", {2 * e.intermediate}), &o_.expert_gate_up_bias);
      Bias(stacked("down_proj_bias", {hidden_}), &o_.expert_down_bias);
    }
    return *this;
  }

  TileLayout Build(TraitsOf traits) {
    PlaceGroups(std::move(groups_), traits, one_plus_norms_, tile_);
    return std::move(tile_);
  }

 private:
  // The rows of both latents lie side by side.
  void Latents() {
    const AttentionDescription& a = d_.attention;
    const LatentDescription& latent = a.latent;
    const bool has_query_latent = latent.query_rank > 0;
    const std::string q = has_query_latent ? "self_attn.q_a_proj" : "self_attn.q_proj";
    const std::string kv = "self_attn.kv_a_proj_with_mqa";
    const int64_t kv_rows = latent.key_value_rank + latent.rotary_dim;
    const int64_t q_rows = d_.projected_width() - kv_rows;
    Matrix({{q + ".weight", {q_rows, hidden_}}, {kv + ".weight", {kv_rows, hidden_}}},
           &o_.in_projection);
    if (a.qkv_bias) {
      Bias({{q + ".bias", {q_rows}}, {kv + ".bias", {kv_rows}}}, &o_.in_projection_bias);
    }
    if (has_query_latent) {
      Norm("self_attn.q_a_layernorm", latent.query_rank, &o_.q_a_norm);
      Matrix({{"self_attn.q_b_proj.weight", {a.q_width(), latent.query_rank}}}, &o_.q_b);
    }
    Norm("self_attn.kv_a_layernorm", latent.key_value_rank, &o_.kv_a_norm);
    Matrix({{"self_attn.kv_b_proj.weight", {a.expanded_width(), latent.key_value_rank}}}, &o_.kv_b);
    AttentionOutput();
  }

  void Attention() {
    const AttentionDescription& a = d_.attention;
    const int64_t q = a.q_width(), kv = a.kv_width();
    if (a.fused_qkv) {
      Matrix({{"self_attn.qkv_proj.weight", {a.projected_width(), hidden_}}}, &o_.in_projection);
      if (a.qkv_bias) {
        Bias({{"self_attn.qkv_proj.bias", {a.projected_width()}}}, &o_.in_projection_bias);
      }
    } else {
      RowGroups q_rows;
      if (a.output_gate) q_rows = {a.heads, {a.head_dim, a.head_dim}};
      const int64_t q_and_gate = q + a.gate_width();
      std::vector<TensorPart> matrices = {
          {"self_attn.q_proj.weight", {q_and_gate, hidden_}, 0, 0, q_rows}};
      std::vector<TensorPart> biases = {{"self_attn.q_proj.bias", {q_and_gate}, 0, 0, q_rows}};
      const auto add = [&](const std::string& name) {
        matrices.push_back({name + ".weight", {kv, hidden_}});
        biases.push_back({name + ".bias", {kv}});
      };
      if (a.projects_keys) add("self_attn.k_proj");
      if (a.projects_keys && !a.values_are_keys) add("self_attn.v_proj");
      Matrix(std::move(matrices), &o_.in_projection);
      if (a.qkv_bias) Bias(std::move(biases), &o_.in_projection_bias);
    }
    if (a.qk_norm != QkNorm::kNone) {
      const bool full = a.qk_norm == QkNorm::kFull;
      Norm("self_attn.q_norm", full ? q : a.head_dim, &o_.q_norm);
      if (a.projects_keys) Norm("self_attn.k_norm", full ? kv : a.head_dim, &o_.k_norm);
    }
    // Initialised like a matrix and decaying, as in transformers.
    if (a.sinks) Matrix({{"self_attn.sinks", {a.heads}}}, &o_.sinks);
    AttentionOutput();
  }

  void AttentionOutput() {
    Matrix({{"self_attn.o_proj.weight", {hidden_, d_.mixed_width()}}}, &o_.o);
    if (d_.attention.output_bias) Bias({{"self_attn.o_proj.bias", {hidden_}}}, &o_.o_bias);
  }

  void PerLayerInput() {
    const auto [width, vocabulary, activation] = d_.per_layer_input;
    if (width == 0) return;
    const int64_t begin = tile_.layer * width, all = layers_ * width;
    groups_.push_back({Role::kMatrix,
                       {{.name = kPerLayerTableTensorName,
                         .shape = {vocabulary, all},
                         .begin = begin,
                         .count = width,
                         .of_columns = true}},
                       &o_.per_layer_table});
    groups_.push_back({Role::kMatrix,
                       {{.name = "model.per_layer_model_projection.weight",
                         .shape = {all, hidden_},
                         .begin = begin,
                         .count = width}},
                       &o_.per_layer_model_projection});
    Matrix({{"per_layer_input_gate.weight", {width, hidden_}}}, &o_.per_layer_gate);
    Matrix({{"per_layer_projection.weight", {hidden_, width}}}, &o_.per_layer_out);
    Norm("post_per_layer_input_norm", hidden_, &o_.per_layer_norm);
  }

  // In either layout on disk the tile's rows are those of Q, K, V, Z, b and a.
  void DeltaNet() {
    const DeltaNetDescription& d = d_.delta_net;
    const int64_t values = d.values_width(), heads = d.value_heads;
    if (d.tensors == DeltaTensors::kByKeyHead) {
      const int64_t group_heads = heads / d.key_heads, group_values = group_heads * d.value_dim;
      Matrix({{"linear_attn.in_proj_qkvz.weight",
               {d.channels() + values, hidden_},
               0,
               0,
               {d.key_heads, {d.key_dim, d.key_dim, group_values, group_values}}},
              {"linear_attn.in_proj_ba.weight",
               {2 * heads, hidden_},
               0,
               0,
               {d.key_heads, {group_heads, group_heads}}}},
             &o_.in_projection);
    } else {
      Matrix({{"linear_attn.in_proj_qkv.weight", {d.channels(), hidden_}},
              {"linear_attn.in_proj_z.weight", {values, hidden_}},
              {"linear_attn.in_proj_b.weight", {heads, hidden_}},
              {"linear_attn.in_proj_a.weight", {heads, hidden_}}},
             &o_.in_projection);
    }
    Matrix({{"linear_attn.conv1d.weight", {d.channels(), 1, d.kernel}}}, &o_.conv);
    Add(Role::kDecay, {{"linear_attn.A_log", {heads}}}, &o_.a_log);
    Add(Role::kTimeStep, {{"linear_attn.dt_bias", {heads}}}, &o_.dt_bias);
    Add(Role::kPlainNorm, {{"linear_attn.norm.weight", {d.value_dim}}}, &o_.gated_norm);
    Matrix({{"linear_attn.out_proj.weight", {hidden_, values}}}, &o_.o);
  }

  void Add(Role role, std::vector<TensorPart> parts, int64_t* offset) {
    for (TensorPart& part : parts) part.name.insert(0, prefix_);
    groups_.push_back({role, std::move(parts), offset});
  }
  void Norm(const std::string& name, int64_t width, int64_t* offset) {
    if (!name.empty()) Add(Role::kNorm, {{name + ".weight", {width}}}, offset);
  }
  void OutputScale() {
    if (d_.output_scale) Add(Role::kConstant, {{"layer_scalar", {1}}}, &o_.output_scale);
  }
  void Matrix(std::vector<TensorPart> parts, int64_t* offset) {
    Add(Role::kMatrix, std::move(parts), offset);
  }
  void Bias(std::vector<TensorPart> parts, int64_t* offset) {
    Add(Role::kBias, std::move(parts), offset);
  }
  void GatedUnit(const std::string& name, int64_t intermediate, bool fused) {
    if (fused) {
      Matrix({{name + ".gate_up_proj.weight", {2 * intermediate, hidden_}}}, &o_.gate_up);
    } else {
      Matrix({{name + ".gate_proj.weight", {intermediate, hidden_}},
              {name + ".up_proj.weight", {intermediate, hidden_}}},
             &o_.gate_up);
    }
    Matrix({{name + ".down_proj.weight", {hidden_, intermediate}}}, &o_.down);
  }

  const LayerDescription& d_;
  const int64_t hidden_;
  const int64_t layers_;
  const bool one_plus_norms_;
  const std::string prefix_;
  TileLayout tile_;
  LayerOffsets& o_ = tile_.offsets;
  std::vector<TensorGroup> groups_;
};

}  // namespace

TileLayout LayerTileLayout(const ModelDescription& model, int layer, TileKind kind, TraitsOf traits,
                           int64_t first_expert, int64_t experts) {
  LayerTile tile(model, layer, kind);
  switch (kind) {
    case TileKind::kLayer:
      return tile.FirstHalf().FeedForward().Build(traits);
    case TileKind::kAttention:
      return tile.FirstHalf().Build(traits);
    case TileKind::kRouter:
      return tile.Router().Build(traits);
    case TileKind::kExperts:
      return tile.Experts(first_expert, experts).Build(traits);
    case TileKind::kJoin:
      return tile.Join().Build(traits);
    case TileKind::kEmbedding:
    case TileKind::kHead:
    case TileKind::kTiedEmbedding:
      break;
  }
  return tile.Build(traits);
}

}  // namespace megatrain
