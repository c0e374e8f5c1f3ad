// Refuses descriptions that the layer templates would not compute as described.
#ifndef MEGATRAIN_ENGINE_MODEL_MODEL_CHECK_H_
#define MEGATRAIN_ENGINE_MODEL_MODEL_CHECK_H_

#include "absl/status/status.h"
#include "engine/model/model_description.h"

namespace megatrain {

// Returns InvalidArgument if a layer of `model` has parts or numbers that the layer templates
// cannot compute together, or if there are no layers. The message names the first such layer and
// what does not go together in it. Sizes are not compared with what the kernels of a device take.
// ParseModelDescription checks every description that comes from a config.json, so that a family's
// reader need not know what the templates cannot do.
absl::Status CheckModel(const ModelDescription& model);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_MODEL_CHECK_H_
