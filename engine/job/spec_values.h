// The values of a spec that a resumed run may not change, as plain text for checkpoints.
#ifndef MEGATRAIN_ENGINE_JOB_SPEC_VALUES_H_
#define MEGATRAIN_ENGINE_JOB_SPEC_VALUES_H_

#include <map>
#include <string>

#include "engine/job/job_spec.h"

namespace megatrain {

// Returns the canonical values of the keys that a resumed run may not change, by key path.
std::map<std::string, std::string> SpecValues(const JobSpec& spec);

// Returns `values`, of SpecValues, without the paths in them. What paths lead to is compared by
// fingerprints of the contents, so that files may be moved between a run and its resumption.
std::map<std::string, std::string> WithoutPaths(std::map<std::string, std::string> values);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_JOB_SPEC_VALUES_H_
