// Builds the layout of a model as a job trains it. The patterns of training.freeze say which
// tensors are frozen. Those of optimizer.groups say which tensors have a learning rate or weight
// decay of their own; if several match a tensor, the first one counts.
//
// A pattern is one of fnmatch(3) over the names of tensors in transformers' text models
// (TensorSpec::name), also if a wrapper names them otherwise on disk. `*` stands for any text, dots
// included, `?` for a character, `[...]` for one of several. A tied matrix has the names of both
// its ends.
#ifndef MEGATRAIN_ENGINE_PLAN_TRAINED_TENSORS_H_
#define MEGATRAIN_ENGINE_PLAN_TRAINED_TENSORS_H_

#include "absl/status/statusor.h"
#include "engine/job/job_spec.h"
#include "engine/model/model_layout.h"

namespace megatrain {

// Returns the layout. Returns InvalidArgument, naming the key, for a pattern that matches no tensor
// that may be trained, for a group all of whose tensors are frozen or belong to earlier groups, and
// if every tensor is frozen. REQUIRES: CheckModel (model_check.h) accepts `config`.
absl::StatusOr<ModelLayout> BuildTrainingLayout(const ModelDescription& config,
                                                const JobSpec& spec);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PLAN_TRAINED_TENSORS_H_
