// The values of a spec that a resumed run may not change, as plain text for checkpoints.
#ifndef MEGATRAIN_ENGINE_JOB_SPEC_VALUES_H_
#define MEGATRAIN_ENGINE_JOB_SPEC_VALUES_H_

#include <map>
#include <optional>
#include <string>

#include "engine/job/job_spec.h"

namespace megatrain {

// Returns key path -> canonical value of every key that a resumed run may not change.
std::map<std::string, std::string> SpecValues(const JobSpec& spec);

struct SpecDifference {
  std::string key;
  std::string before;  // "" if the key was missing, like `now`
  std::string now;
};

// Returns the first key, in the job file's order, whose value differs, or nullopt. Keys that a
// resumed run may change are not compared.
std::optional<SpecDifference> FirstDifference(const std::map<std::string, std::string>& before,
                                              const std::map<std::string, std::string>& now);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_JOB_SPEC_VALUES_H_
