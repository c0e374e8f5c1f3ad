// Phi 3 and 4: Llama whose tensors are fused on disk, with partial rotation and longrope in some.
// Abdin et al. 2024.
#include "engine/hf/config/config_readers.h"
#include "engine/hf/config/model_family.h"

namespace megatrain {
namespace {

ModelDescription DescribePhi3(JsonFields& fields) {
  ModelDescription model = ReadUniformModel(fields, {.vocabulary = 32064,
                                                     .hidden = 3072,
                                                     .intermediate = 8192,
                                                     .layers = 32,
                                                     .heads = 32,
                                                     .max_positions = 4096,
                                                     .norm_epsilon = 1e-5,
                                                     .padding_id = 32000});
  model.ropes = {ReadRope(fields, model, {.rotary_fraction = 1.0, .original_positions = 4096})};
  const RopeType type = model.ropes[0].type;
  if (type != RopeType::kDefault && type != RopeType::kLongrope) {
    fields.Refuse(fields.Has("rope_scaling") ? "rope_scaling" : "rope_parameters",
                  "this family has longrope alone");
  }
  fields.MustBe("full_attn_mod", 1, "every layer has full attention");
  fields.MustBe("interpolate_factor", 1, "positions are not interpolated");
  const int64_t window = ReadWindow(fields, 0);
  for (LayerDescription& layer : model.layers) {
    layer.attention.fused_qkv = layer.feed_forward.fused_gate_up = true;
    layer.attention.window = window;
  }
  for (const char* key : {"resid_pdrop", "embd_pdrop"}) {
    fields.MustBe(key, 0.0, "training has no dropout; set it to 0");
  }
  fields.MustBe("attention_bias", false, "the projections have no bias");
  fields.MustBe("lm_head_bias", false, "the head has no bias");
  fields.MustBe("mlp_bias", false, "the MLP has no bias");
  return model;
}

const ModelFamilyRegistration kPhi3({"phi3", "Phi3ForCausalLM", DescribePhi3});

}  // namespace
}  // namespace megatrain
