// Seed-OSS: Llama with biases of queries, keys and values. ByteDance Seed 2025.
#include "engine/hf/config/config_readers.h"
#include "engine/hf/config/model_family.h"

namespace megatrain {
namespace {

ModelDescription DescribeSeedOss(JsonFields& fields) {
  ModelDescription model = ReadUniformModel(fields, {.vocabulary = 155136,
                                                     .hidden = 4096,
                                                     .intermediate = 27648,
                                                     .layers = 64,
                                                     .heads = 80,
                                                     .kv_heads = 8,
                                                     .head_dim = 128,
                                                     .max_positions = 524288,
                                                     .padding_id = 1});
  model.ropes = {ReadRope(fields, model)};
  const bool bias = fields.Boolean("attention_bias", true);
  const bool output_bias = fields.Boolean("attention_out_bias", false);
  for (LayerDescription& layer : model.layers) {
    layer.attention.qkv_bias = bias;
    layer.attention.output_bias = output_bias;
  }
  fields.MustBe("mlp_bias", false, "the MLP has no bias");
  fields.MustBe("residual_dropout", 0.0, "training has no dropout; set it to 0");
  return model;
}

const ModelFamilyRegistration kSeedOss({"seed_oss", "SeedOssForCausalLM", DescribeSeedOss});

}  // namespace
}  // namespace megatrain
