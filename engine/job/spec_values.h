// Returns the values of a JobSpec as plain text. Checkpoints keep those that a resumed run may not
// change, and the processes of a job compare those that they must have alike.
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

// Returns the values of the keys that all processes of a job must have alike, by key path. Those
// are all but the paths, and what a process may have of its own: its device, its threads and its
// link. The contents of model, data and template are compared instead, by others; directories of
// checkpoints, caches and TensorBoard are each process' own. output.directory counts only as given
// or not.
std::map<std::string, std::string> ValuesOfAllProcesses(const JobSpec& spec);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_JOB_SPEC_VALUES_H_
