// ERNIE 4.5, dense: Llama with heads rotated in neighbouring pairs. Baidu 2025.
#include "engine/hf/config/config_readers.h"
#include "engine/hf/config/model_family.h"

namespace megatrain {
namespace {

ModelDescription DescribeErnie45(JsonFields& fields) {
  ModelDescription model = ReadUniformModel(fields, {.vocabulary = 103424,
                                                     .hidden = 1024,
                                                     .intermediate = 3072,
                                                     .layers = 18,
                                                     .heads = 16,
                                                     .kv_heads = 2,
                                                     .head_dim = 128,
                                                     .max_positions = 131072,
                                                     .norm_epsilon = 1e-5,
                                                     .tied_embeddings = true,
                                                     .padding_id = 0});
  model.ropes = {ReadRope(fields, model, {.theta = 500000.0})};
  model.ropes[0].interleaved = true;
  fields.MustBe("use_bias", false, "it gives the MLP biases, and the MLP has none");
  return model;
}

const ModelFamilyRegistration kErnie45({"ernie4_5", "Ernie4_5ForCausalLM", DescribeErnie45});

}  // namespace
}  // namespace megatrain
