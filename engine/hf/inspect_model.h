// What a HF model directory or a safetensors file holds, for people and for programs.
#ifndef MEGATRAIN_ENGINE_HF_INSPECT_MODEL_H_
#define MEGATRAIN_ENGINE_HF_INSPECT_MODEL_H_

#include <string>

#include "absl/status/statusor.h"

namespace megatrain {

struct ModelReport {
  std::string text;  // lines, the last one ended
  // One object: path, kind (hf_directory | safetensors), files[], parameters, bytes,
  // dtypes{NAME: {tensors, parameters, bytes}}, tensors[{name, dtype, shape, bytes, file}]; a
  // directory also has model{family, hidden, layers, ...}. A tied matrix counts once. A directory
  // without weights has files: [] and the parameters that config.json asks for.
  std::string json;
};

// `path`: a directory with config.json, or a .safetensors file. Reads headers, no data. A directory
// whose weights do not fit its config.json is an error, as in training.
absl::StatusOr<ModelReport> InspectModel(const std::string& path);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_INSPECT_MODEL_H_
