// A spec as plain values: what a checkpoint remembers, and what a resumed run is compared with.
#ifndef MEGATRAIN_ENGINE_JOB_SPEC_VALUES_H_
#define MEGATRAIN_ENGINE_JOB_SPEC_VALUES_H_

#include <map>
#include <optional>
#include <string>

#include "engine/job/job_spec.h"

namespace megatrain {

// Key path -> canonical value, of every key a resumed run may not change.
std::map<std::string, std::string> SpecValues(const JobSpec& spec);

struct SpecDifference {
  std::string key;
  std::string before;  // "" if the key did not exist
  std::string now;
};

// The first key, in the job file's order, whose value differs; keys a resumed run may change are
// not compared.
std::optional<SpecDifference> FirstDifference(const std::map<std::string, std::string>& before,
                                              const std::map<std::string, std::string>& now);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_JOB_SPEC_VALUES_H_
