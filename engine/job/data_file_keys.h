// The entries of data.train and data.eval.
#ifndef MEGATRAIN_ENGINE_JOB_DATA_FILE_KEYS_H_
#define MEGATRAIN_ENGINE_JOB_DATA_FILE_KEYS_H_

#include <optional>
#include <string>
#include <vector>

#include "engine/job/job_spec.h"
#include "engine/job/value_error.h"
#include "engine/job/yaml_tree.h"

namespace megatrain {

// A list of {path, format, dtype}.
std::optional<ValueError> ReadDataFiles(const YamlNode& node, std::vector<DataFile>* files);

// Canonical text: equal texts mean equal lists.
std::string DataFilesText(const std::vector<DataFile>& files);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_JOB_DATA_FILE_KEYS_H_
