#include "engine/model/parameter_count.h"

#include "engine/model/model_layout.h"

namespace megatrain {

int64_t ParameterCount(const ModelDescription& model) { return BuildModelLayout(model).parameters; }

int64_t ActiveParameterCount(const ModelDescription& model) {
  int64_t idle = 0;
  for (const LayerDescription& layer : model.layers) {
    const ExpertsDescription& e = layer.experts;
    const int64_t biases = e.bias ? 2 * e.intermediate + model.hidden : 0;
    idle += (e.count - e.chosen) * (3 * model.hidden * e.intermediate + biases);
    if (const PerLayerInputDescription& p = layer.per_layer_input; p.width > 0) {
      idle += (p.vocabulary - 1) * p.width;
    }
  }
  return ParameterCount(model) - idle;
}

}  // namespace megatrain
