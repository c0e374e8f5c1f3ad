// Mixtral: Mistral whose layers have eight experts in the place of one MLP, of which a token goes
// to two. Jiang et al. 2024.
#include "engine/hf/config/config_readers.h"
#include "engine/hf/config/model_family.h"

namespace megatrain {
namespace {

ModelDescription DescribeMixtral(JsonFields& fields) {
  ModelDescription model = ReadUniformModel(fields, {.vocabulary = 32000,
                                                     .hidden = 4096,
                                                     .intermediate = 14336,
                                                     .layers = 32,
                                                     .heads = 32,
                                                     .kv_heads = 8,
                                                     .max_positions = 131072,
                                                     .norm_epsilon = 1e-5});
  model.ropes = {ReadRope(fields, model, {.theta = 1000000.0})};
  const int64_t window = ReadWindow(fields, 0);
  for (LayerDescription& layer : model.layers) layer.attention.window = window;
  ExpertsDescription experts = ReadExperts(
      fields, model,
      {.count = 8, .chosen = 2, .intermediate = 14336, .intermediate_key = "intermediate_size"});
  experts.name = "block_sparse_moe.experts";
  experts.gate_name = "w1";
  experts.up_name = "w3";
  experts.down_name = "w2";
  experts.router.name = "block_sparse_moe.gate";
  SetExperts(
      fields, "num_local_experts", experts, [](int64_t) { return true; }, model);
  fields.MustBe("router_jitter_noise", 0.0, "routers see their input without noise; set it to 0");
  fields.MustBe("attention_bias", false, "the projections have no bias");
  return model;
}

const ModelFamilyRegistration kMixtral({"mixtral", "MixtralForCausalLM", DescribeMixtral});

}  // namespace
}  // namespace megatrain
