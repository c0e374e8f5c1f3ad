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
  for (const JobKey& key : JobKeys()) {
    if (!key.may_change_on_resume) values[key.path] = key.get(spec);
  }
  return values;
}

std::optional<SpecDifference> FirstDifference(const std::map<std::string, std::string>& before,
                                              const std::map<std::string, std::string>& now) {
  for (const JobKey& key : JobKeys()) {
    if (key.may_change_on_resume) continue;
    SpecDifference difference{key.path, ValueOrEmpty(before, key.path),
                              ValueOrEmpty(now, key.path)};
    if (difference.before != difference.now) return difference;
  }
  return std::nullopt;
}

}  // namespace megatrain
