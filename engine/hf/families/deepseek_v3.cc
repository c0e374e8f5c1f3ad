// DeepSeek-V3: latent attention, a few dense layers, then experts in groups beside one that all
// tokens go through. DeepSeek-AI 2024.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/hf/config/config_readers.h"
#include "engine/hf/config/model_family.h"

namespace megatrain {
namespace {

constexpr int64_t kRankMax = kHiddenMax;  // of latents

// Reads the sizes of heads and latents. The model has those of a uniform one, whose heads are as
// long as the rotated ends.
AttentionDescription ReadAttention(JsonFields& fields, const ModelDescription& model) {
  AttentionDescription a = model.layers[0].attention;
  const int64_t rotary_dim = a.head_dim;
  // transformers repeats keys and values for groups of queries that this attention has not.
  if (a.kv_heads != a.heads) {
    fields.Refuse("num_key_value_heads", absl::StrCat(a.kv_heads, " must be num_attention_heads = ",
                                                      a.heads, ": every query has its own key"));
    a.kv_heads = a.heads;
  }
  a.latent.rotary_dim = rotary_dim;
  a.latent.value_dim = fields.Integer("v_head_dim", 1, kHeadDimMax, 128);
  a.latent.key_value_rank = fields.Integer("kv_lora_rank", 1, kRankMax, 512);
  // null: queries have no latent
  const bool none = fields.Has("q_lora_rank") && fields.Find("q_lora_rank") == nullptr;
  a.latent.query_rank = none ? 0 : fields.Integer("q_lora_rank", 1, kRankMax, 1536);
  const int64_t plain = fields.Integer("qk_nope_head_dim", 1, kHeadDimMax, 128);
  a.head_dim = plain + rotary_dim;
  if (a.head_dim > kHeadDimMax) {
    fields.Refuse("qk_nope_head_dim", absl::StrCat(plain, " and qk_rope_head_dim = ", rotary_dim,
                                                   " are more than ", kHeadDimMax, " together"));
  }
  fields.MustBe("qk_head_dim", a.head_dim, "it is qk_nope_head_dim and qk_rope_head_dim together");
  a.score_scale = model.ropes[0].score_factor / std::sqrt(static_cast<double>(a.head_dim));
  a.qkv_bias = a.output_bias = fields.Boolean("attention_bias", false);
  if (a.qkv_bias && none) {
    fields.Refuse("attention_bias",
                  "true is not supported where q_lora_rank is null: give one of them");
  }
  return a;
}

ModelDescription DescribeDeepseekV3(JsonFields& fields) {
  const int64_t rotary_dim = fields.Integer("qk_rope_head_dim", 2, kHeadDimMax, 64);
  ModelDescription model = ReadUniformModel(fields, {.vocabulary = 129280,
                                                     .hidden = 7168,
                                                     .intermediate = 18432,
                                                     .layers = 61,
                                                     .heads = 128,
                                                     .kv_heads = 128,
                                                     .head_dim = rotary_dim,
                                                     .max_positions = 4096});
  // transformers writes head_dim, and takes the other key.
  if (model.layers[0].attention.head_dim != rotary_dim) {
    fields.Refuse("head_dim",
                  absl::StrCat(model.layers[0].attention.head_dim,
                               " must be qk_rope_head_dim = ", rotary_dim, ", or be left out"));
  }
  model.ropes = {ReadRope(fields, model)};
  model.ropes[0].interleaved = fields.Boolean("rope_interleave", true);
  const AttentionDescription attention = ReadAttention(fields, model);
  for (LayerDescription& layer : model.layers) layer.attention = attention;
  SetSigmoidExperts(fields,
                    {.count = 256,
                     .chosen = 8,
                     .intermediate = 2048,
                     .groups = 8,
                     .chosen_groups = 4,
                     .scale = 2.5,
                     .dense_layers = 3},
                    model);
  // Keys of the published code. Its auxiliary loss is not trained with, as in transformers.
  (void)fields.Number("aux_loss_alpha", 0.0, 1e6, 0.0);
  (void)fields.Boolean("seq_aux", true);
  fields.MustBe("scoring_func", "sigmoid", "routers of this family take sigmoids");
  fields.MustBe("topk_method", "noaux_tc", "experts are chosen by corrected scores in groups");
  fields.MustBe("moe_layer_freq", 1, "every layer from first_k_dense_replace on has experts");
  fields.MustBe("ep_size", 1, "it is of no use here");
  return model;
}

const ModelFamilyRegistration kDeepseekV3({"deepseek_v3",
                                           "DeepseekV3ForCausalLM",
                                           DescribeDeepseekV3,
                                           {.what = "layers that predict further tokens",
                                            .later_layers_with = "eh_proj.weight",
                                            .count_key = "num_nextn_predict_layers"}});

}  // namespace
}  // namespace megatrain
