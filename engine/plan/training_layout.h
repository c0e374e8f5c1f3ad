// Builds the layout of a model as a job trains it: which tensors are frozen, by the patterns of
// training.freeze, and which have rates of their own, by those of optimizer.groups.
//
// A pattern is one of fnmatch(3) over Hugging Face names: `*` stands for any text, dots included,
// `?` for a character, `[...]` for one of several. A tied matrix has the names of both its ends.
#ifndef MEGATRAIN_ENGINE_PLAN_TRAINING_LAYOUT_H_
#define MEGATRAIN_ENGINE_PLAN_TRAINING_LAYOUT_H_

#include "absl/status/statusor.h"
#include "engine/job/job_spec.h"
#include "engine/model/model_layout.h"

namespace megatrain {

// Returns InvalidArgument, with the key, for a pattern that matches no tensor, and if every tensor
// is frozen. A group must also be the first one for some tensor.
absl::StatusOr<ModelLayout> BuildTrainingLayout(const ModelDescription& config,
                                                const JobSpec& spec);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PLAN_TRAINING_LAYOUT_H_
