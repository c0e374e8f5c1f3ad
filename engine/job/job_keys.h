// Every key of a job file, stated once: its path, type, range, default (JobSpec's own), and whether
// a resumed run may change it. Parsing, overrides, messages, checkpoints' record of the spec and
// the documentation's list all come from this table.
#ifndef MEGATRAIN_ENGINE_JOB_JOB_KEYS_H_
#define MEGATRAIN_ENGINE_JOB_JOB_KEYS_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/job/job_spec.h"
#include "engine/job/value_error.h"
#include "engine/job/yaml_tree.h"

namespace megatrain {

struct JobKey {
  std::string path;     // "training.steps"
  std::string expects;  // "a whole number of 1 or more": completes "expects ..."
  // A resumed run may change it: it decides neither the sequences nor the arithmetic so far.
  bool may_change_on_resume = false;
  // Reads the value of `node` into the spec; what is wrong with it, or nothing.
  std::function<std::optional<ValueError>(const YamlNode& node, JobSpec* spec)> set;
  // The value as canonical text: equal texts mean equal values.
  std::function<std::string(const JobSpec& spec)> get;
};

// In the order of the job file.
const std::vector<JobKey>& JobKeys();

// Paths of keys, and the sections they lie in: for suggestions.
std::vector<std::string> JobKeyPaths();
std::vector<std::string> JobSections();

// The key with this path, or null.
const JobKey* FindJobKey(const std::string& path);

// Whether keys lie beneath this path ("training").
bool IsJobSection(const std::string& path);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_JOB_JOB_KEYS_H_
