// The rule that decides whether a job may resume from a checkpoint.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_RESUME_CHECK_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_RESUME_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/checkpoint/checkpoint_state.h"

namespace megatrain {

// Checks that a job whose fresh state would be `wanted` may resume from `saved`. Spec keys of the
// sections in `allowed` ("optimizer") may differ; the differences are added to `*changes`. Returns
// FailedPrecondition, naming what differs. The order of comparison is the model, what a wrapper
// carries (if `saved` has the digest), the precision, the spec keys (all that differ are named),
// the seed and the data. Other fields are not compared.
absl::Status CheckResumable(const CheckpointState& saved, const CheckpointState& wanted,
                            const std::vector<std::string>& allowed = {},
                            std::vector<AllowedChange>* changes = nullptr);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_RESUME_CHECK_H_
