// Mistral: Llama with a window in every layer unless it is switched off. Jiang et al. 2023.
#include <vector>

#include "engine/hf/config/config_readers.h"
#include "engine/hf/config/model_family.h"

namespace megatrain {
namespace {

ModelDescription DescribeMistral(JsonFields& fields) {
  ModelDescription model = ReadUniformModel(fields, {.vocabulary = 32000,
                                                     .hidden = 4096,
                                                     .intermediate = 14336,
                                                     .layers = 32,
                                                     .heads = 32,
                                                     .kv_heads = 8,
                                                     .max_positions = 131072});
  model.ropes = {ReadRope(fields, model)};
  const int64_t window = ReadWindow(fields, 4096);
  // transformers takes a config.json with layer_types for one of its class Ministral.
  const std::vector<bool> slides =
      ReadSlidingLayers(fields, model.layer_count(), [](int64_t) { return true; });
  if (window > 0) SetSlidingLayers(fields, slides, window, /*rope=*/0, model);
  fields.MustBe("attention_bias", false, "the projections have no bias");
  return model;
}

const ModelFamilyRegistration kMistral({"mistral", "MistralForCausalLM", DescribeMistral});

}  // namespace
}  // namespace megatrain
