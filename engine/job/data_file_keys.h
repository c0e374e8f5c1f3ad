// Declares the keys of the entries of data.train and data.eval.
#ifndef MEGATRAIN_ENGINE_JOB_DATA_FILE_KEYS_H_
#define MEGATRAIN_ENGINE_JOB_DATA_FILE_KEYS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/config/config_key.h"
#include "engine/job/job_spec.h"

namespace megatrain {

// Return the values of data.train and data.eval, which are read into `files`. `files` must outlive
// the result. Entries of data.eval may have a name. Rules between entries are not checked here.
ConfigValue TrainFiles(std::vector<DataFile>* files);
ConfigValue EvalFiles(std::vector<DataFile>* files);

// Returns `text`, the canonical text (ConfigValue::text) of such a value, without its paths:
// "[{path(5): a.txt, format: text}]" -> "[{path, format: text}]". If a place in it cannot be
// parsed, the text stays as it is from there on.
std::string DataFilesWithoutPaths(absl::string_view text);

// Returns true for a name of 1 to `bytes_max` letters, digits, '-', '_' and '.' that begins with
// neither '-' nor '.'.
bool IsPlainName(const std::string& name, size_t bytes_max);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_JOB_DATA_FILE_KEYS_H_
