// The rule that decides whether a job may resume from a checkpoint.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_RESUME_CHECK_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_RESUME_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/checkpoint/checkpoint_state.h"

namespace megatrain {

// Checks that a job whose fresh state would be `wanted` may resume from `saved`. Returns
// FailedPrecondition, naming the first of these that differs: the model, what a wrapper carries (if
// `saved` has the digest), the precision, the spec keys (all that differ are named), the seed, the
// data. Other fields are not compared.
//
// Spec keys of the sections in `allowed` ("optimizer") may differ. The differences are added to
// `*changes` unless it is null; some may be added before an error too.
absl::Status CheckResumable(const CheckpointState& saved, const CheckpointState& wanted,
                            const std::vector<std::string>& allowed = {},
                            std::vector<AllowedChange>* changes = nullptr);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_RESUME_CHECK_H_
