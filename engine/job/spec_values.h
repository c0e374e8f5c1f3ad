// Returns the values of a JobSpec as plain text. Checkpoints keep those that a resumed run may not
// change, and the processes of a job compare those that they must have alike.
#ifndef MEGATRAIN_ENGINE_JOB_SPEC_VALUES_H_
#define MEGATRAIN_ENGINE_JOB_SPEC_VALUES_H_

#include <map>
#include <string>

#include "engine/job/job_spec.h"

namespace megatrain {

// Returns the canonical values (ConfigValue::text) of the keys that a resumed run may not change,
// by key path: {"training.seed", "42"}. (With --allow-change it may change some of them.)
std::map<std::string, std::string> SpecValues(const JobSpec& spec);

// Returns `values`, a result of SpecValues, without the paths in them, so that files may be moved
// between a run and its resumption. Data and chat template are compared by a fingerprint of their
// contents instead (Dataset::fingerprint), and the model by one of its shapes and configuration
// (ModelFingerprint, engine/checkpoint/checkpoint_state.h).
std::map<std::string, std::string> WithoutPaths(std::map<std::string, std::string> values);

// Returns the values of the keys that all processes of a job must have alike, by key path. The
// paths are left out, and so are the keys that a process may have of its own: its device, its
// threads, the rate of its link, and its directories of checkpoints, caches and TensorBoard. Of
// output.directory the result tells only whether it is given.
std::map<std::string, std::string> ValuesOfAllProcesses(const JobSpec& spec);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_JOB_SPEC_VALUES_H_
