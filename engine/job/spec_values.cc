#include "engine/job/spec_values.h"

#include "engine/job/job_keys.h"

namespace megatrain {
namespace {

std::string ValueOrEmpty(const std::map<std::string, std::string>& values, const std::string& key) {
  const auto found = values.find(key);
  return found == values.end() ? "" : found->second;
}

}  // namespace

std::map<std::string, std::string> SpecValues(const JobSpec& spec) {
  std::map<std::string, std::string> values;
  JobSpec copy = spec;  // keys are bound to what they may write to
  for (const ConfigKey& key : JobKeys(&copy).keys) {
    if (!key.may_change) values[key.path] = key.value.text();
  }
  return values;
}

std::optional<SpecDifference> FirstDifference(const std::map<std::string, std::string>& before,
                                              const std::map<std::string, std::string>& now) {
  JobSpec any;  // whose keys are gone through in order
  for (const ConfigKey& key : JobKeys(&any).keys) {
    if (key.may_change) continue;
    SpecDifference difference{key.path, ValueOrEmpty(before, key.path),
                              ValueOrEmpty(now, key.path)};
    if (difference.before != difference.now) return difference;
  }
  return std::nullopt;
}

}  // namespace megatrain
