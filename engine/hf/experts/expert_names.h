// SettleExpertNames finds out which of the two ways to store experts a model directory uses.
#ifndef MEGATRAIN_ENGINE_HF_EXPERTS_EXPERT_NAMES_H_
#define MEGATRAIN_ENGINE_HF_EXPERTS_EXPERT_NAMES_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "engine/model/model_description.h"

namespace megatrain {

// Sets the names of experts and router and the ExpertTensors of each layer to those of a directory.
// `has` is asked for names of the text model, such as "model.layers.0.mlp.gate.weight", and returns
// true if the directory has the tensor.
//
// Experts may lie apart (a tensor for each expert) or stacked (one tensor for all of a layer). They
// have the family's name, or `mlp.experts`, as transformers 5 calls them in memory in every family.
// The router has the family's name, or `mlp.gate`. A layer whose experts are not there keeps what
// the family says of experts, and so does a layer whose experts are transposed
// (ExpertsDescription::transposed).
void SettleExpertNames(absl::FunctionRef<bool(const std::string& name)> has,
                       ModelDescription& model);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_EXPERTS_EXPERT_NAMES_H_
