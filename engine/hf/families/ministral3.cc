// Ministral 3: Mistral with yarn and queries that grow with the position beyond the original
// context. Mistral 2025.
#include "engine/hf/config/config_readers.h"
#include "engine/hf/config/model_family.h"

namespace megatrain {
namespace {

ModelDescription DescribeMinistral3(JsonFields& fields) {
  ModelDescription model = ReadUniformModel(fields, {.vocabulary = 131072,
                                                     .hidden = 4096,
                                                     .intermediate = 14336,
                                                     .layers = 34,
                                                     .heads = 32,
                                                     .kv_heads = 8,
                                                     .head_dim = 128,
                                                     .max_positions = 262144,
                                                     .norm_epsilon = 1e-5,
                                                     .padding_id = 11});
  RopeDefaults defaults;
  defaults.position_scale = true;
  defaults.absent.type = RopeType::kYarn;
  defaults.absent.theta = 1000000.0;
  defaults.absent.factor = 16.0;
  defaults.absent.original_positions = 16384;
  defaults.absent.attention_factor = 1.0;  // mscale over mscale_all_dim
  defaults.absent.position_scale = 0.1;
  const RopeConfig queries = ReadRope(fields, model, defaults);
  if (queries.position_scale <= 0) {
    fields.Refuse("rope_parameters", "llama_4_scaling_beta is missing");
  }
  RopeConfig keys = queries;
  keys.position_scale = 0;
  model.ropes = {keys, queries};
  const int64_t window = ReadWindow(fields, 0);
  for (LayerDescription& layer : model.layers) {
    layer.attention.query_rope = 1;
    layer.attention.window = window;
  }
  fields.MustBe("attention_bias", false, "the projections have no bias");
  // transformers does not look at it: the window is every layer's.
  fields.Find("layer_types");
  return model;
}

const ModelFamilyRegistration kMinistral3({"ministral3", "Ministral3ForCausalLM",
                                           DescribeMinistral3});

}  // namespace
}  // namespace megatrain
