#include "engine/job/spec_values.h"

#include "absl/strings/match.h"
#include "engine/job/data_file_keys.h"
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

std::map<std::string, std::string> WithoutPaths(std::map<std::string, std::string> values) {
  values.erase("model.path");
  values.erase("data.cache_directory");
  for (auto& [key, value] : values) {
    if (key == "data.train" || key == "data.eval") value = DataFilesWithoutPaths(value);
    if (key == "data.chat_template" && absl::EndsWith(value, ".jinja")) value = "a .jinja file";
  }
  return values;
}

}  // namespace megatrain
