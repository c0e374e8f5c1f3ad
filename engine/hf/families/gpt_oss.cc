// gpt-oss: a sink of each head in the softmax of attention, windows in every other layer, experts
// with biases and a clamped gate, and routers that take the softmax of the chosen logits alone.
// OpenAI 2025.
#include "engine/hf/config/config_readers.h"
#include "engine/hf/config/model_family.h"

namespace megatrain {
namespace {

// Experts with biases, chosen by their logits.
ExpertsDescription ReadGptOssExperts(JsonFields& fields, const ModelDescription& model) {
  ExpertsDescription experts = ReadExperts(
      fields, model,
      {.count = 128, .chosen = 4, .intermediate = 2880, .intermediate_key = "intermediate_size"});
  fields.MustBe("experts_per_token", experts.chosen, "num_experts_per_tok differs from it");
  experts.activation = GluActivation::kClampedSilu;
  experts.limit = fields.Number("swiglu_limit", 1e-6, 1e6, 7.0);
  experts.slope = fields.Number("swiglu_alpha", 1e-6, 1e6, 1.702);
  experts.bias = true;
  experts.tensors = ExpertTensors::kTransposed;
  experts.router.scores = RouterScores::kSoftmaxOfChosen;
  experts.router.normalized = false;  // the softmax is
  experts.router.bias = true;
  experts.router.name = "mlp.router";
  return experts;
}

ModelDescription DescribeGptOss(JsonFields& fields) {
  ModelDescription model = ReadUniformModel(fields, {.vocabulary = 201088,
                                                     .hidden = 2880,
                                                     .intermediate = 2880,
                                                     .layers = 36,
                                                     .heads = 64,
                                                     .kv_heads = 8,
                                                     .head_dim = 64,
                                                     .max_positions = 131072,
                                                     .norm_epsilon = 1e-5});
  fields.MustBe("hidden_act", "silu", "the experts' gate is a clamped SiLU");
  RopeDefaults rope;
  rope.theta = 150000.0;
  rope.absent.type = RopeType::kYarn;
  rope.absent.theta = fields.Number("rope_theta", 1.0, 1e15, rope.theta);
  rope.absent.factor = 32.0;
  rope.absent.original_positions = 4096;
  rope.absent.truncate = false;
  model.ropes = {ReadRope(fields, model, rope)};
  fields.Find("initial_context_length");  // rope's original_max_position_embeddings counts
  const bool bias = fields.Boolean("attention_bias", true);
  for (LayerDescription& layer : model.layers) {
    layer.attention.sinks = true;
    layer.attention.qkv_bias = layer.attention.output_bias = bias;
  }
  const int64_t window = ReadWindow(fields, 128);
  const std::vector<bool> slides =
      ReadSlidingLayers(fields, model.layer_count(), [](int64_t layer) { return layer % 2 == 0; });
  SetSlidingLayers(fields, slides, window, /*rope=*/0, model);
  SetExperts(
      fields, "num_local_experts", ReadGptOssExperts(fields, model), [](int64_t) { return true; },
      model);
  return model;
}

const ModelFamilyRegistration kGptOss({"gpt_oss", "GptOssForCausalLM", DescribeGptOss});

}  // namespace
}  // namespace megatrain
