#include "engine/job/spec_values.h"

#include <utility>

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

std::map<std::string, std::string> ValuesOfAllProcesses(const JobSpec& spec) {
  constexpr const char* kOfOneProcess[] = {
      "checkpoint.directory", "report.tensorboard",    "engine.device",
      "engine.threads",       "engine.update_threads", "engine.link_gigabytes_per_second"};
  std::map<std::string, std::string> values;
  JobSpec copy = spec;
  for (const ConfigKey& key : JobKeys(&copy).keys) values[key.path] = key.value.text();
  for (const char* const key : kOfOneProcess) values.erase(key);
  // All take part in the export, if there is one.
  if (std::string& output = values["output.directory"]; !output.empty()) output = "a path";
  return WithoutPaths(std::move(values));
}

}  // namespace megatrain
