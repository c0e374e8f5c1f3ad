#include "engine/job/spec_values.h"

#include "engine/job/job_keys.h"

namespace megatrain {
std::map<std::string, std::string> SpecValues(const JobSpec& spec) {
  std::map<std::string, std::string> values;
  JobSpec copy = spec;  // keys are bound to what they may write to
  for (const ConfigKey& key : JobKeys(&copy).keys) {
    if (!key.may_change) values[key.path] = key.value.text();
  }
  return values;
}

}  // namespace megatrain
