// The tensors that a model's files may have although training does without them, as its family
// declares (IgnoredTensors in model_family.h). They are neither read nor written.
#ifndef MEGATRAIN_ENGINE_HF_CONFIG_IGNORED_TENSORS_H_
#define MEGATRAIN_ENGINE_HF_CONFIG_IGNORED_TENSORS_H_

#include <map>
#include <set>
#include <string>

#include "engine/model/model_description.h"

namespace megatrain {

// Returns those of `names` that the family of `model` ignores, each with a pattern of the group
// that it belongs to: "mtp.*", "model.layers.46.*". Returns none for a family that is unknown.
// Names that the wrapper carries are left out. REQUIRES: `names` are the names on disk of all
// tensors of a directory.
std::map<std::string, std::string> FindIgnoredTensors(const ModelDescription& model,
                                                      const std::set<std::string>& names);

// Returns a line for people about the tensors that FindIgnoredTensors finds, "" if there are none.
std::string DescribeIgnoredTensors(const ModelDescription& model,
                                   const std::set<std::string>& names);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_CONFIG_IGNORED_TENSORS_H_
