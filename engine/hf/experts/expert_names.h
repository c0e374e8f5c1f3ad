// SettleExpertNames finds out which of the two ways to store experts a model directory uses.
#ifndef MEGATRAIN_ENGINE_HF_EXPERTS_EXPERT_NAMES_H_
#define MEGATRAIN_ENGINE_HF_EXPERTS_EXPERT_NAMES_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "engine/model/model_description.h"

namespace megatrain {

// Sets the experts' and routers' names and ExpertTensors of each layer to those of a directory that
// has the tensors for which `has` returns true. Experts of any family but a transposed one may lie
// apart or stacked there. Stacked, they have the family's name or that of transformers 5 in memory,
// which calls the unit `mlp` in every family and writes back the names that it read. A layer of
// which nothing is there keeps the family's way.
void SettleExpertNames(absl::FunctionRef<bool(const std::string& name)> has,
                       ModelDescription& model);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_EXPERTS_EXPERT_NAMES_H_
