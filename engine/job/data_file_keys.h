// The entries of data.train and data.eval.
#ifndef MEGATRAIN_ENGINE_JOB_DATA_FILE_KEYS_H_
#define MEGATRAIN_ENGINE_JOB_DATA_FILE_KEYS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/job/job_spec.h"
#include "engine/job/value_error.h"
#include "engine/job/yaml_tree.h"

namespace megatrain {

// "text", "tokens", "alpaca", "messages". Others are refused, those known elsewhere by name.
absl::StatusOr<DataFormat> ParseDataFormat(const std::string& word);
std::string DataFormatName(DataFormat format);

// A list of {path, format, dtype}.
std::optional<ValueError> ReadDataFiles(const YamlNode& node, std::vector<DataFile>* files);

// Canonical text: equal texts mean equal lists.
std::string DataFilesText(const std::vector<DataFile>& files);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_JOB_DATA_FILE_KEYS_H_
