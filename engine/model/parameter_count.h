// Counts the parameters of a text model.
#ifndef MEGATRAIN_ENGINE_MODEL_PARAMETER_COUNT_H_
#define MEGATRAIN_ENGINE_MODEL_PARAMETER_COUNT_H_

#include <cstdint>

#include "engine/model/model_description.h"

namespace megatrain {

// Returns the number of parameters. A tied matrix counts once. Tensors that are never trained in
// any job (TensorSpec::is_never_trained) and carried tensors (WrapperDescription) do not count.
// REQUIRES, here and below: CheckModel (model_check.h) accepts the model.
int64_t ParameterCount(const ModelDescription& model);

// Returns the number of active parameters. It differs from ParameterCount in that only the chosen
// experts count, and only one row of a per-layer input's table. The embedding counts whole.
int64_t ActiveParameterCount(const ModelDescription& model);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_PARAMETER_COUNT_H_
